"""CG: iterations of the method of conjugate gradients for A·x = b with the matrix of the problem `spmv`.

HPCG without its preconditioner. (Jacobi's would change nothing: the diagonal of this matrix is constant.) The loop is
Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems" (1952), from x = 0:

    r = p = b,  ρ = r·r
    repeat:  q = A·p,  α = ρ / p·q,  x += α·p,  r −= α·q,  ρ' = r·r,  p = r + (ρ'/ρ)·p,  ρ = ρ'

Shapes: N = X·Y·Z rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Work, hookimpl
from benchmarker_problems.spmv import (
    FORMAT_HELP,
    Format,
    apply_operator,
    csr_matrix,
    product_work,
)

TINY = float(np.finfo(np.float32).tiny)
"""Added to both divisors, which it does not change until the residual vanishes: then the iterations change nothing."""


@dataclass(frozen=True)
class CgParams:
    """Size of the grid, the iterations of a step, and the format of the matrix."""

    nx: Annotated[int, Meta(ge=1, description="points of the grid along the first axis")] = 104
    ny: Annotated[int, Meta(ge=1, description="points along the second axis")] = 104
    nz: Annotated[int, Meta(ge=1, description="points along the last axis")] = 104
    iterations: Annotated[int, Meta(ge=1, description="iterations per step; HPCG does 50")] = 50
    format: Annotated[Format, Meta(description=FORMAT_HELP)] = "auto"


class Cg(Problem):
    """A fixed number of iterations from x = 0; the outputs are x and the norm of the residual, √ρ."""

    summary = "conjugate gradients on HPCG's 27-point operator, without a preconditioner"
    params = CgParams
    accelerator = {"nx": 192, "ny": 192, "nz": 192}
    cost_formula = (
        "flops = 2·E (spmv) + 4·N (2 dots) + 6·N (3 axpys) per iteration, and 2·N before the first\n"
        "bytes = those of these operations one after the other: the matrix and 14 vectors per iteration"
    )

    def title(self, params: CgParams, mode: Mode) -> str:
        """Return the size of the grid and the iterations: `CG 27-point 104×104×104 ×50`."""
        return f"CG 27-point {params.nx}×{params.ny}×{params.nz} ×{params.iterations}"

    def scopes(self, params: CgParams, mode: Mode) -> Mapping[str, int]:
        """Return the operations: b·b at first; then q, p·q, x and r, r·r, and p in each iteration."""
        n = params.iterations
        return {"dot_bb": 1, "spmv": n, "dot_pq": n, "axpy_xr": n, "dot_rr": n, "axpy_p": n}

    def cost(self, params: CgParams, mode: Mode, precision: str) -> Cost:
        """Add up all operations; a step is one sample."""
        parts = self.parts(params, mode, precision).values()
        return Cost(sum(work.flops for work in parts), sum(work.bytes for work in parts), 1)

    def parts(self, params: CgParams, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of each operation; an axpy reads two vectors and writes one."""
        p, item = params, PRECISIONS[precision].parameter_bytes
        rows = p.nx * p.ny * p.nz
        vector_bytes = rows * item
        once = {
            "dot_bb": Work(2 * rows, vector_bytes),
            "spmv": product_work(p.nx, p.ny, p.nz, item),
            "dot_pq": Work(2 * rows, 2 * vector_bytes),
            "axpy_xr": Work(4 * rows, 6 * vector_bytes),
            "dot_rr": Work(2 * rows, vector_bytes),
            "axpy_p": Work(2 * rows, 3 * vector_bytes),
        }
        counts = self.scopes(params, mode)
        return {name: work * counts[name] for name, work in once.items()}

    def data(self, params: CgParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Return the matrix as in `spmv`, and draw b from a normal distribution."""
        p = params
        dtype = np.float64 if precision == "fp64" else np.float32
        rows = p.nx * p.ny * p.nz
        matrix = csr_matrix(p.nx, p.ny, p.nz, dtype)
        return Data(matrix._asdict(), tuple({"b": rng.standard_normal(rows, dtype=dtype)} for _ in range(batches)))

    def small(self, params: CgParams) -> CgParams:
        """Return at most 5 iterations on at most 10 × 9 × 8 points, where they are still far from the solution."""
        p = params
        return replace(p, nx=min(p.nx, 10), ny=min(p.ny, 9), nz=min(p.nz, 8), iterations=min(p.iterations, 5))

    def reference(self, params: CgParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield x and the norm of the residual, computed on the grid without a matrix."""
        p = params
        for batch in data.batches:
            r_N = batch["b"].astype(np.float64)
            p_N, x_N, rho = r_N, np.zeros_like(r_N), r_N @ r_N
            for _ in range(p.iterations):
                q_N = apply_operator(p_N, p.nx, p.ny, p.nz)
                alpha = rho / (p_N @ q_N + TINY)
                x_N, r_N = x_N + alpha * p_N, r_N - alpha * q_N
                before, rho = rho, r_N @ r_N
                p_N = r_N + rho / (before + TINY) * p_N
            yield {"x": x_N, "residual_norm": np.sqrt(rho)}


@hookimpl
def make_problem() -> Problem:
    """Make the CG problem."""
    return Cg()
