"""GEMM in a bare BLAS: one call of `cblas_dgemm` or `cblas_sgemm` for each product."""

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.blas import DTYPES, BlasFramework
from benchmarker_problems.gemm import INPUTS, Gemm, calls


@hookimpl
def describe_workload() -> Support:
    """Return the types that every BLAS has; a backward pass is two more products."""
    return Support(dict.fromkeys(INPUTS, tuple(DTYPES)))


@hookimpl
def build_workload(framework: BlasFramework, case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; in `forward_backward` also the gradients of A and B."""
    dtype = DTYPES[case.precision]
    return calls.workload(problem, case.mode, data, framework.matmul, dtype, dtype)
