"""Rank sides by their scores in one metric; sides that cannot be told apart share a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from benchmarker.comparing.results import GeometricMean

if TYPE_CHECKING:
    from benchmarker.procurement.sides import Pair

BETTER = ("faster", "better")
WORSE = ("slower", "worse")


class Place(Struct, frozen=True, kw_only=True):
    """The place of one side: 1 plus the number of sides that are better according to their verdict.

    `mean` is its score over the baseline; null for the baseline itself. `ties` names the sides that it cannot be told
    apart from: the verdict on the two is same or undecided. `rank` is null if the side has no score.
    """

    side: str
    rank: int | None
    mean: GeometricMean | None
    ties: list[str]


class MetricRanking(Struct, frozen=True, kw_only=True):
    """The places in one metric, the best first, and the means of every two sides: above 1, the contender is better."""

    metric: str
    places: list[Place]
    pairs: list[GeometricMean]


def rank(metric: str, names: Sequence[str], means: Mapping[Pair, GeometricMean | None]) -> MetricRanking:
    """Rank sides by the mean of every two of them, of which the first is the baseline.

    With verdicts corrected for all pairs, a side is ranked too low only if a verdict is wrong. Ties need not be
    transitive: of three sides, the first may be better than the third, and neither be told apart from the second.
    """
    ratios = {0: 1.0} | {two: mean.ratio for (one, two), mean in means.items() if one == 0 and mean}
    ranked = ratios if len(ratios) > 1 else {}
    better: dict[int, int] = dict.fromkeys(ranked, 0)
    ties: dict[int, list[str]] = {index: [] for index in ranked}
    for (one, two), mean in means.items():
        if one not in ranked or two not in ranked:
            continue
        if mean and mean.verdict in BETTER:
            better[one] += 1
        elif mean and mean.verdict in WORSE:
            better[two] += 1
        else:
            ties[one].append(names[two])
            ties[two].append(names[one])
    order = sorted(ranked, key=lambda index: (better[index], -ratios[index]))
    places = [
        Place(
            side=names[index],
            rank=1 + better[index] if index in ranked else None,
            mean=means[0, index] if index else None,
            ties=ties.get(index, []),
        )
        for index in [*order, *(index for index in range(len(names)) if index not in ranked)]
    ]
    return MetricRanking(metric=metric, places=places, pairs=[mean for mean in means.values() if mean])
