"""Steps of launches, for any framework."""

import time
from collections.abc import Callable, Sequence
from itertools import cycle, repeat
from typing import TypeVar

import numpy as np

from benchmarker import Data, Figure, Workload

T = TypeVar("T")
_ROUNDS = 100
"""How often the time to enqueue is measured."""
_ROUNDS_S = 1.0
"""Time after which it is not measured again, s."""


def workload(
    kernels: int,
    data: Data,
    *,
    put: Callable[[np.ndarray], T],
    kernel: Callable[[T], T],
    synchronize: Callable[[T], object],
    to_host: Callable[[T], np.ndarray],
) -> Workload:
    """Return the step of a framework: it calls `kernel`, which adds 1, so many times, and waits for the last result.

    The time to enqueue is measured after timing, in the same steps but with the clock read before they wait. Nothing is
    pending when they begin.
    """
    starts = [batch["x"] for batch in data.batches]
    inputs = cycle([put(start) for start in starts])

    def launch() -> T:
        x = next(inputs)
        for _ in repeat(None, kernels):
            x = kernel(x)
        return x

    def step() -> T:
        x = launch()
        synchronize(x)
        return x

    def verify(result: T) -> str | None:
        found, right = to_host(result), [start + kernels for start in starts]
        if any(np.array_equal(found, each) for each in right):
            return None
        return f"{kernels} additions of 1 give {found.tolist()}, which is none of {np.ravel(right).tolist()}"

    def figures() -> Sequence[Figure]:
        times_s: list[float] = []
        deadline = time.perf_counter() + _ROUNDS_S
        while not times_s or (len(times_s) < _ROUNDS and time.perf_counter() < deadline):
            begin_ns = time.perf_counter_ns()
            x = launch()
            times_s.append((time.perf_counter_ns() - begin_ns) / 1e9)
            synchronize(x)
        return [Figure("enqueue_s", "s", "lower", times_s)]

    return Workload(step, lambda result: {"x": to_host(result)}, verify=verify, figures=figures)
