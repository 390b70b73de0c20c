"""What should make one doubt a speed-up, and how it is split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarker.comparing import disturbances
from benchmarker.comparing.formatting import DOUBTS
from benchmarker.formatting import count, rounded, si
from benchmarker.records.step_times import STRAGGLER, cores_of_more_devices, longer

if TYPE_CHECKING:
    from benchmarker.comparing.scaling_results import Point
    from benchmarker.records.configurations import Configuration

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


def doubts(groups: Sequence[Configuration], points: Sequence[Point]) -> list[str]:
    """Return what should make one doubt a series."""
    found = []
    on_one_node = all(group.records[0].case.nodes == 1 for group in groups)
    if groups[0].records[0].case.device == "cpu" and on_one_node:
        alone = "" if groups[0].records[0].case.threads else "; a single device uses all of its cores"
        found.append(f"the devices are virtual, parts of one CPU: ideal scaling is impossible{alone}")
    if elsewhere := [str(group.records[0].case.devices) for group in groups if host(group) != host(groups[0])]:
        found.append(
            f"{', '.join(elsewhere)} devices: one device was measured on another node, {host(groups[0])}, so a "
            "difference between nodes counts too"
        )
    found += crowded(groups)
    found += [DOUBTS[method] for method in dict.fromkeys(point.method for point in points[1:]) if method in DOUBTS]
    if any(point.method in ("paired", "unpaired") and point.speedup.low is None for point in points[1:]):
        found.append("too few trials for an interval; --trials=6 or more give one")
    about: dict[str, list[str]] = {}
    for devices, text in (*_beyond(groups, points), *_of_points(points)):
        about.setdefault(text, []).append(str(devices))
    found += [f"{', '.join(devices)} devices: {text}" for text, devices in about.items()]
    disturbed = disturbances.count(group.records for group in groups)
    return [*found, str(disturbed)] if disturbed.number else found


def _beyond(groups: Sequence[Configuration], points: Sequence[Point]) -> Iterator[tuple[int, str]]:
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


def _of_points(points: Sequence[Point]) -> Iterator[tuple[int, str]]:
    """Yield what makes points provisional, stragglers, and why they are not split or what makes one doubt how."""
    for point in points:
        if point.provisional and point.provisional != DOUBTS.get(point.method):
            yield point.devices, f"provisional: {point.provisional}"
        if (split := point.split) is None:
            if point.unsplit:
                yield point.devices, point.unsplit
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
    cases = [each.records[0].case for groups in several for each in groups]
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
