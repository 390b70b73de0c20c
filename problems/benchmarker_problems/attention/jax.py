"""Attention in JAX. Shapes: B batch, T sequence (t for keys), H heads, D head dimension."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import FLOATS, PRECISIONS, Arrays, Case, Data, Mode, Precision, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.attention import INPUTS, NOT_SCALED, OUTPUTS, Attention, by_row
from benchmarker_problems.fp8 import SCALED
from benchmarker_problems.fp8 import jax as fp8
from benchmarker_problems.layers import Impl

Kernel = Literal["xla", "cudnn"]
Attend = Callable[[Array, Array, Array], Array]
"""From queries, keys and values [B, T, H, D] to the heads."""

FUSED_EXCLUSIONS = (
    {"impl": "fused", "precision": "fp64"},
    {"impl": "fused", "precision": "fp16", "device": "cpu"},
    {"impl": "fused", "precision": "mixed_fp16", "device": "cpu"},
)
"""JAX's fused attention computes the softmax of fp64 in fp32, and does not support fp16 on the CPU."""


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type, except those that the fused attention does not support, and fp8 by products."""
    precisions: dict[Mode, tuple[str, ...]] = {"inference": (*FLOATS, *SCALED), "forward_backward": FLOATS}
    return Support(precisions, exclusions=(*FUSED_EXCLUSIONS, *NOT_SCALED))


def step_function(problem: Attention, mode: Mode, kernel: Kernel) -> Callable[..., tuple[Array, ...]]:
    """Return the function from (q, k, v) to (out,), or with backward from (q, k, v, d_out) to (out, d_q, d_k, d_v)."""
    attention = partial(attend, impl=problem.impl, causal=problem.causal, kernel=kernel)

    def forward(q_BTHD: Array, k_BtHD: Array, v_BtHD: Array) -> tuple[Array, ...]:
        return (attention(q_BTHD, k_BtHD, v_BtHD),)

    def forward_backward(q_BTHD: Array, k_BtHD: Array, v_BtHD: Array, d_out_BTHD: Array) -> tuple[Array, ...]:
        out_BTHD, pullback = jax.vjp(attention, q_BTHD, k_BtHD, v_BtHD)
        return (out_BTHD, *pullback(d_out_BTHD))

    return forward if mode == "inference" else forward_backward


def cached_function(impl: Impl, kernel: Kernel) -> Callable[..., tuple[Array, ...]]:
    """Return the function from (q, keys, values, position) of a cache to (out,).

    The cache is [R, S, D], or [B, S, K, D] for the fused attention, which takes no other.
    """

    def forward(q_B1HD: Array, keys: Array, values: Array, position: Array) -> tuple[Array, ...]:
        if impl != "fused":
            return (attend_to_rows(q_B1HD, keys, values, position, impl, lambda each: each),)
        filled_B = jnp.full(len(keys), position + 1)
        with jax.named_scope("attn_fused"):
            of_fused = partial(jax.nn.dot_product_attention, key_value_seq_lengths=filled_B, implementation=kernel)
            return (of_fused(q_B1HD, keys, values),)

    return forward


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Attention, data: Data) -> Workload:
    """Build a step: the attention of one batch; in `forward_backward` also the gradients of q, k and v, by `vjp`."""
    p, types = problem, PRECISIONS[case.precision]
    dtype, kernel = DTYPES[types.parameter], fused_kernel(case)

    def scaled_forward(*factors: fp8.Scaled) -> tuple[Array, ...]:
        return (attend_scaled(*factors, types=types, causal=p.causal),)

    def put(batch: Arrays) -> tuple[Any, ...]:
        if types.scale:
            return tuple(fp8.scaled(framework.put(value), types, dtype, axis) for value, axis in p.by_head(batch))
        inputs = [batch[name] for name in INPUTS[case.mode]]
        if p.depth and p.impl != "fused":
            inputs[1:] = map(by_row, inputs[1:])
        on_device = tuple(framework.put(value, dtype) for value in inputs)
        return (*on_device, position) if p.depth else on_device

    position = framework.put(np.asarray(p.depth, np.int32))
    of_sequences = scaled_forward if types.scale else step_function(p, case.mode, kernel)
    function = jax.jit(cached_function(p.impl, kernel) if p.depth else of_sequences)
    batches = cycle([put(batch) for batch in data.batches])

    def step() -> tuple[Array, ...]:
        return function(*next(batches))

    def outputs(result: tuple[Array, ...]) -> Mapping[str, np.ndarray]:
        return {name: np.asarray(value, np.float64) for name, value in zip(OUTPUTS, result, strict=False)}

    recomputes = case.mode == "forward_backward" and recomputes_scores(p.impl, kernel)
    recomputed_flops = p.product_flops if recomputes else 0
    return Workload(step, outputs, recomputed_flops)


def fused_kernel(case: Case) -> Kernel:
    """Return the kernel for `jax.nn.dot_product_attention`: cuDNN's flash attention for 16-bit types on NVIDIA."""
    short = PRECISIONS[case.precision].compute in ("bf16", "fp16")
    return "cudnn" if case.device == "cuda" and short else "xla"


def recomputes_scores(impl: Impl, kernel: Kernel) -> bool:
    """Whether the backward pass recomputes Q·Kᵀ, as flash attention does."""
    return impl == "fused" and kernel == "cudnn"


