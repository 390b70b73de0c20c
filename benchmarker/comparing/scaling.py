"""Scaling: how much faster several devices are than one, over their number.

The series are found from the records. With strong scaling the step of all numbers of devices has the same work; with
weak scaling each device has the work that one alone has. The speed-up S(p) is the ratio of the samples in the same
time, p devices over one; the efficiency is S(p) / p. With strong scaling S(p) is the ratio of step times T(1) / T(p),
with weak scaling p times that. The ratio and its interval are those of `compare`: where the trials were interleaved,
the Hodges-Lehmann ratio of the pairs, one a round, which is not the quotient of the medians that stand beside it.

Where the records have a local phase, the efficiency is split into factors of one cause each:

    size           T(1) over p (of weak scaling, 1) times one device alone: a share of the work that computes less well
    contention     one device alone over all at once
    imbalance      the mean device over the slowest
    communication  the slowest device over the step of all
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import geometric_mean, median

from benchmarker.api.case import Case, Parallel, Scaling
from benchmarker.comparing import disturbances
from benchmarker.comparing.formatting import DOUBTS
from benchmarker.comparing.judge import provisional_of
from benchmarker.comparing.matching import Match
from benchmarker.comparing.results import Method, Rules
from benchmarker.comparing.samples import Tested
from benchmarker.comparing.scaling_results import Device, Devices, Ratio, ScalingPoint, Scalings, Series, Split
from benchmarker.formatting import count, rounded, si
from benchmarker.hooks.cases import Configuration
from benchmarker.hooks.metrics import Derive
from benchmarker.records.record import Record
from benchmarker.records.sides import Side
from benchmarker.records.step_times import (
    STEP_TIME,
    STRAGGLER,
    averaged,
    cores_of_more_devices,
    local_times,
    longer,
    slowest_text,
)

UNLIKE = 0.05
"""Largest relative difference between the efficiency and the product of its factors without a note."""


def crowded(groups: Sequence[Configuration]) -> list[str]:
    """Return a note for each number of cores that processors are divided into more devices than."""
    several: dict[int, list[str]] = {}
    for record in (group.records[0] for group in groups):
        if (cores := cores_of_more_devices(record)) is not None:
            several.setdefault(cores, []).append(str(record.case.devices))
    return [
        f"{', '.join(devices)} devices on {count(cores, 'core')}: more devices than cores measure time-sharing, not "
        "scaling"
        for cores, devices in several.items()
    ]


def host(group: Configuration) -> str:
    """Return the host of a configuration, the first of several nodes."""
    return group.records[0].machine.host


def doubts(groups: Sequence[Configuration], points: Sequence[ScalingPoint]) -> list[str]:
    """Return what should make one doubt a series."""
    notes = []
    on_one_node = all(group.records[0].case.nodes == 1 for group in groups)
    if groups[0].records[0].case.device == "cpu" and on_one_node:
        alone = "" if groups[0].records[0].case.threads else "; a single device uses all of its cores"
        notes.append(f"the devices are virtual, parts of one CPU: ideal scaling is impossible{alone}")
    if elsewhere := [str(group.records[0].case.devices) for group in groups if host(group) != host(groups[0])]:
        notes.append(
            f"{', '.join(elsewhere)} devices: one device was measured on another node, {host(groups[0])}, so a "
            "difference between nodes counts too"
        )
    notes += crowded(groups)
    notes += [DOUBTS[method] for method in dict.fromkeys(point.method for point in points[1:]) if method in DOUBTS]
    if any(point.method in ("paired", "unpaired") and point.speedup.low is None for point in points[1:]):
        notes.append("too few trials for an interval; --trials=6 or more give one")
    about: dict[str, list[str]] = {}
    for devices, text in (*_beyond(groups, points), *_of_points(points)):
        about.setdefault(text, []).append(str(devices))
    notes += [f"{', '.join(devices)} devices: {text}" for text, devices in about.items()]
    disturbed = disturbances.count(group.records for group in groups)
    return [*notes, str(disturbed)] if disturbed.number else notes


def _beyond(groups: Sequence[Configuration], points: Sequence[ScalingPoint]) -> Iterator[tuple[int, str]]:
    """Yield what to look at first where the efficiency is above 100%, by number of devices."""
    disturbed = disturbances.count([groups[0].records])
    one, *several = map(_threads, groups)
    for threads, point in zip(several, points[1:], strict=True):
        if not point.is_beyond:
            continue
        if disturbed.number:
            look = f"the disturbed trials of one device: {disturbed.advice}"
        elif one < threads:
            look = f"the threads, {one} of one device and {threads} here; --threads sets them"
        else:
            look = "one device by itself again (was it slow?), then whether only a share of the work fits a cache"
        yield point.devices, f"the efficiency is above 100%; look first at {look}"


def _threads(group: Configuration) -> int:
    """Return the CPU threads of all processes of a trial; 0 if they are unknown or compute elsewhere."""
    on_cpu = [record for record in group.records if record.case.device == "cpu" and record.error is None]
    return on_cpu[0].case.ranks * (on_cpu[0].software.threads or 0) if on_cpu else 0


def _of_points(points: Sequence[ScalingPoint]) -> Iterator[tuple[int, str]]:
    """Yield what makes points provisional, stragglers, and why they are not split or what makes one doubt how."""
    for point in points:
        if point.provisional and point.provisional != DOUBTS.get(point.method):
            yield point.devices, f"provisional: {point.provisional}"
        if (split := point.split) is None:
            if point.unsplit:
                yield point.devices, f"the efficiency is not split into its factors: {point.unsplit}"
            continue
        if split.score is not None and split.score < STRAGGLER:
            yield point.devices, f"device {split.slowest} is a straggler: {longer(split.score)} on the fastest"
        if abs(split.product / point.efficiency.value - 1) > UNLIKE:
            yield (
                point.devices,
                f"the factors multiply to {rounded(100 * split.product, 3)}%, not to the efficiency: a step took "
                f"{si(point.step_s, 's')} in the timed part and {si(split.step_s, 's')} in the local phase",
            )


def unlike_exchanges(several: Iterable[Sequence[Configuration]]) -> list[str]:
    """Return a note if frameworks, or one of them on one node and on several, exchange data by unlike means."""
    cases = [group.records[0].case for groups in several for group in groups]
    on_cpu = [case for case in cases if case.device == "cpu"]
    between, within = (
        sorted({case.framework for case in on_cpu if (case.ranks > 1) == processes}) for processes in (True, False)
    )
    if not (between and within):
        return []
    between = [f"{framework} over nodes" if framework in within else framework for framework in between]
    return [
        f"on a CPU, data is exchanged between processes ({', '.join(between)}) or within one ({', '.join(within)}), "
        "which also affects scaling"
    ]


EXCHANGE = "algbw_bytes_per_s"
"""The metric that only an exchange between devices has; its work is not divided among them."""
LEVEL = 0.95
"""Confidence level of the intervals."""
METHOD_OF_ONE: Method = "none"
NO_BASELINE = "no case of one device has the same work, or the work of each device; measure --devices=1 in the same run"
FAILED = "every trial failed"
ONE_TRIAL = "one trial: the variation between processes is unknown"


def scalings(configurations: Iterable[Configuration], derive: Derive) -> Scalings:
    """Find the series of some configurations; those of several hosts are told apart."""
    groups = [of_host for configuration in configurations for of_host in _by_host(configuration)]
    single = [each for each in groups if _case(each).devices == 1 and each.ok]
    members: dict[tuple[int, Scaling, Parallel], list[Configuration]] = {}
    devices: list[Devices] = []
    left_out: list[str] = []
    for group in groups:
        if _case(group).devices == 1:
            continue
        if _case(group).independent:
            if by_device := _devices(group):
                devices.append(by_device)
            else:
                why = next((record.reasons["local"] for record in group.ok), FAILED)
                left_out.append(f"{group.name}: {why}")
            continue
        why = _unscaled(group, derive)
        of = [] if why else _baselines(single, group)
        for at, kind in of:
            members.setdefault((at, kind, _case(group).parallel), []).append(group)
        if not of:
            left_out.append(f"{group.name}: {why or NO_BASELINE}")
    series = [
        _series(single[at], kind, parallel, several, derive)
        for (at, kind, parallel), several in sorted(members.items())
    ]
    return Scalings(series=series, devices=devices, left_out=left_out, notes=unlike_exchanges(members.values()))


def _by_host(group: Configuration) -> list[Configuration]:
    by_host: dict[str, list[Record]] = {}
    for record in group.records:
        by_host.setdefault(record.machine.host, []).append(record)
    return [replace(group, records=tuple(records)) for records in by_host.values()]


def _case(group: Configuration) -> Case:
    return group.records[0].case


def _samples(group: Configuration) -> int:
    """Return the samples of a step of all devices; a step without any counts as one."""
    cost = group.ok[0].cost
    return max(1, cost.samples) if cost else 1


def _unscaled(group: Configuration, derive: Derive) -> str:
    """Return why a case of several devices has no scaling; empty if nothing is known against it."""
    ok = group.ok
    if not ok:
        return FAILED
    exchange = derive(ok[0]).get(EXCHANGE)
    return "an exchange divides no work; `show` has its bandwidths" if exchange and exchange.value is not None else ""


def _baselines(single: Sequence[Configuration], several: Configuration) -> list[tuple[int, Scaling]]:
    """Return which cases of one device the case follows from, by number, and how: those of its host.

    Without one, it is the first from another job of the launcher on a machine and device of the same kind.
    """
    kinds = [(at, kind) for at, one in enumerate(single) if (kind := _kind(one, several))]
    of_host = [(at, kind) for at, kind in kinds if host(single[at]) == host(several)]
    return of_host or [(at, kind) for at, kind in kinds if _of_a_job_alike(single[at], several)][:1]


def _of_a_job_alike(one: Configuration, several: Configuration) -> bool:
    """Whether both ran in jobs of one launcher, on processors and devices with the same names."""
    kinds = [
        (each.allocation.launcher, each.machine.cpu.model, each.device.name)
        for each in (one.records[0], several.ok[0])
        if each.allocation and each.device
    ]
    return len(kinds) == 2 and kinds[0] == kinds[1]


def _kind(one: Configuration, several: Configuration) -> Scaling | None:
    """Return how the case of several devices follows from that of one: the same work, or as many times as much."""
    alone, together = _case(one), _case(several)
    params = alone.params.keys() | together.params.keys()
    free = {"devices", "nodes", "parallel", *params}
    if any(one.factors[name] != several.factors.get(name) for name in one.factors if name not in free):
        return None
    grown = [name for name in params if alone.params.get(name) != together.params.get(name)]
    times = _samples(several) / _samples(one)
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
    points = [_point(one, group, derive) for group in groups]
    return Series(
        name=one.name,
        case=dict(one.factors),
        scaling=scaling,
        parallel=parallel,
        points=points,
        notes=doubts(groups, points),
    )


def _point(one: Configuration, each: Configuration, derive: Derive) -> ScalingPoint:
    devices, samples, ok = _case(each).devices, _samples(each), each.ok
    step_s = median(value for record in ok if (value := derive(record)[STEP_TIME].value) is not None)
    speedup, method, why = Ratio(1.0), METHOD_OF_ONE, None
    if each is not one:
        match = Match({}, Side("1 device", one.records), Side(f"{devices} devices", each.records))
        tested = Tested(match, Rules(), derive)
        assert tested.shift is not None
        ends = tested.test.interval(LEVEL) if tested.test else None
        low, high = (math.exp(-ends[1]), math.exp(-ends[0])) if ends else (None, None)
        speedup, method = Ratio(math.exp(-tested.shift.estimate), low, high) * (samples / _samples(one)), tested.method
        why = provisional_of(tested)
    split, unsplit = (None, "") if each is one else _split(one, ok, samples / _samples(one), derive)
    return ScalingPoint(
        devices=devices,
        samples=samples,
        trials=len(ok),
        method=method,
        step_s=step_s,
        samples_per_s_per_device=samples / step_s / devices,
        speedup=speedup,
        efficiency=speedup * (1 / devices),
        provisional=why,
        split=split,
        unsplit=unsplit,
    )


def _split(
    one: Configuration, several: Sequence[Record], times_work: float, derive: Derive
) -> tuple[Split | None, str]:
    """Return the factors of the efficiency of trials that do `times_work` of the work of one, or why there are none."""
    local = [times for record in several if (times := local_times(record))]
    if not local:
        return None, several[0].reasons.get("local", "")
    times = averaged(local)
    alone_s = [value for record in one.ok if (value := derive(record)[STEP_TIME].value)]
    size = times_work / several[0].case.devices * geometric_mean(alone_s) / times.mean_alone_s
    return Split(
        size=size,
        contention=times.contention,
        imbalance=times.imbalance,
        communication=times.communication,
        product=size * times.contention * times.imbalance * times.communication,
        slowest=None if times.crowded else times.slowest,
        score=None if times.crowded else times.scores[times.slowest],
        step_s=times.synchronised_s,
    ), ""


def _devices(group: Configuration) -> Devices | None:
    """Return the devices of a case of independent devices; None if no trial has a local phase."""
    local = [times for record in group.ok if (times := local_times(record))]
    if not local:
        return None
    times = averaged(local)
    rows = enumerate(zip(times.alone_s, times.together_s, times.scores, strict=True))
    disturbed = disturbances.count([group.records])
    return Devices(
        name=group.name,
        case=dict(group.factors),
        trials=len(local),
        devices=[
            Device(device=number, alone_s=alone_s, together_s=together_s, score=score)
            for number, (alone_s, together_s, score) in rows
        ],
        slowest=slowest_text(times),
        notes=[
            *([ONE_TRIAL] if len(local) == 1 else []),
            *crowded([group]),
            *([str(disturbed)] if disturbed.number else []),
        ],
    )
