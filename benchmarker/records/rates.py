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
from benchmarker.records.consistency import BLOCK_COST_S, reading_s

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
FIRST = 100
"""The first steps, and single tokens, are compared if each takes so many times as long as these costs."""
FIRST_BLOCKS = 3
"""Warm-up that is left shows in the first blocks: the slowest of so many, or the mean of all, is what is compared."""
BLOCK_S = 0.01
"""As many steps are in a block as take this long; see worker/timing.py."""
EVENT_S = 2e-5
"""What it costs to record an event of a profile on a CPU, s."""
SHARE, FEWEST_TRIALS, FEWEST_CASES = 0.75, 6, 3
"""A run is doubted if this share of its trials exceed a limit, of at least so many trials, of so many cases.

Some steps are slow at first each time, so a difference in all trials of one case proves nothing.
"""


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
    """Why a run is doubted, in words: how many of its trials contradict their blocks, and by how much."""

    share: str
    text: str


def doubts(trials: Iterable[tuple[int, list[Sign]]]) -> list[Doubt]:
    """Return in what three quarters or more of the trials of a run contradict their blocks.

    A trial is the number of its case and its signs.
    """
    signs: dict[str, list[tuple[int, Sign]]] = defaultdict(list)
    for case, own in trials:
        for sign in own:
            signs[sign.check].append((case, sign))
    told = []
    for check, several in signs.items():
        beyond = sorted(sign.ratio for _, sign in several if sign.ratio > sign.limit)
        cases = len({case for case, _ in several})
        enough = len(several) >= FEWEST_TRIALS and (cases >= FEWEST_CASES or check in (TIMED, LOAD))
        if enough and len(beyond) >= SHARE * len(several):
            text = f"{check.format(f'{median(beyond):.3g}')} ({beyond[0]:.3g} to {beyond[-1]:.3g})"
            told.append(Doubt(part(len(beyond), len(several), "trial"), text))
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
    waited = LIMIT if on_cpu or blocks.steps_per_block == 1 else OVERLAP
    alone_s = ALONE_S if record.case.ranks == 1 else TOLD_S
    preheat, times, local, trace = record.preheat, record.token_times, record.local, record.trace
    if preheat and preheat.window_steps_per_s and alone_s <= NEGLIGIBLE * step_s:
        yield Sign(PREHEAT, 1 / max(preheat.window_steps_per_s[-1], 1e-9) / step_s, waited)
    elif preheat and preheat.steps and on_cpu and FIRST * alone_s <= step_s:  # accelerators still raise their clocks
        yield Sign(WARM_UP, preheat.duration_s / preheat.steps / step_s, LIMIT)
    if times and times.gap_ns and len(times.first_ns) in (0, len(times.gap_ns)):
        request_s = (sum(times.first_ns) + sum(map(sum, times.gap_ns))) / len(times.gap_ns) / 1e9
        if FIRST * alone_s * (len(times.first_ns) + sum(map(len, times.gap_ns))) <= request_s * len(times.gap_ns):
            yield Sign(TOKENS, request_s / step_s, LIMIT if on_cpu else OVERLAP)
    if local and local.synchronised_ns:
        turn_s = median(map(max, local.synchronised_ns)) / local.steps_per_block / 1e9
        yield Sign(LOCAL, turn_s / step_s, LIMIT)
    if trace and trace.step_ns and trace.devices and not trace.separable:
        if on_cpu:
            events_s, profiled_s = EVENT_S * trace.rows / trace.steps, min(trace.step_ns) / 1e9
        else:
            events_s, profiled_s = 0.0, trace.busy_share * trace.wall_ns / trace.steps / 1e9
        if events_s <= step_s:
            yield Sign(PROFILE, profiled_s / (step_s + events_s), LIMIT)


def _clock(record: Record, blocks: Blocks) -> Iterator[Sign]:
    """Compare the blocks with the clock of the timed part, with the length that they should have, and with the load."""
    seen, cpu, load = record.interference, record.machine.cpu, record.machine.load_average_1min
    if seen is None or seen.duration_s < TIMED_S:
        return
    if record.design.partner is None:
        around_s = READING_S + reading_s(record) + BLOCK_COST_S * len(blocks.duration_ns)
        own_s = sum(blocks.duration_ns) / 1e9 + around_s
        yield Sign(TIMED, (seen.duration_s - (seen.throttled_s or 0.0)) / own_s, FILLED)
    if seen.other_busy_cores is None or seen.duration_s < COUNTED_S:
        return
    percent = (seen.pressure_percent or 0.0) + (seen.steal_percent or 0.0)
    if seen.other_busy_cores + percent / 100 <= NEGLIGIBLE and not seen.throttled_s:
        yield Sign(SHORT, BLOCK_S * 1e9 / _start_ns(blocks), LIMIT)
        yield Sign(LOAD, load / (2 * cpu.logical_cores + 1), 1.0)