def attend(q_BTHD: Array, k_BtKD: Array, v_BtKD: Array, *, impl: Impl, causal: bool, kernel: Kernel) -> Array:
    """Compute attention on [B, T, H, D]; K and V may have fewer heads, each for a group of consecutive query heads."""
    if impl == "fused":
        with jax.named_scope("attn_fused"):
            return jax.nn.dot_product_attention(q_BTHD, k_BtKD, v_BtKD, is_causal=causal, implementation=kernel)
    shape = q_BTHD.shape
    by_group = (*shape[:2], k_BtKD.shape[2], -1, shape[3])
    with jax.named_scope("attn_q_k"):
        q_BTKGD = (q_BTHD * shape[-1] ** -0.5).reshape(by_group)
        if impl == "einsum":
            scores_BKGTt = jnp.einsum("bqkgd,btkd->bkgqt", q_BTKGD, k_BtKD)
        else:
            # The queries of a group are rows of one product with the keys that they share.
            rows_BKRD = q_BTKGD.transpose(0, 2, 3, 1, 4).reshape(shape[0], k_BtKD.shape[2], -1, shape[3])
            scores_BKRt = rows_BKRD @ k_BtKD.transpose(0, 2, 3, 1)
            scores_BKGTt = scores_BKRt.reshape(*scores_BKRt.shape[:2], -1, shape[1], k_BtKD.shape[1])
    with jax.named_scope("attn_softmax"):
        if causal:
            visible_Tt = jnp.tril(jnp.ones(scores_BKGTt.shape[-2:], bool))
            scores_BKGTt = jnp.where(visible_Tt, scores_BKGTt, -jnp.inf)
        softmax_dtype = jnp.promote_types(scores_BKGTt.dtype, jnp.float32)
        weights_BKGTt = jax.nn.softmax(scores_BKGTt.astype(softmax_dtype)).astype(v_BtKD.dtype)
    with jax.named_scope("attn_att_v"):
        if impl == "einsum":
            return jnp.einsum("bkgqt,btkd->bqkgd", weights_BKGTt, v_BtKD).reshape(shape)
        weights_BKRt = weights_BKGTt.reshape(*weights_BKGTt.shape[:2], -1, weights_BKGTt.shape[-1])
        out_BKRD = weights_BKRt @ v_BtKD.swapaxes(1, 2)
        return out_BKRD.reshape(*weights_BKGTt.shape[:4], -1).transpose(0, 3, 1, 2, 4).reshape(shape)


def attend_scaled(
    q_BHTD: fp8.Scaled, k_BHtD: fp8.Scaled, v_BHtD: fp8.Scaled, *, types: Precision, causal: bool
) -> Array:
    """Compute attention of numbers in fp8 with scales, in fp32 between and after the products: [B, T, H, D]."""
    with jax.named_scope("attn_q_k"):
        k, k_scale = (each.swapaxes(-1, -2) for each in k_BHtD)
        scores_BHTt = fp8.product(q_BHTD, (k, k_scale)) * q_BHTD[0].shape[-1] ** -0.5
    with jax.named_scope("attn_softmax"):
        if causal:
            visible_Tt = jnp.tril(jnp.ones(scores_BHTt.shape[-2:], bool))
            scores_BHTt = jnp.where(visible_Tt, scores_BHTt, -jnp.inf)
        weights = fp8.scaled(jax.nn.softmax(scores_BHTt), types, q_BHTD[0].dtype, -1)
    with jax.named_scope("attn_att_v"):
        return fp8.product(weights, v_BHtD).transpose(0, 2, 1, 3)


def attend_to_rows(
    q_B1HD: Array, keys: Array, values: Array, position: Array | int, impl: Impl, rows: Callable[[Array], Array]
) -> Array:
    """Attend from one token of each sequence, at `position`, to a cache of S positions; R is batch · heads of K and V.

    `rows` gives keys and values as [R, S, D]. Queries of a group are rows of one product with the keys that they share.
    Positions after `position`, which is one for all sequences or [R, 1, 1], are masked.
    """
    with jax.named_scope("attn_q_k"):
        k_RSD = rows(keys)
        q_RGD = (q_B1HD * q_B1HD.shape[-1] ** -0.5).reshape(len(k_RSD), -1, q_B1HD.shape[-1])
        by_einsum = impl == "einsum"
        scores_RGS = jnp.einsum("rgd,rsd->rgs", q_RGD, k_RSD) if by_einsum else q_RGD @ k_RSD.swapaxes(1, 2)
    with jax.named_scope("attn_softmax"):
        scores_RGS = jnp.where(jnp.arange(k_RSD.shape[1]) <= position, scores_RGS, -jnp.inf)
        softmax_dtype = jnp.promote_types(scores_RGS.dtype, jnp.float32)
        weights_RGS = jax.nn.softmax(scores_RGS.astype(softmax_dtype)).astype(values.dtype)
    with jax.named_scope("attn_att_v"):
        v_RSD = rows(values)
        heads_RGD = jnp.einsum("rgs,rsd->rgd", weights_RGS, v_RSD) if by_einsum else weights_RGS @ v_RSD
        return heads_RGD.reshape(q_B1HD.shape)
