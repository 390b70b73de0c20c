"""Dependent loads in JAX: a loop that XLA compiles for the processor, so that an iteration is little but the load."""

from collections.abc import Mapping

import jax
import numpy as np
from jax import Array, lax

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import JaxFramework
from benchmarker_problems.latency import ITEMS, Latency

UNROLLED = 64
"""Loads of an iteration. Between iterations, XLA keeps the place in memory, which takes time on some processors."""


@hookimpl
def describe_workload() -> Support:
    """Return that the loop is one of processors; XLA launches kernels for each iteration elsewhere."""
    return Support({"inference": ("fp32",)}, choices={"device": ("cpu",)})


@hookimpl
def build_workload(framework: JaxFramework, problem: Latency, data: Data) -> Workload:
    """Build a step: loads that begin at the line at which those of the step before ended.

    XLA clamps an index to the array. Of one that is the remainder of a power of two, the size of the array, the
    compiler knows that this changes nothing: what it adds to a load is one `and`. Whatever is behind the working set is
    never loaded.
    """
    lines = data.weights["memory"]
    numbers = lines[:, 1]
    size = 1 << (lines.size - 1).bit_length()
    memory = framework.put(np.concatenate([lines.ravel(), np.zeros(size - lines.size, np.uint32)]))
    last_item = np.uint32(size - 1)

    @jax.jit
    def chase(memory: Array, place: Array) -> Array:
        def some(place: Array, loads: int) -> Array:
            for _ in range(loads):
                place = lax.dynamic_index_in_dim(memory, place & last_item, keepdims=False)
            return place

        times, rest = divmod(problem.loads, UNROLLED)
        with jax.named_scope("chase"):
            return some(lax.fori_loop(0, times, lambda _, place: some(place, UNROLLED), place), rest)

    start = int(data.batches[0]["line"])
    place, steps = framework.put(np.array(start * ITEMS, np.uint32)), 0

    def step() -> Array:
        nonlocal place, steps
        place, steps = chase(memory, place), steps + 1
        return place

    def outputs(place: Array) -> Mapping[str, np.ndarray]:
        return {"line": np.array([int(place) // ITEMS])}

    def verify(place: Array) -> str | None:
        found, right = int(numbers[int(place) // ITEMS]), (int(numbers[start]) + steps * problem.loads) % problem.lines
        return f"the loads end at line {found} of the cycle, not {right}" if found != right else None

    return Workload(step, outputs, verify=verify)
