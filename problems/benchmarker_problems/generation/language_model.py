"""What decoders have in common: training on several devices, and text generation with a cache of keys and values."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Collective, Cost, Data, Divides, Mode, Piece, Precision, UserError
from benchmarker_problems.generation import (
    PAGE,
    Generation,
    fill_lengths,
    pages,
    phase_title,
    small_lengths,
    token_batches,
)
from benchmarker_problems.generation.reference import generated
from benchmarker_problems.layers import DERIVED, size_of
from benchmarker_problems.layers.data import draw
from benchmarker_problems.layers.layer import Attention, Embedding, Layer, Moved
from benchmarker_problems.layers.model import Model, Stage
from benchmarker_problems.layers.transformer import Transformer
from benchmarker_problems.parallel import collectives, divides_batch, refuse_undivided
from benchmarker_problems.quantization import dequantized, quantized, require_quantizable, weight_bytes

PHASE_FORMULA = "a --phase: logits of the last token only, attention to the filled cache, and bytes of that"


@dataclass(frozen=True)
class Pass:
    """Passes through a model that are alike: `count` of them, each with so many tokens of every sequence.

    `keys` is the mean number of positions to which a token attends, its own included; a product with a triangle of the
    scores counts whole, as without a cache. `logits` are the positions of a sequence whose logits are computed.
    """

    count: int
    tokens: int
    keys: float
    logits: int

    @property
    def cached(self) -> float:
        """Positions of a sequence's cache that are read or written: each once."""
        return self.keys if self.tokens == 1 else self.tokens


