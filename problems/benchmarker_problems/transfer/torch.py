"""Transfers in PyTorch: `Tensor.copy_` between tensors that are allocated once."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import TorchFramework
from benchmarker_problems.transfer import ON_A_CPU, PRECISIONS_DONE, Transfer
from benchmarker_problems.transfer.steps import workload


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; pinned memory needs a device other than the CPU, whose backend has such memory."""
    return Support(PRECISIONS_DONE, exclusions=(ON_A_CPU, *_unpinned()))


def _unpinned() -> Iterator[Mapping[str, str]]:
    """Yield the accelerator, unless memory is pinned for it; CUDA and ROCm always have such memory."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator and accelerator.type != "cuda":
        try:
            torch.zeros(1).pin_memory()
        except RuntimeError:
            yield {"memory": "pinned", "device": accelerator.type}


def to_host(x: Tensor) -> np.ndarray:
    """Return the numbers on the host."""
    numbers: np.ndarray = x.cpu().numpy()
    return numbers


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Transfer, data: Data) -> Workload:
    """Build a step: the next tensor is copied into one of the device, one of the host, or one after the other.

    A copy between pinned memory and a device is launched and then waited for; from pageable memory, it waits by itself.
    """
    is_pinned = problem.memory == "pinned"

    def on_host(values: np.ndarray) -> Tensor:
        tensor = torch.tensor(values)
        return tensor.pin_memory() if is_pinned else tensor

    empty = np.zeros_like(data.batches[0]["x"])
    on_device = framework.put(empty)
    targets = {
        "to_device": [on_device],
        "from_device": [on_host(empty)],
        "round_trip": [on_device, on_host(empty)],
    }[problem.direction]

    def move(x: Tensor) -> Tensor:
        for target in targets:
            x = target.copy_(x, non_blocking=is_pinned)
        return x

    put: Callable[[np.ndarray], Tensor] = framework.put if problem.direction == "from_device" else on_host
    return workload(
        data,
        [put(batch["x"]) for batch in data.batches],
        move=framework.compiled(move, case.compile),
        synchronize=framework.synchronize,
        to_host=to_host,
    )
