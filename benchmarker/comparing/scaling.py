"""Scaling: how much faster several devices are than one, over their number.

The series are found from the records. With strong scaling the step of all numbers of devices has the same work; with
weak scaling each device has the work that one alone has. The speed-up S(p) is the ratio of the samples in the same
time, p devices over one, which is T(1) / T(p) with strong scaling; the efficiency is S(p) / p. T are medians of step
times. Intervals are those of `compare`: paired by round where the trials were interleaved.

Where the records have a local phase, the efficiency is split into factors of one cause each:

    size           T(1) over p (of weak scaling, 1) times one device alone: a share of the work that computes less well
    contention     one device alone over all at once
    imbalance      the mean device over the slowest
    communication  the slowest device over the step of all
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean, median
from typing import TYPE_CHECKING

from msgspec import Struct

from benchmarker.api.case import Parallel
from benchmarker.comparing import disturbances
from benchmarker.comparing.formatting import DOUBTS
from benchmarker.comparing.matching import Match, Side
from benchmarker.comparing.results import Method, Rules
from benchmarker.comparing.samples import Tested
from benchmarker.formatting import count, rounded
from benchmarker.hooks import names
from benchmarker.planning.scaling import Scaling
from benchmarker.records.configurations import Value, configurations
from benchmarker.records.local_times import STRAGGLER, averaged, described, local_times, longer
from benchmarker.records.step_times import STEP_TIME

if TYPE_CHECKING:
    from benchmarker.api.case import Case
    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.configurations import Configuration
    from benchmarker.records.record import Record

EXCHANGE = "algbw_bytes_per_s"
"""The metric that only an exchange between devices has; its work is not divided among them."""
LEVEL = 0.95
"""Confidence level of the intervals."""
BEYOND = 1.05
"""An efficiency above this is told."""
WHY_SLOW = "other work, its number of threads, or data that fits a cache only in parts"
UNLIKE = 0.05
"""Largest relative difference between the efficiency and the product of its factors that is not told."""
METHOD_OF_ONE: Method = "none"
NO_BASELINE = "no case of one device has the same work, or the work of each device; measure --devices=1 in the same run"
ONE_TRIAL = "one trial: the variation between processes is unknown"
PARTS_OF_A_CPU = (
    "the devices are parts of one processor, all of whose cores one device has to itself: do not expect the ideal"
)


class Ratio(Struct, frozen=True):
    """A ratio, and the 95% interval of it; None if there are too few trials for one."""

    value: float
    low: float | None = None
    high: float | None = None

    def __mul__(self, factor: float) -> Ratio:
        """Return the ratio, and its interval, times a factor above 0."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Ratio(self.value * factor, low, high)


class Split(Struct, frozen=True, kw_only=True):
    """The factors of an efficiency, geometric means over trials, and their product.

    `slowest` is the number of the slowest device, `score` the time of the fastest over its own.
    """

    size: float
    contention: float
    imbalance: float
    communication: float
    product: float
    slowest: int
    score: float


class Point(Struct, frozen=True, kw_only=True):
    """What so many devices do together: `samples` in each step of `step_s`, the median over `trials`.

    `split` is null for one device, and if there is no local phase, with the reason in `unsplit`.
    """

    devices: int
    samples: int
    trials: int
    method: Method
    step_s: float
    samples_per_s_per_device: float
    speedup: Ratio
    efficiency: Ratio
    split: Split | None
    unsplit: str


class Series(Struct, frozen=True, kw_only=True):
    """The points of one kind of scaling of the case of one device, which is the first point; `notes` are doubts.

    `parallel` is how several devices divide a step.
    """

    name: str
    case: dict[str, Value]
    scaling: Scaling
    parallel: Parallel
    points: list[Point]
    notes: list[str]


class Device(Struct, frozen=True, kw_only=True):
    """One of several devices that each do the same work by themselves: its step time alone, and with all at once.

    `score` is the time of the fastest over its own, all at once.
    """

    device: int
    alone_s: float
    together_s: float
    score: float


class Devices(Struct, frozen=True, kw_only=True):
    """The devices of a case in which each does the work of one, geometric means over trials; `notes` are doubts."""

    name: str
    case: dict[str, Value]
    trials: int
    devices: list[Device]
    notes: list[str]


class Scalings(Struct, frozen=True, kw_only=True):
    """All series of some records, and all cases in which each of several devices works by itself.

    `left_out` says why other cases of several devices are in no series; `notes` are doubts that concern several.
    """

    series: list[Series]
    devices: list[Devices]
    left_out: list[str]
    notes: list[str]


