"""Products of fp8 with scales in PyTorch."""

import torch
from torch import Tensor

from benchmarker import Precision
from benchmarker_problems.fp8 import FORMATS, scale_axes

Scaled = tuple[Tensor, Tensor]
"""Numbers [..., rows, columns], and their scales, which broadcast."""


def scaled(values: Tensor, types: Precision, dtype: torch.dtype, axis: int) -> Scaled:
    """Return the numbers that stand for values in fp32, and their scales, as `fp8.scaled` does."""
    axes = scale_axes(types, axis)
    largest = values.abs().amax(axes, keepdim=True)
    scale = torch.where(largest == 0, 1, largest * (1 / FORMATS[types.parameter].largest))
    return (values / scale).to(dtype), scale


def product(a_MK: Scaled, b_KN: Scaled) -> Tensor:
    """Return the product in fp32 of numbers, times both scales; the products of a batch run one by one."""
    (a, a_scale), (b, b_scale) = a_MK, b_KN
    if a.ndim == 2:
        if not a.is_cuda:  # with one scale of each matrix, oneDNN's reference takes hundreds of times as long
            a_scale = a_scale.expand(a.shape[0], 1).flatten().contiguous().unsqueeze(1)
            b_scale = b_scale.expand(1, b.shape[1]).flatten().contiguous().unsqueeze(0)
        return torch._scaled_mm(a, b, a_scale, b_scale, out_dtype=torch.float32)
    factors = zip(a, a_scale, b, b_scale, strict=True)
    return torch.stack([product((a, a_scale), (b, b_scale)) for a, a_scale, b, b_scale in factors])
