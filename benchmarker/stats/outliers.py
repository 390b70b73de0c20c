"""Which units of many are outliers: two stages with data of their own, so that false alarms stay rare.

The first stage picks suspects, liberally: units whose level is far from the median of all. It decides nothing, so it
may err as often as it likes. The second stage measures the suspects anew, together with controls: units near the
median, which of few units are all others. Its data alone decide, by the sign test: if a suspect's true shift against
the controls is within the margin, each round exceeds the margin with a probability of at most 1/2, whatever the
distribution of the noise, so all of n rounds do with at most 2**-n. Rounds are differences of what was measured at the
same time, so a drift of all units cancels. Holm's correction over the suspects then bounds the probability that any
unit is called unlike wrongly.

Rank tests that pool the rounds of all controls would need fewer rounds. But they assume that a suspect scatters no more
than the controls, and a unit that scatters more is a suspect more often.

Sources: sign test: Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3rd edition (2014), section 3.4.
Separate data for screening and for confirmation: Cox, A note on data-splitting for the evaluation of significance
levels, Biometrika 62 (1975).
"""

import math
import warnings
from collections.abc import Collection, Sequence
from statistics import NormalDist

import numpy as np

from benchmarker.stats.median_interval import median_shift
from benchmarker.stats.shift import Shift

EXPECTED = 2.0
"""Units of each column that equal, normal ones make suspects on either side, however many there are."""
NORMAL_PER_MAD = 1 / NormalDist().inv_cdf(0.75)
"""Standard deviation of normal values over their median absolute deviation."""
LEAST_NODES = 3
"""Of two nodes, none is the one that is unlike the others."""
CONTRADICTIONS = 2
"""Rounds of a suspect that may contradict the others, such as those in which the controls were disturbed."""
MOST_CONTROLS = 64
"""Most control nodes, unless there are more suspects.

With 16 of 64 nodes that differ by up to δ, nodes were named wrongly in 6% of fleets (simulated): so few controls may
lie to one side of the median.
"""


def shifts(levels: np.ndarray) -> np.ndarray:
    """Return levels (units x columns, NaN where there is none) less the median of their column."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without any level
        return np.asarray(levels - np.nanmedian(levels, axis=0))


def spreads(levels: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the levels of each column, robustly: from their median absolute deviation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(NORMAL_PER_MAD * np.nanmedian(np.abs(shifts(levels)), axis=0))


def scores(levels: np.ndarray, margin: float) -> np.ndarray:
    """Return the shift of each level over the limit of its column; beyond ±1 it is suspicious, NaN if there is none.

    The limit is half of the margin, or what EXPECTED units of as many normal ones exceed, whichever is larger.
    """
    found = shifts(levels)
    number = np.sum(~np.isnan(found), axis=0)
    quantile = np.array([NormalDist().inv_cdf(1 - min(0.5, EXPECTED / max(1, each))) for each in number])
    return np.asarray(found / np.fmax(margin / 2, quantile * spreads(levels)))


def suspects(found: np.ndarray, nodes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the suspicious (unit, column) of scores; `nodes` is the number of the node of each unit.

    At most half of the nodes are suspects: those with the highest scores. There is none among fewer than LEAST_NODES.
    """
    distinct = set(nodes)
    if len(distinct) < LEAST_NODES:
        return []
    most = len(distinct) // 2
    cells = [(int(unit), int(column)) for unit, column in np.argwhere(np.abs(found) > 1)]
    cells.sort(key=lambda cell: -abs(found[cell]))
    chosen = list(dict.fromkeys(nodes[unit] for unit, _ in cells))[:most]
    return [(unit, column) for unit, column in cells if nodes[unit] in chosen]


def controls(found: np.ndarray, nodes: Sequence[int], suspected: Collection[int]) -> list[int]:
    """Return the nodes that are not `suspected` and whose largest score is nearest to 0: as many, or MOST_CONTROLS."""
    largest: dict[int, float] = {}
    for unit, node in enumerate(nodes):
        known = np.abs(found[unit][~np.isnan(found[unit])])
        if node not in suspected and len(known):
            largest[node] = max(largest.get(node, 0.0), float(known.max()))
    return sorted(largest, key=lambda node: largest[node])[: max(MOST_CONTROLS, len(suspected))]


def references(node: int, chosen: Sequence[int], suspected: Collection[int], number: int) -> list[int]:
    """Return the nodes against which one is judged: the `chosen` controls.

    If these and the suspects are all nodes, of which there are that `number`, it is all others. Of so few nodes, the
    controls may lie on one side of the median.
    """
    known = {*chosen, *suspected} if len({*chosen, *suspected}) == number else {*chosen}
    return sorted(known - {node})


def shift_of(suspect: np.ndarray, reference: np.ndarray) -> Shift | None:
    """Return the shift of a suspect (its rounds) against controls (units x rounds); NaN where there is no value.

    It is that of the sign test, of the rounds that both have. None if there is no such round.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        differences = suspect - np.nanmedian(reference, axis=0)
    known = differences[~np.isnan(differences)]
    return median_shift(known) if len(known) else None


def fewest_rounds(tests: int, alpha: float) -> int:
    """Return the fewest rounds with which each of so many suspicions can be confirmed: each has p = 2**-n at least."""
    rounds = 1
    while 2.0**-rounds * tests > alpha:
        rounds += 1
    return rounds


def enough_rounds(tests: int, alpha: float) -> int:
    """Return the rounds that confirm each of so many suspicions even if CONTRADICTIONS of its rounds were disturbed."""
    rounds = CONTRADICTIONS + 1
    while sum(math.comb(rounds, count) for count in range(CONTRADICTIONS + 1)) * 2.0**-rounds * tests > alpha:
        rounds += 1
    return rounds
