"""Step times of a record: of its timed blocks, and those of its local phase, with and without communication."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, median

import numpy as np

from benchmarker.formatting import rounded
from benchmarker.records.record import Record

STEP_TIME = "step_time_median_s"
"""The metric that is compared unless another one is named."""
MEAN_STEP_TIME = "step_time_mean_s"
HOST_SHARE = 0.02
"""Largest share of a step that the host adds without notice: medians of two times differ by as much."""
STRAGGLER = 0.75
"""A device whose score is below this is a straggler, as in nvidia-resiliency-ext (straggler detection)."""


def step_times(record: Record) -> np.ndarray:
    """Return the mean step time of each timed block, s."""
    assert record.blocks is not None
    times: np.ndarray = np.array(record.blocks.duration_ns) / record.blocks.steps_per_block / 1e9
    return times


def device_step_s(record: Record) -> float | None:
    """Return the median step time by the clock of the device, s; None if it was not read."""
    if record.device_time is None:
        return None
    return median(record.device_time.duration_ns) / record.device_time.steps_per_block / 1e9


def host_share(record: Record) -> float:
    """Return the share of the median step time that is not the device's, if it is above HOST_SHARE; 0 otherwise."""
    device_s = device_step_s(record)
    share = 0.0 if device_s is None else 1 - device_s / float(np.median(step_times(record)))
    return share if share > HOST_SHARE else 0.0


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """Step times of the local phase, s.

    `alone_s` has the median of each device while it is alone, `together_s` while all work at once; `mean_s` and
    `longest_s` are the medians over turns of the mean of all and of the longest. `synchronised_s` is that of the
    slowest rank of the whole step. `crowded` if the devices are more than the cores of their processors: which of them
    is the slowest then depends on who had to wait for a core.
    """

    alone_s: tuple[float, ...]
    together_s: tuple[float, ...]
    mean_s: float
    longest_s: float
    synchronised_s: float
    crowded: bool = False

    @property
    def mean_alone_s(self) -> float:
        """The mean over devices, each alone."""
        return fmean(self.alone_s)

    @property
    def contention(self) -> float:
        """One device alone over all at once: below 1 if they share something, such as memory, power or cores."""
        return self.mean_alone_s / self.mean_s

    @property
    def imbalance(self) -> float:
        """The mean device over the slowest: below 1 if the others wait for it."""
        return self.mean_s / self.longest_s

    @property
    def communication(self) -> float:
        """The slowest device without communication over the whole step: below 1 if that takes more time."""
        return self.longest_s / self.synchronised_s

    @property
    def scores(self) -> tuple[float, ...]:
        """The time of the fastest device over that of each: 1 for the fastest, less for those that are slower."""
        return tuple(min(self.together_s) / time_s for time_s in self.together_s)

    @property
    def slowest(self) -> int:
        """The number of the slowest device."""
        return self.together_s.index(max(self.together_s))


def local_times(record: Record) -> LocalTimes | None:
    """Return the step times of the local phase of a record; None if it has none."""
    local = record.local
    if local is None:
        return None
    unit = 1e9 * local.steps_per_block
    alone: list[list[int]] = [[] for _ in range(record.case.devices)]
    for device, duration_ns in zip(local.alone_device, local.alone_ns, strict=True):
        alone[device].append(duration_ns)
    return LocalTimes(
        alone_s=tuple(median(each) / unit for each in alone),
        together_s=tuple(median(of_device) / unit for of_device in zip(*local.together_ns, strict=True)),
        mean_s=median(map(fmean, local.together_ns)) / unit,
        longest_s=median(map(max, local.together_ns)) / unit,
        synchronised_s=median(map(max, local.synchronised_ns)) / unit,
        crowded=cores_of_more_devices(record) is not None,
    )


def cores_of_more_devices(record: Record) -> int | None:
    """Return the number of cores of the processors that are divided into more devices; None if each device has one."""
    cores = sum(machine.cpu.usable_cores for machine in record.machines or [record.machine])
    return cores if record.case.device == "cpu" and record.case.devices > cores else None


def averaged(several: Sequence[LocalTimes]) -> LocalTimes:
    """Return the geometric means over trials."""
    return LocalTimes(
        alone_s=tuple(map(geometric_mean, zip(*(each.alone_s for each in several), strict=True))),
        together_s=tuple(map(geometric_mean, zip(*(each.together_s for each in several), strict=True))),
        mean_s=geometric_mean(each.mean_s for each in several),
        longest_s=geometric_mean(each.longest_s for each in several),
        synchronised_s=geometric_mean(each.synchronised_s for each in several),
        crowded=any(each.crowded for each in several),
    )


def slowest_text(times: LocalTimes) -> str:
    """Say which device is the slowest, by how much, and whether it is a straggler: `device 2, +30%, score 0.77`."""
    if times.crowded:
        return "none is named, because they are more than the cores"
    score = times.scores[times.slowest]
    return f"device {times.slowest}, {longer(score)}, score {score:.2f}{', a straggler' if score < STRAGGLER else ''}"


def longer(score: float) -> str:
    """Return by how much longer a device takes than the fastest: `+30%`."""
    return f"+{rounded(100 * (1 / score - 1), 2)}%"
