"""Series of cases along time, along commits or versions, their change points, and what else changed there."""

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from msgspec import Struct
from scipy import special

from benchmarker.api.errors import UserError
from benchmarker.api.metric import Metric
from benchmarker.comparing.formatting import enough, ratio
from benchmarker.comparing.results import Comparison
from benchmarker.formatting import count
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import Derive
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import SOURCE, Value, changes, factors_of, text
from benchmarker.records.record import Record
from benchmarker.stats import changes as change_points
from benchmarker.stats.changes import LEAST, LEVEL

DATE, COMMIT, HOST, NODE = "date", "commit", "host", "node"
OF_COMMIT = (COMMIT, SOURCE)
"""What a commit alone changes."""
_WORDS = re.compile(r"\d+|[^\W\d]+")


Outcome = Literal["confirmed", "not confirmed", "undecided", "not measured"]


class Point(Struct, frozen=True, kw_only=True):
    """A case in one run: the median over its trials, with a 95% interval for the variation between trials alone.

    `label` is its commit, version or date. There is no interval if no run of the series has two trials.
    """

    label: str
    run: str
    started_at: str
    value: float
    low: float | None
    high: float | None
    trials: int


class Confirmation(Struct, frozen=True, kw_only=True):
    """What an `ab` of both sides of a change found, and the folder of its records; or why they were not measured.

    It is not confirmed if there is no difference of half the change, or one in the other direction.
    """

    outcome: Outcome
    reason: str = ""
    comparison: Comparison | None = None
    records: str = ""

    @property
    def words(self) -> str:
        """What was found, with the ratio: `confirmed in turns: after/before 1.051 [1.043, 1.060] in 11 rounds`."""
        if self.reason or not self.comparison:
            return f"{self.outcome}: {self.reason}"
        more = f"; {likely}" if (likely := enough(self.comparison)) else ""
        rounds = count(self.comparison.rounds or 0, "round")
        return f"{self.outcome} in turns: after/before {ratio(self.comparison)} in {rounds}{more}"


class Suspicion(Struct, frozen=True, kw_only=True):
    """A change point, which is a suspicion until an `ab` of both sides confirms it.

    `before` and `after` are the labels of the neighbouring points, `at` the number of the latter. The change may also
    lie before any other point from `first` to `last`. `ratio` is after over before, with its 95% interval. `seen` is
    the label of the point with which it was found. `direction` says which is better. `environment` is what else differs
    between the points that are surely before and surely after it. `confirm` are commands that compare both sides now,
    or empty with the reason in `unconfirmed`. `trials` are the first of the point before and the first of the point
    after, none of another tool. `confirmation` is null until both sides are measured in turns.
    """

    before: str
    after: str
    at: int
    first: int
    last: int
    ratio: float
    low: float
    high: float
    seen: str
    direction: Literal["better", "worse"]
    environment: list[str]
    confirm: list[str]
    unconfirmed: str
    trials: list[str] = []
    confirmation: Confirmation | None = None


class Series(Struct, frozen=True, kw_only=True):
    """The points of one case in order, and its changes; `left_out` are the runs without a value.

    Of another tool, `name` is what it measured, and `lacks` what its files lack; `case` is then its name and the host.
    `trial_deviation` is the standard deviation of the logarithm between trials, null without two trials in a run.
    """

    case: dict[str, Value]
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    points: list[Point] = []
    changes: list[Suspicion] = []
    left_out: int = 0
    trial_deviation: float | None = None
    name: str = ""
    lacks: str = ""

    @property
    def is_short(self) -> bool:
        """Whether there are too few points for any change."""
        return len(self.points) < LEAST


@dataclass(frozen=True, slots=True)
class Run:
    """A case in one run: the logarithms of the values of its trials, and what surrounded it.

    `record` is its first; None if another tool measured it.
    """

    label: str
    run: str
    started_at: str
    logs: tuple[float, ...]
    around: Mapping[str, Value]
    record: Record | None = None


