"""GPT-2: pre-LN decoder with learned positions, tanh-approximate GELU and an output head tied to the embedding.

As published (Radford et al., 2019), with a bias in every linear layer, but without dropout.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from benchmarker import (
    PRECISIONS,
    Collective,
    Cost,
    Data,
    Mode,
    Parallel,
    Precision,
    Problem,
    Published,
    Work,
    hookimpl,
)
from benchmarker_problems.attention import IMPL_HELP, Impl
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
from benchmarker_problems.generation.work import PHASE_FORMULA, Pass, attention_parts, cost, passes, phase_scopes
from benchmarker_problems.gpt2.reference import forward
from benchmarker_problems.layers import DERIVED, Shapes, block_shapes, fill, norm_shapes, require_multiples, size_of
from benchmarker_problems.layers.data import draw
from benchmarker_problems.layers.reference import cross_entropy
from benchmarker_problems.layers.work import (
    Layers,
    added,
    block_parts,
    block_recomputed_flops,
    block_scopes,
    times,
    update,
)
from benchmarker_problems.parallel import collectives, divides_batch, refuse_undivided, small_widths
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

Size = Literal["small", "medium", "large", "xl", "2.7b"]
SIZES: Mapping[Size, Mapping[str, int]] = {
    "small": {"n_layer": 12, "d_model": 768, "n_head": 12},
    "medium": {"n_layer": 24, "d_model": 1024, "n_head": 16},
    "large": {"n_layer": 36, "d_model": 1280, "n_head": 20},
    "xl": {"n_layer": 48, "d_model": 1600, "n_head": 25},
    "2.7b": {"n_layer": 32, "d_model": 2560, "n_head": 32},
}
"""GPT-2's four sizes (Radford et al., 2019, table 2), and GPT-3 2.7B (Brown et al., 2020, table 2.1)."""
PUBLISHED: Mapping[Size, int] = {
    "small": 124_439_808,
    "medium": 354_823_168,
    "large": 774_030_080,
    "xl": 1_557_611_200,
}
"""Parameters of the published checkpoints; the paper's table 2 has other, rounded ones, which its authors corrected."""
VOCAB_SIZE = 50257
POSITIONS = 1024
CONTEXTS: Mapping[Size, int] = {**dict.fromkeys(PUBLISHED, POSITIONS), "2.7b": 2048}
"""Context lengths (Radford et al., 2019, section 2.3; Brown et al., 2020, section 2.1)."""


@dataclass(frozen=True)
class Gpt2Params:
    """Size of the model and of a batch; dimensions that are given take precedence over `size`."""

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "small"
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, a multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="attention heads")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP; 4·d_model if omitted")] = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens; 50257 if omitted")] = DERIVED
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
        fill(self, SIZES[self.size])
        fill(self, {"d_ff": 4 * self.d_model, "vocab_size": VOCAB_SIZE})
        require_multiples(self, d_model="n_head", batch_size="microbatches")
        fill_lengths(self, CONTEXTS[self.size])
        require_quantizable(self, "d_model", "d_ff")

    @property
    def positions(self) -> int:
        """Rows of the position table: GPT-2's 1024, or more if a sequence is longer."""
        return max(POSITIONS, self.seq_len)

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head

    @property
    def cache_shape(self) -> tuple[int, int, int, int]:
        """Blocks, and the shape of the keys, and of the values, in each."""
        return cache_shape(self, self.n_head)


