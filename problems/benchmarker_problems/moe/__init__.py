"""Mixture of experts: a decoder like Mixtral, whose MLPs are experts of which a router chooses `top_k` per token.

Pre-norm with RMSNorm, rotary positions, grouped-query attention and SwiGLU experts; no biases (Jiang et al., 2024).
The router is a product in fp32 at least, and its softmax is over the chosen logits.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Published, Work, hookimpl
from benchmarker_problems import attention
from benchmarker_problems.attention import IMPL_HELP, Impl
from benchmarker_problems.layers import DERIVED, Shapes, fill, linear_shapes, norm_shapes, size_of
from benchmarker_problems.layers.data import draw, next_tokens
from benchmarker_problems.layers.reference import cross_entropy
from benchmarker_problems.layers.work import Layers, times
from benchmarker_problems.moe.reference import forward
from benchmarker_problems.steps import ADAMW, MICROBATCHES_HELP, RECOMPUTE_HELP, refuse_without_backward, steps_title
from benchmarker_problems.steps.reference import steps

Size = Literal["mixtral-8x7b", "moe-small"]
Dispatch = Literal["grouped", "capacity"]
DISPATCH_HELP = (
    "how tokens reach their experts: sorted, in products over groups of any length (grouped; on a CPU, JAX multiplies "
    "every row with every expert), or in a fixed number of slots for each sequence and expert, in batched products, "
    "where tokens beyond it are dropped (capacity)"
)

SIZES: Mapping[Size, Mapping[str, Any]] = {
    "mixtral-8x7b": {
        "n_layer": 32,
        "d_model": 4096,
        "n_head": 32,
        "n_kv_head": 8,
        "d_ff": 14_336,
        "n_expert": 8,
        "top_k": 2,
        "vocab_size": 32_000,
        "rope_theta": 1_000_000.0,
    },
    "moe-small": {
        "n_layer": 4,
        "d_model": 256,
        "n_head": 8,
        "n_kv_head": 2,
        "d_ff": 896,
        "n_expert": 8,
        "top_k": 2,
        "vocab_size": 10_000,
        "rope_theta": 10_000.0,
    },
}
"""A published size, and one in its proportions for a CPU."""

CAPACITY_FACTOR = 1.25
PREFERENCE = 0.5
"""Weight by which a router follows the preference of a token."""


@dataclass(frozen=True)
class MoeParams:
    """Size of the model and of a batch; dimensions that are given take precedence over `size`."""

    size: Annotated[Size, Meta(description="size of the model; the nine options below override it")] = "moe-small"
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, an even multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="query heads, a multiple of n_kv_head")] = DERIVED
    n_kv_head: Annotated[int, Meta(ge=1, description="heads of keys and values")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within an expert")] = DERIVED
    n_expert: Annotated[int, Meta(ge=2, description="experts of a block, at most d_model")] = DERIVED
    top_k: Annotated[int, Meta(ge=2, description="experts that a token is sent to")] = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens")] = DERIVED
    rope_theta: Annotated[float, Meta(gt=0, description="base of the rotary angles")] = DERIVED
    dispatch: Annotated[Dispatch, Meta(description=DISPATCH_HELP)] = "capacity"
    capacity_factor: Annotated[
        float, Meta(gt=0, description="slots of an expert, as a multiple of seq_len·top_k/n_expert; for capacity only")
    ] = CAPACITY_FACTOR
    seq_len: Annotated[int, Meta(ge=1, description="sequence length")] = 128
    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 1
    impl: Annotated[Impl, Meta(description=IMPL_HELP)] = "matmul"
    recompute: Annotated[bool, Meta(description=RECOMPUTE_HELP)] = False
    microbatches: Annotated[int, Meta(ge=1, description=MICROBATCHES_HELP)] = 1

    def __post_init__(self) -> None:
        fill(self, SIZES[self.size])
        if self.d_model % (2 * self.n_head):
            raise ValueError(f"d_model={self.d_model} is not an even multiple of n_head={self.n_head}")
        if self.n_head % self.n_kv_head:
            raise ValueError(f"n_head={self.n_head} is not a multiple of n_kv_head={self.n_kv_head}")
        if self.n_expert > self.d_model:
            raise ValueError(f"n_expert={self.n_expert} exceeds d_model={self.d_model}")
        if self.top_k > self.n_expert:
            raise ValueError(f"top_k={self.top_k} exceeds n_expert={self.n_expert}")
        if self.dispatch != "capacity" and self.capacity_factor != CAPACITY_FACTOR:
            raise ValueError(f"capacity_factor={self.capacity_factor:g} needs dispatch=capacity")
        if self.batch_size % self.microbatches:
            raise ValueError(f"batch_size={self.batch_size} is not a multiple of microbatches={self.microbatches}")

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head

    @property
    def heads(self) -> tuple[int, int, int]:
        """Numbers of heads of queries, keys and values, in the order of the fused projection."""
        return self.n_head, self.n_kv_head, self.n_kv_head

    @property
    def capacity(self) -> int:
        """Slots of an expert for each sequence; more than one for each token would stay empty."""
        return min(self.seq_len, math.ceil(self.capacity_factor * self.seq_len * self.top_k / self.n_expert))


class Moe(Problem):
    """Mixture of experts: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token, without a
    term that balances the load: the weights are drawn so that experts are chosen about equally often.
    """

    summary = "mixture-of-experts language model: logits, loss and gradients, or an AdamW step"
    params = MoeParams
    accelerator = {
        "size": "mixtral-8x7b",
        "n_layer": 1,
        "dispatch": "grouped",
        "seq_len": 1024,
        "batch_size": 4,
        "impl": "fused",
    }
    cost_formula = (
        "flops = 2·B·T·(L·(2·d_model² + 2·d_model·d_kv + d_model·n_expert + 2·T·d_model) + d_model·vocab) "
        "+ 2·R·L·3·d_model·d_ff, 3 times that with backward; d_kv = d_model·n_kv_head/n_head\n"
        "R = B·T·top_k rows of experts; with --dispatch=capacity at most as many as there are slots\n"
        "bytes = weights, tokens and logits once; 2·weights with backward; 7·weights with AdamW's two moments"
    )
    published = (Published({"size": "mixtral-8x7b"}, "the checkpoint's config and weights", parameters=46_702_792_704),)

    def title(self, params: MoeParams, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads, E experts unless it has a name), the mode, B and T."""
        p = params
        sizes = {
            name: getattr(p, name)
            for name in ("n_layer", "d_model", "n_head", "n_kv_head", "d_ff", "n_expert", "top_k")
        }
        heads, experts = f"H={p.n_head}/{p.n_kv_head}", f"E={p.top_k}/{p.n_expert}"
        own = f"MoE L={p.n_layer} d={p.d_model} {heads} d_ff={p.d_ff} {experts}"
        size = p.size if SIZES[p.size].items() >= sizes.items() else own
        vocabulary = "" if p.vocab_size == SIZES[p.size]["vocab_size"] else f" V={p.vocab_size}"
        dispatch = " grouped" if p.dispatch == "grouped" else f" capacity {p.capacity_factor:g}"
        impl = "" if p.impl == MoeParams.impl else f" {p.impl}"
        steps = steps_title(recompute=p.recompute, microbatches=p.microbatches)
        what = mode.replace("forward_backward", "fwd+bwd")
        return f"{size}{vocabulary} {what}, B={p.batch_size} T={p.seq_len}{dispatch}{impl}{steps}"

    def scopes(self, params: MoeParams, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks."""
        block = ("norm_1", "attn_qkv", "rope", *attention.scopes(params.impl), "attn_proj", "norm_2")
        moe = ("moe_router", "moe_dispatch", "moe_fc", "moe_swiglu", "moe_proj", "moe_combine")
        loss = () if mode == "inference" else ("loss",)
        once = dict.fromkeys(("norm_f", "lm_head", *loss), 1)
        optimizer = {"optimizer": 1} if mode == "training" else {}
        counts = {"embed": 1, **dict.fromkeys((*block, *moe), params.n_layer), **once}
        return {name: params.microbatches * count for name, count in counts.items()} | optimizer

    def cost(self, params: MoeParams, mode: Mode, precision: str) -> Cost:
        """Count the work; the backward pass has two products for each product of the forward pass.

        Rows of the embedding that no token selects are not read, nor experts that are more than the tokens can choose.
        """
        p, types = params, PRECISIONS[precision]
        tokens = p.batch_size * p.seq_len
        d_kv = p.n_kv_head * p.head_dim
        block = 2 * p.d_model**2 + 2 * p.d_model * d_kv + p.d_model * p.n_expert + 2 * p.seq_len * p.d_model
        experts = counted_rows(p, p.batch_size) * 3 * p.d_model * p.d_ff
        flops = 2 * tokens * (p.n_layer * block + p.d_model * p.vocab_size) + 2 * p.n_layer * experts
        weights = self.parameter_count(p) * types.parameter_bytes
        unread = (p.vocab_size - min(tokens, p.vocab_size)) * p.d_model
        unread += p.n_layer * (p.n_expert - min(tokens * p.top_k, p.n_expert)) * 3 * p.d_model * p.d_ff
        unread_bytes = unread * types.parameter_bytes
        tokens_bytes, logits_bytes = 4 * tokens, tokens * p.vocab_size * types.compute_bytes
        moved = {
            "inference": weights - unread_bytes + tokens_bytes + logits_bytes,
            "forward_backward": 2 * weights - unread_bytes + 2 * tokens_bytes,
            "training": ADAMW.WEIGHTS_MOVED * weights + 2 * tokens_bytes,
        }
        return Cost(
            flops=flops if mode == "inference" else 3 * flops,
            bytes=moved[mode],
            samples=p.batch_size,
            tokens=tokens,
        )

    def parts(self, params: MoeParams, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        p, backward = params, mode != "inference"
        batch_size = p.batch_size // p.microbatches
        tokens = batch_size * p.seq_len
        layers = Layers(tokens, precision, backward)
        rotated = (p.n_head + p.n_kv_head) * p.head_dim
        rows = p.n_expert * batch_size * p.capacity if p.dispatch == "capacity" else tokens * p.top_k
        product_flops = 2 * counted_rows(p, batch_size) * p.d_model * p.d_ff
        kernels = min(tokens * p.top_k, p.n_expert) * p.d_model * p.d_ff
        at_experts = rows * p.d_model
        block = {
            "norm_1": layers.norm(p.d_model, bias=False),
            "attn_qkv": layers.linear(p.d_model, sum(p.heads) * p.head_dim),
            "rope": layers.pointwise(rotated, rotated),
            **attention.parts(
                batch_size,
                p.n_head,
                p.seq_len,
                p.head_dim,
                p.impl,
                layers.item_bytes,
                backward=backward,
                kv_heads=p.n_kv_head,
            ),
            "attn_proj": layers.linear(p.d_model, p.d_model, residual=True),
            "norm_2": layers.norm(p.d_model, bias=False),
            "moe_router": layers.linear(p.d_model, p.n_expert),
            "moe_dispatch": layers.part(0, read=tokens * p.d_model, written=at_experts),
            "moe_fc": layers.part(2 * product_flops, read=at_experts, written=2 * rows * p.d_ff, weights=2 * kernels),
            "moe_swiglu": layers.part(0, read=2 * rows * p.d_ff, written=rows * p.d_ff),
            "moe_proj": layers.part(product_flops, read=rows * p.d_ff, written=at_experts, weights=kernels),
            "moe_combine": layers.part(0, read=at_experts + tokens * (p.d_model + p.top_k), written=tokens * p.d_model),
        }
        parts = {
            "embed": layers.pointwise(0, p.d_model, weights=tokens * p.d_model),
            **times(p.n_layer, block),
            "norm_f": layers.norm(p.d_model, bias=False),
            "lm_head": layers.linear(p.d_model, p.vocab_size),
        }
        if backward:
            parts["loss"] = layers.pointwise(p.vocab_size, 0)
        parts = times(p.microbatches, parts)
        if mode == "training":
            parts["optimizer"] = Work(0, ADAMW.WEIGHTS_MOVED * self.parameter_count(p) * layers.weight_bytes)
        return parts

    def refuse(self, params: MoeParams, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass."""
        refuse_without_backward(mode, recompute=params.recompute, microbatches=params.microbatches)

    def parameter_count(self, params: MoeParams) -> int:
        """Return the number of weights, those of all experts included."""
        return size_of(weight_shapes(params))

    def data(self, params: MoeParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights as for GPT-2, random gains too, and tokens that can be learned; each token prefers some experts.

        Routers that are random alone leave near ties between experts, which rounding to 16 bits decides otherwise than
        float64: one token more or less changes the gradient of an expert visibly. So the first features of a token
        mark `top_k` random experts, as strongly as all its others together, and routers follow them. The scores of
        those that are chosen and of those that are not are then far apart, and the load of the experts is about equal.
        """
        p = params
        weights = draw(weight_shapes(p), precision, rng, residuals=2 * p.n_layer)
        preferred_VK = rng.random((p.vocab_size, p.n_expert)).argpartition(p.top_k - 1, axis=1)[:, : p.top_k]
        marks_VE = weights["wte"][:, : p.n_expert]
        marks_VE[...] = 0
        np.put_along_axis(marks_VE, preferred_VK, 0.02 * p.d_model**0.5, axis=1)
        for layer in range(p.n_layer):
            expert_E = rng.permutation(p.n_expert)
            weights[f"h.{layer}.moe_router.kernel"][np.arange(p.n_expert), expert_E] += PREFERENCE
        return Data(weights, next_tokens(p.batch_size, p.seq_len, p.vocab_size, rng, batches))

    def small(self, params: MoeParams) -> MoeParams:
        """Return at most two layers of at most eight experts, with dimensions that nearly all differ."""
        return replace(
            params,
            n_layer=min(params.n_layer, 2),
            d_model=64,
            n_head=4,
            n_kv_head=4 if params.n_kv_head == params.n_head else 2,
            d_ff=160,
            n_expert=min(params.n_expert, 8),
            top_k=min(params.top_k, 3),
            vocab_size=97,
            seq_len=32,
            batch_size=3 * params.microbatches,
        )

    def reference(self, params: MoeParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        return steps(
            data,
            mode,
            "logits",
            lambda weights, batch: forward(weights, batch["tokens"], params),
            lambda logits_BTV, batch: cross_entropy(logits_BTV, batch["targets"]),
        )


def counted_rows(params: MoeParams, batch_size: int) -> int:
    """Return the rows of all experts of a block that count as work.

    Each token counts `top_k` times, also where it is dropped; slots beyond that stay empty and do not count.
    """
    p = params
    rows = batch_size * p.seq_len * p.top_k
    return min(rows, p.n_expert * batch_size * p.capacity) if p.dispatch == "capacity" else rows


def recomputed_flops(params: MoeParams, *, scores: bool) -> int:
    """Return the FLOPs that a backward pass repeats: Q·Kᵀ if `scores`, as fused kernels do, and blocks if asked."""
    p = params
    flops = p.n_layer * attention.product_flops(p.batch_size, p.n_head, p.seq_len, p.head_dim) if scores else 0
    if not p.recompute:
        return flops
    cost = Moe().cost(p, "inference", "fp32")
    return flops + cost.flops - 2 * p.batch_size * p.seq_len * p.d_model * p.vocab_size


@hookimpl
def make_problem() -> Problem:
    """Make the mixture-of-experts problem."""
    return Moe()


def weight_shapes(params: MoeParams) -> Shapes:
    """Return the shape of every weight by name, in order of use; those of experts are [experts, inputs, outputs]."""
    p = params
    shapes: Shapes = {"wte": (p.vocab_size, p.d_model)}
    for layer in range(p.n_layer):
        h = f"h.{layer}"
        shapes |= norm_shapes(f"{h}.norm_1", p.d_model, bias=False)
        shapes |= linear_shapes(f"{h}.attn_qkv", p.d_model, sum(p.heads) * p.head_dim, bias=False)
        shapes |= linear_shapes(f"{h}.attn_proj", p.d_model, p.d_model, bias=False)
        shapes |= norm_shapes(f"{h}.norm_2", p.d_model, bias=False)
        shapes |= linear_shapes(f"{h}.moe_router", p.d_model, p.n_expert, bias=False)
        shapes[f"{h}.moe_fc.kernel"] = (p.n_expert, p.d_model, 2 * p.d_ff)
        shapes[f"{h}.moe_proj.kernel"] = (p.n_expert, p.d_ff, p.d_model)
    shapes |= norm_shapes("norm_f", p.d_model, bias=False)
    return shapes | linear_shapes("lm_head", p.d_model, p.vocab_size, bias=False)
