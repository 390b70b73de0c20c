"""Convolution in bare oneDNN, which chooses the layout of the kernel, and in `channels_first` that of images too.

What is stored otherwise is reordered in each step. Images are [B, C, *X], kernels [O, I, *K] or
[groups, O/groups, I, *K], stored as their strides tell.
"""

from ctypes import c_int, c_int64

import numpy as np

from benchmarker import Arrays, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.onednn import (
    D_RESULT,
    D_SOURCE,
    D_WEIGHTS,
    DTYPES,
    INFERENCE,
    RESULT,
    SOURCE,
    TRAINING,
    WEIGHTS,
    OnednnFramework,
)
from benchmarker_problems.conv import INPUTS, Conv, channels_first, channels_last
from benchmarker_problems.steps import calls
from benchmarker_problems.steps.calls import Call

_DIRECT = 1
"""`dnnl_convolution_direct` (dnnl_types.h)."""


@hookimpl
def describe_workload() -> Support:
    """Return the floating-point types that oneDNN has on a CPU."""
    return Support(dict.fromkeys(INPUTS, tuple(name for name in DTYPES if name != "int8")))


@hookimpl
def build_workload(framework: OnednnFramework, case: Case, problem: Conv, data: Data) -> Workload:
    """Build a step: one convolution; in `forward_backward` also the gradients of image and kernel."""
    p, dtype = problem, DTYPES[case.precision]
    axes = c_int64 * p.dims
    geometry = [axes(*p.dims * (each,)) for each in (p.stride, p.dilation - 1, p.padding, p.padding)]

    def stored(name: str, value: np.ndarray) -> np.ndarray:
        if p.layout == "channels_first":
            return np.ascontiguousarray(channels_first(name, value), dtype)
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(value, -1, 0) if name == "w" else value, dtype), -1, 1)

    def described(array: np.ndarray) -> object:
        return framework.described(array, stored=p.layout == "channels_last")

    sets = [{name: stored(name, batch[name]) for name in INPUTS[case.mode]} for batch in data.batches]
    x, w = sets[0]["x"], sets[0]["w"]
    out = np.empty_like(x, shape=(p.batch_size, p.out_channels, *p.dims * (p.out_size,)))
    x_form, w_form, out_form = described(x), framework.described(_grouped(w, p.groups), stored=False), described(out)
    kind = c_int(INFERENCE if case.mode == "inference" else TRAINING), c_int(_DIRECT)
    forward = framework.chosen("convolution_forward", *kind, x_form, w_form, None, out_form, *geometry, None)

    def forward_calls(inputs: Arrays) -> list[Call]:
        kernel = _grouped(inputs["w"], p.groups)
        return framework.calls(forward, {SOURCE: inputs["x"], WEIGHTS: kernel}, {RESULT: out})

    if case.mode == "inference":
        return calls.workload((({"out": out}, forward_calls(each)) for each in sets), channels_last)
    d_x, d_w = np.empty_like(x), np.empty_like(w)
    rest = *geometry, forward, None
    of_x = framework.chosen("convolution_backward_data", c_int(_DIRECT), x_form, w_form, out_form, *rest)
    of_w = framework.chosen("convolution_backward_weights", c_int(_DIRECT), x_form, w_form, None, out_form, *rest)

    def all_calls(inputs: Arrays) -> list[Call]:
        kernel, d_kernel = _grouped(inputs["w"], p.groups), _grouped(d_w, p.groups)
        return [
            *forward_calls(inputs),
            *framework.calls(of_x, {WEIGHTS: kernel, D_RESULT: inputs["d_out"]}, {D_SOURCE: d_x}),
            *framework.calls(of_w, {SOURCE: inputs["x"], D_RESULT: inputs["d_out"]}, {D_WEIGHTS: d_kernel}),
        ]

    results = {"out": out, "d_x": d_x, "d_w": d_w}
    return calls.workload(((results, all_calls(each)) for each in sets), channels_last)


def _grouped(kernel: np.ndarray, groups: int) -> np.ndarray:
    """Return the view [groups, O/groups, I, *K] of a kernel [O, I, *K]; the kernel itself if there is one group."""
    return kernel if groups == 1 else kernel.reshape(groups, -1, *kernel.shape[1:])
