"""FFT: the discrete Fourier transform of complex numbers in three dimensions.

Shapes: B transforms per step, X × Y × Z points.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log2
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Problem, hookimpl

AXES = (1, 2, 3)
"""The axes that are transformed; the first is the batch."""


@dataclass(frozen=True)
class Fft(Problem):
    """Transforms from complex numbers to complex numbers, not in place: complex64 in fp32, complex128 in fp64."""

    summary = "3-D Fourier transform, complex to complex"
    accelerator = {"nx": 512, "ny": 512, "nz": 512}
    cache = "rotate"
    cost_formula = (
        "flops = 5·N·log2(N)·batch with N = nx·ny·nz, the customary count of FFTW's benchFFT for any algorithm\n"
        "bytes = N complex numbers read once and written once; larger arrays than a cache take several such passes"
    )

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

    def title(self, mode: Mode) -> str:
        """Return the sizes, and the direction if it is not forward: `FFT 128×128×128`."""
        batch = f" B={self.batch_size}" * (self.batch_size > 1)
        return f"FFT{batch} {self.nx}×{self.ny}×{self.nz}{' inverse' * (self.direction == 'inverse')}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the transform, the only part."""
        return {"fft": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count 5·N·log2(N) a transform (Frigo and Johnson, "The design and implementation of FFTW3", 2005)."""
        complex_bytes = 2 * PRECISIONS[precision].parameter_bytes
        flops = round(self.batch_size * 5 * self.points * log2(self.points))
        return Cost(flops, 2 * self.batch_size * self.points * complex_bytes, self.batch_size)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw real and imaginary parts from a normal distribution."""
        real, whole = (np.float64, np.complex128) if precision == "fp64" else (np.float32, np.complex64)

        def draw() -> np.ndarray:
            return rng.standard_normal((self.batch_size, self.nx, self.ny, self.nz, 2), dtype=real).view(whole)[..., 0]

        return Data({}, tuple({"x": draw()} for _ in range(batches)))

    def small(self) -> Self:
        """Return at most 12 × 10 × 7 points: even and odd sizes, among them a prime."""
        return replace(
            self, nx=min(self.nx, 12), ny=min(self.ny, 10), nz=min(self.nz, 7), batch_size=min(self.batch_size, 3)
        )

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the transform by its definition: a product with the Fourier matrix of each axis."""
        y_BXYZ = batch["x"]
        for axis in AXES:
            matrix = fourier_matrix(y_BXYZ.shape[axis], self.direction)
            y_BXYZ = np.moveaxis(np.tensordot(matrix, y_BXYZ, (1, axis)), 0, axis)
        return {"y": y_BXYZ}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the FFT problem."""
    return Fft


def fourier_matrix(n: int, direction: str) -> np.ndarray:
    """Return the matrix [n, n] of a transform in one dimension: exp(∓2πi·jk/n), and divided by n if inverse."""
    turns = np.outer(np.arange(n), np.arange(n)) % n / n
    forward: np.ndarray = np.exp(-2j * np.pi * turns)
    return forward if direction == "forward" else forward.conj() / n
