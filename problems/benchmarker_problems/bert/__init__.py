"""BERT and RoBERTa: post-LN encoders with learned positions and exact GELU, as masked language models.

As published (Devlin et al., 2019; Liu et al., 2019), on sequences of one segment without padding, and without dropout.
The output head is a product, GELU, LayerNorm, and a decoder tied to the embedding. The pooler is left out: the masked
language model does not use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import Data, Mode, Precision, Problem, Published, Work, hookimpl
from benchmarker_problems.layers import DERIVED
from benchmarker_problems.layers.data import draw, sequences
from benchmarker_problems.layers.layer import Attention, Embedding, Layer, Linear, Moved, Norm, Pointwise, TiedHead
from benchmarker_problems.layers.model import Model, Stage, transformer_block
from benchmarker_problems.layers.reference import Gradients, Pullback, Weights, cross_entropy, gelu
from benchmarker_problems.layers.transformer import Blocks, Heads, InnerWidth, Transformer, Width
from benchmarker_problems.layers.work import RowWork
from benchmarker_problems.steps import AdamW
from benchmarker_problems.steps.reference import Batch

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
class Bert(Transformer):
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

    sizes = SIZES

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "base"
    n_layer: Blocks = DERIVED
    d_model: Width = DERIVED
    n_head: Heads = DERIVED
    d_ff: InnerWidth = DERIVED
    vocab_size: Annotated[int, Meta(ge=2, description="number of distinct tokens; the last one is [MASK]")] = DERIVED
    seq_len: Annotated[int, Meta(ge=1, description="sequence length")] = 128
    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 1
    head: Annotated[
        Literal["all", "masked"],
        Meta(description="positions with logits: all, as in transformers, or only those that the loss needs"),
    ] = "all"

    @property
    def family(self) -> Family:
        """What the model has of BERT or of RoBERTa."""
        return ROBERTA if self.size.startswith("roberta") else BERT

    @property
    def positions(self) -> int:
        """Rows of the position table: the published 512 (RoBERTa: 514), or more if a sequence is longer."""
        return self.family.first_position + max(POSITIONS, self.seq_len)

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

    def size_title(self) -> str:
        """Return the size, or its dimensions unless it is published, and what differs."""
        family = NAMES[self.size].partition("-")[0]
        size = NAMES[self.size] if self.is_published() else f"{family} {self.dimensions_title()}"
        vocabulary = "" if self.vocab_size == SIZES[self.size]["vocab_size"] else f" V={self.vocab_size}"
        return f"{size}{self.inner_title()}{vocabulary}"

    def batch_title(self, mode: Mode) -> str:
        """Return the mode, B and T, and whether only the masked positions have logits."""
        return f"{super().batch_title(mode)} T={self.seq_len}{' masked head' * (self.head == 'masked')}"

    def model(self) -> Model:
        """Return the layers of a microbatch; those that select the masked positions are before the head or the loss."""
        d_model, eps = self.d_model, self.family.layer_norm_eps
        rows = self.batch_size * self.seq_len, self.head_rows, self.masked
        tokens, head_rows, masked = (count // self.microbatches for count in rows)
        embedding = Embedding(
            self.vocab_size,
            d_model,
            self.seq_len,
            self.positions,
            self.family.first_position,
            self.family.token_types,
        )
        attention = Attention(self.impl, self.n_head, self.n_head, self.head_dim, self.seq_len, self.seq_len)
        head = (
            Linear("head_fc", d_model, d_model),
            Pointwise("head_gelu", gelu, d_model, d_model),
            Norm("head_ln", d_model, eps),
            TiedHead("lm_head", d_model, self.vocab_size, bias="lm_head_bias"),
        )
        selected = self.head == "masked"
        return Model(
            (
                Stage(tokens, (embedding, Norm("ln_embed", d_model, eps))),
                Stage(
                    tokens,
                    transformer_block(d_model, (attention,), self.d_ff, gelu, eps, norm_after=True),
                    self.n_layer,
                ),
                Stage(masked, (Masked(d_model),) if selected else ()),
                Stage(head_rows, head),
            ),
            loss=Stage(masked, (*(() if selected else (Masked(self.vocab_size),)), Moved("loss", self.vocab_size))),
        )

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch_size * self.seq_len

    def data_bytes(self, mode: Mode, types: Precision) -> int:
        """Return the bytes of the tokens, and of the masked positions and targets or of the logits."""
        if mode != "inference":
            return 4 * self.tokens + 2 * 4 * self.masked
        logits_bytes = self.head_rows * self.vocab_size * types.compute_bytes
        return 4 * self.tokens + 4 * self.masked * (self.head == "masked") + logits_bytes

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw BERT's initial weights, random biases and gains too, and masked tokens that can be found."""
        weights = draw(self.weight_shapes(), precision, rng, residuals=1)
        return Data(weights, self.masked_tokens(rng, batches))

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ."""
        return replace(super().small(), vocab_size=97, seq_len=32, batch_size=4 * self.microbatches)

    def loss_of(self, result: np.ndarray, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean cross-entropy at the masked positions, and its gradient with respect to the logits."""
        if self.head == "masked":
            return super().loss_of(result, batch)
        logits_NV, pullback = Masked(self.vocab_size).forward(result, batch)
        loss, d_logits_NV = cross_entropy(logits_NV, batch["targets"])
        return loss, pullback(d_logits_NV)[0]

    def within_microbatches(self, data: Data) -> Data:
        """Return the data with the indices of masked tokens counted from the first token of their microbatch."""
        tokens = self.batch_size // self.microbatches * self.seq_len
        return replace(data, batches=tuple({**batch, "masked": batch["masked"] % tokens} for batch in data.batches))

    def optimizer(self) -> AdamW:
        """Return BERT's settings (Devlin et al., 2019, A.2), without warm-up and decay of the learning rate.

        It is inversely proportional to the width (Yang et al., 2022), so that the small size of checks learns quickly.
        """
        rate = LEARNING_RATE * SIZES["base"]["d_model"] / self.d_model
        return AdamW(learning_rate=rate, beta_1=0.9, beta_2=0.999, eps=1e-6, weight_decay=0.01)

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


@dataclass(frozen=True)
class Masked(Layer):
    """The rows of the masked tokens, [N, C], among those of all tokens, [B, T, C]."""

    width: int

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return what is read and written."""
        return {"gather_masked": at.pointwise(self.width, self.width)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the rows."""

        def pullback(d_y_NC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_x_BTC = np.zeros_like(x)
            d_x_BTC.reshape(-1, self.width)[weights["masked"]] = d_y_NC
            return d_x_BTC, {}

        return x.reshape(-1, self.width)[weights["masked"]], pullback


@hookimpl
def define_problem() -> type[Problem]:
    """Return the BERT problem."""
    return Bert
