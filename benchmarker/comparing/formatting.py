"""Comparisons as text: the verdict in a plain sentence, and the details of its test.

A percentage agrees with the ratio that stands beside it, or with its inverse. Of times it is that of the larger over
the smaller: *44% longer* is B/A 1.44, *44% faster* is A/B 1.44, so where B is 44% faster, A takes 44% longer. Rates and
other values are compared as they are: *30% slower* is 0.7 times the rate, *30% lower* is 0.7 times the value.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarker.comparing.results import Comparison, GeometricMean, Method, Verdict
from benchmarker.formatting import decimals, rounded
from benchmarker.formatting import sentence as capitalised

FACTOR = 2.0
"""From this ratio on, or below its inverse, a factor is easier to read than a percentage."""
LOPSIDED = 1.25
"""An interval is written as ± if its longer side is at most this many times the shorter one."""
TINY = 5e-5
"""A difference that no figure shows."""

ONE_RUN = "one run a side, not interleaved: changes between the runs are not in the interval"
ONE_PROCESS = "one process samples neither memory layout, nor allocation, nor compilation"
DOUBTS: dict[Method, str] = {
    "unpaired": ONE_RUN,
    "blocks of one process as if independent": "timed blocks were counted as independent, as requested; they are not, "
    "and this calls equal configurations different in half of all cases or more",
    "none": "a side has fewer than two processes, so the variation between processes is unknown",
}
"""Why one may doubt a method."""


FROM_PAIRS = "is computed from pairs of trials and is not the quotient of the medians"
"""What a ratio B/A is."""
_INFINITIVES = {"is": "be", "takes": "take"}


def few_runs(method: str, runs: tuple[int, int]) -> str | None:
    """Return why the interval of unpaired sides with these numbers of runs may be too narrow; None if it is not."""
    if not method.startswith("unpaired"):
        return None
    if method.startswith("unpaired by run"):
        return "one run of a side: it is assumed to vary as the other side's runs do" if min(runs) == 1 else None
    return ONE_RUN if max(runs) == 1 else "no run has all cases: changes between the runs are not in the interval"


@dataclass(frozen=True, slots=True)
class Words:
    """How a change above 1 and one below are put: `is 27% faster than`, `is 27% slower than`, `is 3.1x as fast as`.

    `above` and `below` are a verb and an adjective. If `inverts`, a change below 1 is said by its inverse: 0.8 is `25%
    longer`, not 20%.
    """

    above: tuple[str, str]
    below: tuple[str, str]
    times: str
    link: str
    most: str
    inverts: bool = False

    def of(self, ratio: float) -> tuple[str, str]:
        """Return the verb and the adjective of a change."""
        return self.above if ratio >= 1 else self.below


SPEED = Words(("is", "faster"), ("is", "slower"), "x as fast", " as ", "fastest")
VALUE = Words(("is", "higher"), ("is", "lower"), "x", " ", "highest")
SCORE = Words(("is", "better"), ("is", "worse"), "x as good", " as ", "best")
_FASTER = Words(("is", "faster"), ("takes", "longer"), "x as fast", " as ", "fastest", inverts=True)
_LONGER = Words(("takes", "longer"), ("is", "faster"), "x as long", " as ", "longest", inverts=True)
"""Words of speed for a metric that is a time, of a side that is faster and of one that is not."""


def words_of(unit: str, others: Words = SCORE) -> Words:
    """Return the words for changes of a metric by its unit: times and rates have those of speed."""
    return SPEED if unit == "s" or unit.endswith("/s") else others


def better_and_worse(unit: str) -> tuple[Verdict, Verdict]:
    """Return the verdicts on a contender with a better and a worse value of a metric, by its unit."""
    return ("faster", "slower") if words_of(unit) is SPEED else ("better", "worse")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a verdict is about: the metric, the words for its changes, and δ, the change that counts as none."""

    metric: str
    words: Words
    delta: float

    @classmethod
    def of(cls, each: Comparison) -> Terms:
        """Return the terms of a comparison; times and rates have the words of speed."""
        return cls(each.metric, words_of(each.unit, VALUE), each.delta)


