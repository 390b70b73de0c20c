"""What decoders have in common: training on several devices, and text generation with a cache of keys and values."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, ClassVar, Self

import numpy as np

from benchmarker import PRECISIONS, Data, Divides, Generates, Mode, Precision, UserError, Work
from benchmarker_problems.attention import Impl
from benchmarker_problems.generation import Cache, Decoding, Phase, token_batches
from benchmarker_problems.generation.reference import generated
from benchmarker_problems.generation.work import Pass, passes
from benchmarker_problems.layers import Shapes, size_of
from benchmarker_problems.layers.data import draw
from benchmarker_problems.layers.reference import Gradients, Weights, cross_entropy
from benchmarker_problems.layers.work import added, times, update
from benchmarker_problems.parallel import refuse_undivided
from benchmarker_problems.quantization import WeightType, dequantized, quantized, types, weight_bytes
from benchmarker_problems.steps import ADAMW, refuse_without_backward
from benchmarker_problems.steps.reference import steps


class LanguageModel(Divides, Generates):
    """A decoder: forward only, forward and backward, or training with AdamW; a subclass has these options.

    `inference` returns the logits of every position. The loss is the mean cross-entropy of the next token.
    """

    n_layer: int
    d_model: int
    n_head: int
    seq_len: int
    batch_size: int
    impl: Impl
    recompute: bool
    microbatches: int
    phase: Phase
    prompt_len: int
    depth: int
    new_tokens: int
    decoding: Decoding
    weight_type: WeightType
    cache: Cache

    divided_widths: ClassVar[tuple[str, ...]]
    """Options that `tp` divides among devices."""

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head

    @property
    @abstractmethod
    def cache_shape(self) -> tuple[int, int, int, int]:
        """Blocks, and the shape of the keys, and of the values, in each."""

    @abstractmethod
    def weight_shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""

    @abstractmethod
    def pass_parts(self, precision: str, each: Pass, backward: bool) -> Mapping[str, Work]:
        """Return the work of every scope in a pass of a microbatch, but that of the optimizer."""

    @abstractmethod
    def forward(
        self, weights: Weights, tokens_BT: np.ndarray, impl: Impl = "einsum"
    ) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
        """Return the logits of every position in NumPy, and the function from their gradient to those of weights."""

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        backward = mode != "inference"
        parts = added(
            times(self.microbatches * each.count, self.pass_parts(precision, each, backward)) for each in passes(self)
        )
        parts["optimizer"] = update(ADAMW.WEIGHTS_MOVED * self.weight_bytes(precision))
        return {name: parts[name] for name in self.scopes(mode)}

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
        refuse_without_backward(mode, recompute=self.recompute, microbatches=self.microbatches)

    def grown(self) -> Self:
        """Return the same model with a batch that is larger by the number of devices."""
        return self._with(batch_size=self.devices * self.batch_size)

    def in_fp64(self) -> Self:
        """Return the same step with attention by products: fused ones may have no fp64."""
        return self._with(impl="matmul")

    def _with(self, **options: Any) -> Self:
        return replace(self, **options)

    def parameter_count(self) -> int:
        """Return the number of weights; an output head may share those of the embedding."""
        return size_of(self.weight_shapes())

    def weight_bytes(self, precision: str) -> int:
        """Return the bytes of the weights as they are stored."""
        return weight_bytes(self.weight_shapes(), self.weight_type, precision)

    def types(self, precision: str) -> Precision:
        """Return the types of the precision, with that of the weights of linear layers."""
        return types(self, precision)

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
        return {"phase": "decode", "decoding": "greedy", "cache": "fit", "batch_size": slots, **lengths}

    def logits(self, data: Data, tokens: np.ndarray) -> np.ndarray:
        """Return the logits after every token, without a cache."""
        return self.forward(dequantized(data.weights), tokens)[0]

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        if self.phase != "none":
            return generated(data, self, lambda weights, tokens_BT: self.forward(weights, tokens_BT)[0])
        return steps(
            data,
            mode,
            "logits",
            lambda weights, batch: self.forward(weights, batch["tokens"]),
            lambda logits_BTV, batch: cross_entropy(logits_BTV, batch["targets"]),
        )
