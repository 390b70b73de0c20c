"""Attention in NumPy, without a fused kernel."""

from itertools import cycle

import numpy as np

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_problems.attention import AttentionParams, attend, causal_bias


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support({"inference": ("fp64", "fp32")}, choices={"impl": ("einsum", "matmul")})


@hookimpl
def build_workload(params: AttentionParams, data: Data) -> Workload:
    """Build a step: the attention of one batch."""
    batches = cycle(data.batches)
    dtype = data.batches[0]["q"].dtype.type
    bias_Tt = causal_bias(params.seq_len, dtype) if params.causal else None

    def step() -> np.ndarray:
        batch = next(batches)
        out_BTHD, _ = attend(batch["q"], batch["k"], batch["v"], impl=params.impl, bias_Tt=bias_Tt)
        return out_BTHD

    return Workload(step, lambda out_BTHD: {"out": out_BTHD})
