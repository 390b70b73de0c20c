"""GEMM in bare oneDNN: one call of its primitive `matmul` for each product, or for each batch of them."""

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.onednn import DTYPES, RESULT_DTYPES, OnednnFramework
from benchmarker_problems.gemm import Gemm, calls


@hookimpl
def describe_workload() -> Support:
    """Return the types that oneDNN has on a CPU; fp64 is for its GPUs. A backward pass is two more products."""
    return Support({"inference": tuple(DTYPES), "forward_backward": tuple(name for name in DTYPES if name != "int8")})


@hookimpl
def build_workload(framework: OnednnFramework, case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; in `forward_backward` also the gradients of A and B."""
    dtypes = DTYPES[case.precision], RESULT_DTYPES[case.precision]
    return calls.workload(problem, case.mode, data, framework.matmul, *dtypes)
