"""Products with quantised weights in JAX: the compiled step converts the integers and multiplies.

XLA's CPU compiler writes the converted kernel to memory first, so that a step there moves more than with full weights.
Shapes: I inputs, O outputs, G groups of inputs; `...` any axes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker_problems.layers.jax import DenseByOutput
from benchmarker_problems.quantization import WeightType, is_quantized, scale_shape


def dense(problem: Any) -> Callable[..., nn.Module]:
    """Return the module of a decoder's linear layers: Flax's own; in a phase, with kernels by output or quantised."""
    if problem.phase == "none":
        return nn.Dense
    return DenseByOutput if problem.weight_type == "full" else partial(QuantizedDense, weight_type=problem.weight_type)


def by_output(name: str, weight: np.ndarray) -> np.ndarray:
    """Return a weight as it is stored in a phase: kernels of linear layers [I, O] as [O, I], unless they are integers.

    Others, such as those of experts [..., I, O], are as they are.
    """
    is_kernel = is_quantized(name) and weight.ndim == 2 and weight.dtype.kind == "f"
    return np.ascontiguousarray(weight.T) if is_kernel else weight


class QuantizedDense(nn.Module):
    """A linear layer with a quantised kernel."""

    features: int
    weight_type: WeightType
    dtype: Any
    use_bias: bool = True

    @nn.compact
    def __call__(self, x_I: Array) -> Array:
        """Return x·kernel + bias, [..., O]; the scales of int8 apply to the sums, which are fp32 at least."""
        kernel_IO, scale_GO = kernel(self, (x_I.shape[-1], self.features), self.weight_type)
        x_I = x_I.astype(self.dtype)
        if self.weight_type == "int8":
            sum_dtype = jnp.promote_types(self.dtype, jnp.float32)
            sums_O = jnp.matmul(x_I, kernel_IO.astype(self.dtype), preferred_element_type=sum_dtype)
            y_O = (sums_O * scale_GO[0]).astype(self.dtype)
        else:
            y_O = x_I @ dequantized(kernel_IO, scale_GO, self.dtype)
        if not self.use_bias:
            return y_O
        bias_O = self.param("bias", nn.initializers.zeros, (self.features,))
        return y_O + bias_O.astype(self.dtype)


def kernel(module: nn.Module, shape: tuple[int, ...], weight_type: WeightType) -> tuple[Array, Array]:
    """Return the integers [..., I, O] of a module's kernel, and their scales [..., G, O]."""
    integers = module.param("kernel", nn.initializers.zeros, shape, jnp.int8)
    return integers, module.param("kernel_scale", nn.initializers.ones, scale_shape(shape, weight_type))


def dequantized(kernel_IO: Array, scale_GO: Array, dtype: Any) -> Array:
    """Return the kernel [..., I, O] for which integers and scales [..., G, O] stand."""
    grouped = kernel_IO.astype(dtype).reshape(*scale_GO.shape[:-1], -1, scale_GO.shape[-1])
    return (grouped * scale_GO.astype(dtype)[..., None, :]).reshape(kernel_IO.shape)
