"""Convolution in JAX: `conv_general_dilated` takes both layouts."""

from collections.abc import Callable, Mapping
from itertools import cycle

import jax
import numpy as np
from jax import Array, lax

from benchmarker import PRECISIONS, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.conv import INPUTS, OUTPUTS, PRECISIONS_DONE, Conv, channels_first, channels_last


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type."""
    return Support(PRECISIONS_DONE)


def step_function(problem: Conv, mode: Mode) -> Callable[..., tuple[Array, ...]]:
    """Return the function from (x, w) to (out,), or with backward from (x, w, d_out) to (out, d_x, d_w)."""
    p = problem
    axes = "DHW"[3 - p.dims :]
    image, kernel = (f"N{axes}C", f"{axes}IO") if p.layout == "channels_last" else (f"NC{axes}", f"OI{axes}")

    def convolution(x: Array, w: Array) -> Array:
        with jax.named_scope("conv"):
            return lax.conv_general_dilated(
                x,
                w,
                window_strides=p.dims * (p.stride,),
                padding=p.dims * ((p.padding, p.padding),),
                rhs_dilation=p.dims * (p.dilation,),
                dimension_numbers=(image, kernel, image),
                feature_group_count=p.groups,
            )

    def forward(x: Array, w: Array) -> tuple[Array, ...]:
        return (convolution(x, w),)

    def forward_backward(x: Array, w: Array, d_out: Array) -> tuple[Array, ...]:
        out, pullback = jax.vjp(convolution, x, w)
        return (out, *pullback(d_out))

    return forward if mode == "inference" else forward_backward


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Conv, data: Data) -> Workload:
    """Build a step: one convolution; in `forward_backward` also the gradients of image and kernel, by `vjp`."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    function = jax.jit(step_function(problem, case.mode))
    is_first = problem.layout == "channels_first"

    def put(name: str, value: np.ndarray) -> Array:
        return framework.put(channels_first(name, value) if is_first else value, dtype)

    batches = cycle([tuple(put(name, batch[name]) for name in INPUTS[case.mode]) for batch in data.batches])

    def step() -> tuple[Array, ...]:
        return function(*next(batches))

    def outputs(result: tuple[Array, ...]) -> Mapping[str, np.ndarray]:
        named = {name: np.asarray(value, np.float64) for name, value in zip(OUTPUTS, result, strict=False)}
        return {name: channels_last(name, value) for name, value in named.items()} if is_first else named

    return Workload(step, outputs)
