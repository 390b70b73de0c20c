"""GPT-2 in JAX with Flax. Shapes: B batch, T sequence, C width of the model, P positions, V vocabulary.

In mixed precision, fp32 weights are cast for each product. In 16-bit types LayerNorm and softmax accumulate in fp32,
and the loss is fp32. Flax creates a scope for each of its modules; the other scopes are set explicitly.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
from jax import Array

from benchmarker import Case, Data, Engine, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import JaxFramework
from benchmarker_problems.attention.jax import FUSED_EXCLUSIONS, Attend, Kernel
from benchmarker_problems.gemm.jax import product_by_output
from benchmarker_problems.generation import jax as generation
from benchmarker_problems.generation.jax import NO_FUSED_CACHE
from benchmarker_problems.gpt2 import LAYER_NORM_EPS, Gpt2
from benchmarker_problems.layers.jax import TransformerBlock, devices_along, rows_from
from benchmarker_problems.parallel import STRATEGIES
from benchmarker_problems.quantization.jax import dense
from benchmarker_problems.steps import DONE


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, except those that JAX's fused attention does not support."""
    return Support(DONE, exclusions=(*FUSED_EXCLUSIONS, *NO_FUSED_CACHE), parallel=STRATEGIES)


class Gpt2Model(nn.Module):
    """The whole model; the output head uses the weights of the embedding.

    With an `axis`, several devices divide the heads and the MLP of each block.
    """

    problem: Gpt2
    dtype: Any
    kernel: Kernel
    axis: str | None = None

    @nn.compact
    def __call__(
        self,
        tokens_BT: Array,
        position: Array | int = 0,
        attentions: Sequence[Attend] | None = None,
        last: Array | int = -1,
    ) -> Array:
        """Return the logits of every position, [B, T, V]; with the attention of each block, of the last, [B, V]."""
        p = self.problem
        wte_VC = self.param("wte", nn.initializers.normal(0.02), (p.vocab_size, p.d_model))
        wpe_PC = self.param("wpe", nn.initializers.normal(0.02), (p.positions, p.d_model))
        with jax.named_scope("embed"):
            x_BTC = wte_VC[tokens_BT] + rows_from(wpe_PC, position, tokens_BT.shape[1])
        devices = devices_along(self.axis)
        fields = (p.n_head // devices, p.d_ff // devices, LAYER_NORM_EPS, p.impl, self.kernel, self.dtype)
        block = nn.remat(TransformerBlock) if p.recompute else TransformerBlock
        for layer in range(p.n_layer):
            made = block(*fields, causal=True, tanh_gelu=True, linear=dense(p), axis=self.axis, name=f"h.{layer}")
            x_BTC = made(x_BTC, attentions[layer] if attentions else None)
        if attentions:
            x_BTC = x_BTC[:, last]
        x_BTC = nn.LayerNorm(epsilon=LAYER_NORM_EPS, name="ln_f")(x_BTC)
        with jax.named_scope("lm_head"):
            return product_by_output(x_BTC.astype(self.dtype), wte_VC.astype(self.dtype))


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Gpt2, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of the weights; or a phase."""
    return generation.build(framework, case, problem, data, partial(Gpt2Model, problem))


@hookimpl
def build_engine(framework: JaxFramework, case: Case, problem: Gpt2, data: Data) -> Engine:
    """Build a text-generation engine."""
    return generation.engine(framework, case, problem, data, partial(Gpt2Model, problem))


def functions(problem: Gpt2, dtype: Any, kernel: Kernel) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Return (weights, tokens) to logits and (weights, tokens, targets) to loss as functions; products in `dtype`."""
    return generation.functions(Gpt2Model(problem, dtype, kernel))
