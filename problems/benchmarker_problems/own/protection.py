"""What shows that a function does in timed steps what it did when it was checked.

A function may fool its author: it keeps a result and returns it again, writes to its inputs, or leaves work to a thread
that is not timed. What makes a result wrong is a failure. What only makes a time doubtful is a suspicion: timing alone
never refuses a measurement.
"""

from __future__ import annotations

import random
import threading
import time
from math import comb
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarker import relative_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarker_problems.own.workload import Measured, Outputs

VERIFIED = 4
"""Most sets of inputs whose results are compared again."""
PAIRS = 21
"""Steps on inputs never seen, each beside one on known inputs in the same memory."""
TIMES = 1.5
"""How much longer they must take, in the median, to be suspect."""
CHANCE = 1e-5
"""Largest probability that an honest function is suspected, by a sign test of the pairs."""
PAIRS_S = 5.0
"""Time after which no further pair begins; fewer pairs than all show nothing."""
_CLOCKS = {name: getattr(time, name) for name in ("perf_counter_ns", "perf_counter", "monotonic_ns", "monotonic")}
"""The clocks before any file of a user was imported."""


def trouble(measured: Measured[Any]) -> str | None:
    """Return what is wrong with the results of a function after its timed steps, or None."""
    calls, sets, batches = measured.calls, measured.sets, measured.data.batches
    if calls.case.mode == "training":
        return None
    before = calls.contents(calls.put(batches[0], calls.case.precision)) or []
    after = calls.contents(sets[0]) or []
    if not all(np.array_equal(one, two, equal_nan=True) for one, two in zip(before, after, strict=True)):
        return "it writes to its inputs, so that each step gets others; copy them first"
    results = [measured.call(arguments) for arguments in sets[:VERIFIED]]
    if measured.against is None:
        if not calls.problem.any_result:
            calls.outputs(results[0])  # raises if a result is none of the framework's
        return None
    expected = measured.expected(VERIFIED)
    bounds, _ = measured.bounds(expected)

    def wrong(result: Any, number: int) -> str | None:
        observed = calls.outputs(result)
        errors = {name: relative_error(observed[name], values) for name, values in expected[number].items()}
        off = (f"{name} is off by {error:.3g}" for name, error in errors.items() if error > bounds[name])
        return next(off, None)

    for number, result in enumerate(results):
        if text := wrong(result, number):
            why = (
                "it returns an earlier result"
                if wrong(measured.call(sets[number]), number)
                else "its results share memory"
            )
            return f"after the timed steps, {text}: {why}"
    if len(expected) > 1 and calls.overwrite(sets[0], batches[1]):
        text = wrong(measured.call(sets[0]), 1)
        calls.overwrite(sets[0], batches[0])
        if text:
            return f"with other contents in the same memory, {text}: it returns an earlier result"
    return None


def suspicions(measured: Measured[Any]) -> list[str]:
    """Return what makes the time of a function doubtful."""
    files = measured.calls.problem.code_files
    changed = [name for name, clock in _CLOCKS.items() if getattr(time, name) is not clock]
    threads = [thread.name for thread in threading.enumerate() if _is_from(thread, files)]
    found = [f"it replaced the clock time.{name}" for name in changed[:1]]
    found += [f"its thread {name} runs beside the timed steps" for name in threads[:1]]
    if measured.calls.case.mode != "training" and (times := _times_longer(measured)):
        found.append(f"a step takes {times:.3g} times as long on inputs that it has never seen")
    return found


def _is_from(thread: threading.Thread, files: frozenset[str]) -> bool:
    """Whether a thread runs a function of some files."""
    target = getattr(thread, "_target", None) or type(thread).run
    return getattr(getattr(target, "__code__", None), "co_filename", "") in files


def _times_longer(measured: Measured[Any]) -> float | None:
    """Return how much longer steps take on new inputs than on known ones in the same memory; None if they do not."""
    ratios = []
    for number, unseen in enumerate(_new_inputs(measured)):
        place = number % len(measured.sets)
        sides = [("unseen", unseen), ("known", measured.data.batches[place])]
        random.shuffle(sides)
        taken = {name: _step_ns(measured, place, batch) for name, batch in sides}
        ratios.append(taken["unseen"] / taken["known"])
    slower = sum(ratio > 1 for ratio in ratios)
    chance = sum(comb(len(ratios), count) for count in range(slower, len(ratios) + 1)) / 2 ** len(ratios)
    return median(ratios) if chance <= CHANCE and median(ratios) > TIMES else None


def _new_inputs(measured: Measured[Any]) -> Iterator[Outputs]:
    calls = measured.calls
    rng = np.random.default_rng([calls.case.seed, 1])
    end_s = _CLOCKS["monotonic"]() + PAIRS_S
    for _ in range(PAIRS):
        if _CLOCKS["monotonic"]() > end_s:
            return
        yield from calls.problem.data(calls.case.precision, rng, 1).batches


def _step_ns(measured: Measured[Any], place: int, batch: Outputs) -> int:
    """Return the time of a step on inputs that are written into the memory of a set, or into new memory."""
    calls, arguments = measured.calls, measured.sets[place]
    if not calls.overwrite(arguments, batch):
        arguments = calls.put(batch, calls.case.precision)
    calls.framework.synchronize(arguments)
    start: int = _CLOCKS["perf_counter_ns"]()
    calls.framework.synchronize(measured.call(arguments))
    return int(_CLOCKS["perf_counter_ns"]()) - start
