"""Detect what disturbed a trial from its own interference counters."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.records.record import Record


OTHER_BUSY_CORES = 0.25


STEAL_PERCENT = 2.0


PRESSURE_PERCENT = 20.0


SLOWER_CLOCK = 0.05


COUNTED_S = 0.5
"""The system counts in ticks of 10 ms, so shares of a shorter time mean little."""


def disturbances(records: Sequence[Record]) -> list[dict[str, str]]:
    """Return what disturbed each trial of a case: a short text for each kind of disturbance.

    A framework's own threads also wait for cores and change the clock, so these two kinds are judged relative to the
    median over the trials.
    """
    seen = [record.interference for record in records if record.interference]
    pressures = [each.pressure_percent for each in seen if each.pressure_percent is not None]
    clocks = [each.frequency_MHz for each in seen if each.frequency_MHz is not None]
    pressure_percent, clock_mhz = (median(each) if each else 0.0 for each in (pressures, clocks))
    return [_of_trial(record, pressure_percent, clock_mhz) for record in records]


def _of_trial(record: Record, pressure_percent: float, clock_mhz: float) -> dict[str, str]:
    """Return what disturbed a trial, given the median pressure and clock of the trials of its case."""
    found = {}
    if record.preheat and record.preheat.outcome == "timeout":
        found["preheat"] = "no steady rate before timing"
    if slowdowns := sorted({word for each in record.telemetry if each.measured for word in each.slowdowns}):
        found["slowdown"] = f"the device reduced its clocks: {', '.join(slowdowns)}"
    seen = record.interference
    if seen is None:
        return found
    if seen.throttled_s:
        found["throttled"] = f"its cgroup throttled it for {seen.throttled_s:.2g} s"
    if seen.duration_s < COUNTED_S:
        return found
    if seen.other_busy_cores is not None and seen.other_busy_cores > OTHER_BUSY_CORES:
        found["busy"] = f"other processes kept {seen.other_busy_cores:.1f} cores busy"
    if seen.steal_percent is not None and seen.steal_percent > STEAL_PERCENT:
        found["steal"] = f"the hypervisor stole {seen.steal_percent:.0f}% of the time"
    if seen.pressure_percent is not None and seen.pressure_percent > pressure_percent + PRESSURE_PERCENT:
        found["pressure"] = f"threads waited for a core {seen.pressure_percent:.0f}% of the time"
    if seen.frequency_MHz is not None and seen.frequency_MHz < (1 - SLOWER_CLOCK) * clock_mhz:
        found["clock"] = f"the clock fell to {seen.frequency_MHz:.0f} MHz"
    return found
