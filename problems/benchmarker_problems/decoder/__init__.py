"""Decoders like Llama: pre-norm with RMSNorm, rotary positions and grouped-query attention; no biases.

A model of this kind is a folder with its published sizes and its MLP: the shapes, the work, and a function in each
framework. Everything else of it stands here.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Parallel, Precision, Problem, Work
from benchmarker_problems import attention
from benchmarker_problems.attention import IMPL_HELP, Impl
from benchmarker_problems.decoder.reference import forward
from benchmarker_problems.generation import (
    SEQ_LEN_HELP,
    CacheOption,
    DecodingOption,
    Depth,
    NewTokens,
    PhaseOption,
    PromptLen,
    accelerator_defaults,
    cache_bytes,
    cache_shape,
    engine_options,
    fill_lengths,
    phase_title,
    phases,
    refuse_phase,
    small_lengths,
    token_batches,
)
from benchmarker_problems.generation.reference import generated
from benchmarker_problems.generation.work import Pass, attention_parts, cost, passes, phase_scopes
from benchmarker_problems.layers import DERIVED, Shapes, fill, linear_shapes, norm_shapes, require_multiples, size_of
from benchmarker_problems.layers.data import draw
from benchmarker_problems.layers.reference import Pullback, Weights, cross_entropy
from benchmarker_problems.layers.work import Layers, added, times, update
from benchmarker_problems.parallel import divides_batch, refuse_undivided, small_widths
from benchmarker_problems.quantization import (
    WeightTypeOption,
    dequantized,
    quantized,
    require_quantizable,
    types,
    weight_bytes,
)
from benchmarker_problems.steps import (
    ADAMW,
    MICROBATCHES_HELP,
    RECOMPUTE_HELP,
    refuse_without_backward,
    step_scopes,
    steps_title,
)
from benchmarker_problems.steps.reference import steps

Sizes = Mapping[Any, Mapping[str, Any]]
"""The dimensions of each size by name."""


@dataclass(frozen=True)
class DecoderParams:
    """Size of the model and of a batch; dimensions that are given take precedence over `size`."""

    sizes: ClassVar[Sizes]
    contexts: ClassVar[Mapping[Any, int]]

    size: str
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, an even multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="query heads, a multiple of n_kv_head")] = DERIVED
    n_kv_head: Annotated[int, Meta(ge=1, description="heads of keys and values")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP, or within each expert")] = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens")] = DERIVED
    rope_theta: Annotated[float, Meta(gt=0, description="base of the rotary angles")] = DERIVED
    tied_head: Annotated[bool, Meta(description="the output head uses the weights of the embedding")] = DERIVED
    seq_len: Annotated[int, Meta(ge=1, description=SEQ_LEN_HELP)] = DERIVED
    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 1
    impl: Annotated[Impl, Meta(description=IMPL_HELP)] = "matmul"
    recompute: Annotated[bool, Meta(description=RECOMPUTE_HELP)] = False
    microbatches: Annotated[int, Meta(ge=1, description=MICROBATCHES_HELP)] = 1
    phase: PhaseOption = "none"
    prompt_len: PromptLen = DERIVED
    depth: Depth = DERIVED
    new_tokens: NewTokens = DERIVED
    decoding: DecodingOption = "greedy"
    weight_type: WeightTypeOption = "full"
    cache: CacheOption = "fit"

    def __post_init__(self) -> None:
        fill(self, self.sizes[self.size])
        fill_lengths(self, self.contexts.get(self.size))
        require_multiples(self, n_head="n_kv_head", batch_size="microbatches")
        require_quantizable(self, "d_model", "d_ff")
        if self.d_model % (2 * self.n_head):
            raise ValueError(f"d_model={self.d_model} is not an even multiple of n_head={self.n_head}")

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head

    @property
    def heads(self) -> tuple[int, int, int]:
        """Numbers of heads of queries, keys and values, in the order of the fused projection."""
        return self.n_head, self.n_kv_head, self.n_kv_head

    def heads_of(self, total: int) -> tuple[int, int]:
        """Return the numbers of heads of queries and of keys among so many in all, which may be a device's share."""
        devices = sum(self.heads) // total
        return self.n_head // devices, self.n_kv_head // devices

    @property
    def cache_shape(self) -> tuple[int, int, int, int]:
        """Blocks, and the shape of the keys, and of the values, in each."""
        return cache_shape(self, self.n_kv_head)


