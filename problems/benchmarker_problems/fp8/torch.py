"""Products of fp8 with scales in PyTorch."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from benchmarker import Precision
from benchmarker_plugins.frameworks.torch import TorchFramework
from benchmarker_problems.fp8 import FORMATS, scale_axes

Scaled = tuple[Tensor, Tensor]
"""Numbers [..., rows, columns], and their scales, which broadcast."""


def put(
    framework: TorchFramework, factors: Iterable[tuple[np.ndarray, np.ndarray]], dtype: torch.dtype
) -> tuple[Scaled, ...]:
    """Return numbers and scales on the device, as `fp8.scaled` gives them."""
    return tuple((framework.put(numbers, dtype), framework.put(scale)) for numbers, scale in factors)


def scaled(values: Tensor, types: Precision, dtype: torch.dtype, axis: int) -> Scaled:
    """Return the numbers that stand for values in fp32, and their scales, as `fp8.scaled` does."""
    axes = scale_axes(types, axis)
    largest = values.abs().amax(axes, keepdim=True)
    scale = torch.where(largest == 0, 1, largest / FORMATS[types.parameter].largest)
    return (values / scale).to(dtype), scale


def product(a_MK: Scaled, b_KN: Scaled) -> Tensor:
    """Return the product in fp32 of numbers, times both scales; the products of a batch run one by one."""
    (a, a_scale), (b, b_scale) = a_MK, b_KN
    if a.ndim == 2:
        return torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=torch.float32)
    factors = zip(a, a_scale, b, b_scale, strict=True)
    return torch.stack([product((a, a_scale), (b, b_scale)) for a, a_scale, b, b_scale in factors])