def surroundings(record: Record) -> dict[str, Value]:
    """Return what may change between runs without anybody asking for it: versions, driver, limits, and the commit.

    The commit is that of the user's file if it is known, otherwise that of Benchmarker.
    """
    machine, gpus = record.machine, record.machine.gpus
    own = record.source.commit if record.source else None
    file = {SOURCE: factors_of(record.case).get(SOURCE)} if record.source else {}
    return {
        **environment_of(record),
        COMMIT: own or (None if record.source else record.software.commit),
        **file,
        "os": machine.os,
        "kernel": machine.kernel,
        "driver": _joined(gpu.driver for gpu in gpus),
        "power_limit_W": _joined(gpu.power_limit_W for gpu in gpus),
        "ecc": _joined(gpu.ecc for gpu in gpus),
        "frequency_max_MHz": machine.cpu.frequency_max_MHz,
        "governor": machine.cpu.governor,
        "smt": machine.cpu.smt,
        "virtualization": machine.virtualization,
        "container": machine.container,
        "cpu_quota_cores": machine.cpu_quota_cores,
        "memory_bytes": machine.memory_bytes,
        **record.software.variables,
    }


def _joined(values: Iterable[Value]) -> str | None:
    """Return the different values of several GPUs as one."""
    known = dict.fromkeys(text(value) for value in values if value is not None)
    return ", ".join(known) or None


def history(cases: Cases, by: str, metric: str, derive: Derive) -> list[Series]:
    """Return a series for each case, with its points by the values of `by`: date, commit, host, driver, a library, ...

    Commits are in the order in which they were first measured, versions in their own. By host, there is a series for
    each, by date. Raises `UserError` if no record has `by`, or if no trial has a value of the metric.
    """
    axis = axis_of(by, map(surroundings, cases.records))
    groups: dict[bytes, tuple[dict[str, Value], dict[tuple[str, int, str], list[Record]]]] = {}
    for record in sorted(cases.records, key=lambda each: (each.started_at, each.trial_id)):
        factors = {name: value for name, value in factors_of(record.case).items() if name != SOURCE}
        if axis == HOST:
            factors = {HOST: record.machine.host, **factors}
        of_case = groups.setdefault(msgspec.json.encode(factors), (factors, {}))[1]
        own = "" if axis in (DATE, HOST) else text(surroundings(record)[axis])
        of_case.setdefault((record.run_id, record.design.session, own), []).append(record)
    found = []
    for factors, by_run in groups.values():
        measured = [run for records in by_run.values() if (run := _run(records, axis, metric, derive))]
        if measured:
            of = measured[0][1]
            series = Series(case=factors, metric=metric, unit=of.unit, better=of.better)
            runs = [run for run, _ in measured]
            found.append(with_points(series, runs, axis, left_out=len(by_run) - len(runs)))
    if not found:
        raise UserError(f"no trial has a value of {metric}; `show` lists the metrics, and why they are missing")
    return found


def axis_of(by: str, several: Iterable[Mapping[str, Value]]) -> str:
    """Return what --by names among the surroundings of several runs; raises `UserError` if none of them knows it."""
    axis = HOST if by == NODE else by.replace("-", "_")
    known = {name.replace("-", "_"): name for around in several for name, value in around.items() if value is not None}
    if axis != DATE and axis not in known:
        raise UserError(f"--by={by}: no record knows it; they know: {', '.join([DATE, *known])}")
    return known.get(axis, axis)


def label_of(started_at: str, around: Mapping[str, Value], axis: str) -> str:
    """Return the name of a point: its commit or version, or when its run began, UTC, to the minute."""
    return started_at[:16].replace("T", " ") if axis in (DATE, HOST) else text(around.get(axis))


def _run(records: Sequence[Record], axis: str, metric: str, derive: Derive) -> tuple[Run, Metric] | None:
    """Return the trials that have a value above 0, and the metric; None if none has."""
    derived = [(record, derive(record).get(metric)) for record in records if record.error is None]
    kept = [(record, each, each.value) for record, each in derived if each and each.value and each.value > 0]
    if not kept:
        return None
    first, of, _ = kept[0]
    around = surroundings(first)
    label = label_of(first.started_at, around, axis)
    logs = tuple(math.log(value) for _, _, value in kept)
    return Run(label, first.run_id, first.started_at, logs, around, first), of


def _ordered(runs: Sequence[Run], axis: str) -> list[Run]:
    """Return runs in the order of time, commits by their first run, versions by their numbers."""
    first: dict[str, int] = {}
    for place, run in enumerate(runs):
        first.setdefault(run.label, place)
    if axis in (DATE, HOST, COMMIT):
        return sorted(runs, key=lambda run: first[run.label])
    return sorted(runs, key=lambda run: version_key(run.label))


