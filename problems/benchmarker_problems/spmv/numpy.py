"""SpMV in SciPy, on one core."""

import scipy.sparse

from benchmarker import Arrays, Case, Data, Support, Workload, hookimpl
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing; SciPy has CSR only."""
    return Support(DONE, choices={"format": ("auto", "csr")})


def make_matrix(weights: Arrays) -> scipy.sparse.csr_array:
    """Return the matrix in the type of its values."""
    return scipy.sparse.csr_array((weights["values"], weights["columns"], weights["row_starts"]))


@hookimpl
def build_workload(case: Case, data: Data) -> Workload:
    """Build a step: one product."""
    matrix = make_matrix(data.weights)
    return workload(case, data, lambda _, batch, __: {"y": matrix @ batch["x"]})
