"""GEMM in PyTorch."""

from collections.abc import Callable, Mapping
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from benchmarker import FLOATS, PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.gemm import INPUTS, NOT_WIDE, OUTPUTS, Gemm, transposed


@hookimpl
def describe_workload() -> Support:
    """Return the types of each mode; int8 has no gradient."""
    return Support({"inference": (*FLOATS, "int8"), "forward_backward": FLOATS}, exclusions=NOT_WIDE)


def _int8_product(a_MK: Tensor, b_KN: Tensor) -> Tensor:
    """Return the product in int32; PyTorch has no batched version, so the products of a batch run one by one."""
    if a_MK.ndim == 2:
        return torch._int_mm(a_MK, b_KN)
    return torch.stack([torch._int_mm(a, b) for a, b in zip(a_MK, b_KN, strict=True)])


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; in `forward_backward` also the gradients of A and B, by autograd."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in INPUTS[case.mode]) for batch in data.batches])
    multiply: Callable[[Tensor, Tensor], Tensor] = _int8_product if case.precision == "int8" else torch.matmul

    def product(a: Tensor, b: Tensor) -> Tensor:
        with scope("gemm"):
            return multiply(transposed(a, problem.transpose_a), transposed(b, problem.transpose_b))

    def forward(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return (product(a, b),)

    def forward_backward(a: Tensor, b: Tensor, dc: Tensor) -> tuple[Tensor, ...]:
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        c_MN = product(a, b)
        return (c_MN.detach(), *torch.autograd.grad(c_MN, (a, b), dc))

    function = framework.compiled(forward if case.mode == "inference" else forward_backward, case.compile)

    def step() -> tuple[Tensor, ...]:
        return function(*next(batches))

    def outputs(result: tuple[Tensor, ...]) -> Mapping[str, np.ndarray]:
        return {name: value.cpu().double().numpy() for name, value in zip(OUTPUTS, result, strict=False)}

    return Workload(step, outputs)
