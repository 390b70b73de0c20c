"""Measuring one workload: preheat or warm-up, then timed blocks.

    |-- first step --|-- preheat or warm-up --|sync| k steps |sync| k steps |sync| ... |sync|
     compile_s        preheat                       <-block->      <-block->

A block is `k` steps between two synchronisations; only the steps are between its two readings of the clock. Progress
is reported between blocks.
"""

import gc
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarker.api.case import Measuring
from benchmarker.api.framework import DeviceTimer
from benchmarker.api.problem import Token
from benchmarker.machine.perf_events import Counters
from benchmarker.power.sampler_client import Gauge
from benchmarker.records.record import DeviceTime, Preheat, StoppedBy
from benchmarker.stats.median_interval import MIN_BLOCKS_FOR_INTERVAL, median_half_width

MIN_BLOCK_S = 0.01
"""Shortest block, s: 100,000 times the cost of reading the clock."""
SYNCS_PER_BLOCK = 1000
"""A block is at least this many times as long as one synchronisation."""
TRIES_S = 0.5
"""Time after which no further block is tried before the steps of a block are chosen, s."""
SYNCS = 10
"""Number of times that its cost is measured."""
WINDOW_S = 1.0
"""Shortest preheat window, s."""
PLATEAU = 0.01
"""Two consecutive windows are a plateau if their rates and their powers differ by no more than this fraction."""
PLATEAU_C = 1.0
"""For a plateau, their temperatures must not differ by more than this either, °C."""
TIMED_TOKENS = 1000
"""Tokens that are timed one by one; above the 99th percentile are ten of so many."""
TOKENS_S = 10.0
"""Longest time after which another request is made to time its tokens, s."""
DEVICE_BLOCKS = 10
"""Blocks that are timed by the device's clock."""
DEVICE_S = 2.0
"""Longest time after which no further one begins, s."""

ReportProgress = Callable[[int, float], None]
"""Called between blocks with the number of blocks so far and the last block's seconds per step."""


class Turn(Protocol):
    """Whose turn it is in a duet, and the receiver of its progress."""

    of: int

    def report_progress(self, done: int, step_s: float) -> None:
        """As `ReportProgress`."""


class Steps(Protocol):
    """A step that can be timed."""

    def block(self, steps: int) -> int:
        """Run `steps` steps and wait for them; returns their duration in ns."""

    def sync_s(self) -> float:
        """Return what it costs to begin and end a block, s."""


@dataclass(frozen=True, slots=True)
class Stepper:
    """A step, and how to wait for its result."""

    step: Callable[[], Any]
    synchronize: Callable[[Any], None]

    def block(self, steps: int) -> int:
        """Run `steps` steps and wait for them; returns their duration in ns."""
        step = self.step
        start = time.perf_counter_ns()
        for _ in range(steps):
            result = step()
        self.synchronize(result)
        return time.perf_counter_ns() - start

    def sync_s(self) -> float:
        """The cost of waiting for a result that is already available, s: the minimum of several."""
        result = self.step()
        self.synchronize(result)
        costs = []
        for _ in range(SYNCS):
            start = time.perf_counter()
            self.synchronize(result)
            costs.append(time.perf_counter() - start)
        return min(costs)


@dataclass(frozen=True, slots=True)
class Counted:
    """A step of which counters count the blocks: from just before the first reading of the clock to just after."""

    steps: Steps
    counters: Counters

    def block(self, steps: int) -> int:
        """Run `steps` steps and wait for them; returns their duration in ns."""
        self.counters.enable()
        try:
            return self.steps.block(steps)
        finally:
            self.counters.disable()

    def sync_s(self) -> float:
        """Return what it costs to begin and end a block, s."""
        return self.steps.sync_s()


