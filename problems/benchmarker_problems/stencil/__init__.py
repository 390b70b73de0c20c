"""Stencil: a sweep over a 3-D grid that gives each inner point a weighted sum of itself and its neighbours.

One step of the heat equation, which is also one of Jacobi's method with weights. Shapes: X × Y × Z points.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Problem, hookimpl

CENTRE, NEIGHBOUR = 0.4, 0.1
"""Weights of a point and of each of its six neighbours; they add up to 1."""
INNER = (slice(1, -1),) * 3
"""The points that a sweep changes; the outermost are the boundary."""


@dataclass(frozen=True)
class Stencil(Problem):
    """A sweep from one array to another; the boundary is given and does not change."""

    summary = "7-point stencil in 3-D: v = 0.4·u + 0.1·(sum of the six neighbours of u) at inner points"
    accelerator = {"nx": 512, "ny": 512, "nz": 512}
    cache = "rotate"
    cost_formula = (
        "flops = 8 per inner point: 6 additions and 2 multiplications\n"
        "bytes = u read once, inner points of v written once; without write-allocate reads of the cache"
    )

    nx: Annotated[int, Meta(ge=3, description="points along the first axis, with the two of the boundary")] = 256
    ny: Annotated[int, Meta(ge=3, description="points along the second axis, likewise")] = 256
    nz: Annotated[int, Meta(ge=3, description="points along the last axis, contiguous in memory")] = 256

    @property
    def shape(self) -> tuple[int, int, int]:
        """Points along each axis."""
        return self.nx, self.ny, self.nz

    def title(self, mode: Mode) -> str:
        """Return the sizes: `stencil 256×256×256`."""
        return f"stencil {self.nx}×{self.ny}×{self.nz}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the sweep, the only part."""
        return {"sweep": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count one sweep, which is one sample.

        FLOPs and bytes as in Datta et al., "Stencil computation optimization and auto-tuning on state-of-the-art
        multicore architectures" (2008), without the boundary, which is not written.
        """
        points = self.nx * self.ny * self.nz
        inner = (self.nx - 2) * (self.ny - 2) * (self.nz - 2)
        return Cost(8 * inner, (points + inner) * PRECISIONS[precision].parameter_bytes, 1)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw inner points from a normal distribution; all batches share the boundary, which is drawn as well."""
        dtype = np.float64 if precision == "fp64" else np.float32
        grids = [rng.standard_normal(self.shape, dtype=dtype)]
        for _ in range(batches - 1):
            grids.append(grids[0].copy())
            grids[-1][INNER] = rng.standard_normal(grids[0][INNER].shape, dtype=dtype)
        return Data({}, tuple({"u": u_XYZ} for u_XYZ in grids))

    def small(self) -> Self:
        """Return at most 12 × 11 × 10 points, different limits so that they differ."""
        return replace(self, nx=min(self.nx, 12), ny=min(self.ny, 11), nz=min(self.nz, 10))

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the grid after the sweep, by a product with the matrix of the neighbours along each axis."""
        u_XYZ = batch["u"]
        sums_XYZ = np.zeros_like(u_XYZ)
        for axis, points in enumerate(self.shape):
            adjacent = np.eye(points, k=1) + np.eye(points, k=-1)
            sums_XYZ += np.moveaxis(np.tensordot(adjacent, u_XYZ, (1, axis)), 0, axis)
        v_XYZ = u_XYZ.copy()
        v_XYZ[INNER] = CENTRE * u_XYZ[INNER] + NEIGHBOUR * sums_XYZ[INNER]
        return {"v": v_XYZ}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the stencil problem."""
    return Stencil


def neighbours(u_XYZ: Any) -> tuple[Any, ...]:
    """Return the six neighbours of every inner point, as slices of `u_XYZ` (an array of NumPy or JAX, or a tensor)."""
    return (
        u_XYZ[:-2, 1:-1, 1:-1],
        u_XYZ[2:, 1:-1, 1:-1],
        u_XYZ[1:-1, :-2, 1:-1],
        u_XYZ[1:-1, 2:, 1:-1],
        u_XYZ[1:-1, 1:-1, :-2],
        u_XYZ[1:-1, 1:-1, 2:],
    )
