"""CG: iterations of the method of conjugate gradients for A·x = b with the matrix of the problem `spmv`.

HPCG without its preconditioner. (Jacobi's would change nothing: the diagonal of this matrix is constant.) The loop is
Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems" (1952), from x = 0:

    r = p = b,  ρ = r·r
    repeat:  q = A·p,  α = ρ / p·q,  x += α·p,  r −= α·q,  ρ' = r·r,  p = r + (ρ'/ρ)·p,  ρ = ρ'

Shapes: N = X·Y·Z rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Problem, Work, hookimpl
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
class Cg(Problem):
    """A fixed number of iterations from x = 0; the outputs are x and the norm of the residual, √ρ."""

    summary = "conjugate gradients on HPCG's 27-point operator, without a preconditioner"
    accelerator = {"nx": 192, "ny": 192, "nz": 192}
    cost_formula = (
        "flops = 2·E (spmv) + 4·N (2 dots) + 6·N (3 axpys) per iteration, and 2·N before the first\n"
        "bytes = those of these operations one after the other: the matrix and 14 vectors per iteration"
    )

    nx: Annotated[int, Meta(ge=1, description="points of the grid along the first axis")] = 104
    ny: Annotated[int, Meta(ge=1, description="points along the second axis")] = 104
    nz: Annotated[int, Meta(ge=1, description="points along the last axis")] = 104
    iterations: Annotated[int, Meta(ge=1, description="iterations per step; HPCG does 50")] = 50
    format: Annotated[Format, Meta(description=FORMAT_HELP)] = "auto"

    def title(self, mode: Mode) -> str:
        """Return the size of the grid and the iterations: `CG 27-point 104×104×104 ×50`."""
        return f"CG 27-point {self.nx}×{self.ny}×{self.nz} ×{self.iterations}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the operations: b·b at first; then q, p·q, x and r, r·r, and p in each iteration."""
        n = self.iterations
        return {"dot_bb": 1, "spmv": n, "dot_pq": n, "axpy_xr": n, "dot_rr": n, "axpy_p": n}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Add up all operations; a step is one sample."""
        parts = self.parts(mode, precision).values()
        return Cost(sum(work.flops for work in parts), sum(work.bytes for work in parts), 1)

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of each operation; an axpy reads two vectors and writes one."""
        item = PRECISIONS[precision].parameter_bytes
        rows = self.nx * self.ny * self.nz
        vector_bytes = rows * item
        once = {
            "dot_bb": Work(2 * rows, vector_bytes),
            "spmv": product_work(self.nx, self.ny, self.nz, item),
            "dot_pq": Work(2 * rows, 2 * vector_bytes),
            "axpy_xr": Work(4 * rows, 6 * vector_bytes),
            "dot_rr": Work(2 * rows, vector_bytes),
            "axpy_p": Work(2 * rows, 3 * vector_bytes),
        }
        counts = self.scopes(mode)
        return {name: work * counts[name] for name, work in once.items()}

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Return the matrix as in `spmv`, and draw b from a normal distribution."""
        dtype = np.float64 if precision == "fp64" else np.float32
        rows = self.nx * self.ny * self.nz
        matrix = csr_matrix(self.nx, self.ny, self.nz, dtype)
        return Data(matrix._asdict(), tuple({"b": rng.standard_normal(rows, dtype=dtype)} for _ in range(batches)))

    def small(self) -> Self:
        """Return at most 5 iterations on at most 10 × 9 × 8 points, where they are still far from the solution."""
        return replace(
            self, nx=min(self.nx, 10), ny=min(self.ny, 9), nz=min(self.nz, 8), iterations=min(self.iterations, 5)
        )

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return x and the norm of the residual, computed on the grid without a matrix."""
        r_N = batch["b"]
        p_N, x_N, rho = r_N, np.zeros_like(r_N), r_N @ r_N
        for _ in range(self.iterations):
            q_N = apply_operator(p_N, self.nx, self.ny, self.nz)
            alpha = rho / (p_N @ q_N + TINY)
            x_N, r_N = x_N + alpha * p_N, r_N - alpha * q_N
            before, rho = rho, r_N @ r_N
            p_N = r_N + rho / (before + TINY) * p_N
        return {"x": x_N, "residual_norm": np.sqrt(rho)}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the CG problem."""
    return Cg
