"""GEMM: C[M, N] = A[M, K] · B[K, N], one product or a batch of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Work, hookimpl


@dataclass(frozen=True)
class GemmParams:
    """Shape and layout of the product."""

    m: Annotated[int, Meta(ge=1, description="rows of A and of C")] = 1024
    n: Annotated[int, Meta(ge=1, description="columns of B and of C")] = 1024
    k: Annotated[int, Meta(ge=1, description="columns of A, rows of B")] = 1024
    batch_size: Annotated[int, Meta(ge=1, description="products in one step")] = 1
    transpose_a: Annotated[bool, Meta(description="A is stored as [K, M]")] = False
    transpose_b: Annotated[bool, Meta(description="B is stored as [N, K]")] = False


INPUTS: dict[Mode, tuple[str, ...]] = {"inference": ("a", "b"), "forward_backward": ("a", "b", "dc")}
"""What a step takes, by mode."""
OUTPUTS = ("c", "da", "db")
"""What a step gives, in order; without the backward pass, the first alone."""


class Gemm(Problem):
    """Matrix products; `forward_backward` adds the gradients of A and B for a given gradient of C."""

    summary = "matrix product C[M,N] = A[M,K] · B[K,N]"
    params = GemmParams
    accelerator = {"m": 8192, "n": 8192, "k": 8192}
    cost_formula = (
        "flops = 2·M·N·K·batch, three times that forward and backward; bytes = A, B and C once, and their gradients"
    )

    def scopes(self, params: GemmParams, mode: Mode) -> Mapping[str, int]:
        """The product is the only part."""
        return {"gemm": 1}

    def cost(self, params: GemmParams, mode: Mode, precision: str) -> Cost:
        """Backward, dA = dC·Bᵀ and dB = Aᵀ·dC are two products of the forward's size."""
        p, item = params, PRECISIONS[precision].parameter_bytes
        product_flops = 2 * p.m * p.n * p.k * p.batch_size
        inputs = p.m * p.k + p.k * p.n
        outputs_bytes = p.m * p.n * (4 if precision == "int8" else item)
        if mode == "inference":
            return Cost(product_flops, p.batch_size * (inputs * item + outputs_bytes), p.batch_size)
        return Cost(3 * product_flops, p.batch_size * 2 * (inputs * item + outputs_bytes), p.batch_size)

    def parts(self, params: GemmParams, mode: Mode, precision: str) -> Mapping[str, Work]:
        """The product is the only part."""
        cost = self.cost(params, mode, precision)
        return {"gemm": Work(cost.flops, cost.bytes)}

    def data(self, params: GemmParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """A and B, and the gradient of C: normal numbers, or integers over the whole range for int8."""
        p = params
        shapes = {
            "a": (p.k, p.m) if p.transpose_a else (p.m, p.k),
            "b": (p.n, p.k) if p.transpose_b else (p.k, p.n),
            "dc": (p.m, p.n),
        }

        def draw(shape: tuple[int, ...]) -> np.ndarray:
            full = shape if p.batch_size == 1 else (p.batch_size, *shape)
            if precision == "int8":
                return rng.integers(-128, 128, full, dtype=np.int8)
            return rng.standard_normal(full, dtype=np.float64 if precision == "fp64" else np.float32)

        return Data({}, tuple({name: draw(shape) for name, shape in shapes.items()} for _ in range(batches)))

    def small(self, params: GemmParams) -> GemmParams:
        """The same layout, no side above 64 (K not above 48, so that the sides differ)."""
        p = params
        return replace(p, m=min(p.m, 64), n=min(p.n, 56), k=min(p.k, 48), batch_size=min(p.batch_size, 3))

    def reference(self, params: GemmParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """C, and forward and backward also the gradients in the layout that A and B are stored in."""
        for batch in data.batches:
            a, b, dc = (batch[name].astype(np.float64) for name in ("a", "b", "dc"))
            a_mk = transposed(a, params.transpose_a)
            b_kn = transposed(b, params.transpose_b)
            outputs = {"c": a_mk @ b_kn}
            if mode == "forward_backward":
                da, db = dc @ b_kn.swapaxes(-1, -2), a_mk.swapaxes(-1, -2) @ dc
                outputs["da"] = transposed(da, params.transpose_a)
                outputs["db"] = transposed(db, params.transpose_b)
            yield outputs


@hookimpl
def make_problem() -> Problem:
    """GEMM."""
    return Gemm()


def transposed(value: Any, transpose: bool) -> Any:
    """`value` with its last two axes as the product needs them; any array of NumPy's or JAX's kind, or a tensor."""
    return value.swapaxes(-1, -2) if transpose else value
