"""Attention in NumPy, without a fused kernel, also in formats that it emulates."""

import numpy as np

from benchmarker import PRECISIONS, Arrays, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_problems.attention import NOT_SCALED, Attention
from benchmarker_problems.fp8 import EMULATED
from benchmarker_problems.layers.reference import attend, causal_bias
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports, and the formats that are emulated."""
    precisions: dict[Mode, tuple[str, ...]] = {"inference": (*DONE["inference"], *EMULATED)}
    return Support(precisions, choices={"impl": ("einsum", "matmul")}, exclusions=NOT_SCALED)


@hookimpl
def build_workload(case: Case, problem: Attention, data: Data) -> Workload:
    """Build a step: the attention of one batch."""
    types = PRECISIONS[case.precision]
    dtype = data.batches[0]["q"].dtype.type
    bias_Tt = causal_bias(problem.seq_len, dtype) if problem.causal and not problem.depth else None

    def step(_: Arrays, batch: Arrays, __: Mode) -> Arrays:
        if types.is_emulated:
            return {"out": problem.scaled_output(batch, types, np.float32)}
        k_BtKD, v_BtKD = (batch[name][:, : problem.keys] for name in ("k", "v"))
        return {"out": attend(batch["q"], k_BtKD, v_BtKD, impl=problem.impl, bias_Tt=bias_Tt)[0]}

    return workload(case, data, step)
