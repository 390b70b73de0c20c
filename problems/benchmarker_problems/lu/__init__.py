"""LU: solve a dense system A·x = b by LU factorisation with partial pivoting, as HPL does.

With `--factor=fp32`, A is factored in fp32 and x refined to fp64: the idea of HPL-MxP (rules at hpl-mxp.org).
Shapes: N unknowns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Precision, Problem, Work, hookimpl

REFINEMENTS = 2
"""Steps of classical refinement after a factorisation in fp32: r = b - A·x, then x += A⁻¹·r with these factors.

A is so well conditioned that each reduces the error to about a millionth, and two reach the accuracy of fp64. The rules
of HPL-MxP allow any iterative method; its reference uses GMRES.
"""
LARGEST_RESIDUAL = 16.0
"""A larger scaled residual makes a result of HPL invalid (Petitet et al., HPL 2.3, 2018)."""


@dataclass(frozen=True)
class Lu(Problem):
    """One factorisation and the solution for one right-hand side."""

    summary = "dense solve A·x = b by LU factorisation, as in HPL; in fp32 with refinement, as in HPL-MxP"
    accelerator = {"n": 16384}
    cost_formula = (
        "flops = 2/3·n³ + 3/2·n², as HPL counts them; refinement is not counted\n"
        "bytes = A, b and x once; the factorisation itself moves more"
    )

    n: Annotated[int, Meta(ge=1, description="unknowns")] = 2048
    factor: Annotated[
        Literal["same", "fp32"],
        Meta(description="type of the factorisation: that of --precision, or fp32 with refinement to fp64"),
    ] = "same"

    def title(self, mode: Mode) -> str:
        """Return the size, and the type of the factorisation if it is another: `LU n=2048`."""
        return f"LU n={self.n}{' factored in fp32' * (self.factor == 'fp32')}"

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types of the precision; factors in fp32 are products of fp32, with the error of the precision."""
        types = PRECISIONS[precision]
        if self.factor == "same":
            return types
        return replace(types, compute="fp32", accumulate="fp32", stated_bound=types.bound)

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the factorisation, the triangular solves, and with refinement its residuals."""
        if self.factor == "same":
            return {"factor": 1, "solve": 1}
        return {"factor": 1, "solve": 1 + REFINEMENTS, "residual": REFINEMENTS}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count one system, which is one sample."""
        n, item = self.n, PRECISIONS[precision].parameter_bytes
        return Cost(factor_flops(n) + solve_flops(n), (n**2 + 2 * n) * item, 1)

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of each part; the FLOPs of the solves are those of the first alone."""
        n, item = self.n, PRECISIONS[precision].parameter_bytes
        factor_item = item if self.factor == "same" else 4
        counts = self.scopes(mode)
        parts = {
            "factor": Work(factor_flops(n), n**2 * (item + factor_item)),
            "solve": Work(solve_flops(n), counts["solve"] * (n**2 + 2 * n) * factor_item),
        }
        if "residual" in counts:
            parts["residual"] = Work(0, counts["residual"] * (n**2 + 3 * n) * item)
        return parts

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw A, and b from a normal distribution.

        Entries of A are uniform in [−0.5, 0.5), and those of the diagonal are the sum of the magnitudes of the others
        in the row, as in HPL-MxP. The rows are then shuffled, so that pivoting exchanges rows.
        """
        n = self.n
        dtype = np.float64 if precision == "fp64" else np.float32
        a_NN = rng.random((n, n), dtype=dtype) - dtype(0.5)
        np.fill_diagonal(a_NN, 0)
        np.fill_diagonal(a_NN, np.abs(a_NN).sum(axis=1) if n > 1 else 1)
        rng.shuffle(a_NN)
        return Data({"a": a_NN}, tuple({"b": rng.standard_normal(n, dtype=dtype)} for _ in range(batches)))

    def small(self) -> Self:
        """Return at most 96 unknowns."""
        return replace(self, n=min(self.n, 96))

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield x by Householder's QR factorisation: NumPy has it apart from any LU."""
        q_NN, r_NN = np.linalg.qr(data.weights["a"].astype(np.float64))
        for batch in data.batches:
            yield {"x": np.linalg.solve(r_NN, q_NN.T @ batch["b"])}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the LU problem."""
    return Lu


def factor_flops(n: int) -> int:
    """Return HPL's count for the factorisation: 2/3·n³ - 1/2·n², rounded down."""
    return (4 * n**3 - 3 * n**2) // 6


def solve_flops(n: int) -> int:
    """Return the FLOPs of both triangular solves."""
    return 2 * n**2


def scaled_residual(a_NN: np.ndarray, x_N: np.ndarray, b_N: np.ndarray) -> float:
    """Return HPL's residual ‖A·x − b‖∞ / (ε·(‖A‖∞·‖x‖∞ + ‖b‖∞)·n), in fp64; ε is the unit roundoff of `b_N`."""
    unit_roundoff = np.finfo(b_N.dtype).eps / 2
    a_NN, x_N, b_N = (each.astype(np.float64) for each in (a_NN, x_N, b_N))
    norm = np.abs(a_NN).sum(axis=1).max() * np.abs(x_N).max() + np.abs(b_N).max()
    return float(np.abs(a_NN @ x_N - b_N).max() / (unit_roundoff * norm * len(b_N)))


def verify(a_NN: np.ndarray, x_N: np.ndarray, b_N: np.ndarray) -> str | None:
    """Return why a result is invalid by HPL's rule, or None."""
    residual = scaled_residual(a_NN, x_N, b_N)
    if residual < LARGEST_RESIDUAL:
        return None
    return f"the scaled residual of HPL is {residual:.3g} at n = {len(b_N)}; it must be below {LARGEST_RESIDUAL:g}"