@dataclass(frozen=True, slots=True)
class Change:
    """The contender relative to the baseline: the ratio that the words are about, with its interval if it has one.

    Of a time, it is that of the speed if the contender is faster, and otherwise that of the time.
    """

    ratio: float
    low: float | None
    high: float | None
    words: Words

    @classmethod
    def of(cls, each: Comparison | GeometricMean, words: Words) -> Change | None:
        """Return the change; None if it is unknown."""
        if each.ratio is None:
            return None
        if words is not SPEED or each.better == "higher":
            return cls(each.ratio, each.low, each.high, words)
        return cls.of_time(each.ratio, each.low, each.high)

    @classmethod
    def of_time(cls, ratio: float, low: float | None, high: float | None) -> Change:
        """Return the change of a time, given its ratio and the ends of the interval of that."""
        if ratio > 1:
            return cls(ratio, low, high, _LONGER)
        low, high = (None if end is None else 1 / end for end in (high, low))
        return cls(1 / ratio, low, high, _FASTER)

    def amount(self) -> str:
        """Return the change: `27% faster`, `2.31x as fast`."""
        if _is_factor(self.ratio):
            return f"{self._meaningful(self.ratio, 1)}{self.words.times}"
        return f"{self._percent(self._share(self.ratio))} {self.words.of(self.ratio)[1]}"

    def than(self, baseline: str) -> str:
        """Compare it with the baseline: `is 27% faster than jax`."""
        link = self.words.link if _is_factor(self.ratio) else " than "
        return f"{self.words.of(self.ratio)[0]} {self.amount()}{link}{baseline}"

    def cell(self) -> str:
        """Return the change as it stands alone: `27% faster`, `takes 44% longer`."""
        return f"{self.words.of(self.ratio)[0]} {self.amount()}".removeprefix("is ")

    def bounds(self) -> str:
        """Return the ends of its interval, if any: `12% slower to 9% faster`, `0.4x to 2.3x as fast`."""
        if self.low is None or self.high is None:
            return ""
        if _is_factor(self.low) or _is_factor(self.high):
            return _range(f"{rounded(self.low, 2)}x", f"{rounded(self.high, 2)}x") + self.words.times.removeprefix("x")
        low, high = (f"{rounded(100 * self._share(end), 2)}% {self.words.of(end)[1]}" for end in (self.low, self.high))
        return _range(low, high)

    def possible(self, baseline: str) -> str:
        """Say what the change may be by its interval, which contains 1: `be 12% slower or 9% faster than jax`."""
        low, high = (_INFINITIVES[verb] for verb, _ in (self.words.below, self.words.above))
        if " to " in (bounds := self.bounds()) and bounds.endswith(self.words.times):
            return f"{high} {bounds}{self.words.link}{baseline}"
        return f"{low} {bounds.replace(' to ', ' or ' if low == high else f' or {high} ')} than {baseline}"

    def decides(self, delta: float) -> bool:
        """Whether the interval alone would give a verdict: it excludes 1, or lies within ±δ."""
        if self.low is None or self.high is None:
            return False
        return not self.low <= 1 <= self.high or (1 + delta) * self.low > 1 > self.high / (1 + delta)

    def spread(self) -> str:
        """Return the interval around the ratio, if any: ` (±3%)`, or ` (20% to 41%)` if it is lopsided."""
        if self.low is None or self.high is None:
            return ""
        sides = [self.ratio - self.low, self.high - self.ratio]
        as_factor = _is_factor(self.ratio)
        if max(sides) <= max(LOPSIDED * min(sides), TINY):
            return f" (±{self._meaningful(max(sides), 1) if as_factor else self._percent(max(sides))})"
        if as_factor:
            return f" ({_range(f'{rounded(self.low, 2)}x', f'{rounded(self.high, 2)}x')})"
        if (self.low - 1) * (self.high - 1) > 0:
            ends = sorted(self._share(end) for end in (self.low, self.high))
            return f" ({_range(*map(self._percent, ends))})"
        return f" ({self.bounds()})"

    def _share(self, ratio: float) -> float:
        return 1 / ratio - 1 if self.words.inverts and ratio < 1 else abs(ratio - 1)

    def _percent(self, share: float) -> str:
        return f"{self._meaningful(share, 100)}%"

    def _meaningful(self, value: float, scale: int) -> str:
        """Return a scaled value with the digits that the interval leaves meaningful, three if there is none."""
        half = 0.0 if self.low is None or self.high is None else scale * (self.high - self.low) / 2
        if half <= 0:
            return rounded(scale * value, 3)
        return f"{scale * value:.{min(2, decimals(half))}f}"


