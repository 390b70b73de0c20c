"""FFT: the discrete Fourier transform of complex numbers in three dimensions.

Shapes: B transforms per step, X × Y × Z points.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import log2
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Work, hookimpl

AXES = (1, 2, 3)
"""The axes that are transformed; the first is the batch."""


@dataclass(frozen=True)
class FftParams:
    """Size and direction of the transforms."""

    nx: Annotated[int, Meta(ge=1, description="points along the first axis")] = 128
    ny: Annotated[int, Meta(ge=1, description="points along the second axis")] = 128
    nz: Annotated[int, Meta(ge=1, description="points along the last axis, contiguous in memory")] = 128
    batch_size: Annotated[int, Meta(ge=1, description="transforms per step")] = 1
    direction: Annotated[Literal["forward", "inverse"], Meta(description="inverse divides by the number of points")] = (
        "forward"
    )

    @property
    def points(self) -> int:
        """Points of one transform."""
        return self.nx * self.ny * self.nz


class Fft(Problem):
    """Transforms from complex numbers to complex numbers, not in place: complex64 in fp32, complex128 in fp64."""

    summary = "3-D Fourier transform, complex to complex"
    params = FftParams
    accelerator = {"nx": 512, "ny": 512, "nz": 512}
    cost_formula = (
        "flops = 5·N·log2(N)·batch with N = nx·ny·nz, the customary count of FFTW's benchFFT for any algorithm\n"
        "bytes = N complex numbers read once and written once; larger arrays than a cache take several such passes"
    )

    def title(self, params: FftParams, mode: Mode) -> str:
        """Return the sizes, and the direction if it is not forward: `FFT 128×128×128`."""
        p = params
        batch = f" B={p.batch_size}" * (p.batch_size > 1)
        return f"FFT{batch} {p.nx}×{p.ny}×{p.nz}{' inverse' * (p.direction == 'inverse')}"

    def scopes(self, params: FftParams, mode: Mode) -> Mapping[str, int]:
        """Return the transform, the only part."""
        return {"fft": 1}

    def cost(self, params: FftParams, mode: Mode, precision: str) -> Cost:
        """Count 5·N·log2(N) a transform (Frigo and Johnson, "The design and implementation of FFTW3", 2005)."""
        p = params
        complex_bytes = 2 * PRECISIONS[precision].parameter_bytes
        flops = round(p.batch_size * 5 * p.points * log2(p.points))
        return Cost(flops, 2 * p.batch_size * p.points * complex_bytes, p.batch_size)

    def parts(self, params: FftParams, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the transform, the only part."""
        cost = self.cost(params, mode, precision)
        return {"fft": Work(cost.flops, cost.bytes)}

    def data(self, params: FftParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw real and imaginary parts from a normal distribution."""
        p = params
        real, whole = (np.float64, np.complex128) if precision == "fp64" else (np.float32, np.complex64)

        def draw() -> np.ndarray:
            return rng.standard_normal((p.batch_size, p.nx, p.ny, p.nz, 2), dtype=real).view(whole)[..., 0]

        return Data({}, tuple({"x": draw()} for _ in range(batches)))

    def small(self, params: FftParams) -> FftParams:
        """Return at most 12 × 10 × 7 points: even and odd sizes, among them a prime."""
        p = params
        return replace(p, nx=min(p.nx, 12), ny=min(p.ny, 10), nz=min(p.nz, 7), batch_size=min(p.batch_size, 3))

    def reference(self, params: FftParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the transform by its definition: a product with the Fourier matrix of each axis."""
        for batch in data.batches:
            y_BXYZ = batch["x"].astype(np.complex128)
            for axis in AXES:
                matrix = fourier_matrix(y_BXYZ.shape[axis], params.direction)
                y_BXYZ = np.moveaxis(np.tensordot(matrix, y_BXYZ, (1, axis)), 0, axis)
            yield {"y": y_BXYZ}


@hookimpl
def make_problem() -> Problem:
    """Make the FFT problem."""
    return Fft()


def fourier_matrix(n: int, direction: str) -> np.ndarray:
    """Return the matrix [n, n] of a transform in one dimension: exp(∓2πi·jk/n), and divided by n if inverse."""
    turns = np.outer(np.arange(n), np.arange(n)) % n / n
    forward: np.ndarray = np.exp(-2j * np.pi * turns)
    return forward if direction == "forward" else forward.conj() / n
