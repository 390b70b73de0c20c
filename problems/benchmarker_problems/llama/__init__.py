"""Llama: pre-norm decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU; no biases.

As published (Touvron et al., 2023; Dubey et al., 2024). Llama 3.1 and 3.2 also stretch the rotary angles for long
contexts; that changes the values of a table and no work, and is left out.
"""

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
from benchmarker_problems.llama.reference import forward
from benchmarker_problems.steps import ADAMW, MICROBATCHES_HELP, RECOMPUTE_HELP, refuse_without_backward, steps_title
from benchmarker_problems.steps.reference import steps

Size = Literal[
    "llama-3.2-1b",
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-2-7b",
    "tinyllama-1.1b",
    "cs336-small",
    "cs336-medium",
    "cs336-large",
    "cs336-xl",
    "cs336-2.7b",
]


def _size(
    n_layer: int,
    d_model: int,
    n_head: int,
    n_kv_head: int,
    d_ff: int,
    vocab_size: int,
    *,
    rope_theta: float = 10_000.0,
    tied_head: bool = False,
) -> Mapping[str, Any]:
    return {
        "n_layer": n_layer,
        "d_model": d_model,
        "n_head": n_head,
        "n_kv_head": n_kv_head,
        "d_ff": d_ff,
        "vocab_size": vocab_size,
        "rope_theta": rope_theta,
        "tied_head": tied_head,
    }


SIZES: Mapping[Size, Mapping[str, Any]] = {
    "llama-3.2-1b": _size(16, 2048, 32, 8, 8192, 128_256, rope_theta=500_000.0, tied_head=True),
    "llama-3.1-8b": _size(32, 4096, 32, 8, 14_336, 128_256, rope_theta=500_000.0),
    "llama-3.1-70b": _size(80, 8192, 64, 8, 28_672, 128_256, rope_theta=500_000.0),
    "llama-2-7b": _size(32, 4096, 32, 32, 11_008, 32_000),
    "tinyllama-1.1b": _size(22, 2048, 32, 4, 5632, 32_000),
    "cs336-small": _size(12, 768, 12, 12, 3072, 10_000),
    "cs336-medium": _size(24, 1024, 16, 16, 4096, 10_000),
    "cs336-large": _size(36, 1280, 20, 20, 5120, 10_000),
    "cs336-xl": _size(48, 1600, 25, 25, 6400, 10_000),
    "cs336-2.7b": _size(32, 2560, 32, 32, 10_240, 10_000),
}
"""Published sizes: Meta's checkpoints, TinyLlama (Zhang et al., 2024), and the models of Stanford's course CS336."""

_CHECKPOINT = "the checkpoint's config and weights"
_COURSE = "CS336, assignment 2, table 1; 120.9 M reported with one vocabulary matrix"


@dataclass(frozen=True)
class LlamaParams:
    """Size of the model and of a batch; dimensions that are given take precedence over `size`."""

    size: Annotated[Size, Meta(description="published size; the eight options below override it")] = "cs336-small"
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, an even multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="query heads, a multiple of n_kv_head")] = DERIVED
    n_kv_head: Annotated[int, Meta(ge=1, description="heads of keys and values")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP")] = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens")] = DERIVED
    rope_theta: Annotated[float, Meta(gt=0, description="base of the rotary angles")] = DERIVED
    tied_head: Annotated[bool, Meta(description="the output head uses the weights of the embedding")] = DERIVED
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