def sentence(each: Comparison | GeometricMean, terms: Terms) -> str:
    """Return the verdict as a sentence, `torch is 27% faster than jax (±3%)`, and if only one side is compiled."""
    return "; ".join(filter(None, [_sentence(each, terms), each.execution]))


def _sentence(each: Comparison | GeometricMean, terms: Terms) -> str:
    a, b = short(each.baseline), short(each.contender)
    change = Change.of(each, terms.words)
    if change is None:
        refused = isinstance(each, Comparison) and each.refused
        why = "their time is mostly that of starting a process" if refused else f"a side has no {measure(terms.metric)}"
        return f"undecided: {b} and {a} cannot be compared, because {why}"
    subject, than = b, a
    if terms.words is VALUE:
        subject, than = f"the {measure(terms.metric)} of {b}", f"that of {a}"
    if each.verdict == "same":
        about = f"{_marked(each, 'no difference')}: {subject} is within ±{percent(terms.delta)} of {than}"
        return f"{about} ({change.bounds()})"
    said = f"{subject} {change.than(than)}"
    if each.verdict == "undecided":
        if each.low is None:
            return f"{verdict(each)}: too few trials for a test; in these, {said}"
        if change.decides(terms.delta):
            return f"{verdict(each)}, corrected for all that is compared; alone, {said}{change.spread()}"
        return f"{verdict(each)}: {subject} may {change.possible(than)}"
    said += change.spread()
    return f"{said}: {verdict(each)}" if terms.words is VALUE else _marked(each, said)


def gist(each: Comparison | GeometricMean, terms: Terms) -> str:
    """Return the verdict as the cell of a table: `27% faster (±3%)`, `same within 2%`."""
    change = Change.of(each, terms.words)
    if change is None:
        return "undecided: no value"
    if each.verdict == "same":
        return _marked(each, f"same within {percent(terms.delta)}")
    if each.verdict == "undecided":
        alone = "alone: " if change.decides(terms.delta) else ""
        return _marked(
            each, f"undecided ({alone}{bounds})" if (bounds := change.bounds()) else "undecided: too few trials"
        )
    said = f"{change.cell()}{change.spread()}"
    return f"{said}, {verdict(each)}" if terms.words is VALUE else _marked(each, said)


def headline(each: Comparison | GeometricMean, terms: Terms) -> str:
    """Return the verdict as a figure that stands alone: `12% faster`, `within ±2%`, `14% longer to 9% faster`."""
    change = Change.of(each, terms.words)
    if change is None:
        return "-"
    if each.verdict == "same":
        return f"within ±{percent(terms.delta)}"
    return (change.bounds() or "too few trials") if each.verdict == "undecided" else change.cell()


def explained(each: Comparison) -> str:
    """Return what accounts for the difference, as a sentence; empty if that is not known."""
    return capitalised(each.explanation) if each.explanation else ""


def tally(judged: Iterable[Comparison]) -> str:
    """Return how often each verdict was given, the most frequent first: `3 faster, 1 undecided (provisional)`."""
    return ", ".join(f"{number} {word}" for word, number in Counter(map(verdict, judged)).most_common())


def over_cases(mean: GeometricMean, terms: Terms) -> str:
    """Return the verdict on a mean of cases as a sentence."""
    return f"over {mean.cases} cases (geometric mean): {sentence(mean, terms)}"


def measure(metric: str) -> str:
    """Return a metric in words, without its unit unless it is a rate: `step time (median)`, `samples/s`."""
    if metric.startswith("step_time_"):
        return f"step time ({metric.removeprefix('step_time_').removesuffix('_s')})"
    return re.sub(r"(?<!_per)_(s|J|W|bytes)$", "", metric).replace("_per_", "/").replace("_", " ")


def short(name: str) -> str:
    """Shorten the name of a side or of a case: factors whose values say what they are lose their name."""
    return re.sub(r"(^|\s)(framework|execution|problem|precision|device|mode|result)=(?=\S)", r"\1", name)


