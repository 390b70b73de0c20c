"""Attention in NumPy, without a fused kernel."""

from benchmarker import Arrays, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_problems.attention import Attention
from benchmarker_problems.layers.reference import attend, causal_bias
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support(DONE, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(case: Case, problem: Attention, data: Data) -> Workload:
    """Build a step: the attention of one batch."""
    dtype = data.batches[0]["q"].dtype.type
    bias_Tt = causal_bias(problem.seq_len, dtype) if problem.causal else None

    def step(_: Arrays, batch: Arrays, __: Mode) -> Arrays:
        return {"out": attend(batch["q"], batch["k"], batch["v"], impl=problem.impl, bias_Tt=bias_Tt)[0]}

    return workload(case, data, step)
