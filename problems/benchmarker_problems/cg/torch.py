"""CG in PyTorch: scalars stay on the device, so no iteration waits for the host."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.cg import TINY, Cg
from benchmarker_problems.spmv.torch import put_matrix


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing, in every format of the matrix."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Cg, data: Data) -> Workload:
    """Build a step: the iterations for one right-hand side."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    multiply = put_matrix(framework, data.weights, problem.format, dtype)
    batches = cycle([framework.put(batch["b"], dtype) for batch in data.batches])

    def iterate(x_N: Tensor, r_N: Tensor, p_N: Tensor, rho: Tensor) -> Tensor:
        """Change the three vectors in place, and return the new r·r."""
        q_N = multiply(p_N)
        with scope("dot_pq"):
            alpha = rho / (torch.dot(p_N, q_N) + TINY)
        with scope("axpy_xr"):
            x_N.addcmul_(p_N, alpha)
            r_N.addcmul_(q_N, alpha, value=-1)
        with scope("dot_rr"):
            after = torch.dot(r_N, r_N)
        with scope("axpy_p"):
            torch.addcmul(r_N, p_N, after / (rho + TINY), out=p_N)
        return after

    iteration = framework.compiled(iterate, case.compile)

    def step() -> tuple[Tensor, Tensor]:
        b_N = next(batches)
        x_N, r_N, p_N = torch.zeros_like(b_N), b_N.clone(), b_N.clone()
        with scope("dot_bb"):
            rho = torch.dot(b_N, b_N)
        for _ in range(problem.iterations):
            rho = iteration(x_N, r_N, p_N, rho)
        return x_N, rho.sqrt()

    def outputs(result: tuple[Tensor, Tensor]) -> Mapping[str, np.ndarray]:
        x_N, norm = (each.cpu().double().numpy() for each in result)
        return {"x": x_N, "residual_norm": norm}

    return Workload(step, outputs)