class Gpt2(Problem):
    """GPT-2: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    summary = "GPT-2 language model: logits, loss and gradients, or an AdamW step"
    params = Gpt2Params
    accelerator = {"seq_len": 1024, "batch_size": 8, "impl": "fused"}
    published = tuple(
        Published({"size": size}, "checkpoints of OpenAI, 2019", parameters=count) for size, count in PUBLISHED.items()
    )
    cost_formula = (
        "flops = 2·B·T·(L·(4·d_model² + 2·d_model·d_ff + 2·T·d_model) + d_model·vocab), 3 times that with backward\n"
        "bytes = weights, tokens and logits once; 2·weights with backward; 7·weights with AdamW's two moments\n"
        + PHASE_FORMULA
    )

    def __init__(self, devices: int = 1, parallel: Parallel = "none") -> None:
        self.devices = devices
        self.parallel = parallel

    def on(self, devices: int, parallel: Parallel = "none") -> Problem:
        """Return the same training, divided among the devices."""
        return Gpt2(devices, parallel)

    def grown(self, params: Gpt2Params, devices: int) -> Gpt2Params:
        """Return the same model with a batch that is larger by the number of devices."""
        return replace(params, batch_size=devices * params.batch_size)

    def title(self, params: Gpt2Params, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads unless it is published), the mode, B and T.

        `GPT-2 small training, B=1 T=128`. What is rarely changed follows if it differs from GPT-2's.
        """
        p = params
        sizes = {"n_layer": p.n_layer, "d_model": p.d_model, "n_head": p.n_head}
        size = next((name for name, of in SIZES.items() if of == sizes), f"L={p.n_layer} d={p.d_model} H={p.n_head}")
        inner = "" if p.d_ff == 4 * p.d_model else f" d_ff={p.d_ff}"
        vocabulary = "" if p.vocab_size == VOCAB_SIZE else f" V={p.vocab_size}"
        impl = "" if p.impl == Gpt2Params.impl else f" {p.impl}"
        steps = steps_title(recompute=p.recompute, microbatches=p.microbatches)
        what = f"{mode.replace('forward_backward', 'fwd+bwd')}, B={p.batch_size} T={p.seq_len}"
        what = what if p.phase == "none" else phase_title(p)
        return f"GPT-2 {size}{inner}{vocabulary} {what}{impl}{steps}"

    def scopes(self, params: Gpt2Params, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks."""
        blocks = dict.fromkeys(block_scopes(params.impl), params.n_layer)
        scopes = phase_scopes(params, {"embed": 1, **blocks, "ln_f": 1, "lm_head": 1})
        return step_scopes(scopes, mode, params.microbatches)

    def cost(self, params: Gpt2Params, mode: Mode, precision: str) -> Cost:
        """Count the work; the output head reads the whole embedding, and a phase the positions of its tokens alone."""
        p, item_bytes = params, PRECISIONS[precision].parameter_bytes

        def of_block(tokens: int) -> int:
            return 2 * tokens * (4 * p.d_model**2 + 2 * p.d_model * p.d_ff)

        def unread(tokens: int) -> int:
            return 0 if p.phase == "none" else (p.positions - tokens // p.batch_size) * p.d_model * item_bytes

        weight_bytes = self.weight_bytes(p, precision)
        return cost(p, mode, precision, weight_bytes=weight_bytes, d_kv=p.d_model, block_flops=of_block, unread=unread)

    def parts(self, params: Gpt2Params, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        p, backward = params, mode != "inference"
        parts = added(
            times(p.microbatches * each.count, self._pass(p, precision, each, backward)) for each in passes(p)
        )
        parts["optimizer"] = update(ADAMW.WEIGHTS_MOVED * self.weight_bytes(p, precision))
        return {name: parts[name] for name in self.scopes(p, mode)}

    def _pass(self, params: Gpt2Params, precision: str, each: Pass, backward: bool) -> dict[str, Work]:
        p, batch_size = params, params.batch_size // params.microbatches
        layers = Layers(batch_size * each.tokens, precision, backward, p.weight_type)
        head = Layers(batch_size * each.logits, precision, backward)
        block = {
            **block_parts(layers, each.tokens, p.d_model, p.n_head, p.d_ff, p.impl),
            **attention_parts(layers, each, p.n_head, p.n_head, p.head_dim, p.impl),
        }
        return {
            "embed": layers.pointwise(0, p.d_model, weights=(layers.rows + each.tokens) * p.d_model),
            **times(p.n_layer, block),
            "ln_f": head.norm(p.d_model),
            "lm_head": head.linear(p.d_model, p.vocab_size),
            "loss": head.pointwise(p.vocab_size, 0),
            "next_token": head.pointwise(p.vocab_size, 0),
        }

    def refuse(self, params: Gpt2Params, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass, phases elsewhere, and what devices cannot divide."""
        refuse_phase(params, mode)
        refuse_undivided(
            mode,
            self.parallel,
            self.devices,
            batch_size=params.batch_size,
            microbatches=params.microbatches,
            widths={name: getattr(params, name) for name in ("n_head", "d_model", "d_ff")},
        )
        refuse_without_backward(mode, recompute=params.recompute, microbatches=params.microbatches)

    def collectives(
        self, params: Gpt2Params, mode: Mode, precision: str, parallel: Parallel, devices: int
    ) -> tuple[Collective, ...]:
        """Return what the devices exchange in a step of training."""
        p, types = params, PRECISIONS[precision]
        return collectives(
            mode,
            parallel,
            devices,
            weight_bytes=self.weight_bytes(p, precision),
            blocks=p.n_layer,
            block_bytes=size_of(block_shapes("h", p.d_model, p.d_ff)) * types.parameter_bytes,
            sum_bytes=p.batch_size * p.seq_len * p.d_model * types.compute_bytes,
            recompute=p.recompute,
        )

    def parameter_count(self, params: Gpt2Params) -> int:
        """Return the number of weights; the output head shares those of the embedding."""
        return size_of(weight_shapes(params))

    def weight_bytes(self, params: Gpt2Params, precision: str) -> int:
        """Return the bytes of the weights as they are stored."""
        return weight_bytes(weight_shapes(params), params.weight_type, precision)

    def types(self, params: Gpt2Params, precision: str) -> Precision:
        """Return the types of the precision, with that of the weights of linear layers."""
        return types(params, precision)

    def data(self, params: Gpt2Params, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw GPT-2's initial weights, random biases and gains too, which may then be quantised, and tokens."""
        weights = draw(weight_shapes(params), precision, rng, residuals=2 * params.n_layer)
        return Data(quantized(weights, params.weight_type), token_batches(params, rng, batches))

    def small(self, params: Gpt2Params) -> Gpt2Params:
        """Return at most two layers with dimensions that all differ; every fused kernel supports a head size of 16.

        What several devices divide, the batch or the widths, has something for each of them.
        """
        head_dim = 16 if params.weight_type == "full" else 32
        n_head, d_ff = small_widths(3, head_dim, 160, self.parallel, self.devices)
        return replace(
            params,
            n_layer=min(params.n_layer, 2),
            d_model=n_head * head_dim,
            n_head=n_head,
            d_ff=d_ff,
            vocab_size=97,
            batch_size=4 * params.microbatches * (self.devices if divides_batch(self.parallel) else 1),
            **small_lengths(params),
        )

    def in_fp64(self, params: Gpt2Params) -> Gpt2Params:
        """Return the same step with attention by products: fused ones may have no fp64."""
        return replace(params, impl="matmul")

    def accelerator_defaults(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults on accelerators; in a phase, without the length and attention of whole sequences."""
        return accelerator_defaults(self.accelerator, given)

    def phases(self, params: Gpt2Params) -> Mapping[str, tuple[int, Any]]:
        """Return the prompt and the tokens after it; a single phase, or a step without one, as it is."""
        return phases(params)

    def cache_bytes(self, params: Gpt2Params, precision: str) -> int:
        """Return the bytes of the keys and values that a phase has room for."""
        return cache_bytes(params, precision)

    def check_steps(self, params: Gpt2Params) -> int:
        """Return the tokens that a phase `decode` chooses before it begins again."""
        return params.new_tokens if params.phase == "decode" else 1

    def engine_options(self, slots: int, positions: int) -> Mapping[str, Any]:
        """Return the options of an engine with so many slots and positions in each."""
        return engine_options(slots, positions)

    def logits(self, params: Gpt2Params, data: Data, tokens: np.ndarray) -> np.ndarray:
        """Return the logits after every token, without a cache."""
        return forward(dequantized(data.weights), tokens, params.n_layer, params.n_head)[0]

    def reference(self, params: Gpt2Params, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        p = params
        if p.phase != "none":
            return generated(data, p, lambda weights, tokens_BT: forward(weights, tokens_BT, p.n_layer, p.n_head)[0])
        return steps(
            data,
            mode,
            "logits",
            lambda weights, batch: forward(weights, batch["tokens"], p.n_layer, p.n_head),
            lambda logits_BTV, batch: cross_entropy(logits_BTV, batch["targets"]),
        )


def recomputed_flops(params: Gpt2Params, *, scores: bool) -> int:
    """Return the FLOPs that the backward pass of the blocks repeats, with Q·Kᵀ if fused kernels repeat the `scores`."""
    p = params
    tokens = p.batch_size * p.seq_len
    return p.n_layer * block_recomputed_flops(
        tokens, p.seq_len, p.d_model, p.d_ff, scores=scores, recompute=p.recompute
    )


def fused_widths(params: Gpt2Params) -> dict[str, list[int]]:
    """Return the widths of queries, keys and values, which one layer of a block computes."""
    return {"attn_qkv": [params.d_model] * 3}


@hookimpl
def make_problem() -> Problem:
    """Make the GPT-2 problem."""
    return Gpt2()


def weight_shapes(params: Gpt2Params) -> Shapes:
    """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
    p = params
    shapes: Shapes = {"wte": (p.vocab_size, p.d_model), "wpe": (p.positions, p.d_model)}
    for layer in range(p.n_layer):
        shapes |= block_shapes(f"h.{layer}", p.d_model, p.d_ff)
    return shapes | norm_shapes("ln_f", p.d_model)
