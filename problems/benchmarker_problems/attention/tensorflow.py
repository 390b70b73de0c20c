"""Attention in TensorFlow, which has no fused kernel for it.

Shapes: B batch, T sequence (t for keys), H heads, K those of keys and values, D head dimension.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarker import STORED_FLOATS, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.tensorflow import DTYPES, TensorFlow
from benchmarker_problems.attention import INPUTS, OUTPUTS, Attention
from benchmarker_problems.layers import Impl


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type that is stored, and how products are written."""
    return Support(dict.fromkeys(INPUTS, STORED_FLOATS), choices={"impl": ("einsum", "matmul")})


def step_function(problem: Attention, mode: Mode) -> Callable[..., tuple[Any, ...]]:
    """Return the function from (q, k, v) to (out,), or with backward from (q, k, v, d_out) to (out, d_q, d_k, d_v)."""
    attending = partial(attend, impl=problem.impl, causal=problem.causal and not problem.depth)

    def attention(q_BTHD: Any, k_BtKD: Any, v_BtKD: Any) -> Any:
        return attending(q_BTHD, k_BtKD[:, : problem.keys], v_BtKD[:, : problem.keys])

    def forward(*inputs: Any) -> tuple[Any, ...]:
        return (attention(*inputs),)

    def forward_backward(*inputs: Any) -> tuple[Any, ...]:
        *of_forward, d_out_BTHD = inputs
        with tf.GradientTape() as tape:
            tape.watch(of_forward)
            out_BTHD = attention(*of_forward)
        return (out_BTHD, *tape.gradient(out_BTHD, of_forward, d_out_BTHD))

    return forward if mode == "inference" else forward_backward


@hookimpl
def build_workload(framework: TensorFlow, case: Case, problem: Attention, data: Data) -> Workload:
    """Build a step: the attention of one batch; in `forward_backward` also the gradients of q, k and v, by a tape."""
    dtype, names = DTYPES[case.precision], INPUTS[case.mode]
    function = framework.compiled(step_function(problem, case.mode))
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in names) for batch in data.batches])

    def step() -> tuple[Any, ...]:
        return function(*next(batches))

    def outputs(result: tuple[Any, ...]) -> Mapping[str, np.ndarray]:
        return {name: value.numpy().astype(np.float64) for name, value in zip(OUTPUTS, result, strict=False)}

    return Workload(step, outputs)


def attend(q_BTHD: Any, k_BtKD: Any, v_BtKD: Any, *, impl: Impl, causal: bool) -> Any:
    """Compute attention on [B, T, H, D]; K and V may have fewer heads, each for a group of consecutive query heads."""
    by_einsum = impl == "einsum"
    group = q_BTHD.shape[2] // k_BtKD.shape[2]
    k_BtHD, v_BtHD = (tf.repeat(of_K, group, axis=2) if group > 1 else of_K for of_K in (k_BtKD, v_BtKD))
    with tf.name_scope("attn_q_k"):
        q_BTHD *= tf.constant(q_BTHD.shape[-1] ** -0.5, q_BTHD.dtype)
        if by_einsum:
            scores_BHTt = tf.einsum("bqhd,bthd->bhqt", q_BTHD, k_BtHD)
        else:
            scores_BHTt = tf.matmul(_by_head(q_BTHD), _by_head(k_BtHD), transpose_b=True)
    with tf.name_scope("attn_softmax"):
        softmax_dtype = tf.float64 if scores_BHTt.dtype == tf.float64 else tf.float32
        scores_BHTt = tf.cast(scores_BHTt, softmax_dtype)
        if causal:
            visible_Tt = tf.linalg.band_part(tf.ones(scores_BHTt.shape[-2:], bool), -1, 0)
            scores_BHTt = tf.where(visible_Tt, scores_BHTt, tf.constant(-np.inf, softmax_dtype))
        weights_BHTt = tf.cast(tf.nn.softmax(scores_BHTt), v_BtHD.dtype)
    with tf.name_scope("attn_att_v"):
        if by_einsum:
            return tf.einsum("bhqt,bthd->bqhd", weights_BHTt, v_BtHD)
        return _by_head(tf.matmul(weights_BHTt, _by_head(v_BtHD)))


def _by_head(values: Any) -> Any:
    """Exchange the axes of the sequence and of the heads."""
    return tf.transpose(values, (0, 2, 1, 3))
