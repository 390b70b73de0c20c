"""GEMM in PyTorch."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarker import FLOATS, PRECISIONS, Arrays, Case, Data, Mode, Support, UserError, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.fp8 import SCALED
from benchmarker_problems.fp8 import torch as fp8
from benchmarker_problems.gemm import INPUTS, OUTPUTS, SLICED, Gemm, transposed
from benchmarker_problems.gemm import slices as by_slices
from benchmarker_problems.layers.torch import product as linear_product

NOT_ON_GPUS = (
    *({"precision": name, "device": "cuda"} for name in SCALED if name != "fp8_e4m3"),
    {"precision": "fp8_e4m3", "device": "cuda", "transpose_a": "true"},
    {"precision": "fp8_e4m3", "device": "cuda", "transpose_b": "false"},
)
"""Products of fp8 that cuBLASLt does not have (cuBLAS 12, cublasLtMatmul: FP8 needs TN, and E5M2 only one factor).

With scales by row, PyTorch has results in bf16 alone there.
"""
LEAST_ROWS, MULTIPLE = 17, 8
"""What `torch._int_mm` takes on CUDA: rows of A, and of what n and k are multiples (its checks, PyTorch 2.6 to 2.9)."""


@hookimpl
def describe_workload() -> Support:
    """Return the types of each mode; integers, fp8 and products by slices have no gradient."""
    precisions: dict[Mode, tuple[str, ...]] = {
        "inference": (*FLOATS, *SCALED, "int8", *SLICED),
        "forward_backward": FLOATS,
    }
    return Support(precisions, exclusions=NOT_ON_GPUS)


def _int8_product(a_MK: Tensor, b_KN: Tensor) -> Tensor:
    """Return the product in int32; PyTorch has no batched version, so the products of a batch run one by one."""
    if a_MK.ndim == 2:
        return torch._int_mm(a_MK, b_KN)
    return torch.stack([torch._int_mm(a, b) for a, b in zip(a_MK, b_KN, strict=True)])


ARITHMETIC = by_slices.Arithmetic(torch, lambda x: x.to(torch.int8), Tensor.double, _int8_product)


def _multiply(precision: str) -> Callable[[Any, Any], Tensor]:
    """Return the function from A and B as they are stored in a precision to their product."""
    types = PRECISIONS[precision]
    if types.slices:
        return partial(by_slices.product, slices=types.slices, of=ARITHMETIC)
    return fp8.product if types.scale else _int8_product if precision == "int8" else torch.matmul


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; in `forward_backward` also the gradients of A and B, by autograd."""
    types = PRECISIONS[case.precision]
    dtype, multiply = DTYPES[types.parameter], _multiply(case.precision)
    if types.scale and case.compile and (problem.transpose_a or not problem.transpose_b):
        raise UserError(
            "compiled, fp8 is multiplied by rows of A and columns of B alone: use --transpose-b, or omit --compile"
        )
    is_short = problem.m < LEAST_ROWS or problem.n % MULTIPLE or problem.k % MULTIPLE
    if types.compute == "int8" and framework.device.type == "cuda" and is_short:
        raise UserError(
            f"PyTorch multiplies int8 on a GPU only with m of at least {LEAST_ROWS}, and n and k that are multiples of "
            f"{MULTIPLE}; m={problem.m}, n={problem.n}, k={problem.k} are not"
        )

    def put(batch: Arrays) -> tuple[Any, ...]:
        if types.scale:
            axes = problem.summed_axes.items()
            return tuple(fp8.scaled(framework.put(batch[name]), types, dtype, axis) for name, axis in axes)
        return tuple(framework.put(batch[name], dtype) for name in INPUTS[case.mode])

    on_device = [put(batch) for batch in data.batches]
    batches = cycle(on_device)

    def product(a: Any, b: Any) -> Tensor:
        with scope("gemm"):
            if problem.linear:
                return linear_product(a, b)
            return multiply(transposed(a, problem.transpose_a), transposed(b, problem.transpose_b))

    def forward(a: Any, b: Any) -> tuple[Tensor, ...]:
        return (product(a, b),)

    def forward_backward(a: Tensor, b: Tensor, dc: Tensor) -> tuple[Tensor, ...]:
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        c_MN = product(a, b)
        return (c_MN.detach(), *torch.autograd.grad(c_MN, (a, b), dc))

    function = framework.compiled(forward if case.mode == "inference" else forward_backward, case.compile)

    def step() -> tuple[Tensor, ...]:
        with torch.inference_mode(problem.linear):
            return function(*next(batches))

    if problem.linear and not case.compile:
        with torch.inference_mode():
            for inputs in on_device:  # packs the weights
                linear_product(*inputs)

    def outputs(result: tuple[Tensor, ...]) -> Mapping[str, np.ndarray]:
        return {name: value.cpu().double().numpy() for name, value in zip(OUTPUTS, result, strict=False)}

    return Workload(step, outputs)