class Llama(Problem):
    """Llama: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    summary = "Llama language model: logits, loss and gradients, or an AdamW step"
    params = LlamaParams
    accelerator = {"size": "llama-3.2-1b", "seq_len": 1024, "batch_size": 4, "impl": "fused"}
    cost_formula = (
        "flops = 2·B·T·(L·(2·d_model² + 2·d_model·d_kv + 3·d_model·d_ff + 2·T·d_model) + d_model·vocab), "
        "3 times that with backward; d_kv = d_model·n_kv_head/n_head\n"
        "bytes = weights, tokens and logits once; 2·weights with backward; 7·weights with AdamW's two moments"
    )
    published = (
        Published({"size": "llama-3.2-1b"}, _CHECKPOINT, parameters=1_235_814_400),
        Published({"size": "llama-3.1-8b"}, _CHECKPOINT, parameters=8_030_261_248),
        Published({"size": "llama-3.1-70b"}, _CHECKPOINT, parameters=70_553_706_496),
        Published({"size": "llama-2-7b"}, _CHECKPOINT, parameters=6_738_415_616),
        Published({"size": "tinyllama-1.1b"}, _CHECKPOINT, parameters=1_100_048_384),
        Published({"size": "cs336-small", "tied_head": True}, _COURSE, parameters=120_945_408),
    )

    def title(self, params: LlamaParams, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads unless it is published), the mode, B and T."""
        p = params
        sizes = {name: getattr(p, name) for name in ("n_layer", "d_model", "n_head", "n_kv_head", "d_ff")}
        known = next((name for name, of in SIZES.items() if of.items() >= sizes.items() and name == p.size), None)
        size = known or f"Llama L={p.n_layer} d={p.d_model} H={p.n_head}/{p.n_kv_head} d_ff={p.d_ff}"
        vocabulary = "" if p.vocab_size == SIZES[p.size]["vocab_size"] else f" V={p.vocab_size}"
        head = "" if p.tied_head == SIZES[p.size]["tied_head"] else f" {'tied' if p.tied_head else 'untied'}"
        impl = "" if p.impl == LlamaParams.impl else f" {p.impl}"
        steps = steps_title(recompute=p.recompute, microbatches=p.microbatches)
        what = mode.replace("forward_backward", "fwd+bwd")
        return f"{size}{vocabulary}{head} {what}, B={p.batch_size} T={p.seq_len}{impl}{steps}"

    def scopes(self, params: LlamaParams, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks."""
        block = ("norm_1", "attn_qkv", "rope", *attention.scopes(params.impl), "attn_proj", "norm_2")
        mlp = ("mlp_fc", "mlp_swiglu", "mlp_proj")
        loss = () if mode == "inference" else ("loss",)
        once = dict.fromkeys(("norm_f", "lm_head", *loss), 1)
        optimizer = {"optimizer": 1} if mode == "training" else {}
        counts = {"embed": 1, **dict.fromkeys((*block, *mlp), params.n_layer), **once}
        return {name: params.microbatches * count for name, count in counts.items()} | optimizer

    def cost(self, params: LlamaParams, mode: Mode, precision: str) -> Cost:
        """Count the work; the backward pass has two products for each product of the forward pass.

        In inference, an embedding that is not also the output head is read only where a token selects a row.
        """
        p, types = params, PRECISIONS[precision]
        tokens = p.batch_size * p.seq_len
        d_kv = p.n_kv_head * p.head_dim
        block = 2 * p.d_model**2 + 2 * p.d_model * d_kv + 3 * p.d_model * p.d_ff + 2 * p.seq_len * p.d_model
        flops = 2 * tokens * (p.n_layer * block + p.d_model * p.vocab_size)
        count = self.parameter_count(p)
        looked_up = 0 if p.tied_head else (p.vocab_size - min(tokens, p.vocab_size)) * p.d_model
        weights = count * types.parameter_bytes
        tokens_bytes, logits_bytes = 4 * tokens, tokens * p.vocab_size * types.compute_bytes
        moved = {
            "inference": weights - looked_up * types.parameter_bytes + tokens_bytes + logits_bytes,
            "forward_backward": 2 * weights - looked_up * types.parameter_bytes + 2 * tokens_bytes,
            "training": ADAMW.WEIGHTS_MOVED * weights + 2 * tokens_bytes,
        }
        return Cost(
            flops=flops if mode == "inference" else 3 * flops,
            bytes=moved[mode],
            samples=p.batch_size,
            tokens=tokens,
        )

    def parts(self, params: LlamaParams, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        p, backward = params, mode != "inference"
        batch_size = p.batch_size // p.microbatches
        tokens = batch_size * p.seq_len
        layers = Layers(tokens, precision, backward)
        rotated = (p.n_head + p.n_kv_head) * p.head_dim
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
            "mlp_fc": layers.linear(p.d_model, 2 * p.d_ff),
            "mlp_swiglu": layers.pointwise(2 * p.d_ff, p.d_ff),
            "mlp_proj": layers.linear(p.d_ff, p.d_model, residual=True),
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

    def refuse(self, params: LlamaParams, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass."""
        refuse_without_backward(mode, recompute=params.recompute, microbatches=params.microbatches)

    def parameter_count(self, params: LlamaParams) -> int:
        """Return the number of weights; a tied output head shares those of the embedding."""
        return size_of(weight_shapes(params))

    def data(self, params: LlamaParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights as for GPT-2, random gains too, and tokens that can be learned."""
        p = params
        weights = draw(weight_shapes(p), precision, rng, residuals=2 * p.n_layer)
        return Data(weights, next_tokens(p.batch_size, p.seq_len, p.vocab_size, rng, batches))

    def small(self, params: LlamaParams) -> LlamaParams:
        """Return at most two layers with dimensions that all differ, and groups of queries if there are any."""
        return replace(
            params,
            n_layer=min(params.n_layer, 2),
            d_model=64,
            n_head=4,
            n_kv_head=4 if params.n_kv_head == params.n_head else 2,
            d_ff=160,
            vocab_size=97,
            seq_len=32,
            batch_size=3 * params.microbatches,
        )

    def reference(self, params: LlamaParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        return steps(
            data,
            mode,
            "logits",
            lambda weights, batch: forward(weights, batch["tokens"], params),
            lambda logits_BTV, batch: cross_entropy(logits_BTV, batch["targets"]),
        )


def recomputed_flops(params: LlamaParams, *, scores: bool) -> int:
    """Return the FLOPs that a backward pass repeats: Q·Kᵀ if `scores`, as fused kernels do, and blocks if asked.

    The last product of a block is not repeated, because no gradient needs its result.
    """
    p = params
    flops = p.n_layer * attention.product_flops(p.batch_size, p.n_head, p.seq_len, p.head_dim) if scores else 0
    if not p.recompute:
        return flops
    cost = Llama().cost(p, "inference", "fp32")
    outside = p.d_model * p.vocab_size + p.n_layer * p.d_ff * p.d_model
    return flops + cost.flops - 2 * p.batch_size * p.seq_len * outside


@hookimpl
def make_problem() -> Problem:
    """Make the Llama problem."""
    return Llama()


def weight_shapes(params: LlamaParams) -> Shapes:
    """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
    p = params
    shapes: Shapes = {"wte": (p.vocab_size, p.d_model)}
    for layer in range(p.n_layer):
        h = f"h.{layer}"
        shapes |= norm_shapes(f"{h}.norm_1", p.d_model, bias=False)
        shapes |= linear_shapes(f"{h}.attn_qkv", p.d_model, sum(p.heads) * p.head_dim, bias=False)
        shapes |= linear_shapes(f"{h}.attn_proj", p.d_model, p.d_model, bias=False)
        shapes |= norm_shapes(f"{h}.norm_2", p.d_model, bias=False)
        shapes |= linear_shapes(f"{h}.mlp_fc", p.d_model, 2 * p.d_ff, bias=False)
        shapes |= linear_shapes(f"{h}.mlp_proj", p.d_ff, p.d_model, bias=False)
    shapes |= norm_shapes("norm_f", p.d_model, bias=False)
    return shapes if p.tied_head else shapes | linear_shapes("lm_head", p.d_model, p.vocab_size, bias=False)
