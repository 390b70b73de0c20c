"""SpMV in SciPy, on one core."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import scipy.sparse

from benchmarker import Data, Support, Workload, hookimpl


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing; SciPy has CSR only."""
    return Support({"inference": ("fp64", "fp32")}, choices={"format": ("auto", "csr")})


def make_matrix(weights: Mapping[str, np.ndarray]) -> scipy.sparse.csr_array:
    """Return the matrix in the type of its values."""
    return scipy.sparse.csr_array((weights["values"], weights["columns"], weights["row_starts"]))


@hookimpl
def build_workload(data: Data) -> Workload:
    """Build a step: one product."""
    matrix = make_matrix(data.weights)
    batches = cycle([batch["x"] for batch in data.batches])

    def step() -> np.ndarray:
        y_N: np.ndarray = matrix @ next(batches)
        return y_N

    return Workload(step, lambda y_N: {"y": y_N})
