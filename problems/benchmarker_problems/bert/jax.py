"""BERT in JAX with Flax. Shapes: B batch, T sequence, C width, P positions, S segments, V vocabulary, N masked.

In mixed precision, fp32 weights are cast for each product. In 16-bit types LayerNorm and softmax accumulate in fp32,
and the loss is fp32. Flax creates a scope for each of its modules; the other scopes are set explicitly.

With `--recompute` on a CPU, XLA finds that the first product of a block, `attn_qkv`, has the same input in both passes,
and computes it once. A profile has it in the forward pass or in the recomputation.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.attention.jax import FUSED_EXCLUSIONS, Kernel, fused_kernel, recomputes_scores
from benchmarker_problems.bert import Bert
from benchmarker_problems.layers.jax import TransformerBlock, cross_entropy
from benchmarker_problems.steps import DONE
from benchmarker_problems.steps.jax import Weights, apply, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return Support(DONE, exclusions=FUSED_EXCLUSIONS)


class BertModel(nn.Module):
    """The whole model; the decoder of the output head uses the weights of the embedding."""

    problem: Bert
    dtype: Any
    kernel: Kernel

    @nn.compact
    def __call__(self, tokens_BT: Array, masked_N: Array) -> Array:
        """Return the logits of every position, [B, T, V], or of the masked, [N, V]."""
        p, init = self.problem, nn.initializers.normal(0.02)
        eps = p.family.layer_norm_eps
        layer_norm = partial(nn.LayerNorm, epsilon=eps)
        wte_VC = self.param("wte", init, (p.vocab_size, p.d_model))
        wpe_PC = self.param("wpe", init, (p.positions, p.d_model))
        wtt_SC = self.param("wtt", init, (p.family.token_types, p.d_model))
        lm_head_bias_V = self.param("lm_head_bias", nn.initializers.zeros, (p.vocab_size,))
        first = p.family.first_position
        with jax.named_scope("embed"):
            x_BTC = wte_VC[tokens_BT] + (wpe_PC[first : first + p.seq_len] + wtt_SC[0])
        x_BTC = layer_norm(name="ln_embed")(x_BTC)
        fields = (p.n_head, p.d_ff, eps, p.impl, self.kernel, self.dtype)
        block = nn.remat(TransformerBlock) if p.recompute else TransformerBlock
        for layer in range(p.n_layer):
            x_BTC = block(*fields, post_norm=True, name=f"h.{layer}")(x_BTC)
        x_C = x_BTC if p.head == "all" else gather_masked(x_BTC, masked_N)
        x_C = nn.Dense(p.d_model, dtype=self.dtype, name="head_fc")(x_C)
        with jax.named_scope("head_gelu"):
            x_C = nn.gelu(x_C, approximate=False)
        x_C = layer_norm(name="head_ln")(x_C)
        with jax.named_scope("lm_head"):
            return x_C.astype(self.dtype) @ wte_VC.astype(self.dtype).T + lm_head_bias_V.astype(self.dtype)


def gather_masked(x_BTC: Array, masked_N: Array) -> Array:
    """Return the rows of the masked positions, [N, C]."""
    with jax.named_scope("gather_masked"):
        rows_C = x_BTC.reshape(-1, x_BTC.shape[-1])
        return rows_C.at[masked_N].get(mode="promise_in_bounds", unique_indices=True, indices_are_sorted=True)


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Bert, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights."""
    p, kernel = problem, fused_kernel(case)
    logits_of, loss_of = functions(p, DTYPES[PRECISIONS[case.precision].compute], kernel)
    return workload(
        framework,
        case,
        p.within_microbatches(data),
        "logits",
        logits_of,
        loss_of,
        terms=p.masked,
        inputs=("tokens", "masked"),
        settings=p.optimizer(),
        microbatches=p.microbatches,
        recomputed_flops=p.recomputed_flops(
            scores=recomputes_scores(p.impl, kernel),
            kept=("attn_qkv",) if case.device == "cpu" else (),
        ),
    )


def functions(problem: Bert, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, tokens, masked) to logits and (…, targets) to loss as functions; products in `dtype`."""
    model = BertModel(problem, dtype, kernel)

    def loss_of(weights: Weights, tokens: Array, masked: Array, targets: Array) -> Array:
        logits_V = apply(model, weights, tokens, masked)
        return cross_entropy(logits_V if problem.head == "masked" else gather_masked(logits_V, masked), targets)

    return partial(apply, model), loss_of
