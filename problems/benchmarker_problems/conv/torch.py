"""Convolution in PyTorch. The channels are always the second axis; the layout is their place in memory."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.conv import INPUTS, OUTPUTS, PRECISIONS_DONE, Conv, channels_first, channels_last

FUNCTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type."""
    return Support(PRECISIONS_DONE)


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Conv, data: Data) -> Workload:
    """Build a step: one convolution; in `forward_backward` also the gradients of image and kernel, by autograd."""
    p, dtype = problem, DTYPES[PRECISIONS[case.precision].parameter]

    def put(name: str, value: np.ndarray) -> Tensor:
        if p.layout == "channels_first":
            return framework.put(np.ascontiguousarray(channels_first(name, value)), dtype)
        # As `memory_format=torch.channels_last`, which has no counterpart in one dimension.
        stored = np.ascontiguousarray(np.moveaxis(value, -1, 0)) if name == "w" else value
        return framework.put(stored, dtype).movedim(-1, 1)

    batches = cycle([tuple(put(name, batch[name]) for name in INPUTS[case.mode]) for batch in data.batches])

    def convolution(x: Tensor, w: Tensor) -> Tensor:
        with scope("conv"):
            return FUNCTIONS[p.dims](x, w, None, p.stride, p.padding, p.dilation, p.groups)

    compiled = framework.compiled(convolution, case.compile)

    def forward() -> tuple[Tensor, ...]:
        with torch.inference_mode():
            return (compiled(*next(batches)),)

    def forward_backward() -> tuple[Tensor, ...]:
        x, w, d_out = next(batches)
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        out = compiled(x, w)
        return (out.detach(), *torch.autograd.grad(out, (x, w), d_out))

    def outputs(result: tuple[Tensor, ...]) -> Mapping[str, np.ndarray]:
        return {
            name: channels_last(name, value.cpu().double().numpy())
            for name, value in zip(OUTPUTS, result, strict=False)
        }

    return Workload(forward if case.mode == "inference" else forward_backward, outputs)
