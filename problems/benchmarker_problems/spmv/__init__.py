"""SpMV: y = A·x with HPCG's sparse matrix, and that matrix in the formats that implementations use.

A belongs to a grid of X × Y × Z points, a row to each: 26 on the diagonal, and −1 for each of the up to 26 neighbours.
Neighbours outside the grid are left out (Dongarra, Heroux and Luszczek, "HPCG benchmark: a new metric for ranking high
performance computing systems", 2015). Shapes: N = X·Y·Z rows, E entries other than zero, at most K = 27 in a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Problem, Work, hookimpl

DIAGONAL, OFF_DIAGONAL = 26.0, -1.0
OFFSETS = tuple(product((-1, 0, 1), repeat=3))
"""Steps from a point of the grid to itself and to its neighbours, in order of their columns."""
INDEX_BYTES = 4

Format = Literal["auto", "csr", "ell"]
FORMAT_HELP = "csr: compressed sparse row; ell: 27 entries for every row; auto: the faster in each framework"


@dataclass(frozen=True)
class Spmv(Problem):
    """A product of the matrix with one vector; implementations do not exploit that its values repeat."""

    summary = "sparse matrix-vector product with HPCG's 27-point operator on a 3-D grid"
    accelerator = {"nx": 192, "ny": 192, "nz": 192}
    cache = "rotate"
    cost_formula = (
        "flops = 2·E for E = (3·nx-2)·(3·ny-2)·(3·nz-2) entries, as HPCG counts them\n"
        "bytes = E values, E indices of 4 bytes, x and y once, as HPCG counts them; in any format"
    )

    nx: Annotated[int, Meta(ge=1, description="points of the grid along the first axis")] = 104
    ny: Annotated[int, Meta(ge=1, description="points along the second axis")] = 104
    nz: Annotated[int, Meta(ge=1, description="points along the last axis")] = 104
    format: Annotated[Format, Meta(description=FORMAT_HELP)] = "auto"

    def title(self, mode: Mode) -> str:
        """Return the size of the grid: `SpMV 27-point 104×104×104`."""
        return f"SpMV 27-point {self.nx}×{self.ny}×{self.nz}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the product, the only part."""
        return {"spmv": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count one product, which is one sample."""
        work = product_work(self.nx, self.ny, self.nz, PRECISIONS[precision].parameter_bytes)
        return Cost(work.flops, work.bytes, 1)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Return the matrix as `values`, `columns` and `row_starts` of CSR, and draw x from a normal distribution."""
        dtype = np.float64 if precision == "fp64" else np.float32
        rows = self.nx * self.ny * self.nz
        matrix = csr_matrix(self.nx, self.ny, self.nz, dtype)
        return Data(matrix._asdict(), tuple({"x": rng.standard_normal(rows, dtype=dtype)} for _ in range(batches)))

    def small(self) -> Self:
        """Return the operator on at most 8 × 7 × 6 points, different limits so that they differ."""
        return replace(self, nx=min(self.nx, 8), ny=min(self.ny, 7), nz=min(self.nz, 6))

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the product, computed on the grid without a matrix."""
        return {"y": apply_operator(batch["x"], self.nx, self.ny, self.nz)}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the SpMV problem."""
    return Spmv


def entries(nx: int, ny: int, nz: int) -> int:
    """Return the number of entries of the matrix other than zero, E."""
    return (3 * nx - 2) * (3 * ny - 2) * (3 * nz - 2)


def product_work(nx: int, ny: int, nz: int, item_bytes: int) -> Work:
    """Return the work of one product, as in ReportResults.cpp of HPCG 3.1."""
    stored, rows = entries(nx, ny, nz), nx * ny * nz
    return Work(2 * stored, stored * (item_bytes + INDEX_BYTES) + 2 * rows * item_bytes)


def apply_operator(x_N: np.ndarray, nx: int, ny: int, nz: int) -> np.ndarray:
    """Compute A·x: 27 times the centre less the sum of all 27 points, with zeros around the grid."""
    sums_XYZ = np.pad(x_N.reshape(nx, ny, nz), 1)
    for axis, points in enumerate((nx, ny, nz)):
        before, own, after = (np.take(sums_XYZ, range(start, start + points), axis) for start in range(3))
        sums_XYZ = before + own + after
    y_N: np.ndarray = (DIAGONAL - OFF_DIAGONAL) * x_N + OFF_DIAGONAL * sums_XYZ.reshape(-1)
    return y_N


class Csr(NamedTuple):
    """A matrix in compressed sparse row format: values [E], columns [E] and row_starts [N + 1]."""

    values: np.ndarray
    columns: np.ndarray
    row_starts: np.ndarray


def csr_matrix(nx: int, ny: int, nz: int, dtype: type[np.floating]) -> Csr:
    """Return the matrix in CSR, the columns of a row in order."""
    columns_KN, present_KN = neighbour_columns(nx, ny, nz)
    row_starts = np.zeros(present_KN.shape[1] + 1, np.int32)
    np.cumsum(present_KN.sum(axis=0, dtype=np.int32), out=row_starts[1:])
    columns = columns_KN.T[present_KN.T]
    rows = np.repeat(np.arange(len(row_starts) - 1, dtype=np.int32), np.diff(row_starts))
    return Csr(np.where(columns == rows, dtype(DIAGONAL), dtype(OFF_DIAGONAL)), columns, row_starts)


def neighbour_columns(nx: int, ny: int, nz: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the column of each possible entry of a row, [K, N], and whether it exists.

    The column of an entry that does not exist is that of the row itself.
    """
    x, y, z = np.indices((nx, ny, nz), np.int32).reshape(3, -1)
    rows = np.arange(nx * ny * nz, dtype=np.int32)
    columns_KN = np.empty((len(OFFSETS), len(rows)), np.int32)
    present_KN = np.empty(columns_KN.shape, bool)
    for k, (dx, dy, dz) in enumerate(OFFSETS):
        inside = [(each + d >= 0) & (each + d < n) for each, d, n in ((x, dx, nx), (y, dy, ny), (z, dz, nz))]
        present_KN[k] = inside[0] & inside[1] & inside[2]
        columns_KN[k] = np.where(present_KN[k], rows + ((dx * ny + dy) * nz + dz), rows)
    return columns_KN, present_KN


def ell_matrix(matrix: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values and columns of a matrix in CSR, each [K, N]; rows with fewer entries end with zeros.

    The column of an added zero is that of its row. The k-th entries of all rows lie together, as GPUs read them.
    """
    row_starts = matrix["row_starts"]
    lengths_N = np.diff(row_starts)
    rows = np.repeat(np.arange(len(lengths_N), dtype=np.int32), lengths_N)
    places = np.arange(len(rows), dtype=np.int32) - row_starts[rows]
    values_KN = np.zeros((lengths_N.max(), len(lengths_N)), matrix["values"].dtype)
    columns_KN = np.tile(np.arange(len(lengths_N), dtype=np.int32), (len(values_KN), 1))
    values_KN[places, rows] = matrix["values"]
    columns_KN[places, rows] = matrix["columns"]
    return values_KN, columns_KN