def version_key(version: str) -> tuple[tuple[float, int, str], ...]:
    """Return a key that sorts versions: 2.9 before 2.10, and 1.0rc1 before 1.0."""
    words = ((2.0, int(word), "") if word.isdigit() else (0.0, 0, word) for word in _WORDS.findall(version))
    return (*words, (1.0, 0, ""))


def with_points(series: Series, runs: Sequence[Run], axis: str, left_out: int = 0) -> Series:
    """Return a series with its points in order, and their changes; runs are in the order of time."""
    runs = _ordered(runs, axis)
    levels = change_points.levels_of([run.logs for run in runs])
    quantile = float(special.stdtrit(levels.freedom, (1 + LEVEL) / 2)) if levels.freedom else 0.0
    halves = quantile * np.sqrt(levels.variances)
    found = change_points.changes(levels.values, levels.variances)
    return msgspec.structs.replace(
        series,
        points=[_point(run, log, half) for run, log, half in zip(runs, levels.values, halves, strict=True)],
        changes=[_suspicion(each, runs, axis, series.better) for each in found],
        left_out=left_out,
        trial_deviation=levels.deviation,
    )


def _point(run: Run, log: float, half: float) -> Point:
    ends = (math.exp(log - half), math.exp(log + half)) if half else (None, None)
    return Point(
        label=run.label,
        run=run.run,
        started_at=run.started_at,
        value=float(np.median(np.exp(run.logs))),
        low=ends[0],
        high=ends[1],
        trials=len(run.logs),
    )


def _suspicion(found: change_points.Change, runs: Sequence[Run], axis: str, better: str) -> Suspicion:
    before, after = runs[found.at - 1], runs[found.at]
    confirm, unconfirmed = _confirm(before, after, axis)
    return Suspicion(
        before=before.label,
        after=after.label,
        at=found.at,
        first=found.first,
        last=found.last,
        ratio=math.exp(found.shift),
        low=math.exp(found.low),
        high=math.exp(found.high),
        seen=runs[found.seen].label,
        direction="better" if (found.shift > 0) == (better == "higher") else "worse",
        environment=_changed(runs[found.first - 1], runs[found.last], axis),
        confirm=confirm,
        unconfirmed=unconfirmed,
        trials=[run.record.trial_id for run in (before, after) if run.record],
    )


def _changed(before: Run, after: Run, axis: str) -> list[str]:
    """Return what differs between two runs, but for the axis itself."""
    one, two = before.around, after.around
    left_out = OF_COMMIT if axis == COMMIT else (axis,)
    return changes(one, two, [name for name in {**one, **two} if name not in left_out])


def _confirm(before: Run, after: Run, axis: str) -> tuple[list[str], str]:
    """Return the commands that compare both sides in turns; or none, and what to do instead.

    Both sides can be had at once if the user's file of both commits can be checked out.
    """
    one, two = before.record, after.record
    if one is None or two is None:
        return [], "another tool measured it; measure both sides in turns with `ab`"
    commits = [record.source.commit if record.source else None for record in (one, two)]
    if two.source and all(commits) and commits[0] != commits[1] and not any("+" in str(each) for each in commits):
        path, words = two.source.path, shlex.split(two.command)
        named = [at for at, word in enumerate(words) if word == f"--problem={path}"]
        if named and "run" in words and path.endswith(".py") and not path.startswith("/"):
            options = words[words.index("run") + 1 : named[0]] + words[named[0] + 1 :]
            sides = [f"--{side}=--problem=../{name}/{path}" for side, name in (("a", "before"), ("b", "after"))]
            return [
                f"git worktree add --detach ../before {commits[0]}",
                f"git worktree add --detach ../after {commits[1]}",
                shlex.join([*words[: words.index("run")], "ab", *sides, *options]),
            ], ""
    if before.label == after.label and axis not in (DATE, HOST):
        return [], f"{axis} is the same on both sides, so it is not the cause; compare what else changed"
    if commits[0] != commits[1] and any("+" in str(each) for each in commits):
        return [], "a side was measured with changes that no commit has"
    return [], f"no `ab` runs both sides here: install each in turn, and repeat on both: {two.command}"
