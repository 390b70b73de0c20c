"""Weight-only quantisation: the kernels of linear layers are stored as integers with scales, and nothing else is.

A kernel is symmetric, without a zero point: weight ≈ integer · scale, where scale = max|weight| / largest integer. An
`int8` kernel has a scale for each output (the vector-wise scheme of LLM.int8(), Dettmers et al., 2022, for its weights
alone), an `int4` kernel one for each output and group of 32 inputs (groups as of GPTQ, Frantar et al., 2023, and AWQ,
Lin et al., 2024; the kernels of PyTorch take groups from 32 on). Integers are the nearest ones.

Embeddings, a head tied to one, routers, norms and biases keep the type of the precision, and so do activations and
products: the field calls this W8A16 and W4A16. Shapes: I inputs, O outputs, G groups of inputs; `...` experts.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from benchmarker import PRECISIONS
from benchmarker_problems.layers import Shapes

WeightType = Literal["full", "int8", "int4"]

LARGEST: Mapping[WeightType, int] = {"int8": 127, "int4": 7}
GROUP = 32
"""Inputs that share a scale in int4."""


def require_quantizable(problem: Any, *widths: str) -> None:
    """Raise `ValueError` if weights are quantised without a phase, or the inputs of a product are not whole groups."""
    if problem.weight_type == "full":
        return
    if problem.phase == "none":
        raise ValueError(f"weight_type={problem.weight_type} needs a phase")
    for name in widths:
        if getattr(problem, name) % GROUP:
            raise ValueError(
                f"weight_type={problem.weight_type} needs products of a multiple of {GROUP} inputs, "
                f"not {name}={getattr(problem, name)}"
            )


def is_quantized(name: str) -> bool:
    """Whether a weight of this name is quantised: the kernels of linear layers, but for routers."""
    return name.endswith(".kernel") and not name.endswith("_router.kernel")


def scale_shape(shape: tuple[int, ...], weight_type: WeightType) -> tuple[int, ...]:
    """Return the shape [..., G, O] of the scales of a kernel [..., I, O]."""
    *experts, inputs, outputs = shape
    return *experts, inputs // GROUP if weight_type == "int4" else 1, outputs


def quantized(weights: Mapping[str, np.ndarray], weight_type: WeightType) -> dict[str, np.ndarray]:
    """Return the weights with kernels as integers (int8 on the host) and the scales of each as `NAME_scale`."""
    if weight_type == "full":
        return dict(weights)
    found = {}
    for name, weight in weights.items():
        found[name] = weight
        if is_quantized(name):
            found[name], found[f"{name}_scale"] = quantize(weight, weight_type)
    return found


def quantize(kernel_IO: np.ndarray, weight_type: WeightType) -> tuple[np.ndarray, np.ndarray]:
    """Return the integers of a kernel [..., I, O], and its scales [..., G, O] in the kernel's type."""
    *experts, groups, outputs = scale_shape(kernel_IO.shape, weight_type)
    grouped = kernel_IO.reshape(*experts, groups, -1, outputs)
    scale = np.abs(grouped).max(axis=-2, keepdims=True) / kernel_IO.dtype.type(LARGEST[weight_type])
    scale[scale == 0] = 1
    integers = np.rint(grouped / scale).astype(np.int8)
    return integers.reshape(kernel_IO.shape), scale.squeeze(-2)


def dequantized(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights in float64 for which those of `quantized` stand; others as they are, in float64."""
    found = {}
    for name, weight in weights.items():
        if (scale := weights.get(f"{name}_scale")) is not None:
            grouped = weight.reshape(*scale.shape[:-1], -1, scale.shape[-1])
            found[name] = (grouped * scale.astype(np.float64)[..., None, :]).reshape(weight.shape)
        elif not name.endswith(".kernel_scale"):
            found[name] = weight.astype(np.float64)
    return found


def kernel_bytes(shape: tuple[int, ...], weight_type: WeightType, precision: str) -> int:
    """Return the bytes of a kernel [..., I, O] as a product reads it: integers, and scales of the precision's type."""
    types, size = PRECISIONS[precision], math.prod(shape)
    item_bytes = types.parameter_bytes
    weight_type = "int8" if types.quantizes else weight_type
    if weight_type == "full":
        return size * item_bytes
    scales = math.prod(scale_shape(shape, weight_type))
    return size // (2 if weight_type == "int4" else 1) + scales * item_bytes


def weight_bytes(shapes: Shapes, weight_type: WeightType, precision: str) -> int:
    """Return the bytes of all weights of a model as they are stored."""
    item_bytes = PRECISIONS[precision].parameter_bytes
    return sum(
        kernel_bytes(shape, weight_type, precision) if is_quantized(name) else math.prod(shape) * item_bytes
        for name, shape in shapes.items()
    )