class Decoder(Problem):
    """A decoder: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    dimensions: tuple[str, ...] = ("n_layer", "d_model", "n_head", "n_kv_head", "d_ff")
    """Options that a published size fixes; with others the title states them."""
    mlp_scopes: tuple[str, ...]
    """Scopes of the MLP of a block."""

    def __init__(self, devices: int = 1, parallel: Parallel = "none") -> None:
        self.devices = devices
        self.parallel = parallel

    def on(self, devices: int, parallel: Parallel = "none") -> Problem:
        """Return the same training, divided among the devices."""
        return type(self)(devices, parallel)

    def grown(self, params: DecoderParams, devices: int) -> DecoderParams:
        """Return the same model with a batch that is larger by the number of devices."""
        return replace(params, batch_size=devices * params.batch_size)

    @abstractmethod
    def own_size(self, params: Any) -> str:
        """Return what a title states of a size that is not published."""

    def options_title(self, params: Any) -> str:
        """Return what a title states of further options."""
        return ""

    @abstractmethod
    def mlp_shapes(self, name: str, params: Any) -> Shapes:
        """Return the shapes of the MLP's weights of the block `name`."""

    @abstractmethod
    def mlp_flops(self, params: Any, tokens: int) -> int:
        """Return the FLOPs of the MLP of a block for so many tokens in the forward pass."""

    @abstractmethod
    def mlp_parts(self, params: Any, layers: Layers) -> Mapping[str, Work]:
        """Return the work of the scopes of the MLP of a block."""

    @abstractmethod
    def mlp_reference(self, x_BTC: np.ndarray, weights: Weights, params: Any) -> tuple[np.ndarray, Pullback]:
        """Apply the MLP of a block in NumPy."""

    def mlp_unread(self, params: Any, precision: str, tokens: int) -> int:
        """Return the bytes of the MLP's weights of a block that so many tokens do not use."""
        return 0

    def unrepeated_flops(self, params: Any) -> int:
        """Return the FLOPs of the product that ends a block and that no gradient needs again."""
        return 0

    def title(self, params: DecoderParams, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads unless it is published), the mode, B and T."""
        p, published = params, params.sizes[params.size]
        same = all(getattr(p, name) == published[name] for name in self.dimensions)
        vocabulary = "" if p.vocab_size == published["vocab_size"] else f" V={p.vocab_size}"
        head = "" if p.tied_head == published["tied_head"] else f" {'tied' if p.tied_head else 'untied'}"
        impl = "" if p.impl == type(p).impl else f" {p.impl}"
        steps = steps_title(recompute=p.recompute, microbatches=p.microbatches)
        what = f"{mode.replace('forward_backward', 'fwd+bwd')}, B={p.batch_size} T={p.seq_len}"
        what = what if p.phase == "none" else phase_title(p)
        size = p.size if same else self.own_size(p)
        return f"{size}{vocabulary}{head} {what}{self.options_title(p)}{impl}{steps}"

    def scopes(self, params: DecoderParams, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks."""
        p = params
        block = ("norm_1", "attn_qkv", "rope", *attention.scopes(p.impl), "attn_proj", "norm_2", *self.mlp_scopes)
        scopes = {"embed": 1, **dict.fromkeys(block, p.n_layer), "norm_f": 1, "lm_head": 1}
        return step_scopes(phase_scopes(p, scopes), mode, p.microbatches)

    def cost(self, params: DecoderParams, mode: Mode, precision: str) -> Cost:
        """Count the work.

        Weights that no token selects are not read: rows of an embedding that is not also the output head, and experts
        that are more than the tokens can choose.
        """
        p, d_kv = params, params.n_kv_head * params.head_dim

        def block_flops(tokens: int) -> int:
            return 4 * tokens * (p.d_model**2 + p.d_model * d_kv) + self.mlp_flops(p, tokens)

        def unread(tokens: int) -> int:
            rows = 0 if p.tied_head else p.vocab_size - min(tokens, p.vocab_size)
            of_rows = rows * p.d_model * PRECISIONS[precision].parameter_bytes
            return of_rows + p.n_layer * self.mlp_unread(p, precision, tokens)

        weight_bytes = self.weight_bytes(p, precision)
        return cost(p, mode, precision, weight_bytes=weight_bytes, d_kv=d_kv, block_flops=block_flops, unread=unread)

    def parts(self, params: DecoderParams, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        p, backward = params, mode != "inference"
        parts = added(
            times(p.microbatches * each.count, self._pass(p, precision, each, backward)) for each in passes(p)
        )
        parts["optimizer"] = update(ADAMW.WEIGHTS_MOVED * self.weight_bytes(p, precision))
        return {name: parts[name] for name in self.scopes(p, mode)}

    def _pass(self, params: DecoderParams, precision: str, each: Pass, backward: bool) -> dict[str, Work]:
        p, batch_size = params, params.batch_size // params.microbatches
        layers = Layers(batch_size * each.tokens, precision, backward, p.weight_type)
        head = Layers(batch_size * each.logits, precision, backward, "full" if p.tied_head else p.weight_type)
        rotated = (p.n_head + p.n_kv_head) * p.head_dim
        block = {
            "norm_1": layers.norm(p.d_model, bias=False),
            "attn_qkv": layers.linear(p.d_model, sum(p.heads) * p.head_dim),
            "rope": layers.pointwise(rotated, rotated),
            **attention_parts(layers, each, p.n_head, p.n_kv_head, p.head_dim, p.impl),
            "attn_proj": layers.linear(p.d_model, p.d_model, residual=True),
            "norm_2": layers.norm(p.d_model, bias=False),
            **self.mlp_parts(p, layers),
        }
        return {
            "embed": layers.pointwise(0, p.d_model, weights=layers.rows * p.d_model),
            **times(p.n_layer, block),
            "norm_f": head.norm(p.d_model, bias=False),
            "lm_head": head.linear(p.d_model, p.vocab_size),
            "loss": head.pointwise(p.vocab_size, 0),
            "next_token": head.pointwise(p.vocab_size, 0),
        }

    def refuse(self, params: DecoderParams, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass, phases elsewhere, and what devices cannot divide."""
        refuse_phase(params, mode)
        refuse_undivided(
            mode,
            self.parallel,
            self.devices,
            batch_size=params.batch_size,
            microbatches=params.microbatches,
            widths={name: getattr(params, name) for name in ("n_kv_head", "d_model", "d_ff")},
        )
        refuse_without_backward(mode, recompute=params.recompute, microbatches=params.microbatches)

    def recomputed_flops(self, params: DecoderParams, *, scores: bool) -> int:
        """Return the FLOPs that a backward pass repeats: Q·Kᵀ if `scores`, as fused kernels do, and blocks if asked."""
        p = params
        flops = p.n_layer * attention.product_flops(p.batch_size, p.n_head, p.seq_len, p.head_dim) if scores else 0
        if not p.recompute:
            return flops
        outside = 2 * p.batch_size * p.seq_len * p.d_model * p.vocab_size + p.n_layer * self.unrepeated_flops(p)
        return flops + self.cost(p, "inference", "fp32").flops - outside

    def fused_widths(self, params: Any) -> dict[str, list[int]]:
        """Return the widths of the results of a layer that computes several: of queries, keys and values."""
        return {"attn_qkv": [heads * params.head_dim for heads in params.heads]}

    def weight_shapes(self, params: DecoderParams) -> Shapes:
        """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
        p = params
        shapes: Shapes = {"wte": (p.vocab_size, p.d_model)}
        for layer in range(p.n_layer):
            h = f"h.{layer}"
            shapes |= norm_shapes(f"{h}.norm_1", p.d_model, bias=False)
            shapes |= linear_shapes(f"{h}.attn_qkv", p.d_model, sum(p.heads) * p.head_dim, bias=False)
            shapes |= linear_shapes(f"{h}.attn_proj", p.d_model, p.d_model, bias=False)
            shapes |= norm_shapes(f"{h}.norm_2", p.d_model, bias=False)
            shapes |= self.mlp_shapes(h, p)
        shapes |= norm_shapes("norm_f", p.d_model, bias=False)
        return shapes if p.tied_head else shapes | linear_shapes("lm_head", p.d_model, p.vocab_size, bias=False)

    def parameter_count(self, params: DecoderParams) -> int:
        """Return the number of weights; a tied output head shares those of the embedding."""
        return size_of(self.weight_shapes(params))

    def weight_bytes(self, params: DecoderParams, precision: str) -> int:
        """Return the bytes of the weights as they are stored."""
        return weight_bytes(self.weight_shapes(params), params.weight_type, precision)

    def types(self, params: DecoderParams, precision: str) -> Precision:
        """Return the types of the precision, with that of the weights of linear layers."""
        return types(params, precision)

    def weights(self, params: Any, precision: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw weights as for GPT-2, random gains too."""
        return draw(self.weight_shapes(params), precision, rng, residuals=2 * params.n_layer)

    def data(self, params: DecoderParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights, which may then be quantised, and tokens that can be learned."""
        weights = quantized(self.weights(params, precision, rng), params.weight_type)
        return Data(weights, token_batches(params, rng, batches))

    def small(self, params: Any) -> Any:
        """Return at most two layers with dimensions that all differ, and groups of queries if there are any.

        What several devices divide, the batch or the widths, has something for each of them.
        """
        lengths, group = small_lengths(params), 1 if params.n_kv_head == params.n_head else 2
        n_kv_head, d_ff = small_widths(4 // group, 16, 160, self.parallel, self.devices)
        return replace(
            params,
            n_layer=min(params.n_layer, 2),
            d_model=group * n_kv_head * 16,
            n_head=group * n_kv_head,
            n_kv_head=n_kv_head,
            d_ff=d_ff,
            vocab_size=97,
            batch_size=3 * params.microbatches * (self.devices if divides_batch(self.parallel) else 1),
            **lengths,
        )

    def in_fp64(self, params: Any) -> Any:
        """Return the same step with attention by products: fused ones may have no fp64."""
        return replace(params, impl="matmul")

    def accelerator_defaults(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults on accelerators; in a phase, without the length and attention of whole sequences."""
        return accelerator_defaults(self.accelerator, given)

    def phases(self, params: DecoderParams) -> Mapping[str, tuple[int, Any]]:
        """Return the prompt and the tokens after it; a single phase, or a step without one, as it is."""
        return phases(params)

    def cache_bytes(self, params: DecoderParams, precision: str) -> int:
        """Return the bytes of the keys and values that a phase has room for."""
        return cache_bytes(params, precision)

    def check_steps(self, params: DecoderParams) -> int:
        """Return the tokens that a phase `decode` chooses before it begins again."""
        return params.new_tokens if params.phase == "decode" else 1

    def engine_options(self, slots: int, positions: int) -> Mapping[str, Any]:
        """Return the options of an engine with so many slots and positions in each."""
        return engine_options(slots, positions)

    def logits(self, params: DecoderParams, data: Data, tokens: np.ndarray) -> np.ndarray:
        """Return the logits after every token, without a cache."""
        return forward(dequantized(data.weights), tokens, params, self.mlp_reference)[0]

    def reference(self, params: DecoderParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        if params.phase != "none":
            return generated(
                data, params, lambda weights, tokens_BT: forward(weights, tokens_BT, params, self.mlp_reference)[0]
            )
        return steps(
            data,
            mode,
            "logits",
            lambda weights, batch: forward(weights, batch["tokens"], params, self.mlp_reference),
            lambda logits_BTV, batch: cross_entropy(logits_BTV, batch["targets"]),
        )
