"""The results of a comparison: the terms and values that commands print and other programs read."""

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from benchmarker.records.factors import Value
from benchmarker.records.step_times import STEP_TIME
from benchmarker.stats.classical import Description, RankSum

Method = Literal[
    "paired", "paired by block", "unpaired", "unpaired by run", "blocks of one process as if independent", "none"
]
Verdict = Literal["faster", "slower", "better", "worse", "same", "undecided"]
Level = Literal["trial", "scope", "kernel"]

METHODS: dict[Method, str] = {
    "paired": "paired by round: exact signed-rank test, Hodges-Lehmann ratio, interval from Walsh averages",
    "paired by block": "paired by blocks that took turns in one process, in up to 20 groups of successive pairs: exact "
    "signed-rank test over the groups, Hodges-Lehmann ratio, interval from Walsh averages",
    "unpaired": "unpaired, one run a side: Mann-Whitney test and its Hodges-Lehmann ratio, over trials; the sides were "
    "not interleaved, so changes between the runs are not in the interval",
    "unpaired by run": "unpaired, several runs: a run is one value, the median over its trials; Welch's t test and "
    "interval over runs (a single run is taken to vary as the other side's runs do)",
    "blocks of one process as if independent": "every timed block treated as independent, as requested; blocks of one "
    "process are not independent, and this calls equal configurations different in half of all cases or more",
    "none": "no test: a side has fewer than two processes, so the variation between processes is unknown",
}
PROFILED: dict[Level, str] = {"scope": "scope_time_median_s", "kernel": "kernel_time_median_s"}
"""The metric that is compared at each level within a step."""
DELTAS: dict[Level, float] = {"trial": 0.02, "scope": 0.05, "kernel": 0.05}


@dataclass(frozen=True, slots=True)
class Rules:
    """What is compared and how it is judged: α, and δ, the largest relative change that counts as no difference."""

    metric: str = STEP_TIME
    alpha: float = 0.05
    delta: float = DELTAS["trial"]
    blocks_as_trials: bool = False
    level: Level = "trial"


class Comparison(Struct, frozen=True, kw_only=True):
    """A comparison of two sides in one metric, as the ratio contender over baseline.

    `case` holds the factors that distinguish it from other comparisons; `name` says them in words, but for the scope,
    phase and kernel of a part of a step. `baseline_trials` and `contender_trials` hold each trial's value by its id.
    `runs` are the numbers of runs of both sides; each session of a run that was spread over time is one. `level` is the
    confidence level of the interval. `p_value` is two-sided; `p_adjusted` is corrected for looks and for all
    comparisons made together, and decides the verdict. `probability_lower` is the probability that the contender's
    value is the lower one of a round, or of two trials (or runs). `process_deviation` is the standard deviation of the
    logarithm between processes. `design_effect` is the factor by which the variance of a process's mean exceeds that of
    independent blocks. `enough` is the number of rounds (or trials, or runs per side) that would likely decide. `looks`
    are the numbers of rounds after which the run could stop early, for which intervals are wider. `timed_blocks` is
    null if the compared values come from a profile. `provisional` is the reason if the verdict is provisional: a
    process of the user measured, most trials of a side were disturbed, or a side that was not interleaved has one run.
    `execution` says that one side compiles its steps and the other does not, and what compiles them; it is empty if
    both do the same. `refused` says that the time of a program is mostly that of starting a process, so that there is
    no ratio and no verdict; it is empty if that is not so. `explanation` says which parts of a step account for the
    difference of step times, if both sides were profiled.
    """

    case: dict[str, Value]
    name: str
    baseline: str
    contender: str
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    method: Method
    trials: tuple[int, int]
    runs: tuple[int, int]
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
    provisional: str | None
    execution: str = ""
    refused: str = ""
    explanation: str = ""
    enough: int | None
    looks: list[int]
    notes: list[str]


class GeometricMean(Struct, frozen=True, kw_only=True):
    """The geometric mean of the ratios contender over baseline, over all cases of a family, with its interval.

    `provisional`, `execution`, `enough` and `runs` are those of a comparison; if runs are the unit, those without every
    case are not counted.
    """

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
    provisional: str | None
    execution: str = ""
    enough: int | None
    runs: tuple[int, int]
    notes: list[str]


class Family(Struct, frozen=True, kw_only=True):
    """Comparisons made together, their geometric means, configurations without a counterpart, and general notes.

    `shared` says in words what all cases have in common.
    """

    comparisons: list[Comparison]
    geometric_means: list[GeometricMean]
    unmatched: list[str]
    notes: list[str] = []
    shared: str = ""


class Classical(Struct, frozen=True, kw_only=True):
    """Classical statistics of the step times, s, of all timed blocks; the rank-sum test compares them."""

    case: dict[str, Value]
    name: str
    baseline: str
    contender: str
    baseline_blocks: Description
    contender_blocks: Description
    rank_sum: RankSum
