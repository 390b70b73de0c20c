"""Interference counters: what the operating system counted while a trial's blocks were timed."""

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarker.records.record import Interference


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters at one moment: times in seconds, numbers of context switches, frequency and temperature."""

    time_s: float
    own_s: float
    busy_s: float
    total_s: float
    steal_s: float | None
    pressure_s: float | None
    throttled_s: float | None
    voluntary: int
    involuntary: int
    frequency_MHz: float | None
    temperature_C: float | None
    samplers_s: float = 0.0


def snapshot(samplers: Iterable[int] = (), *, with_running: bool = False) -> Snapshot:
    """Read the counters; takes about a millisecond. What the process did is with its children that have ended.

    `samplers` are the processes that read meters for the trial, which are not other work. `with_running` adds those
    that the process started and that have not ended, which takes as long as looking at all processes.
    """
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    started = psutil.Process().children(recursive=True) if with_running else []
    running = [*_done(process.pid for process in started)]
    cpu = psutil.cpu_times()
    steal = getattr(cpu, "steal", None)  # only Linux counts it
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    # Guest time is already included in `user` and `nice` (proc(5)).
    total = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)
    return Snapshot(
        time_s=time.monotonic(),
        own_s=sum(each.ru_utime + each.ru_stime for each in own) + sum(each.busy_s for each in running),
        busy_s=total - idle - (steal or 0.0),
        total_s=total,
        steal_s=steal,
        pressure_s=_pressure_s(),
        throttled_s=_throttled_s(),
        voluntary=sum(each.ru_nvcsw for each in own) + sum(each.voluntary for each in running),
        involuntary=sum(each.ru_nivcsw for each in own) + sum(each.involuntary for each in running),
        frequency_MHz=_frequency_mhz(),
        temperature_C=_temperature_c(),
        samplers_s=sum(each.busy_s for each in _done(samplers)),
    )


class _Running(NamedTuple):
    """What a process that runs has done so far."""

    busy_s: float
    voluntary: int
    involuntary: int


def _done(pids: Iterable[int]) -> Iterator[_Running]:
    """Yield what each process has done, with its children that have ended; one that just ended is left out."""
    for pid in pids:
        with suppress(psutil.Error), (process := psutil.Process(pid)).oneshot():
            times, switches = process.cpu_times(), process.num_ctx_switches()
            busy_s = times.user + times.system + times.children_user + times.children_system
            yield _Running(busy_s, switches.voluntary, switches.involuntary)


def over_ranks(ranks: Sequence[Snapshot]) -> Snapshot:
    """Return the snapshot of the first of several processes of a machine, with what all of them count of themselves."""
    return replace(
        ranks[0],
        own_s=sum(rank.own_s for rank in ranks),
        voluntary=sum(rank.voluntary for rank in ranks),
        involuntary=sum(rank.involuntary for rank in ranks),
    )


def between(start: Snapshot, end: Snapshot) -> Interference:
    """Return what was counted between two snapshots."""
    duration = max(end.time_s - start.time_s, 1e-9)
    # A process that ends unseen takes its counts along.
    own = max(0.0, end.own_s - start.own_s) / duration
    samplers = max(0.0, end.samplers_s - start.samplers_s) / duration
    passed = end.total_s - start.total_s

    def difference(name: str) -> float | None:
        first, last = getattr(start, name), getattr(end, name)
        return None if first is None or last is None else max(0.0, last - first)

    steal, pressure = difference("steal_s"), difference("pressure_s")
    frequencies = [value for value in (start.frequency_MHz, end.frequency_MHz) if value is not None]
    temperatures = [value for value in (start.temperature_C, end.temperature_C) if value is not None]
    return Interference(
        duration_s=duration,
        own_busy_cores=own,
        other_busy_cores=max(0.0, (end.busy_s - start.busy_s) / duration - own - samplers) if passed > 0 else None,
        steal_percent=None if steal is None or passed <= 0 else 100 * steal / passed,
        pressure_percent=None if pressure is None else 100 * pressure / duration,
        throttled_s=difference("throttled_s"),
        voluntary_switches=max(0, end.voluntary - start.voluntary),
        involuntary_switches=max(0, end.involuntary - start.involuntary),
        frequency_MHz=sum(frequencies) / len(frequencies) if frequencies else None,
        temperature_C=max(temperatures, default=None),
    )


def over_nodes(nodes: Sequence[Interference]) -> Interference:
    """Return what was counted on several nodes, in the time of the first.

    What the ranks did themselves is added up; what disturbed them is that of the node where it is worst, because all
    wait for the slowest.
    """

    def worst(name: str, of: Callable[[list[float]], float] = max) -> float | None:
        known = [value for node in nodes if (value := getattr(node, name)) is not None]
        return of(known) if known else None

    return Interference(
        duration_s=nodes[0].duration_s,
        own_busy_cores=sum(node.own_busy_cores for node in nodes),
        other_busy_cores=worst("other_busy_cores"),
        steal_percent=worst("steal_percent"),
        pressure_percent=worst("pressure_percent"),
        throttled_s=worst("throttled_s"),
        voluntary_switches=sum(node.voluntary_switches for node in nodes),
        involuntary_switches=sum(node.involuntary_switches for node in nodes),
        frequency_MHz=worst("frequency_MHz", min),
        temperature_C=worst("temperature_C"),
    )


def _pressure_s() -> float | None:
    """Time during which some thread waited for a core, s (`total` of `some`, µs: Documentation/accounting/psi.rst)."""
    try:
        some = Path("/proc/pressure/cpu").read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, IndexError, ValueError):
        return None


def _throttled_s() -> float | None:
    """Time for which this process's cgroup was throttled, s (cgroup v2: `throttled_usec` of `cpu.stat`)."""
    lines = _cgroup_lines("cpu.stat")
    return next((int(line.split()[1]) / 1e6 for line in lines if line.startswith("throttled_usec")), None)


def oom_kills() -> int | None:
    """Return how many processes the kernel has ended because memory ran out; None if it does not count them.

    Counted for this process's cgroup if there is one (cgroup v2: `oom_kill` of `memory.events`), else for the machine
    (`oom_kill` of /proc/vmstat).
    """
    lines = [*_cgroup_lines("memory.events"), *_lines(Path("/proc/vmstat"))]
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _cgroup_lines(name: str) -> list[str]:
    """Return the lines of a file of this process's cgroup (v2); none if there is no such file."""
    group = "".join(_lines(Path("/proc/self/cgroup"))).rpartition("::")[2].lstrip("/")
    return _lines(Path("/sys/fs/cgroup") / group / name)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _frequency_mhz() -> float | None:
    """Mean frequency of the cores that the process may use, MHz."""
    values = []
    for core in os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ():
        try:
            text = Path(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq").read_text()
        except OSError:
            return None
        values.append(int(text) / 1000)
    return sum(values) / len(values) if values else None


_PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Names of the drivers that report the processor's temperature."""


def _temperature_c() -> float | None:
    """Highest current temperature of the processor's own sensors, °C (the files are in m°C: Documentation/hwmon)."""
    values = []
    for name in Path("/sys/class/hwmon").glob("hwmon*/name"):
        try:
            if name.read_text().strip() in _PROCESSOR_SENSORS:
                values += [int(file.read_text()) / 1000 for file in name.parent.glob("temp*_input")]
        except (OSError, ValueError):
            continue
    return max(values, default=None)
