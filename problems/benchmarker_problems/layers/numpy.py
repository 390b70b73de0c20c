"""Models of layers in NumPy: the functions of the reference, on BLAS, in the type of the weights."""

from benchmarker import Arrays, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_problems.layers.transformer import Transformer
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports; there is no fused attention."""
    return Support(DONE, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(case: Case, problem: Transformer, data: Data) -> Workload:
    """Build a step: the result for one batch."""

    def step(weights: Arrays, batch: Arrays, _: Mode) -> Arrays:
        return {problem.output: problem.forward(weights, batch, problem.impl)[0]}

    return workload(case, data, step)
