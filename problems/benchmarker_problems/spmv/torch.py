"""SpMV in PyTorch, and the matrix for other problems."""

import warnings
from collections.abc import Callable, Mapping
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.spmv import Format, Spmv, ell_matrix


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing, in every format."""
    return Support({"inference": ("fp64", "fp32")})


def put_matrix(
    framework: TorchFramework, weights: Mapping[str, np.ndarray], form: Format, dtype: torch.dtype
) -> Callable[[Tensor], Tensor]:
    """Return the function from x to A·x, with the matrix on the device; CSR is the faster, by MKL or cuSPARSE."""
    if form == "ell":
        values, columns = ell_matrix(weights)
        values_KN, columns_KN = framework.put(values, dtype), framework.put(columns)

        def ell_product(x_N: Tensor) -> Tensor:
            with scope("spmv"):
                gathered_KN = x_N.index_select(0, columns_KN.view(-1)).view_as(columns_KN)
                return gathered_KN.mul_(values_KN).sum(dim=0)

        return ell_product
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        matrix = torch.sparse_csr_tensor(
            framework.put(weights["row_starts"]),
            framework.put(weights["columns"]),
            framework.put(weights["values"], dtype),
            size=(len(weights["row_starts"]) - 1,) * 2,
            check_invariants=True,
        )

    def csr_product(x_N: Tensor) -> Tensor:
        with scope("spmv"):
            return matrix @ x_N

    return csr_product


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Spmv, data: Data) -> Workload:
    """Build a step: one product."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    function = framework.compiled(put_matrix(framework, data.weights, problem.format, dtype), case.compile)
    batches = cycle([framework.put(batch["x"], dtype) for batch in data.batches])

    def step() -> Tensor:
        return function(next(batches))

    return Workload(step, lambda y_N: {"y": y_N.cpu().double().numpy()})