def _range(low: str, high: str) -> str:
    """Return the ends of an interval as text, once if they are the same after rounding."""
    return low if low == high else f"{low} to {high}"


def _is_factor(ratio: float) -> bool:
    return not 1 / FACTOR < ratio < FACTOR


def details(comparison: Comparison) -> str:
    """Return the figures behind a verdict: the ratio with its interval, the test, and the noise."""
    timed = "" if comparison.timed_blocks is None else f" x {comparison.timed_blocks:.0f} timed blocks"
    remedy = f" ({enough(comparison)})" if enough(comparison) else ""
    parts = [f"B/A {ratio(comparison)} {verdict(comparison).upper()}{remedy}", f"{numbers(comparison)}{timed}"]
    if comparison.p_value is not None and comparison.p_adjusted is not None:
        adjusted = comparison.p_adjusted != comparison.p_value
        parts.append(f"p {comparison.p_value:.2g}" + (f" (adjusted {comparison.p_adjusted:.2g})" if adjusted else ""))
    parts.append(f"δ {percent(comparison.delta)}")
    if comparison.probability_lower is not None:
        parts.append(f"B lower with probability {comparison.probability_lower:.2f}")
    if comparison.process_deviation is not None:
        parts.append(f"process sd {percent(math.expm1(comparison.process_deviation))}")
    if comparison.design_effect is not None:
        parts.append(f"design effect {comparison.design_effect:.3g}x")
    if comparison.low_noise_ratio is not None:
        parts.append(f"p10 B/A {figure(comparison.low_noise_ratio)}")
    if comparison.looks:
        parts.append(
            f"the run could stop at {len(comparison.looks)} looks, so each uses {1 - comparison.level:.2g} of alpha"
        )
    return "; ".join(parts)


def verdict(judged: Comparison | GeometricMean) -> str:
    """Return the verdict, and whether it is provisional."""
    return _marked(judged, judged.verdict)


def _marked(judged: Comparison | GeometricMean, said: str) -> str:
    return f"{said} (provisional)" if judged.provisional else said


UNITS: dict[Method, str] = {
    "paired": "rounds",
    "paired by block": "pairs of blocks",
    "unpaired by run": "runs per side",
}
"""What is counted, if it is not trials per side."""


def unit(method: Method) -> str:
    """Return what a method counts."""
    return UNITS.get(method, "trials per side")


def likely(enough: int | None, unit: str) -> str:
    """Return how many rounds, trials or runs would likely decide, in words."""
    return f"{enough or 'more than 1000'} {unit} would likely decide"


def numbers(comparison: Comparison) -> str:
    """Return how many rounds, or trials or runs of each side, were compared."""
    if comparison.rounds is not None:
        return f"{comparison.rounds} rounds"
    if comparison.method == "paired by block":
        return f"{comparison.timed_blocks:.0f} pairs of blocks"
    is_by_run = comparison.method == "unpaired by run"
    a, b = comparison.runs if is_by_run else comparison.trials
    return f"{a} and {b} {'runs' if is_by_run else 'trials'}"


def percent(share: float) -> str:
    """Format a share with three significant digits: `2%`, `0.5%`, `99%`."""
    return f"{100 * share:.3g}%"


def ratio(comparison: Comparison | GeometricMean) -> str:
    """Format a ratio with its interval: `1.031 [1.012, 1.049]`."""
    if comparison.ratio is None:
        return "-"
    if comparison.low is None or comparison.high is None:
        return f"{figure(comparison.ratio)} [no interval]"
    return f"{figure(comparison.ratio)} [{figure(comparison.low)}, {figure(comparison.high)}]"


def figure(value: float) -> str:
    """Format a ratio with three decimals, or with three significant digits if it is far from 1."""
    return f"{value:.3f}" if 0.1 <= value < 100 else rounded(value, 3)


def enough(comparison: Comparison) -> str:
    """Say how many rounds, trials or runs would likely decide an undecided comparison; empty if that is not known."""
    if comparison.verdict != "undecided" or comparison.p_value is None or comparison.method == "paired by block":
        return ""
    return likely(comparison.enough, unit(comparison.method))
