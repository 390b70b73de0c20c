"""BERT and RoBERTa: post-LN encoders with learned positions and exact GELU, as masked language models.

As published (Devlin et al., 2019; Liu et al., 2019), on sequences of one segment without padding, and without dropout.
The output head is a product, GELU, LayerNorm, and a decoder tied to the embedding. The pooler is left out: the masked
language model does not use it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Published, Work, hookimpl
from benchmarker_problems.attention import IMPL_HELP, Impl
from benchmarker_problems.bert.reference import forward, masked_loss
from benchmarker_problems.layers import (
    DERIVED,
    Shapes,
    block_shapes,
    fill,
    linear_shapes,
    norm_shapes,
    require_multiples,
    size_of,
)
from benchmarker_problems.layers.data import draw, sequences
from benchmarker_problems.layers.work import (
    Layers,
    block_flops,
    block_parts,
    block_recomputed_flops,
    block_scopes,
    times,
    update,
)
from benchmarker_problems.steps import (
    MICROBATCHES_HELP,
    RECOMPUTE_HELP,
    AdamW,
    refuse_without_backward,
    step_scopes,
    steps_title,
)
from benchmarker_problems.steps.reference import steps

Size = Literal["base", "large", "roberta-base", "roberta-large"]
SIZES: Mapping[Size, Mapping[str, int]] = {
    "base": {"n_layer": 12, "d_model": 768, "n_head": 12, "vocab_size": 30522},
    "large": {"n_layer": 24, "d_model": 1024, "n_head": 16, "vocab_size": 30522},
    "roberta-base": {"n_layer": 12, "d_model": 768, "n_head": 12, "vocab_size": 50265},
    "roberta-large": {"n_layer": 24, "d_model": 1024, "n_head": 16, "vocab_size": 50265},
}
"""BERT's two sizes (Devlin et al., 2019), and the same with RoBERTa's vocabulary."""
NAMES: Mapping[Size, str] = {
    "base": "BERT-base",
    "large": "BERT-large",
    "roberta-base": "RoBERTa-base",
    "roberta-large": "RoBERTa-large",
}
POSITIONS = 512
MASKED_PERCENT = 15
"""Share of the tokens that the model must find; rounded up for each sequence, as BERT's code does for its maximum."""
REPLACED, RANDOM = 0.8, 0.1
"""Of these, the shares that [MASK] and that a random token replaces; the others stay (Devlin et al., 2019, 3.1)."""
LEARNING_RATE = 1e-4
"""BERT's, and here that of a width of 768."""

_TRANSFORMERS = "parameters and multiply-adds of the masked language model in transformers"
_CHECKPOINT = "parameters of the masked language model in transformers"


@dataclass(frozen=True)
class Family:
    """How BERT and RoBERTa differ beside the vocabulary; RoBERTa's first two positions mean padding."""

    first_position: int
    token_types: int
    layer_norm_eps: float


BERT = Family(first_position=0, token_types=2, layer_norm_eps=1e-12)
ROBERTA = Family(first_position=2, token_types=1, layer_norm_eps=1e-5)