def scalings(records: Iterable[Record], derive: Derive) -> Scalings:
    """Find the series of some records."""
    by_host: dict[str, list[Record]] = {}
    for record in records:
        by_host.setdefault(record.machine.host, []).append(record)
    groups = [each for of_host in by_host.values() for each in configurations(of_host)]
    single = [each for each in groups if _case(each).devices == 1 and _ok(each)]
    members: dict[tuple[int, Scaling, Parallel], list[Configuration]] = {}
    devices: list[Devices] = []
    left_out: list[str] = []
    for each in groups:
        if _case(each).devices == 1:
            continue
        if _case(each).each:
            if by_device := _devices(each):
                devices.append(by_device)
            else:
                left_out.append(f"{names.name(each.factors)}: every trial failed")
            continue
        why = _unscaled(each, derive)
        of = [] if why else [(at, kind) for at, one in enumerate(single) if (kind := _kind(one, each))]
        for at, kind in of:
            members.setdefault((at, kind, _case(each).parallel), []).append(each)
        if not of:
            left_out.append(f"{names.name(each.factors)}: {why or NO_BASELINE}")
    series = [
        _series(single[at], kind, strategy, several, derive)
        for (at, kind, strategy), several in sorted(members.items())
    ]
    return Scalings(series=series, devices=devices, left_out=left_out, notes=_unlike(members.values()))


def labels(several: Sequence[Series]) -> tuple[list[str], str]:
    """Return a short name of each series, such as `strong, tp, jax`, and what all of them share."""
    named = names.names([each.case for each in several])
    return [
        ", ".join(filter(None, [each.scaling, each.parallel if each.parallel != "none" else "", name]))
        for each, name in zip(several, named.each, strict=True)
    ], named.shared


def shared_notes(several: Sequence[Series]) -> list[str]:
    """Return the notes that all of several series have; none of a single one."""
    first, *others = several
    return [note for note in first.notes if others and all(note in each.notes for each in others)]


def sentence(series: Series) -> str:
    """Return what the series comes to: the speed-up and the efficiency with the most devices."""
    most = series.points[-1]
    how = f" ({series.parallel})" if series.parallel != "none" else ""
    return (
        f"{series.scaling} scaling{how} to {count(most.devices, 'device')}: {shown(most.speedup)} times the speed of "
        f"one, efficiency {shown(most.efficiency, percent=True)}"
    )


def shown(ratio: Ratio, *, percent: bool = False) -> str:
    """Return a ratio with its interval: `1.93 [1.9, 1.96]`, or in percent `96.5% [95, 98]`."""
    scale, unit = (100, "%") if percent else (1, "")
    ends = ""
    if ratio.low is not None and ratio.high is not None:
        ends = f" [{rounded(scale * ratio.low, 3)}, {rounded(scale * ratio.high, 3)}]"
    return f"{rounded(scale * ratio.value, 3)}{unit}{ends}"


def _case(group: Configuration) -> Case:
    return group.records[0].case


def _ok(group: Configuration) -> list[Record]:
    """Return the successful trials."""
    return [record for record in group.records if record.error is None]


def _samples(group: Configuration) -> int:
    """Return the samples of a step of all devices."""
    cost = _ok(group)[0].cost
    return cost.samples if cost else 0


def _unscaled(group: Configuration, derive: Derive) -> str:
    """Return why a case of several devices has no scaling; empty if nothing is known against it."""
    ok = _ok(group)
    if not ok:
        return "every trial failed"
    exchange = derive(ok[0]).get(EXCHANGE)
    return "an exchange divides no work; `show` has its bandwidths" if exchange and exchange.value is not None else ""


def _kind(one: Configuration, several: Configuration) -> Scaling | None:
    """Return how the case of several devices follows from that of one: the same work, or as many times as much."""
    if one.records[0].machine.host != several.records[0].machine.host:
        return None
    alone, together = _case(one), _case(several)
    params = alone.params.keys() | together.params.keys()
    free = {"devices", "parallel", *params}
    if any(one.factors[name] != several.factors.get(name) for name in one.factors if name not in free):
        return None
    grown = [name for name in params if alone.params.get(name) != together.params.get(name)]
    times = _samples(several) / max(1, _samples(one))
    if not grown and times == 1:
        return "strong"
    as_many = all(
        isinstance(before := alone.params.get(name), int) and together.params.get(name) == together.devices * before
        for name in grown
    )
    return "weak" if grown and as_many and times == together.devices else None


def _series(
    one: Configuration, scaling: Scaling, parallel: Parallel, several: Sequence[Configuration], derive: Derive
) -> Series:
    groups = [one, *sorted(several, key=lambda each: _case(each).devices)]
    points = [_point(one, each, derive) for each in groups]
    return Series(
        name=names.name(one.factors),
        case=dict(one.factors),
        scaling=scaling,
        parallel=parallel,
        points=points,
        notes=_doubts(groups, points),
    )


def _point(one: Configuration, each: Configuration, derive: Derive) -> Point:
    devices, samples, ok = _case(each).devices, _samples(each), _ok(each)
    step_s = median(value for record in ok if (value := derive(record)[STEP_TIME].value) is not None)
    speedup, method = Ratio(1.0), METHOD_OF_ONE
    if each is not one:
        match = Match({}, Side("1 device", one.records), Side(f"{devices} devices", each.records))
        tested = Tested(match, Rules(), derive)
        assert tested.shift is not None
        ends = tested.test.interval(LEVEL) if tested.test else None
        low, high = (math.exp(-ends[1]), math.exp(-ends[0])) if ends else (None, None)
        speedup, method = Ratio(math.exp(-tested.shift.estimate), low, high) * (samples / _samples(one)), tested.method
    split, unsplit = (None, "") if each is one else _split(one, ok, samples / _samples(one), derive)
    return Point(
        devices=devices,
        samples=samples,
        trials=len(ok),
        method=method,
        step_s=step_s,
        samples_per_s_per_device=samples / step_s / devices,
        speedup=speedup,
        efficiency=speedup * (1 / devices),
        split=split,
        unsplit=unsplit,
    )


