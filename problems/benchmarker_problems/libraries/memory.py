"""Whether the weights of a model in PyTorch fit the memory of its device, told before any of them is allocated."""

from collections.abc import Callable

import psutil
import torch
from torch import nn

from benchmarker import PRECISIONS, Case, UserError
from benchmarker_problems.libraries import Library

NUMBERS = {"inference": 1, "forward_backward": 2, "training": 4}
"""Numbers that are kept for each weight, by mode: itself, its gradient, and the two moments of AdamW."""
KEPT = {1: "weights", 2: "weights and gradients", 4: "weights, gradients and moments of AdamW"}
"""These numbers in words."""
BUILT = PRECISIONS["fp32"].parameter_bytes
"""Bytes of a weight as libraries build models, before these are converted."""


def free(device: torch.device) -> int:
    """Return the bytes of a device that nothing holds; of the machine for a CPU, or if the device does not say."""
    module = torch.get_device_module(device)
    if device.type == "cpu" or not hasattr(module, "mem_get_info"):
        return int(psutil.virtual_memory().available)
    unused = module.memory_reserved(device) - module.memory_allocated(device)
    return int(module.mem_get_info(device)[0] + unused)


def weight_count(build: Callable[[], nn.Module]) -> int:
    """Return the number of weights of a model, for which no memory is allocated; 0 if it cannot be built so."""
    try:
        with torch.device("meta"):
            return sum(weight.numel() for weight in build().parameters())
    except UserError:
        raise
    except Exception:  # noqa: BLE001 - some models compute with values as they are built
        return 0


def refuse(problem: Library, case: Case, weights: int, device: torch.device) -> None:
    """Raise `UserError`, with what would help, if so many weights do not fit the memory that is free."""
    numbers, has = NUMBERS[case.mode], free(device)
    item_bytes = PRECISIONS[case.precision].parameter_bytes
    needed = weights * max(item_bytes * numbers, BUILT)
    if needed <= has:
        return
    remedies = ["a --config with fewer layers" if hasattr(problem, "config") else "a smaller model"]
    if item_bytes * numbers > BUILT and PRECISIONS[case.precision].parameter in ("fp32", "fp64"):
        remedies.insert(0, "--precision=bf16")
    if numbers > 1:
        remedies.insert(0, "--mode=inference")
    raise UserError(
        f"{problem.measured} does not fit: {KEPT[numbers]} of {weights / 1e9:.3g} billion parameters take "
        f"{_gib(needed)}, and {'this machine' if device.type == 'cpu' else case.device} has {_gib(has)} free; "
        f"try {' or '.join(remedies)}"
    )


def no_room_for_check(case: Case, weights: int, device: torch.device) -> str | None:
    """Return why a model is not checked, if a copy of it in fp64 does not fit the memory that is free."""
    needed, has = weights * PRECISIONS["fp64"].parameter_bytes * NUMBERS[case.mode], free(device)
    if needed <= has:
        return None
    return f"a copy in fp64 to check it by takes {_gib(needed)}, and {_gib(has)} are free"


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"