@dataclass(frozen=True, kw_only=True)
class LanguageModel(Transformer, Divides, Generation):
    """A decoder: forward only, forward and backward, or training with AdamW; a subclass has the options of its size.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    vocab_size: int
    seq_len: Annotated[
        int, Meta(ge=1, description="sequence length; in a phase, the capacity of the KV cache in positions")
    ] = DERIVED
    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 1

    contexts: ClassVar[Mapping[Any, int]]
    """The published context length of each size that has one."""
    divided_widths: ClassVar[tuple[str, ...]]
    """Options that `tp` divides among devices."""
    unrepeated: ClassVar[str] = "mlp_proj"
    """Product that ends a block, if no gradient needs its result."""
    small_batch: ClassVar[int]
    """Sequences of a small microbatch on one device."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fill_lengths(self, self.contexts.get(self.size))
        require_quantizable(self, "d_model", "d_ff")

    @abstractmethod
    def small_dimensions(self) -> Mapping[str, Any]:
        """Return heads and widths that all differ, and of which several devices have a part each."""

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ; every fused kernel supports a head size of 16.

        What several devices divide, the batch or the widths, has something for each of them.
        """
        return replace(
            self,
            n_layer=min(self.n_layer, 2),
            **self.small_dimensions(),
            vocab_size=97,
            batch_size=self.small_batch * self.microbatches * (self.devices if divides_batch(self.parallel) else 1),
            **small_lengths(self),
        )

    def batch_title(self, mode: Mode) -> str:
        """Return the mode, B and T, or the phase with its lengths."""
        return f"{super().batch_title(mode)} T={self.seq_len}" if self.phase == "none" else phase_title(self)

    @property
    @abstractmethod
    def kv_heads(self) -> int:
        """Heads of keys and values."""

    @abstractmethod
    def layers(self, each: Pass) -> tuple[Embedding, tuple[Layer, ...], tuple[Layer, ...]]:
        """Return the embedding, the layers of a block, and those that give the logits."""

    @abstractmethod
    def unread(self, rows: int, precision: str) -> int:
        """Return the bytes of weights that a pass of so many tokens does not read."""

    def passes(self) -> tuple[Pass, ...]:
        """Return the passes of a step: the prompt, and the tokens after it."""
        if self.phase == "none":
            return (Pass(1, self.seq_len, self.seq_len, self.seq_len),)
        if self.phase == "decode":
            return (Pass(1, 1, self.depth + (self.new_tokens + 1) / 2, 1),)
        prefill = Pass(1, self.prompt_len, self.prompt_len, 1)
        if self.phase == "prefill":
            return (prefill,)
        return (prefill, Pass(self.new_tokens - 1, 1, self.prompt_len + self.new_tokens / 2, 1))

    def model(self) -> Model:
        """Return the layers that a microbatch goes through in the first pass."""
        return self.model_of(self.passes()[0])

    def models(self) -> Iterable[tuple[int, Model]]:
        """Return how often each pass runs, and its layers."""
        return [(each.count, self.model_of(each)) for each in self.passes()]

    def model_of(self, each: Pass) -> Model:
        """Return the layers that a microbatch goes through in a pass; a phase then chooses the next token."""
        embedding, block, head = self.layers(each)
        batch_size = self.batch_size // self.microbatches
        rows, head_rows = batch_size * each.tokens, batch_size * each.logits
        chosen = () if self.phase == "none" else (Moved("next_token", self.vocab_size),)
        return Model(
            (
                Stage(rows, (embedding,)),
                Stage(rows, block, self.n_layer, self.unrepeated),
                Stage(head_rows, (*head, *chosen)),
            ),
            loss=Stage(head_rows, (Moved("loss", self.vocab_size),)),
            weight_type=self.weight_type,
        )

    def pieces(self) -> Sequence[Piece]:
        """Return what of a step other problems measure alone; in a phase, weights are stored by output."""
        of_phase = {} if self.phase == "none" else {"transpose_b": True, "linear": True}
        return [
            replace(piece, options={**piece.options, **of_phase}) if piece.problem == "gemm" else piece
            for piece in super().pieces()
        ]

    def attention(self, each: Pass) -> tuple[Layer, ...]:
        """Return causal attention in a pass, and writing the cache in a phase."""
        width = 2 * self.kv_heads * self.head_dim
        written = () if self.phase == "none" else (Moved("cache_write", width, width, width),)
        heads = self.n_head, self.kv_heads, self.head_dim
        cached, room = each.tokens == 1, None if self.kv_cache == "paged" else self.seq_len
        attention = Attention(self.impl, *heads, each.tokens, each.keys, causal=True, cached=cached, room=room)
        return *written, attention

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the work.

        A pass of a phase reads the positions of the cache that are filled, and writes those of its tokens. A step of
        `decode` counts at the mean of the positions that it goes through. Weights that no token selects are not read.
        """
        whole = super().cost(mode, precision)
        if self.phase == "none":
            unread = 0 if mode == "training" else self.unread(self.tokens, precision)
            return replace(whole, bytes=whole.bytes - unread)
        position_bytes = 2 * self.n_layer * self.kv_heads * self.head_dim * PRECISIONS[precision].compute_bytes
        moved = tokens = 0
        for each in self.passes():
            rows = self.batch_size * each.tokens
            read = self.weight_bytes(precision) - self.unread(rows, precision)
            cached = int(self.batch_size * each.cached * position_bytes)
            moved += each.count * (read + 4 * rows + cached + 4 * self.batch_size)
            tokens += each.count * rows
        output_tokens = self.batch_size * {"decode": 1, "generate": self.new_tokens}.get(self.phase, 0)
        return replace(
            whole,
            bytes=moved,
            tokens=output_tokens or tokens,
            input_tokens=self.batch_size * self.prompt_len,
            output_tokens=output_tokens,
        )

    def data_bytes(self, mode: Mode, types: Precision) -> int:
        """Return the bytes of the tokens, and of the logits or of the tokens that follow."""
        tokens = self.batch_size * self.seq_len
        return 4 * tokens + (tokens * self.vocab_size * types.compute_bytes if mode == "inference" else 4 * tokens)

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch_size * self.seq_len

    def collectives(self, mode: Mode, precision: str) -> tuple[Collective, ...]:
        """Return what the devices exchange in a step of training."""
        types = PRECISIONS[precision]
        block = {name: shape for name, shape in self.weight_shapes().items() if name.startswith("h.0.")}
        return collectives(
            mode,
            self.parallel,
            self.devices,
            weight_bytes=self.weight_bytes(precision),
            blocks=self.n_layer,
            block_bytes=size_of(block) * types.parameter_bytes,
            sum_bytes=self.tokens * self.d_model * types.compute_bytes,
            recompute=self.recompute,
        )

    @property
    def cache_shape(self) -> tuple[int, int, int, int]:
        """Blocks, and the shape of the keys, and of the values, in each.

        That is sequences · heads, positions and width; or pages · heads, positions of a page, and width.
        """
        if self.kv_cache == "paged":
            return self.n_layer, self.batch_size * pages(self) * self.kv_heads, PAGE, self.head_dim
        return self.n_layer, self.batch_size * self.kv_heads, self.seq_len, self.head_dim

    def refuse(self, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass, phases elsewhere, and what devices cannot divide."""
        if self.phase != "none" and mode != "inference":
            raise UserError(f"--phase={self.phase} needs --mode=inference")
        refuse_undivided(
            mode,
            self.parallel,
            self.devices,
            batch_size=self.batch_size,
            microbatches=self.microbatches,
            widths={name: getattr(self, name) for name in self.divided_widths},
        )
        super().refuse(mode)

    def grown(self) -> Self:
        """Return the same model with a batch that is larger by the number of devices."""
        return self._with(batch_size=self.devices * self.batch_size)

    def in_fp64(self) -> Self:
        """Return the same step with attention by products: fused ones may have no fp64."""
        return self._with(impl="matmul")

    def weight_bytes(self, precision: str) -> int:
        """Return the bytes of the weights as they are stored."""
        return weight_bytes(self.weight_shapes(), self.weight_type, precision)

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types of the precision, with that of the weights of linear layers."""
        types = super().numerics(mode, precision)
        if self.weight_type == "full":
            return types
        return replace(types, parameter=self.weight_type, stated_bound=types.bound)

    def weights(self, precision: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw GPT-2's initial weights, random biases and gains too."""
        return draw(self.weight_shapes(), precision, rng, residuals=2 * self.n_layer)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights, which may then be quantised, and tokens that can be learned."""
        weights = quantized(self.weights(precision, rng), self.weight_type)
        return Data(weights, token_batches(self, rng, batches))

    @classmethod
    def accelerator_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults on accelerators that suit a phase: a cache that fits, and an attention that all have."""
        unsuited = {"none": (), "prefill": ("seq_len",)}.get(given.get("phase", "none"), ("seq_len", "impl"))
        return {name: value for name, value in cls.accelerator.items() if name not in unsuited}

    def phases(self) -> Mapping[str, tuple[int, Self]]:
        """Return the prompt and the tokens after it; a single phase, or a step without one, as it is."""
        if self.phase != "generate":
            return {"step" if self.phase == "none" else self.phase: (1, self)}
        tokens = self.new_tokens - 1
        phases = {"prefill": (1, self._with(phase="prefill", new_tokens=0))}
        if tokens:
            decode = self._with(phase="decode", prompt_len=0, depth=self.prompt_len, new_tokens=tokens)
            phases["decode"] = (tokens, decode)
        return phases

    def cache_bytes(self, precision: str) -> int:
        """Return the bytes of the keys and values that a phase has room for."""
        return 0 if self.phase == "none" else 2 * prod(self.cache_shape) * PRECISIONS[precision].compute_bytes

    def check_steps(self) -> int:
        """Return the tokens that a phase `decode` chooses before it begins again."""
        return self.new_tokens if self.phase == "decode" else 1

    @classmethod
    def engine_options(cls, slots: int, positions: int) -> Mapping[str, Any]:
        """Return the options of an engine with room for so many positions in each slot."""
        room = max(positions, 2)
        lengths = {"prompt_len": 0, "depth": room - 1, "new_tokens": 1, "seq_len": room}
        return {"phase": "decode", "decoding": "greedy", "kv_cache": "fit", "batch_size": slots, **lengths}

    def logits(self, data: Data, tokens: np.ndarray) -> np.ndarray:
        """Return the logits after every token, without a cache."""
        return self.forward(dequantized(data.weights), {"tokens": tokens})[0]

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        if self.phase == "none":
            return super().reference(data, mode)
        return generated(data, self, lambda weights, tokens_BT: self.forward(weights, {"tokens": tokens_BT})[0])
