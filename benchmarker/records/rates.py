"""What a trial tells of its speed besides its timed blocks, and whether the trials of a run tell the same.

In one trial, a disturbance explains any difference: it hits the preheat and not the blocks, or the reverse. It does not
explain the same difference in three quarters of the trials of a run. The limits are from trials that were measured on a
machine with five times as many runnable threads as cores (benchmarks/verdicts/forgeries.py repeats that): of the ratios
below, one in ten exceeded its limit, and the blocks never left as much of the timed part.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

from benchmarker.formatting import part
from benchmarker.records.consistency import reading_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarker.records.record import Blocks, Record

LIMIT = 1.4
"""A step that is waited for may take this many times as long as one of the timed blocks."""
OVERLAP = 2.2
"""On an accelerator, a step is prepared while the one before it computes, unless it is waited for."""
FILLED = 1.05
"""The timed part may be this many times as long as its blocks, apart from the time to read counters."""
READING_S = 0.05
"""Time to read counters and to report progress, s, besides that to read clock rates and meters."""
ALONE_S, TOLD_S = 2e-5, 2e-3
"""What it costs to wait for a single step, s: in one process, and in several that rank 0 tells to begin."""
NEGLIGIBLE = 0.1
"""Steps are compared if these costs are at most this share of a step."""
TIMED_S, COUNTED_S = 0.2, 0.5
"""Shortest timed part that is compared with its blocks, and whose counters say whether it was disturbed, s."""
FIRST_BLOCKS = 3
"""Warm-up that is left shows in the first blocks: the slowest of so many, or the mean of all, is what is compared."""
BLOCK_S = 0.01
"""As many steps are in a block as take this long; see worker/timing.py."""
EVENT_S = 2e-5
"""What it costs to record an event of a profile on a CPU, s."""
SHARE, FEWEST = 0.75, 6
"""A run is doubted if this share of its trials exceed a limit, of at least so many."""


class Sign(NamedTuple):
    """One comparison within a trial: what is compared, how many times the claimed speed it denies, and its limit."""

    check: str
    ratio: float
    limit: float


PREHEAT = "a step took {} times as long in the preheat as in the blocks"
WARM_UP = "a step took {} times as long in the warm-up as in the blocks"
TOKENS = "a request took {} times as long token by token as in the blocks"
LOCAL = "a step took {} times as long after the timed part as in its blocks"
PROFILE = "a step took {} times as long in the profile as in the blocks"
TIMED = "the timed part took {} times as long as its blocks"
SHORT = "blocks are shorter by a factor of {} than they are made"
LOAD = "the load average is {} times the highest that fits counters without other work"


class Doubt(NamedTuple):
    """Why a run is doubted: what is compared, and in words how many trials deny it and by how much."""

    check: str
    share: str
    text: str


def doubts(trials: Iterable[list[Sign]]) -> list[Doubt]:
    """Return in what three quarters or more of the trials of a run contradict their blocks."""
    signs: dict[str, list[Sign]] = defaultdict(list)
    for own in trials:
        for sign in own:
            signs[sign.check].append(sign)
    told = []
    for check, several in signs.items():
        beyond = sorted(sign.ratio for sign in several if sign.ratio > sign.limit)
        if len(several) >= FEWEST and len(beyond) >= SHARE * len(several):
            text = f"{check.format(f'{median(beyond):.3g}')} ({beyond[0]:.3g} to {beyond[-1]:.3g})"
            told.append(Doubt(check, part(len(beyond), len(several), "trial"), text))
    return told


def signs(record: Record) -> list[Sign]:
    """Return the comparisons that a trial allows; none if it failed."""
    if record.error or record.blocks is None or not record.blocks.duration_ns:
        return []
    return [*_waited(record, record.blocks), *_clock(record, record.blocks)]


def _start_ns(blocks: Blocks) -> float:
    return max(fmean(blocks.duration_ns), *blocks.duration_ns[:FIRST_BLOCKS])


def _waited(record: Record, blocks: Blocks) -> Iterator[Sign]:
    """Compare the time of a step where each is waited for with that of a step in the blocks."""
    step_s = _start_ns(blocks) / blocks.steps_per_block / 1e9
    on_cpu = record.case.device == "cpu"
    overlaps = not on_cpu and blocks.steps_per_block > 1
    limit = OVERLAP if overlaps else LIMIT
    cost_s = ALONE_S if record.case.ranks == 1 else TOLD_S
    preheat, times, local, trace = record.preheat, record.token_times, record.local, record.trace
    if preheat and preheat.window_steps_per_s and cost_s <= NEGLIGIBLE * step_s:
        yield Sign(PREHEAT, 1 / max(preheat.window_steps_per_s[-1], 1e-9) / step_s, limit)
    elif preheat and preheat.steps and on_cpu and 100 * cost_s <= step_s:  # accelerators are still raising their clocks
        yield Sign(WARM_UP, preheat.duration_s / preheat.steps / step_s, limit)
    if times and times.gap_ns and len(times.first_ns) in (0, len(times.gap_ns)):
        request_s = (sum(times.first_ns) + sum(map(sum, times.gap_ns))) / len(times.gap_ns) / 1e9
        yield Sign(TOKENS, request_s / step_s, limit)
    if local and local.synchronised_ns:
        turn_s = median(map(max, local.synchronised_ns)) / local.steps_per_block / 1e9
        yield Sign(LOCAL, turn_s / step_s, LIMIT)
    if trace and trace.steps and len(trace.step_ns) == trace.steps and trace.devices:
        if on_cpu:
            profiled_s = min(trace.step_ns) / 1e9
            cost_s = EVENT_S * trace.rows / trace.steps
        else:
            profiled_s = trace.busy_share * trace.wall_ns / trace.steps / 1e9
            cost_s = 0.0
        if cost_s <= step_s:
            yield Sign(PROFILE, profiled_s / (step_s + cost_s), LIMIT)


def _clock(record: Record, blocks: Blocks) -> Iterator[Sign]:
    """Compare the blocks with the clock of the timed part, with the length that they should have, and with the load."""
    seen, cpu, load = record.interference, record.machine.cpu, record.machine.load_average_1min
    if seen is None or seen.duration_s < TIMED_S:
        return
    if record.design.partner is None:
        sum_s, around_s = sum(blocks.duration_ns) / 1e9, READING_S + reading_s(record)
        yield Sign(TIMED, (seen.duration_s - (seen.throttled_s or 0.0)) / (sum_s + around_s), FILLED)
    if seen.other_busy_cores is None or seen.duration_s < COUNTED_S:
        return
    percent = (seen.pressure_percent or 0.0) + (seen.steal_percent or 0.0)
    if seen.other_busy_cores + percent / 100 <= NEGLIGIBLE and not seen.throttled_s:
        yield Sign(SHORT, BLOCK_S * 1e9 / _start_ns(blocks), LIMIT)
        yield Sign(LOAD, load / (2 * cpu.logical_cores + 1), 1.0)
