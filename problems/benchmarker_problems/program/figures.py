"""Figures of a program: how they are declared and found in what it prints, and the metrics that they are."""

import math
import re
from collections.abc import Mapping
from statistics import fmean, median
from typing import Literal, NamedTuple

from msgspec.structs import replace

from benchmarker import PROGRAM, START_TIME, Figure, Metric, Record, TrialError, UserError, hookimpl, is_program
from benchmarker_problems.program.parsing import Function, function_of, pattern_of
from benchmarker_problems.program.ranks import ELSEWHERE, NODES, RANKS, UNTOLD, launches

OF_SYSTEM = ("user_time_s", "system_time_s", START_TIME)
"""Figures of every program: processor time of it and of what it waited for, and the time of an empty program."""
TAKEN = re.compile(
    r"mfu(_measured)?|mbu(_measured)?|roof_share|times_predicted|contention|imbalance|communication|straggler_score"
    r"|(componentwise_)?error|effective_bits|(communication|waiting)_share"
    r"|(ttft|tpot|e2e|compile|enqueue|load_latency|predicted\w*|itl_p\d+|step_time_\w+)_s"
    r"|\w*(_per_s|_per_user|peak_bytes|rss_bytes)"
)
"""Names of other metrics."""
PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
PREFIXES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
BASES = {unit: unit for unit in ("s", "B", "B/s", "bit/s", "FLOP/s", "J", "W", "Hz", "1/s", "op/s")}
BASES |= dict.fromkeys(("flops", "FLOPS", "Flops", "flop/s"), "FLOP/s") | {"bps": "bit/s", "": "1", "1": "1"}
"""Units that take a prefix, as programs write them, and as records have them."""
LOWER = ("s", "J", "B", "W")
"""Units of which less is better."""
_SPEC = re.compile(r"([a-z][a-z0-9_]*)(?:\[([^\]]*)\])?=(.+)", re.DOTALL)
Matches = Literal["last", "mean", "all"]


class Declared(NamedTuple):
    """A figure as the user declares it, with what finds it; a number that is found is multiplied by `scale`."""

    name: str
    unit: str
    scale: float
    better: Literal["higher", "lower"]
    matches: Matches
    finder: re.Pattern[str] | Function

    def found(self, text: str) -> list[float]:
        """Return the values in the output of one execution; raises `TrialError` if there is none, or no number."""
        if isinstance(self.finder, Function):
            answer = self.finder(text)
            words = [*answer] if isinstance(answer, list | tuple) else [answer]
        else:
            words = [(match[1] or "").replace(",", "") for match in self.finder.finditer(text)]
        values = []
        for word in words:
            try:
                values.append(float(word if not isinstance(word, bool) else "") * self.scale)
            except (TypeError, ValueError, OverflowError):
                raise TrialError(f"figure {self.name}: {word!r:.42} is not a number", "check") from None
        if not values:
            raise TrialError(f"figure {self.name}: {self._none}", "check")
        if not all(map(math.isfinite, values)):
            raise TrialError(f"figure {self.name}: the output has a number that is not finite", "check")
        return values if self.matches == "all" else [fmean(values)] if self.matches == "mean" else values[-1:]

    @property
    def _none(self) -> str:
        if isinstance(self.finder, Function):
            return f"{self.finder} returned nothing"
        return f"the output has no match of {self.finder.pattern}"


def declared(text: str) -> list[Declared]:
    """Return the figures that lines declare; raises `UserError` if one is wrong."""
    figures: dict[str, Declared] = {}
    for line in filter(None, text.splitlines()):
        spec = _SPEC.fullmatch(line)
        if spec is None:
            raise UserError(
                rf"--figure={line}: write NAME=PATTERN or NAME[UNIT]=PATTERN, as in triad[MB/s]=Triad:\s+(\S+)"
            )
        name, words, pattern = spec[1], (spec[2] or "").split(","), spec[3]
        unit, *others = (word.strip() for word in words)
        base, scale = _unit(unit)
        if name in figures or name in (*OF_SYSTEM, RANKS, NODES) or TAKEN.fullmatch(name):
            raise UserError(f"--figure={line}: there is, or may be, a metric {name} already; use another name")
        if unknown := [word for word in others if word not in ("higher", "lower", "last", "mean", "all")]:
            raise UserError(f"--figure={line}: {unknown[0]!r} is none of higher, lower, last, mean, all")
        better: Literal["higher", "lower"] = "lower" if base in LOWER else "higher"
        better = "higher" if "higher" in others else "lower" if "lower" in others else better
        matches: Matches = "mean" if "mean" in others else "all" if "all" in others else "last"
        found = function_of(pattern, name) or pattern_of(f"--figure={name}", pattern, groups=1)
        figures[name] = Declared(name, base, scale, better, matches, found)
    return list(figures.values())


def _unit(text: str) -> tuple[str, float]:
    """Return a unit without its prefix, and the prefix as a number; an unknown unit stays as it is."""
    if text in BASES:
        return BASES[text], 1.0
    for length in (2, 1):
        if text[:length] in PREFIXES and text[length:] in BASES and text[length:]:
            return BASES[text[length:]], PREFIXES[text[:length]]
    return text, 1.0


@hookimpl
def derive_metrics(record: Record) -> Mapping[str, Metric]:
    """Return the median of each figure of a program; none for anything else."""
    if not is_program(record.case.problem):
        return {}
    known = {figure.name: figure for figure in record.figures}
    metrics = {name: _metric(known.get(name), "s", "lower", name != START_TIME) for name in OF_SYSTEM}
    if record.figures and START_TIME not in known:
        metrics[START_TIME] = replace(metrics[START_TIME], reason="its steps are timed without its start")
    if launches(record.case.problem.removeprefix(PROGRAM)):
        why = {RANKS: UNTOLD, NODES: ELSEWHERE if RANKS in known else UNTOLD}
        for name in (RANKS, NODES):
            metric = _metric(known.get(name), "1", "higher", headline=False)
            metrics[name] = replace(metric, reason=why[name]) if record.figures and metric.reason else metric
    for each in declared(str(record.case.params.get("figure", ""))):
        metrics[each.name] = _metric(known.get(each.name), each.unit, each.better)
    return metrics


def _metric(figure: Figure | None, unit: str, better: Literal["higher", "lower"], headline: bool = True) -> Metric:
    value = median(figure.values) if figure and figure.values else None
    return Metric(value, unit, better, None if figure else "the trial did not get so far", headline=headline, order=1)