def at_once(steppers: Sequence[Steps], steps: int) -> list[int]:
    """Run a block of each stepper at the same time, in threads if there are several; returns their durations in ns."""
    if len(steppers) == 1:
        return [steppers[0].block(steps)]
    ready = threading.Barrier(len(steppers))

    def block(stepper: Steps) -> int:
        ready.wait()
        return stepper.block(steps)

    with ThreadPoolExecutor(len(steppers)) as pool:
        return list(pool.map(block, steppers))


def preheat(
    stepper: Steps, measuring: Measuring, report_progress: ReportProgress, gauge: Callable[[], Gauge] = Gauge
) -> Preheat:
    """Bring the workload to a steady rate: by a fixed number of steps or, if requested, until a plateau.

    If `gauge` reports power and temperature, they must be steady too.
    """
    start = time.perf_counter()
    if not measuring.preheat:
        for done in range(1, measuring.warmup_steps + 1):
            report_progress(done, stepper.block(1) / 1e9)
        return Preheat(
            outcome="fixed",
            duration_s=time.perf_counter() - start,
            steps=measuring.warmup_steps,
            window_steps_per_s=[],
        )
    rates: list[float] = []
    powers: list[float] = []
    temperatures: list[float] = []
    steps = 0
    gauge()
    while True:
        window = 0
        window_start = time.perf_counter()
        while (elapsed := time.perf_counter() - window_start) < WINDOW_S:
            stepper.block(1)
            window += 1
        steps += window
        rates.append(window / elapsed)
        report_progress(len(rates), elapsed / window)
        now = gauge()
        if now.power_W is not None:
            powers.append(now.power_W)
        if now.temperature_C is not None:
            temperatures.append(now.temperature_C)
        steady = _differs_by(rates) <= PLATEAU * rates[-1] and _differs_by(powers) <= PLATEAU * max(
            powers[-1:], default=0
        )
        plateau = len(rates) > 1 and steady and _differs_by(temperatures) <= PLATEAU_C
        duration = time.perf_counter() - start
        if plateau or duration >= measuring.preheat_max_s:
            return Preheat(
                outcome="plateau" if plateau else "timeout",
                duration_s=duration,
                steps=steps,
                window_steps_per_s=rates,
                window_power_W=powers,
                window_temperature_C=temperatures,
            )


def _differs_by(values: Sequence[float]) -> float:
    """By how much the last value differs from the one before; 0 if there is none."""
    return abs(values[-1] - values[-2]) if len(values) > 1 else 0.0


def steps_per_block(stepper: Steps, tries: int = 1, part: float = 0.5) -> int:
    """Steps of a block: enough that it takes much longer than reading the clock and than synchronising.

    The shortest of several `tries` counts, since a disturbance makes few steps seem long; each is at least a `part` of
    a block, and all together take at most `TRIES_S`, but for the last.
    """
    least = max(MIN_BLOCK_S, SYNCS_PER_BLOCK * stepper.sync_s())
    steps = 1
    while (duration := min(_lasting(stepper, steps, least * part, tries))) < least * part:
        steps *= 2
    return max(1, math.ceil(steps * least / duration))


def _lasting(stepper: Steps, steps: int, least_s: float, tries: int) -> Iterator[float]:
    """Yield the durations of several blocks, s, up to the first that is too short."""
    total = 0.0
    for _ in range(tries):
        yield (duration := stepper.block(steps) / 1e9)
        total += duration
        if duration < least_s or total >= TRIES_S:
            return


def quiet() -> None:
    """Collect garbage, and exempt the remaining objects from later collections."""
    gc.collect()
    gc.freeze()


