"""GEMM as calls of a library of routines on NumPy arrays."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarker import Arrays, Data, Mode, Workload
from benchmarker_problems.gemm import INPUTS, Gemm, transposed
from benchmarker_problems.steps import calls
from benchmarker_problems.steps.calls import Call, Prepared

Matmul = Callable[[np.ndarray, np.ndarray, np.ndarray], Call]
"""Returns the call that writes left[..., M, K] · right[..., K, N] to the third array; both may be transposed views."""


class Product(NamedTuple):
    """A product by names: two arrays as they are stored, whether each is transposed, and the result as it is stored."""

    result: str
    left: str
    transpose_left: bool
    right: str
    transpose_right: bool


def products(problem: Gemm, mode: Mode) -> tuple[Product, ...]:
    """Return the products of a step: C = A·B; dA = dC·Bᵀ and dB = Aᵀ·dC, each in the layout of the matrix it is for."""
    a, b = problem.transpose_a, problem.transpose_b
    c = Product("c", "a", a, "b", b)
    if mode == "inference":
        return (c,)
    da = Product("da", "b", b, "dc", True) if a else Product("da", "dc", False, "b", not b)
    db = Product("db", "dc", True, "a", a) if b else Product("db", "a", not a, "dc", False)
    return c, da, db


def workload(
    problem: Gemm, mode: Mode, data: Data, matmul: Matmul, dtype: np.dtype[Any], result_dtype: np.dtype[Any]
) -> Workload:
    """Return the workload that makes a call for each product of a step; all steps write to the same arrays."""
    results: dict[str, np.ndarray] = {}

    def prepared(batch: Arrays) -> Prepared:
        inputs = {name: np.ascontiguousarray(batch[name], dtype) for name in INPUTS[mode]}
        made: list[Call] = []
        for each in products(problem, mode):
            left = transposed(inputs[each.left], each.transpose_left)
            right = transposed(inputs[each.right], each.transpose_right)
            if each.result not in results:
                results[each.result] = np.empty((*left.shape[:-1], right.shape[-1]), result_dtype)
            made.append(matmul(left, right, results[each.result]))
        return results, made

    return calls.workload(map(prepared, data.batches))
