"""Products with quantised weights in PyTorch, by its own kernels for CPUs: int8pack and int4pack.

They take fp32, bf16 and fp16, and are made for bf16: in the other types they are slower than products with full
weights. In bf16, int8pack reads beyond a row whose inputs are no multiple of 16; here they are one of 32.

Shapes: R rows, I inputs, O outputs, G groups of inputs; `...` any axes.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker_problems.layers.torch import Linear
from benchmarker_problems.quantization import GROUP, WeightType, scale_shape

UNSUPPORTED = tuple(
    {"weight_type": weight_type, **where}
    for weight_type in ("int8", "int4")
    for where in ({"precision": "fp64"}, {"device": "cuda"}, {"device": "rocm"})
)
"""PyTorch's products with quantised weights here are those of CPUs, which have no fp64."""
OUTPUTS = 16
"""The kernel for int4 takes multiples of so many outputs; others are padded."""


def linear(weight_type: WeightType, inputs: int, outputs: int, *, bias: bool = True) -> nn.Module:
    """Return a linear layer with full or quantised weights."""
    if weight_type == "full":
        return Linear(inputs, outputs, bias=bias)
    return QuantizedLinear(weight_type, inputs, outputs, bias=bias)


class Quantized(nn.Module):
    """A kernel that is loaded as integers [..., O, I] and scales [..., G, O], and packed then."""

    weight: Tensor
    kernel_scale: Tensor

    def __init__(self, weight_type: WeightType, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight_type: WeightType = weight_type
        *experts, inputs, self.outputs = shape
        self.register_buffer("weight", torch.empty(*experts, self.outputs, inputs, dtype=torch.int8))
        self.register_buffer("kernel_scale", torch.empty(scale_shape(shape, weight_type)))
        self.register_load_state_dict_post_hook(pack)  # type: ignore[no-untyped-call]

    def product(self, x_RI: Tensor, weight: Tensor, kernel_scale: Tensor) -> Tensor:
        """Return [R, O] of rows with a packed kernel; under autocast in its type."""
        device = x_RI.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x_RI.dtype
        x_RI, kernel_scale = x_RI.to(dtype), kernel_scale.to(dtype)
        if self.weight_type == "int8":
            return torch._weight_int8pack_mm(x_RI, weight, kernel_scale)
        y_RO: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x_RI, weight, GROUP, kernel_scale)
        return y_RO[:, : self.outputs]


def pack(module: Quantized, _: Any) -> None:
    """Convert a kernel that is loaded to the layout of the product; two integers of int4 share a byte."""
    if module.weight_type == "int8":
        module.kernel_scale = module.kernel_scale.squeeze(-2)
        return
    padding = -module.outputs % OUTPUTS
    integers = F.pad(module.weight.int() + 8, (0, 0, 0, padding))
    packed = [
        torch.ops.aten._convert_weight_to_int4pack_for_cpu(each, 1) for each in integers.view(-1, *integers.shape[-2:])
    ]
    scale_GO = F.pad(module.kernel_scale, (0, padding))
    module.weight = torch.stack(packed).view(*integers.shape[:-1], -1)
    module.kernel_scale = torch.stack([scale_GO, torch.zeros_like(scale_GO)], dim=-1)


class QuantizedLinear(Quantized):
    """A linear layer with a quantised kernel."""

    def __init__(self, weight_type: WeightType, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__(weight_type, (inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x_I: Tensor) -> Tensor:
        """Return x·kernel + bias, [..., O]."""
        y_RO = self.product(x_I.flatten(0, -2), self.weight, self.kernel_scale)
        y_O = y_RO.view(*x_I.shape[:-1], -1)
        return y_O if self.bias is None else y_O + self.bias.to(y_O.dtype)
