"""What the records of a run must agree in: when trials ran, what each tells of its speed, that no block is copied."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from benchmarker.formatting import part, si
from benchmarker.records.consistency import BLOCK_COST_S, CLOCK_S, SECOND_S, around_s, reading_s, started_at
from benchmarker.records.record import Blocks, Record


@dataclass(frozen=True, slots=True)
class Span:
    """When a trial ran: its start (s since 1970), its duration, and the time that its blocks took of the timed part."""

    trial_id: str
    partner: str | None
    started_s: float
    wall_s: float
    blocks_s: float
    timed_s: float | None
    around_s: float


def span(record: Record) -> Span | None:
    """Return when a trial ran; None if it was not started, or if that is not known."""
    started_s = started_at(record)
    if started_s is None or not record.harness.stages_s:
        return None
    blocks_s = sum(record.blocks.duration_ns) / 1e9 if record.blocks else 0.0
    timed_s = record.interference.duration_s if record.interference and record.error is None else None
    return Span(
        record.trial_id,
        record.design.partner,
        started_s,
        record.harness.wall_s,
        blocks_s,
        timed_s,
        around_s(record, timed_s or 0.0),
    )


def contradictions_between(spans: Iterable[Span]) -> list[tuple[str, str]]:
    """Return which trials of a run contradict others: processes run one after the other, and duets share one."""
    ordered = sorted(spans, key=lambda span: (span.started_s, span.trial_id))
    contradictions = []
    for one, two in pairwise(ordered):
        if two.trial_id != one.partner and two.started_s - one.started_s < one.wall_s - SECOND_S:
            contradictions.append((two.trial_id, f"it started before the trial {one.trial_id} had ended"))
    return contradictions + _duets(ordered)


def _duets(spans: Sequence[Span]) -> list[tuple[str, str]]:
    """The blocks of both cases of a duet are within one timed part, and are nearly all of it."""
    contradictions = []
    by_trial = {span.trial_id: span for span in spans}
    for one in spans:
        other = by_trial.get(one.partner or "")
        if other is None or one.trial_id > other.trial_id or one.timed_s is None:
            continue
        if other.partner != one.trial_id or other.timed_s != one.timed_s:
            contradictions.append((other.trial_id, f"its partner {one.trial_id} was not timed in the same process"))
        elif not one.timed_s - one.around_s <= one.blocks_s + other.blocks_s <= one.timed_s + CLOCK_S:
            both, timed = si(one.blocks_s + other.blocks_s, "s"), si(one.timed_s, "s")
            contradictions.append(
                (other.trial_id, f"with its partner {one.trial_id}, its blocks take {both} of {timed}")
            )
    return contradictions


RUN = 12
"""Blocks of a run: shorter copies are found only if they are all blocks of a trial."""
BITS = 60
RATIO = 5e-6
"""Ratios are rounded to this share; rounding to whole ns moves those of blocks of 10 ms by a fiftieth of it."""
_WEIGHTS = np.random.Generator(np.random.PCG64(0)).integers(1, 2**63, RUN, dtype=np.uint64) | np.uint64(1)
_NONE = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True)
class _Prints:
    """The fingerprints of one kind: the trial of each, the number of blocks that it covers, and its text."""

    text: str
    values: list[np.ndarray]
    trials: list[np.ndarray]


class Copies:
    """Fingerprints of the blocks of trials, to find those that are not of one trial alone.

    Durations that were measured never repeat to the nanosecond. Compared are fingerprints of runs of `RUN` consecutive
    blocks: of the differences from one block to the next, which stay if a constant is added to all, and of their
    ratios, which stay if all are multiplied by a constant; and of all blocks sorted, which stay in any order. A
    fingerprint counts only if two trials have the same by chance with a probability below 2^-60, by the interquartile
    range of the durations and the resolution of the clock.
    """

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._kinds = [
            _Prints("its blocks are those of {}", [], []),
            _Prints("a run of its blocks is also in {}", [], []),
            _Prints("a run of its blocks has the ratios of one in {}", [], []),
        ]

    def add(self, record: Record) -> None:
        """Take the fingerprints of a trial; one that was added before is left out."""
        if record.blocks is None or record.trial_id in self._names:
            return
        number = self._names[record.trial_id] = len(self._names)
        for kind, values in zip(self._kinds, _prints(np.array(record.blocks.duration_ns, np.int64)), strict=True):
            kind.values.append(values)
            kind.trials.append(np.full(len(values), number, np.int32))

    def found(self) -> dict[str, str]:
        """Return which trials have blocks of others, or of their own again, and which, by trial."""
        names, told = list(self._names), dict[int, str]()
        for kind in self._kinds:
            others: dict[int, Counter[int]] = defaultdict(Counter)
            for trials in _shared(kind):
                for trial in set(trials):
                    others[trial].update({*trials} - {trial} or {trial})
            for trial, counts in others.items():
                other = counts.most_common(1)[0][0]
                where = f"the trial {names[other]}" if other != trial else "the same trial once more"
                told.setdefault(trial, kind.text.format(where))
        return {names[trial]: text for trial, text in sorted(told.items())}


def _prints(durations_ns: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the fingerprints of all blocks in any order, of the differences in each run, and of the ratios in it."""
    if len(durations_ns) < 3:  # fewer have no spread
        yield from (_NONE, _NONE, _NONE)
        return
    low, high = np.percentile(durations_ns, [25, 75])
    tick = max(1, int(np.gcd.reduce(np.abs(np.diff(durations_ns)))))
    spread = (high - low) / tick
    bits = len(durations_ns) * math.log2(1 + spread) - math.lgamma(len(durations_ns) + 1) / math.log(2)
    ordered = np.sort(durations_ns).astype(np.uint64)
    places = np.arange(1, len(ordered) + 1, dtype=np.uint64) * _WEIGHTS[0]
    yield np.array([((ordered ^ places) * (ordered + places)).sum()], np.uint64) if bits >= BITS else _NONE
    relative = (high - low) / (RATIO * float(np.median(durations_ns)))
    ratios = np.round(np.diff(np.log(durations_ns)) / RATIO).astype(np.int64)
    for steps, levels in ((np.diff(durations_ns), spread), (ratios, min(spread, relative))):
        is_telling = (RUN - 1) * math.log2(1 + levels) >= BITS
        yield _of_runs(steps.view(np.uint64)) if is_telling and len(steps) >= RUN - 1 else _NONE


def _of_runs(steps: np.ndarray) -> np.ndarray:
    """Return a fingerprint of each run of `RUN - 1` consecutive steps."""
    runs = len(steps) - RUN + 2
    total = np.zeros(runs, np.uint64)
    for place in range(RUN - 1):
        total += steps[place : place + runs] * _WEIGHTS[place]
    return total


def _shared(prints: _Prints) -> Iterator[list[int]]:
    """Yield the trials of each fingerprint that occurs more than once."""
    values, trials = (np.concatenate(parts or [_NONE]) for parts in (prints.values, prints.trials))
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=~values[order[:1]]))
    ends = np.append(starts[1:], len(values))[: len(starts)]
    for start, end in zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True):
        yield trials[order[start:end]].tolist()


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

    A trial is the number of its case and its signs. In one trial, a disturbance explains any difference: it hits the
    preheat and not the blocks, or the reverse. It does not explain the same difference in three quarters of the trials
    of a run. The limits are from trials that were measured on a machine with five times as many runnable threads as
    cores (benchmarks/verdicts/forgeries.py repeats that): of the ratios, one in ten exceeded its limit, and the blocks
    never left as much of the timed part.
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
