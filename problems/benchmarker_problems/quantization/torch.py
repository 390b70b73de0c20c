"""Products with quantised weights in PyTorch, by its own kernels: int8pack and int4pack.

Those of CPUs take fp32, bf16 and fp16, and are made for bf16: in the other types they are slower than products with
full weights. In bf16, int8pack reads beyond a row whose inputs are no multiple of 16; here they are one of 32.

Those of CUDA, by PyTorch's source (aten/src/ATen/native/cuda, int8mm.cu and int4mm.cu) and not tried on a GPU yet:
int8pack, from PyTorch 2.9 on, converts rows to fp32; int4pack takes bf16 alone, on compute capability 8.0 and above.

Shapes: R rows, I inputs, O outputs, G groups of inputs; `...` any axes.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import UserError
from benchmarker_problems.layers.torch import Linear
from benchmarker_problems.quantization import GROUP, WeightType, scale_shape
from benchmarker_problems.steps import DONE

IN_BF16 = ("bf16", "mixed_bf16")
"""Precisions whose rows are in bf16."""


def unsupported(has_int8_on_cuda: bool) -> tuple[Mapping[str, str], ...]:
    """Return what PyTorch's products with quantised weights do not have: fp64, AMD's GPUs, and int4 of others there."""
    nowhere = ({"precision": "fp64"}, {"device": "rocm"})
    others = (name for name in DONE["inference"] if name not in IN_BF16)
    on_cuda = [{"weight_type": "int4", "device": "cuda", "precision": name} for name in others]
    if not has_int8_on_cuda:
        on_cuda.append({"weight_type": "int8", "device": "cuda"})
    return (*({"weight_type": name, **where} for name in ("int8", "int4") for where in nowhere), *on_cuda)


UNSUPPORTED = unsupported(torch._C._dispatch_has_kernel_for_dispatch_key("aten::_weight_int8pack_mm", "CUDA"))
OUTPUTS = 16
"""The kernels for int4 take multiples of so many outputs, or of half as many on CUDA; others are padded."""
INNER_TILES = 2
"""Tiles of 16 inputs that lie together in weights for int4pack on CUDA: the fewest, for any number of groups."""
LEAST_CAPABILITY = (8, 0)


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
        multiply = torch._weight_int4pack_mm if x_RI.is_cuda else torch.ops.aten._weight_int4pack_mm_for_cpu
        y_RO: Tensor = multiply(x_RI, weight, GROUP, kernel_scale)
        return y_RO.narrow(1, 0, self.outputs)


def pack(module: Quantized, _: Any) -> None:
    """Convert a kernel that is loaded to the layout of the product; two integers of int4 share a byte."""
    if module.weight_type == "int8":
        module.kernel_scale = module.kernel_scale.squeeze(-2)
        return
    padding = -module.outputs % OUTPUTS
    integers = F.pad(module.weight.int() + 8, (0, 0, 0, padding))
    packed = torch.stack([_packed(each) for each in integers.view(-1, *integers.shape[-2:])])
    scale_GO = F.pad(module.kernel_scale, (0, padding))
    module.weight = packed.view(*integers.shape[:-2], *packed.shape[1:])
    module.kernel_scale = torch.stack([scale_GO, torch.zeros_like(scale_GO)], dim=-1)


def _packed(integers_OI: Tensor) -> Tensor:
    """Return integers from 0 to 15 in the layout of int4pack on their device."""
    if not integers_OI.is_cuda:
        packed: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(integers_OI, 1)
        return packed
    capability = torch.cuda.get_device_capability(integers_OI.device)
    if capability < LEAST_CAPABILITY:
        raise UserError(
            f"int4 weights in PyTorch need compute capability 8.0, not {capability[0]}.{capability[1]}; "
            "use --weight-type=int8"
        )
    first, second = integers_OI.view(len(integers_OI), -1, 2).unbind(2)
    return torch._convert_weight_to_int4pack((first << 4 | second).to(torch.uint8), INNER_TILES)


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
