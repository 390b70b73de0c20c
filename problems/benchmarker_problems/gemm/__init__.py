"""GEMM: C[M, N] = A[M, K] · B[K, N], one product or a batch of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import FLOATS, PRECISIONS, Cost, Data, Mode, Precision, Problem, UserError, hookimpl
from benchmarker_problems import fp8
from benchmarker_problems.gemm import slices

INPUTS: dict[Mode, tuple[str, ...]] = {"inference": ("a", "b"), "forward_backward": ("a", "b", "dc")}
"""Inputs of a step, by mode."""
WIDE = 5.0
"""Entries of a wide range are normally distributed times exp(`WIDE`·N(0, 1)).

Products by slices are tested with such matrices, of numbers in (-0.5, 0.5) times exp(φ·N(0, 1)): Ozaki, Ogita, Oishi
and Rump, "Error-free transformations of matrix multiplication by using fast routines of matrix multiplication and its
applications", Numerical Algorithms, 2012.
"""
NARROW = ("fp16", "int8")
"""Precisions that cannot hold a wide range: fp16 ends at 65,504, and integers are drawn over their whole range."""
OUTPUTS = ("c", "da", "db")
"""Outputs of a step, in order; without the backward pass, only the first."""
SLICED = tuple(name for name, types in PRECISIONS.items() if types.slices)
"""Precisions in which products in fp64 are made of slices in int8."""


@dataclass(frozen=True)
class Gemm(Problem):
    """Matrix products; `forward_backward` adds the gradients of A and B for a given gradient of C."""

    summary = "matrix product C[M,N] = A[M,K] · B[K,N]"
    accelerator = {"m": 8192, "n": 8192, "k": 8192}
    cache = "rotate"
    reads = INPUTS
    sums_products = True
    cost_formula = (
        "flops = 2·M·N·K·batch, three times that with backward\n"
        "bytes = A, B and C once, with backward also their gradients"
    )

    m: Annotated[int, Meta(ge=1, description="rows of A and of C")] = 1024
    n: Annotated[int, Meta(ge=1, description="columns of B and of C")] = 1024
    k: Annotated[int, Meta(ge=1, description="columns of A, rows of B")] = 1024
    batch_size: Annotated[int, Meta(ge=1, description="products per step")] = 1
    transpose_a: Annotated[bool, Meta(description="A is stored as [K, M]")] = False
    transpose_b: Annotated[bool, Meta(description="B is stored as [N, K]")] = False
    range: Annotated[
        Literal["normal", "wide"],
        Meta(description="entries: normal, or wide: times exp(5·N(0, 1)), which tells fp64 from its emulation"),
    ] = "normal"
    linear: Annotated[
        bool,
        Meta(
            description="multiply as the framework's linear layers do in text generation: B holds weights by output "
            "(--transpose-b), which the framework may have packed before"
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.linear and (self.transpose_a or not self.transpose_b or self.batch_size > 1):
            raise ValueError("linear=true needs transpose_b=true, transpose_a=false and batch_size=1")

    def refuse(self, mode: Mode) -> None:
        """Refuse gradients of weights that are packed."""
        if self.linear and mode != "inference":
            raise UserError("--linear needs --mode=inference: packed weights have no gradient")

    def title(self, mode: Mode) -> str:
        """Return M×N×K, as in BLAS which of A and B are transposed, and other options: `GEMM 16×96×96 NT`."""
        layout = "".join("NT"[each] for each in (self.transpose_a, self.transpose_b))
        batch = f" B={self.batch_size}" * (self.batch_size > 1)
        backward = " fwd+bwd" * (mode == "forward_backward")
        wide = " wide" * (self.range == "wide") + " linear" * self.linear
        return f"GEMM{batch} {self.m}×{self.n}×{self.k}{f' {layout}' * ('T' in layout)}{wide}{backward}"

    @property
    def summed_axes(self) -> dict[str, int]:
        """The axis of A, and of B, as they are stored, over which products are summed."""
        return {"a": -2 if self.transpose_a else -1, "b": -1 if self.transpose_b else -2}

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types of the precision; raises `UserError` if it cannot hold the entries, or sums of slices.

        Of `linear` layers, only weights of floating-point numbers are here.
        """
        types = PRECISIONS[precision]
        if self.range == "wide" and precision in NARROW:
            raise UserError(
                f"{precision} cannot hold entries of --range=wide; use another precision, or --range=normal"
            )
        if types.slices:
            slices.require_exact(self.k)
        if self.linear and precision not in FLOATS:
            raise UserError(f"linear layers have no {precision} here; omit --linear")
        return types

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the product, the only part."""
        return {"gemm": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the product; the backward pass adds two of the same FLOPs, dA = dC·Bᵀ and dB = Aᵀ·dC."""
        item = PRECISIONS[precision].parameter_bytes
        product_flops = 2 * self.m * self.n * self.k * self.batch_size
        inputs = self.m * self.k + self.k * self.n
        outputs_bytes = self.m * self.n * (4 if item == 1 else item)
        if mode == "inference":
            return Cost(product_flops, self.batch_size * (inputs * item + outputs_bytes), self.batch_size)
        return Cost(3 * product_flops, self.batch_size * 2 * (inputs * item + outputs_bytes), self.batch_size)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw A, B and the gradient of C, of a normal or wide `range`; for int8 uniform over its whole range."""
        shapes = {
            "a": (self.k, self.m) if self.transpose_a else (self.m, self.k),
            "b": (self.n, self.k) if self.transpose_b else (self.k, self.n),
            "dc": (self.m, self.n),
        }

        def draw(shape: tuple[int, ...]) -> np.ndarray:
            full = shape if self.batch_size == 1 else (self.batch_size, *shape)
            if precision == "int8":
                return rng.integers(-128, 128, full, dtype=np.int8)
            dtype = np.float64 if PRECISIONS[precision].parameter == "fp64" else np.float32
            entries = rng.standard_normal(full, dtype=dtype)
            if self.range == "wide":
                entries *= np.exp(dtype(WIDE) * rng.standard_normal(full, dtype=dtype))
            return entries

        return Data({}, tuple({name: draw(shape) for name, shape in shapes.items()} for _ in range(batches)))

    def small(self) -> Self:
        """Return the same layout with M, N and K of at most 64, 80 and 48, different limits so that they differ.

        Tensor cores take multiples of 16.
        """
        return replace(
            self, m=min(self.m, 64), n=min(self.n, 80), k=min(self.k, 48), batch_size=min(self.batch_size, 3)
        )

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield C, and in `forward_backward` also the gradients, in the layouts in which A and B are stored."""
        for batch in data.batches:
            a, b, dc = (batch[name].astype(np.float64) for name in ("a", "b", "dc"))
            a_mk = transposed(a, self.transpose_a)
            b_kn = transposed(b, self.transpose_b)
            outputs = {"c": a_mk @ b_kn}
            if mode == "forward_backward":
                da, db = dc @ b_kn.swapaxes(-1, -2), a_mk.swapaxes(-1, -2) @ dc
                outputs["da"] = transposed(da, self.transpose_a)
                outputs["db"] = transposed(db, self.transpose_b)
            yield outputs

    def deviations(self, data: Data, mode: Mode, precision: str) -> Iterable[Mapping[str, np.ndarray]] | None:
        """Return how far off products by slices, and of matrices with scales, may be; other arithmetic is rounding."""
        types = PRECISIONS[precision]
        if not (types.slices or types.scale):
            return None
        stored = [
            (transposed(batch["a"], self.transpose_a), transposed(batch["b"], self.transpose_b))
            for batch in data.batches
        ]
        if types.slices:
            return [{"c": slices.truncation(a_MK, b_KN, types.slices)} for a_MK, b_KN in stored]
        return [{"c": fp8.deviation(a_MK, b_KN, types)} for a_MK, b_KN in stored]


@hookimpl
def define_problem() -> type[Problem]:
    """Return the GEMM problem."""
    return Gemm


def transposed(value: Any, transpose: bool) -> Any:
    """Return `value` (an array of NumPy or JAX, or a tensor), with its last two axes swapped if `transpose`.

    Numbers and their scales are transposed together.
    """
    if isinstance(value, tuple):
        return tuple(transposed(each, transpose) for each in value)
    return value.swapaxes(-1, -2) if transpose else value
