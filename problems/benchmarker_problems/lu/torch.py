"""LU in PyTorch: MKL's or LAPACK's factorisation on a CPU, the vendor's on a GPU."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.lu import REFINEMENTS, Lu, verify

Result = tuple[Tensor, Tensor]


@hookimpl
def describe_workload() -> Support:
    """Return the types of LAPACK; there is nothing to refine in fp32."""
    return Support({"inference": ("fp64", "fp32")}, exclusions=({"factor": "fp32", "precision": "fp32"},))


def factored(a_NN: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors and the pivots, without waiting for the device as `lu_factor` does."""
    with scope("factor"):
        factors_NN, pivots_N, _ = torch.linalg.lu_factor_ex(a_NN)
        return factors_NN, pivots_N


def solved(factors_NN: Tensor, pivots_N: Tensor, b_N: Tensor) -> Tensor:
    """Return the solution from the factors, in their type."""
    with scope("solve"):
        x_N1: Tensor = torch.linalg.lu_solve(factors_NN, pivots_N, b_N.to(factors_NN.dtype).unsqueeze(1))
        return x_N1.squeeze(1)


def solve(a_NN: Tensor, b_N: Tensor) -> Tensor:
    """Return the solution, factored in the type of A."""
    return solved(*factored(a_NN), b_N)


def solve_refined(a_NN: Tensor, b_N: Tensor) -> Tensor:
    """Return the solution, factored in fp32 and refined."""
    factors_NN, pivots_N = factored(a_NN.float())
    x_N = solved(factors_NN, pivots_N, b_N).to(b_N.dtype)
    for _ in range(REFINEMENTS):
        with scope("residual"):
            residual_N = torch.addmv(b_N, a_NN, x_N, alpha=-1)
        x_N += solved(factors_NN, pivots_N, residual_N)
    return x_N


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Lu, data: Data) -> Workload:
    """Build a step: factor A, and solve for one right-hand side."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    a_NN = framework.put(data.weights["a"], dtype)
    batches = cycle([framework.put(batch["b"], dtype) for batch in data.batches])
    function = framework.compiled(solve if problem.factor == "same" else solve_refined, case.compile)

    def step() -> Result:
        b_N = next(batches)
        return function(a_NN, b_N), b_N

    def outputs(result: Result) -> Mapping[str, np.ndarray]:
        return {"x": result[0].cpu().double().numpy()}

    def verified(result: Result) -> str | None:
        return verify(data.weights["a"], *(each.cpu().numpy() for each in result))

    return Workload(step, outputs, verify=verified)
