"""One channel's readings as arrays, and the figures computed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from benchmarker.api.meter import Channel, Reason
    from benchmarker.power.sampler import Sample

MOST_W = 1e5
"""No component with an energy counter draws more power."""
SLACK_S = 0.1
"""A counter's last update may be this much older than its reading."""
LEAST_CHANGES = 10
"""With this many changes or fewer, a sensor's update interval cannot be determined."""


@dataclass(frozen=True, slots=True)
class Series:
    """A channel, the times of its readings (ns) and their values; a missing value is NaN, `missing` counts reasons."""

    channel: Channel
    time_ns: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    missing: Counter[Reason]

    def within(self, begin_ns: int, end_ns: int) -> Series:
        """Return the readings between two times, both included."""
        of = slice(
            int(np.searchsorted(self.time_ns, begin_ns, "left")), int(np.searchsorted(self.time_ns, end_ns, "right"))
        )
        return Series(self.channel, self.time_ns[of], self.values[of], self.missing)

    def valid(self) -> Series:
        """Return the readings that are numbers."""
        known = ~np.isnan(self.values)
        return Series(self.channel, self.time_ns[known], self.values[known], self.missing)

    @property
    def reason(self) -> Reason:
        """The most frequent reason for missing readings."""
        return self.missing.most_common(1)[0][0] if self.missing else "stalled"


def series(channels: Sequence[Channel], samples: Sequence[Sample]) -> list[Series]:
    """Return the readings by channel."""
    time_ns = np.array([sample.time_ns for sample in samples], dtype=np.int64)
    all_series = []
    for at, channel in enumerate(channels):
        readings = [sample.readings[at] for sample in samples]
        values = np.array([value if isinstance(value, float) else np.nan for value in readings], dtype=np.float64)
        missing = Counter(reason for reason in readings if isinstance(reason, str))
        all_series.append(Series(channel, time_ns, values, missing))
    return all_series


def update_s(readings: Series) -> float | None:
    """Return the median time between two changes of the value, s; None if there were ten changes or fewer.

    It cannot be less than the time between two readings.
    """
    known = readings.valid()
    changed = known.time_ns[1:][np.diff(known.values) != 0]
    return float(np.median(np.diff(changed))) / 1e9 if len(changed) > LEAST_CHANGES else None


def without_wraps(
    rises: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64], wraps_at: float | None
) -> npt.NDArray[np.float64]:
    """Return the rises of a counter in these times, corrected for wraps; NaN where it ran backwards.

    If a counter was reset rather than wrapped, the corrected rise would mean a power that no component draws.
    """
    back = rises < 0
    most = np.minimum((wraps_at or 0.0) / 2, MOST_W * (seconds + SLACK_S))
    across = rises + (wraps_at or 0.0)
    return np.where(back, np.where((across >= 0) & (across <= most), across, np.nan), rises)


def risen(readings: Series) -> tuple[npt.NDArray[np.float64], int]:
    """Return the rises of a counter between successive valid readings (see `without_wraps`), and how often it did."""
    rises = np.diff(readings.values)
    corrected = without_wraps(rises, np.diff(readings.time_ns) / 1e9, readings.channel.wraps_at)
    return corrected, int(((rises < 0) & ~np.isnan(corrected)).sum())


def still_s(readings: Series) -> float:
    """Return the longest time for which a counter did not change, s."""
    edges = np.flatnonzero(np.diff(readings.values) != 0) + 1
    runs = np.split(readings.time_ns, edges)
    return max((int(run[-1] - run[0]) for run in runs if len(run)), default=0) / 1e9


def integral(readings: Series, begin_ns: int, end_ns: int) -> float:
    """Integrate with each value held until the next, the first and the last extended to the edges: J for powers in W.

    Repeated values count as often as they were read. Dropping repeats and interpolating linearly would lose the time
    before the first change and after the last.
    """
    edges = np.concatenate([[begin_ns], readings.time_ns[1:], [end_ns]])
    return float(np.dot(readings.values, np.diff(edges)) / 1e9)


def gaps_s(readings: Series, begin_ns: int, end_ns: int, longest_s: float) -> tuple[int, float]:
    """Return how many times without a reading are longer than `longest_s`, and the sum of their excess, s."""
    between = np.diff(np.concatenate([[begin_ns], readings.time_ns, [end_ns]])) / 1e9
    beyond = between[between > longest_s] - longest_s
    return len(beyond), float(beyond.sum())


def aliases(step_s: float, channel: Channel, period_s: float) -> bool:
    """Whether a sensor that measures only a part of each update period may measure the same part of each step.

    This happens if a step takes nearly (within 5%) a whole number of update periods, or of sampling periods if these
    are longer.
    """
    if channel.window_ms is None or channel.update_ms is None or channel.window_ms >= channel.update_ms:
        return False
    update = max(channel.update_ms / 1e3, period_s)
    ratio = step_s / update
    return step_s > channel.window_ms / 1e3 and round(ratio) >= 1 and abs(ratio / round(ratio) - 1) < 0.05
