"""What a comparison says: the words and values that commands print and others read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from benchmarker.records.configurations import Value
from benchmarker.stats.classical import Description, RankSum

Method = Literal["paired", "unpaired", "blocks of one process as if independent", "none"]
Verdict = Literal["faster", "slower", "better", "worse", "same", "undecided"]
Level = Literal["trial", "scope", "kernel"]

METHODS: dict[Method, str] = {
    "paired": "paired by round: exact signed-rank test, Hodges-Lehmann ratio, interval from Walsh averages",
    "unpaired": "unpaired: Mann-Whitney test and its Hodges-Lehmann ratio; not interleaved: assumes that nothing "
    "drifted from the one side's trials to the other's",
    "blocks of one process as if independent": "every timed block as if independent, as asked; blocks of one process "
    "are not, and this calls equal configurations different in half of all cases or more",
    "none": "no test: with a single process on a side, or none, the spread between processes cannot be seen",
}
STEP_TIME = "step_time_median_s"
PROFILED: dict[Level, str] = {"scope": "scope_time_median_s", "kernel": "kernel_time_median_s"}
"""What is compared within a step."""
DELTAS: dict[Level, float] = {"trial": 0.02, "scope": 0.05, "kernel": 0.05}


@dataclass(frozen=True, slots=True)
class Rules:
    """What is compared and how it is judged: α, and δ, the largest change that counts as none (a share)."""

    metric: str = STEP_TIME
    alpha: float = 0.05
    delta: float = DELTAS["trial"]
    blocks_as_trials: bool = False
    level: Level = "trial"


class Comparison(Struct, frozen=True, kw_only=True):
    """What two sides' trials say: contender over baseline, of one metric.

    `baseline_trials` and `contender_trials` hold each trial's value by its id. The interval has the level `level`;
    `p_value` is two-sided, `p_adjusted` the same after correction for looks and for all comparisons made together,
    which the verdict goes by. `probability_lower` is the chance that the contender's value is the lower one of a
    block, or of two trials. `process_deviation` is the spread between processes (standard deviation of the logarithm);
    `design_effect`, by how much the variance of a process's mean exceeds what its blocks would give were they
    independent. `enough` is how many rounds (or trials a side) would likely decide.
    `timed_blocks` is null where what is compared was profiled, not timed.
    """

    case: dict[str, Value]
    baseline: str
    contender: str
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    method: Method
    trials: tuple[int, int]
    baseline_trials: dict[str, float]
    contender_trials: dict[str, float]
    rounds: int | None
    timed_blocks: float | None
    baseline_value: float | None
    contender_value: float | None
    ratio: float | None
    low: float | None
    high: float | None
    level: float
    p_value: float | None
    p_adjusted: float | None
    p_same: float | None
    delta: float
    probability_lower: float | None
    process_deviation: float | None
    design_effect: float | None
    low_noise_ratio: float | None
    verdict: Verdict
    enough: int | None
    notes: list[str]


class GeometricMean(Struct, frozen=True, kw_only=True):
    """Contender over baseline, over all cases of a family: the geometric mean of the ratios, and its interval."""

    baseline: str
    contender: str
    cases: int
    better: Literal["higher", "lower"]
    method: str
    ratio: float
    low: float | None
    high: float | None
    level: float
    p_adjusted: float | None
    verdict: Verdict


class Family(Struct, frozen=True, kw_only=True):
    """Comparisons made together, their geometric means, what could not be compared, and notes on all of it."""

    comparisons: list[Comparison]
    geometric_means: list[GeometricMean]
    unmatched: list[str]
    notes: list[str] = []


class Classical(Struct, frozen=True, kw_only=True):
    """Step times of all timed blocks, s, described and tested the classical way, the baseline first."""

    case: dict[str, Value]
    baseline: str
    contender: str
    baseline_blocks: Description
    contender_blocks: Description
    rank_sum: RankSum