def timed_blocks(
    stepper: Steps,
    steps: int,
    measuring: Measuring,
    durations: list[int],
    report_progress: ReportProgress,
    least_s: float = 0.0,
) -> StoppedBy:
    """Time blocks of `steps` steps until the requested count, seconds or precision; returns which ended it.

    The count and the precision do not end it before `least_s`. `durations` (ns) is filled as the blocks end, so that
    an error loses none of them.
    """
    start = time.perf_counter()
    deadline, least = start + max(measuring.seconds, least_s), start + least_s
    next_check = MIN_BLOCKS_FOR_INTERVAL
    while True:
        durations.append(stepper.block(steps))
        done = len(durations)
        report_progress(done, durations[-1] / steps / 1e9)
        if time.perf_counter() < least:
            continue
        if done >= measuring.blocks:
            return "blocks" if done == measuring.blocks else "power_min"
        if measuring.median_precision is not None and done >= next_check:
            next_check = math.ceil(done * 1.1)
            if median_half_width(durations) <= measuring.median_precision:
                return "median_precision"
        if time.perf_counter() >= deadline:
            return "seconds" if measuring.seconds >= least_s else "power_min"


def token_times(
    tokens: Callable[[Callable[[Token], object]], object],
    measuring: Measuring,
    first_ns: list[int],
    gap_ns: list[list[int]],
    report_progress: ReportProgress,
) -> None:
    """Time each token of requests, one after the other, until there are `TIMED_TOKENS` or the time is up.

    There are at most as many requests as blocks are requested, and at least one. `first_ns` and `gap_ns` are filled as
    the requests end, so that an error loses none of them.
    """
    start = time.perf_counter()
    deadline, timed = start + min(measuring.seconds, TOKENS_S), 0
    for done in range(1, measuring.blocks + 1):
        durations_ns = _request(tokens)
        first_ns += durations_ns["first"]
        if durations_ns["next"]:
            gap_ns.append(durations_ns["next"])
        every = [*durations_ns["first"], *durations_ns["next"]]
        timed += len(every)
        report_progress(done, sum(every) / max(1, len(every)) / 1e9)
        if timed >= TIMED_TOKENS or time.perf_counter() >= deadline:
            return


def _request(tokens: Callable[[Callable[[Token], object]], object]) -> dict[Token, list[int]]:
    """Return the time until each token of a request since the one before, ns."""
    durations_ns: dict[Token, list[int]] = {"first": [], "next": []}
    last = time.perf_counter_ns()

    def came(token: Token) -> None:
        nonlocal last
        now = time.perf_counter_ns()
        durations_ns[token].append(now - last)
        last = now

    tokens(came)
    return durations_ns


def device_time(timer: DeviceTimer, step: Callable[[], Any], steps: int) -> DeviceTime | None:
    """Time blocks by the device's clock, of as many of `steps` steps as can be launched ahead; None if not even one."""
    deadline = time.perf_counter() + DEVICE_S
    while (first_ns := timer(step, steps)) is None:
        if steps == 1:
            return None
        steps //= 2
    durations_ns = [first_ns]
    for _ in range(DEVICE_BLOCKS - 1):
        if time.perf_counter() >= deadline:
            break
        if (duration_ns := timer(step, steps)) is not None:
            durations_ns.append(duration_ns)
    return DeviceTime(steps, durations_ns)


def duet_blocks(
    steppers: Sequence[Steps],
    steps: Sequence[int],
    measuring: Measuring,
    durations: tuple[list[int], list[int]],
    second_first: list[bool],
    rng: random.Random,
    turn: Turn,
) -> StoppedBy:
    """Time blocks of two workloads in turns, in random order in every pair; returns what ended it.

    `durations` (ns) of both, and `second_first` (whether the second of the two went first), are filled as the pairs
    end. `turn.of` is always the workload whose turn it is.
    """
    deadline = time.perf_counter() + 2 * measuring.seconds
    while True:
        first = rng.getrandbits(1)
        for turn.of in (first, 1 - first):
            durations[turn.of].append(steppers[turn.of].block(steps[turn.of]))
        second_first.append(bool(first))
        done = len(second_first)
        turn.report_progress(done, durations[turn.of][-1] / steps[turn.of] / 1e9)
        if done >= measuring.blocks:
            return "blocks"
        if time.perf_counter() >= deadline:
            return "seconds"
