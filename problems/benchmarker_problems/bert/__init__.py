"""BERT and RoBERTa: post-LN encoders with learned positions and exact GELU, as masked language models.

As published (Devlin et al., 2019; Liu et al., 2019), on sequences of one segment without padding, and without dropout.
The output head is a product, GELU, LayerNorm, and a decoder tied to the embedding. The pooler is left out: the masked
language model does not use it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

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
class Bert(Problem):
    """BERT and RoBERTa: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every position, [B, T, V], or with `--head=masked` of the masked, [N, V]. The loss
    is the mean cross-entropy at the masked positions.
    """

    summary = "BERT or RoBERTa masked language model: logits, loss and gradients, or an AdamW step"
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

    def title(self, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads unless it is published), the mode, B and T."""
        sizes = {"n_layer": self.n_layer, "d_model": self.d_model, "n_head": self.n_head}
        family = NAMES[self.size].partition("-")[0]
        known = SIZES[self.size].items() >= sizes.items()
        size = NAMES[self.size] if known else f"{family} L={self.n_layer} d={self.d_model} H={self.n_head}"
        inner = "" if self.d_ff == 4 * self.d_model else f" d_ff={self.d_ff}"
        vocabulary = "" if self.vocab_size == SIZES[self.size]["vocab_size"] else f" V={self.vocab_size}"
        head = "" if self.head == "all" else " masked head"
        impl = "" if self.impl == Bert.impl else f" {self.impl}"
        steps = steps_title(recompute=self.recompute, microbatches=self.microbatches)
        what = mode.replace("forward_backward", "fwd+bwd")
        return f"{size}{inner}{vocabulary} {what}, B={self.batch_size} T={self.seq_len}{head}{impl}{steps}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks.

        `gather_masked` selects the masked positions: before the head, or from its logits for the loss.
        """
        gather = () if self.head == "all" and mode == "inference" else ("gather_masked",)
        scopes = {
            **dict.fromkeys(("embed", "ln_embed"), 1),
            **dict.fromkeys(block_scopes(self.impl), self.n_layer),
            **dict.fromkeys(("head_fc", "head_gelu", "head_ln", "lm_head", *gather), 1),
        }
        return step_scopes(scopes, mode, self.microbatches)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the work; the backward pass has two products for each product of the forward pass."""
        types = PRECISIONS[precision]
        tokens = self.batch_size * self.seq_len
        head = 2 * self.head_rows * self.d_model * (self.d_model + self.vocab_size)
        flops = self.n_layer * block_flops(tokens, self.seq_len, self.d_model, self.d_ff) + head
        weights = self.parameter_count() * types.parameter_bytes
        logits_bytes = self.head_rows * self.vocab_size * types.compute_bytes
        tokens_bytes, masked_bytes = 4 * tokens, 4 * self.masked
        moved = {
            "inference": weights + tokens_bytes + (masked_bytes if self.head == "masked" else 0) + logits_bytes,
            "forward_backward": 2 * weights + tokens_bytes + 2 * masked_bytes,
            "training": AdamW.WEIGHTS_MOVED * weights + tokens_bytes + 2 * masked_bytes,
        }
        return Cost(
            flops=flops if mode == "inference" else 3 * flops,
            bytes=moved[mode],
            samples=self.batch_size,
            tokens=tokens,
        )

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        backward = mode != "inference"
        tokens, head_rows, masked_rows = (
            rows // self.microbatches for rows in (self.batch_size * self.seq_len, self.head_rows, self.masked)
        )
        layers, head, masked = (Layers(rows, precision, backward) for rows in (tokens, head_rows, masked_rows))
        gathered = self.d_model if self.head == "masked" else self.vocab_size
        parts = {
            "embed": layers.pointwise(0, self.d_model, weights=(tokens + self.seq_len + 1) * self.d_model),
            "ln_embed": layers.norm(self.d_model),
            **times(self.n_layer, block_parts(layers, self.seq_len, self.d_model, self.n_head, self.d_ff, self.impl)),
            "head_fc": head.linear(self.d_model, self.d_model),
            "head_gelu": head.pointwise(self.d_model, self.d_model),
            "head_ln": head.norm(self.d_model),
            "lm_head": head.linear(self.d_model, self.vocab_size),
            "gather_masked": masked.pointwise(gathered, gathered),
            "loss": masked.pointwise(self.vocab_size, 0),
        }
        optimizer = update(AdamW.WEIGHTS_MOVED * self.parameter_count() * layers.weight_bytes)
        parts = {**times(self.microbatches, parts), "optimizer": optimizer}
        return {name: parts[name] for name in self.scopes(mode)}

    def refuse(self, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass."""
        refuse_without_backward(mode, recompute=self.recompute, microbatches=self.microbatches)

    def parameter_count(self) -> int:
        """Return the number of weights; the decoder shares those of the embedding, and has a bias of its own."""
        return size_of(self.weight_shapes())

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw BERT's initial weights, random biases and gains too, and masked tokens that can be found."""
        weights = draw(self.weight_shapes(), precision, rng, residuals=1)
        return Data(weights, self.masked_tokens(rng, batches))

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ; every fused kernel supports a head size of 16."""
        return replace(
            self,
            n_layer=min(self.n_layer, 2),
            d_model=48,
            n_head=3,
            d_ff=160,
            vocab_size=97,
            seq_len=32,
            batch_size=4 * self.microbatches,
        )

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        return steps(
            data,
            mode,
            "logits",
            lambda weights, batch: forward(weights, batch["tokens"], batch["masked"], self),
            lambda logits_V, batch: masked_loss(logits_V, batch["masked"], batch["targets"], self),
            self.adamw(),
        )

    def recomputed_flops(self, *, scores: bool, qkv: bool = True) -> int:
        """Return the FLOPs that a backward pass repeats in the blocks; `scores`: fused kernels repeat Q·Kᵀ.

        `qkv` is whether a block that is computed again repeats its first product, whose input is kept.
        """
        tokens = self.batch_size * self.seq_len
        repeated = block_recomputed_flops(
            tokens, self.seq_len, self.d_model, self.d_ff, scores=scores, recompute=self.recompute, result_needed=True
        )
        kept = 0 if qkv or not self.recompute else 2 * tokens * 3 * self.d_model**2
        return self.n_layer * (repeated - kept)

    def within_microbatches(self, data: Data) -> Data:
        """Return the data with the indices of masked tokens counted from the first token of their microbatch."""
        tokens = self.batch_size // self.microbatches * self.seq_len
        return replace(data, batches=tuple({**batch, "masked": batch["masked"] % tokens} for batch in data.batches))

    def adamw(self) -> AdamW:
        """Return BERT's settings (Devlin et al., 2019, A.2), without warm-up and decay of the learning rate.

        It is inversely proportional to the width (Yang et al., 2022), so that the small size of checks learns quickly.
        """
        rate = LEARNING_RATE * SIZES["base"]["d_model"] / self.d_model
        return AdamW(learning_rate=rate, beta_1=0.9, beta_2=0.999, eps=1e-6, weight_decay=0.01)

    def weight_shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
        shapes: Shapes = {
            "wte": (self.vocab_size, self.d_model),
            "wpe": (self.positions, self.d_model),
            "wtt": (self.family.token_types, self.d_model),
            **norm_shapes("ln_embed", self.d_model),
        }
        for layer in range(self.n_layer):
            shapes |= block_shapes(f"h.{layer}", self.d_model, self.d_ff)
        shapes |= linear_shapes("head_fc", self.d_model, self.d_model)
        shapes |= norm_shapes("head_ln", self.d_model)
        return shapes | {"lm_head_bias": (self.vocab_size,)}

    def masked_tokens(self, rng: np.random.Generator, batches: int) -> tuple[Mapping[str, np.ndarray], ...]:
        """Return batches of `tokens` [B, T], and of the masked the indices among all B·T and the true `targets`, [N].

        The neighbours of a masked token tell what it was, because a token is mostly followed by a fixed other.
        """
        mask_token = self.vocab_size - 1

        def masked(tokens_BT: np.ndarray) -> Mapping[str, np.ndarray]:
            order_BT = rng.random(tokens_BT.shape).argsort(axis=1)
            positions_BM = np.sort(order_BT[:, : self.masked_len], axis=1)
            masked_N = (positions_BM + self.seq_len * np.arange(self.batch_size)[:, None]).ravel().astype(np.int32)
            targets_N = tokens_BT.ravel()[masked_N]
            random_N = rng.integers(mask_token, size=self.masked, dtype=np.int32)
            chance_N = rng.random(self.masked)
            given_N = np.where(
                chance_N < REPLACED, mask_token, np.where(chance_N < REPLACED + RANDOM, random_N, targets_N)
            )
            tokens_BT.reshape(-1)[masked_N] = given_N
            return {"tokens": tokens_BT, "masked": masked_N, "targets": targets_N}

        return tuple(map(masked, sequences(self.batch_size, self.seq_len, mask_token, rng, batches)))


@hookimpl
def define_problem() -> type[Problem]:
    """Return the BERT problem."""
    return Bert