@dataclass(frozen=True)
class BertParams:
    """Size of the model and of a batch; dimensions that are given take precedence over `size`."""

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "base"
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, a multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="attention heads")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP; 4·d_model if omitted")] = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens; the last one is [MASK]")] = DERIVED
    seq_len: Annotated[int, Meta(ge=1, description="sequence length")] = 128
    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 1
    head: Annotated[
        Literal["all", "masked"],
        Meta(description="positions with logits: all, as in transformers, or only those that the loss needs"),
    ] = "all"
    impl: Annotated[Impl, Meta(description=IMPL_HELP)] = "matmul"
    recompute: Annotated[bool, Meta(description=RECOMPUTE_HELP)] = False
    microbatches: Annotated[int, Meta(ge=1, description=MICROBATCHES_HELP)] = 1

    def __post_init__(self) -> None:
        fill(self, SIZES[self.size])
        fill(self, {"d_ff": 4 * self.d_model})
        require_multiples(self, d_model="n_head", batch_size="microbatches")

    @property
    def family(self) -> Family:
        """What the model has of BERT or of RoBERTa."""
        return ROBERTA if self.size.startswith("roberta") else BERT

    @property
    def positions(self) -> int:
        """Rows of the position table: the published 512 (RoBERTa: 514), or more if a sequence is longer."""
        return self.family.first_position + max(POSITIONS, self.seq_len)

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head

    @property
    def masked_len(self) -> int:
        """Masked tokens of a sequence: 15%, rounded up."""
        return -(-MASKED_PERCENT * self.seq_len // 100)

    @property
    def masked(self) -> int:
        """Masked tokens of a batch."""
        return self.batch_size * self.masked_len

    @property
    def head_rows(self) -> int:
        """Positions of a batch for which the output head computes logits."""
        return self.batch_size * self.seq_len if self.head == "all" else self.masked


class Bert(Problem):
    """BERT and RoBERTa: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position, [B, T, V], or with `--head=masked` of the masked, [N, V]. The loss
    is the mean cross-entropy at the masked positions.
    """

    summary = "BERT or RoBERTa masked language model: logits, loss and gradients, or an AdamW step"
    params = BertParams
    accelerator = {"seq_len": 512, "batch_size": 16, "impl": "fused"}
    published = (
        Published({"size": "base", "seq_len": 512}, _TRANSFORMERS, parameters=109_514_298, flops=2 * 60.622e9),
        Published({"size": "large", "seq_len": 512}, _TRANSFORMERS, parameters=335_174_458, flops=2 * 184.043e9),
        Published({"size": "roberta-base", "seq_len": 512}, _TRANSFORMERS, parameters=124_697_433, flops=2 * 68.385e9),
        Published({"size": "roberta-large"}, _CHECKPOINT, parameters=355_412_057),
    )
    cost_formula = (
        "flops = 2·B·T·L·(4·d_model² + 2·d_model·d_ff + 2·T·d_model) + 2·R·(d_model² + d_model·vocab), 3 times that "
        "with backward; R = B·T positions with logits, with --head=masked B·⌈0.15·T⌉\n"
        "bytes = weights, tokens and logits once; 2·weights with backward; 7·weights with AdamW's two moments"
    )

    def title(self, params: BertParams, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads unless it is published), the mode, B and T."""
        p = params
        sizes = {"n_layer": p.n_layer, "d_model": p.d_model, "n_head": p.n_head}
        family = NAMES[p.size].partition("-")[0]
        known = SIZES[p.size].items() >= sizes.items()
        size = NAMES[p.size] if known else f"{family} L={p.n_layer} d={p.d_model} H={p.n_head}"
        inner = "" if p.d_ff == 4 * p.d_model else f" d_ff={p.d_ff}"
        vocabulary = "" if p.vocab_size == SIZES[p.size]["vocab_size"] else f" V={p.vocab_size}"
        head = "" if p.head == "all" else " masked head"
        impl = "" if p.impl == BertParams.impl else f" {p.impl}"
        steps = steps_title(recompute=p.recompute, microbatches=p.microbatches)
        what = mode.replace("forward_backward", "fwd+bwd")
        return f"{size}{inner}{vocabulary} {what}, B={p.batch_size} T={p.seq_len}{head}{impl}{steps}"

    def scopes(self, params: BertParams, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks.

        `gather_masked` selects the masked positions: before the head, or from its logits for the loss.
        """
        gather = () if params.head == "all" and mode == "inference" else ("gather_masked",)
        scopes = {
            **dict.fromkeys(("embed", "ln_embed"), 1),
            **dict.fromkeys(block_scopes(params.impl), params.n_layer),
            **dict.fromkeys(("head_fc", "head_gelu", "head_ln", "lm_head", *gather), 1),
        }
        return step_scopes(scopes, mode, params.microbatches)

    def cost(self, params: BertParams, mode: Mode, precision: str) -> Cost:
        """Count the work; the backward pass has two products for each product of the forward pass."""
        p, types = params, PRECISIONS[precision]
        tokens = p.batch_size * p.seq_len
        head = 2 * p.head_rows * p.d_model * (p.d_model + p.vocab_size)
        flops = p.n_layer * block_flops(tokens, p.seq_len, p.d_model, p.d_ff) + head
        weights = self.parameter_count(p) * types.parameter_bytes
        logits_bytes = p.head_rows * p.vocab_size * types.compute_bytes
        tokens_bytes, masked_bytes = 4 * tokens, 4 * p.masked
        moved = {
            "inference": weights + tokens_bytes + (masked_bytes if p.head == "masked" else 0) + logits_bytes,
            "forward_backward": 2 * weights + tokens_bytes + 2 * masked_bytes,
            "training": AdamW.WEIGHTS_MOVED * weights + tokens_bytes + 2 * masked_bytes,
        }
        return Cost(
            flops=flops if mode == "inference" else 3 * flops,
            bytes=moved[mode],
            samples=p.batch_size,
            tokens=tokens,
        )

    def parts(self, params: BertParams, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        p, backward = params, mode != "inference"
        tokens, head_rows, masked_rows = (
            rows // p.microbatches for rows in (p.batch_size * p.seq_len, p.head_rows, p.masked)
        )
        layers, head, masked = (Layers(rows, precision, backward) for rows in (tokens, head_rows, masked_rows))
        gathered = p.d_model if p.head == "masked" else p.vocab_size
        parts = {
            "embed": layers.pointwise(0, p.d_model, weights=(tokens + p.seq_len + 1) * p.d_model),
            "ln_embed": layers.norm(p.d_model),
            **times(p.n_layer, block_parts(layers, p.seq_len, p.d_model, p.n_head, p.d_ff, p.impl)),
            "head_fc": head.linear(p.d_model, p.d_model),
            "head_gelu": head.pointwise(p.d_model, p.d_model),
            "head_ln": head.norm(p.d_model),
            "lm_head": head.linear(p.d_model, p.vocab_size),
            "gather_masked": masked.pointwise(gathered, gathered),
            "loss": masked.pointwise(p.vocab_size, 0),
        }
        optimizer = update(AdamW.WEIGHTS_MOVED * self.parameter_count(p) * layers.weight_bytes)
        parts = {**times(p.microbatches, parts), "optimizer": optimizer}
        return {name: parts[name] for name in self.scopes(p, mode)}

    def refuse(self, params: BertParams, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass."""
        refuse_without_backward(mode, recompute=params.recompute, microbatches=params.microbatches)

    def parameter_count(self, params: BertParams) -> int:
        """Return the number of weights; the decoder shares those of the embedding, and has a bias of its own."""
        return size_of(weight_shapes(params))

    def data(self, params: BertParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw BERT's initial weights, random biases and gains too, and masked tokens that can be found."""
        weights = draw(weight_shapes(params), precision, rng, residuals=1)
        return Data(weights, masked_tokens(params, rng, batches))

    def small(self, params: BertParams) -> BertParams:
        """Return at most two layers with dimensions that all differ; every fused kernel supports a head size of 16."""
        return replace(
            params,
            n_layer=min(params.n_layer, 2),
            d_model=48,
            n_head=3,
            d_ff=160,
            vocab_size=97,
            seq_len=32,
            batch_size=4 * params.microbatches,
        )

    def reference(self, params: BertParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        return steps(
            data,
            mode,
            "logits",
            lambda weights, batch: forward(weights, batch["tokens"], batch["masked"], params),
            lambda logits_V, batch: masked_loss(logits_V, batch["masked"], batch["targets"], params),
            adamw(params),
        )


def recomputed_flops(params: BertParams, *, scores: bool, qkv: bool = True) -> int:
    """Return the FLOPs that the backward pass of the blocks repeats, with Q·Kᵀ if fused kernels repeat the `scores`.

    `qkv` is whether a block that is computed again repeats its first product, whose input is kept.
    """
    p = params
    tokens = p.batch_size * p.seq_len
    repeated = block_recomputed_flops(
        tokens, p.seq_len, p.d_model, p.d_ff, scores=scores, recompute=p.recompute, result_needed=True
    )
    kept = 0 if qkv or not p.recompute else 2 * tokens * 3 * p.d_model**2
    return p.n_layer * (repeated - kept)


def within_microbatches(params: BertParams, data: Data) -> Data:
    """Return the data with the indices of masked tokens counted from the first token of their microbatch."""
    tokens = params.batch_size // params.microbatches * params.seq_len
    return replace(data, batches=tuple({**batch, "masked": batch["masked"] % tokens} for batch in data.batches))


@hookimpl
def make_problem() -> Problem:
    """Make the BERT problem."""
    return Bert()


def adamw(params: BertParams) -> AdamW:
    """Return BERT's settings (Devlin et al., 2019, A.2), without warm-up and decay of the learning rate.

    It is inversely proportional to the width (Yang et al., 2022), so that the small size of checks learns in few steps.
    """
    rate = LEARNING_RATE * SIZES["base"]["d_model"] / params.d_model
    return AdamW(learning_rate=rate, beta_1=0.9, beta_2=0.999, eps=1e-6, weight_decay=0.01)


def weight_shapes(params: BertParams) -> Shapes:
    """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
    p = params
    shapes: Shapes = {
        "wte": (p.vocab_size, p.d_model),
        "wpe": (p.positions, p.d_model),
        "wtt": (p.family.token_types, p.d_model),
        **norm_shapes("ln_embed", p.d_model),
    }
    for layer in range(p.n_layer):
        shapes |= block_shapes(f"h.{layer}", p.d_model, p.d_ff)
    shapes |= linear_shapes("head_fc", p.d_model, p.d_model)
    shapes |= norm_shapes("head_ln", p.d_model)
    return shapes | {"lm_head_bias": (p.vocab_size,)}


def masked_tokens(params: BertParams, rng: np.random.Generator, batches: int) -> tuple[Mapping[str, np.ndarray], ...]:
    """Return batches of `tokens` [B, T], and of the masked ones the indices among all B·T and the true `targets`, [N].

    The neighbours of a masked token tell what it was, because a token is mostly followed by a fixed other.
    """
    p = params
    mask_token = p.vocab_size - 1

    def masked(tokens_BT: np.ndarray) -> Mapping[str, np.ndarray]:
        order_BT = rng.random(tokens_BT.shape).argsort(axis=1)
        positions_BM = np.sort(order_BT[:, : p.masked_len], axis=1)
        masked_N = (positions_BM + p.seq_len * np.arange(p.batch_size)[:, None]).ravel().astype(np.int32)
        targets_N = tokens_BT.ravel()[masked_N]
        random_N = rng.integers(mask_token, size=p.masked, dtype=np.int32)
        chance_N = rng.random(p.masked)
        given_N = np.where(chance_N < REPLACED, mask_token, np.where(chance_N < REPLACED + RANDOM, random_N, targets_N))
        tokens_BT.reshape(-1)[masked_N] = given_N
        return {"tokens": tokens_BT, "masked": masked_N, "targets": targets_N}

    return tuple(map(masked, sequences(p.batch_size, p.seq_len, mask_token, rng, batches)))
