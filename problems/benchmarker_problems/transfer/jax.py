"""Transfers in JAX: `jax.device_put` from NumPy or from pinned memory, and NumPy's view of an array on the way back."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import SingleDeviceSharding

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import JaxFramework
from benchmarker_problems.transfer import ON_A_CPU, PRECISIONS_DONE, Transfer
from benchmarker_problems.transfer.steps import workload

ALIGNED_BYTES = 64
"""XLA on a CPU takes an array at a multiple of this as it is, and copies others."""


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; pinned memory needs a device other than the CPU."""
    return Support(PRECISIONS_DONE, exclusions=(ON_A_CPU,))


def unaligned(values: np.ndarray) -> np.ndarray:
    """Return a copy that JAX must copy: at 16 bytes after a multiple of 64, as large arrays of NumPy usually are."""
    memory = np.empty(values.nbytes + 2 * ALIGNED_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNED_BYTES + 16
    copy = memory[start : start + values.nbytes].view(values.dtype)
    copy[...] = values
    return copy


@hookimpl
def build_workload(framework: JaxFramework, problem: Transfer, data: Data) -> Workload:
    """Build a step: the next array is copied to new memory of the device, to new memory of the host, or both."""
    device, pinned = SingleDeviceSharding(framework.device), None
    if problem.memory == "pinned":
        pinned = SingleDeviceSharding(framework.device, memory_kind="pinned_host")
    # On a CPU, asarray gives the array's own memory.
    to_numpy: Callable[[Any], np.ndarray] = np.array if framework.platform == "cpu" else np.asarray

    def on_host(values: np.ndarray) -> Any:
        return jax.device_put(values, pinned) if pinned else unaligned(values)

    def to_device(x: Any) -> Array:
        return jax.device_put(x, device)

    def from_device(x: Array) -> Any:
        # An array keeps what was copied to the host; another one of the same memory has nothing yet.
        return jax.device_put(x, pinned) if pinned else to_numpy(x.addressable_data(0))

    moves: dict[str, Callable[[Any], Any]] = {
        "to_device": to_device,
        "from_device": from_device,
        "round_trip": lambda x: from_device(to_device(x)),
    }
    put: Callable[[np.ndarray], Any] = framework.put if problem.direction == "from_device" else on_host
    return workload(
        data,
        [put(batch["x"]) for batch in data.batches],
        move=moves[problem.direction],
        synchronize=framework.synchronize,
        to_host=np.asarray,
    )