def _split(
    one: Configuration, several: Sequence[Record], times_work: float, derive: Derive
) -> tuple[Split | None, str]:
    """Return the factors of the efficiency of trials that do `times_work` of the work of one, or why there are none."""
    found = [times for record in several if (times := local_times(record))]
    if not found:
        return None, several[0].reasons.get("local", "")
    times = averaged(found)
    alone_s = [value for record in _ok(one) if (value := derive(record)[STEP_TIME].value)]
    size = times_work / several[0].case.devices * geometric_mean(alone_s) / times.mean_alone_s
    return Split(
        size=size,
        contention=times.contention,
        imbalance=times.imbalance,
        communication=times.communication,
        product=size * times.contention * times.imbalance * times.communication,
        slowest=times.slowest,
        score=times.scores[times.slowest],
    ), ""


def _devices(group: Configuration) -> Devices | None:
    """Return the devices of a case in which each works by itself; None if every trial failed."""
    found = [times for record in _ok(group) if (times := local_times(record))]
    if not found:
        return None
    times = averaged(found)
    rows = enumerate(zip(times.alone_s, times.together_s, times.scores, strict=True))
    disturbed = disturbances.count([group.records])
    return Devices(
        name=names.name(group.factors),
        case=dict(group.factors),
        trials=len(found),
        devices=[
            Device(device=number, alone_s=alone_s, together_s=together_s, score=score)
            for number, (alone_s, together_s, score) in rows
        ],
        notes=[
            *([ONE_TRIAL] if len(found) == 1 else []),
            *_crowded(group, [len(times.scores)]),
            *([str(disturbed)] if disturbed.number else []),
        ],
    )


def slowest_of(devices: Sequence[Device]) -> str:
    """Say which device is the slowest, by how much, and whether it is a straggler."""
    slowest = min(devices, key=lambda each: each.score)
    return described(slowest.device, slowest.score)


def _crowded(group: Configuration, devices: Sequence[int]) -> list[str]:
    """Return a note if a processor has fewer cores than it is divided into devices."""
    cores = group.records[0].machine.cpu.usable_cores
    crowded = [str(number) for number in devices if number > cores]
    if _case(group).device != "cpu" or not crowded:
        return []
    return [
        f"{', '.join(crowded)} devices on {count(cores, 'core')}: this shows how they take turns, not how they work "
        "together"
    ]


def _doubts(groups: Sequence[Configuration], points: Sequence[Point]) -> list[str]:
    """Return what should make one doubt a series."""
    found = []
    if _case(groups[0]).device == "cpu":
        found.append(PARTS_OF_A_CPU)
    found += _crowded(groups[0], [point.devices for point in points])
    if beyond := [str(point.devices) for point in points if (point.efficiency.low or point.efficiency.value) > BEYOND]:
        found.append(
            f"{', '.join(beyond)} devices: more than ideal, so one device was slower than it can be: {WHY_SLOW}"
        )
    found += [DOUBTS[method] for method in dict.fromkeys(point.method for point in points[1:]) if method in DOUBTS]
    if any(point.method in ("paired", "unpaired") and point.speedup.low is None for point in points[1:]):
        found.append("too few trials for an interval; --trials=6 or more give one")
    found += [f"{count(point.devices, 'device')}: {point.unsplit}" for point in points if point.unsplit]
    found += [f"{count(devices, 'device')}: {text}" for devices, text in _doubts_of_splits(points)]
    disturbed = disturbances.count(group.records for group in groups)
    return [*found, str(disturbed)] if disturbed.number else found


def _doubts_of_splits(points: Sequence[Point]) -> Iterator[tuple[int, str]]:
    """Yield what should make one doubt how efficiencies are split, and stragglers, by number of devices."""
    for point in points:
        if (split := point.split) is None:
            continue
        if split.score < STRAGGLER:
            yield point.devices, f"device {split.slowest} is a straggler: {longer(split.score)} on the fastest"
        if abs(split.product / point.efficiency.value - 1) > UNLIKE:
            yield (
                point.devices,
                f"the factors multiply to {100 * split.product:.3g}%, not to the efficiency: the machine was not the "
                "same in the timed part and in the local phase",
            )


def _unlike(several: Iterable[Sequence[Configuration]]) -> list[str]:
    """Return a note if the frameworks exchange data by unlike means."""
    cases = [_case(each) for groups in several for each in groups if _case(each).device == "cpu"]
    between, within = (
        sorted({case.framework for case in cases if (case.ranks > 1) == processes}) for processes in (True, False)
    )
    if not (between and within):
        return []
    return [
        f"on a CPU, {' and '.join(between)} exchanges data between processes and {' and '.join(within)} within one: "
        "their scaling differs by that too"
    ]
