"""Causal self-attention as in GPT: O = softmax(Q·Kᵀ/√D + mask)·V for every head.

With a `depth` it is that of decoding: one token of each sequence attends to a cache of keys and values. With scales, as
in fp8, Q, K and V are stored so, and so are the weights of the values, which are made in fp32 in each step.

Shapes: B batch, T sequence (t for keys), H heads, K those of keys and values, D head dimension.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Precision, Problem, UserError, Work, hookimpl
from benchmarker_problems import fp8
from benchmarker_problems.fp8 import EMULATED, SCALED
from benchmarker_problems.layers import DERIVED, ImplOption, fill, require_multiples
from benchmarker_problems.layers import layer as layers
from benchmarker_problems.layers.data import normal
from benchmarker_problems.layers.reference import attend, causal_bias
from benchmarker_problems.layers.work import RowWork

INPUTS: dict[Mode, tuple[str, ...]] = {"inference": ("q", "k", "v"), "forward_backward": ("q", "k", "v", "d_out")}
"""Inputs of a step, by mode."""
NOT_SCALED = tuple({"impl": impl, "precision": name} for name in (*SCALED, *EMULATED) for impl in ("einsum", "fused"))
"""Implementations that have no products of numbers with scales."""
OUTPUTS = ("out", "d_q", "d_k", "d_v")
"""Outputs of a step, in order; without the backward pass, only the first."""


@dataclass(frozen=True)
class Attention(Problem):
    """Attention of given q, k and v; `forward_backward` adds their gradients for a given gradient of the output.

    Softmax is computed in fp32 (fp64 in fp64) regardless of the type of the products, and its result is cast back.
    """

    summary = "GPT self-attention softmax(Q·Kᵀ/√D + mask)·V on [B,T,H,D]"
    accelerator = {"batch_size": 16, "seq_len": 1024}
    cache = "rotate"
    reads = INPUTS
    cost_formula = (
        "flops = 4·B·H·T²·D (including the masked half), three times that with backward\n"
        "bytes = q, k, v and the output once, with backward also their gradients\n"
        "with a depth: flops = 4·B·H·(depth + 1)·D, and bytes of as many keys and values"
    )

    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 1
    heads: Annotated[int, Meta(ge=1, description="attention heads")] = 12
    kv_heads: Annotated[
        int, Meta(ge=1, description="heads of keys and values, of which heads is a multiple; heads if omitted")
    ] = DERIVED
    seq_len: Annotated[
        int, Meta(ge=1, description="sequence length; with a depth, the positions that the cache has room for")
    ] = 512
    depth: Annotated[
        int,
        Meta(
            ge=0,
            description="positions in a KV cache before the one token of each sequence that attends to them and "
            "itself, as in decoding; 0: whole sequences attend to themselves",
        ),
    ] = 0
    head_dim: Annotated[int, Meta(ge=1, description="length of a head's query, key and value vectors")] = 64
    causal: Annotated[bool, Meta(description="mask the positions that come after the query")] = True
    impl: ImplOption = "matmul"

    def __post_init__(self) -> None:
        fill(self, {"kv_heads": self.heads})
        require_multiples(self, heads="kv_heads")
        if self.depth >= self.seq_len:
            raise ValueError(f"seq_len={self.seq_len} has no room for the {self.depth + 1} positions of the cache")

    @property
    def queries(self) -> int:
        """Positions of a sequence that attend."""
        return 1 if self.depth else self.seq_len

    @property
    def keys(self) -> int:
        """Positions of a sequence that are attended to."""
        return self.depth + 1 if self.depth else self.seq_len

    @property
    def product_flops(self) -> int:
        """The FLOPs of Q·Kᵀ, which are also those of weights·V."""
        return 2 * self.batch_size * self.heads * self.queries * self.keys * self.head_dim

    def refuse(self, mode: Mode) -> None:
        """Refuse a backward pass through a cache."""
        if self.depth and mode != "inference":
            raise UserError(f"--depth={self.depth} needs --mode=inference; a cache has no gradient")

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types of the precision; raises `UserError` for fp8 with a cache, or with grouped queries."""
        if PRECISIONS[precision].scale and (self.depth or self.kv_heads != self.heads):
            raise UserError(f"--precision={precision} is for whole sequences with as many --kv-heads as --heads")
        return super().numerics(mode, precision)

    def title(self, mode: Mode) -> str:
        """Return the shape and the implementation: `attention B=2 H=8/4 T=1024 D=64 einsum`, or at a depth."""
        groups = "" if self.kv_heads == self.heads else f"/{self.kv_heads}"
        room = f" S={self.seq_len}" if self.seq_len > self.keys else ""
        length = f"at {self.depth}{room}" if self.depth else f"T={self.seq_len}"
        shape = f"B={self.batch_size} H={self.heads}{groups} {length} D={self.head_dim}"
        backward = " fwd+bwd" * (mode == "forward_backward")
        return f"attention {shape} {self.impl}{' non-causal' * (not self.causal)}{backward}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the two products and the softmax, or one scope if they are fused."""
        return dict.fromkeys(self.parts(mode, "fp32"), 1)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count two products forward; the backward pass has two more of the same size for each."""
        item = PRECISIONS[precision].parameter_bytes
        flops = 2 * self.product_flops
        of_output = 4 if PRECISIONS[precision].scale else item
        of_queries = self.queries * self.heads * (item + of_output)
        of_keys = 2 * self.keys * self.kv_heads * item
        moved = self.batch_size * self.head_dim * (of_queries + of_keys)
        backward = mode == "forward_backward"
        return Cost(
            flops=3 * flops if backward else flops,
            bytes=2 * moved if backward else moved,
            samples=self.batch_size,
            tokens=self.batch_size * self.queries,
        )

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of the two products and of the softmax on the scores, or of one part if they are fused.

        With scales there is no formula: scores have another type than what they are made of.
        """
        if PRECISIONS[precision].scale:
            return {}
        heads = self.heads, self.kv_heads, self.head_dim
        layer = layers.Attention(self.impl, *heads, self.queries, self.keys, cached=self.depth > 0)
        stored = PRECISIONS[precision].parameter
        return layer.parts(RowWork(self.batch_size * self.queries, stored, backward=mode == "forward_backward"))

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw q, k, v and the gradient of the output from a normal distribution; a cache is full."""
        queries = self.batch_size, self.queries, self.heads, self.head_dim
        keys = self.batch_size, self.seq_len, self.kv_heads, self.head_dim
        shapes = {"q": queries, "k": keys, "v": keys, "d_out": queries}
        return Data({}, normal(shapes, precision, rng, batches))

    def small(self) -> Self:
        """Return the same attention with dimensions that all differ; every fused kernel supports D = 16."""
        heads = 3 if self.kv_heads == self.heads else 12
        depth = 12 if self.depth else 0
        return replace(self, batch_size=2, heads=heads, kv_heads=3, seq_len=20, depth=depth, head_dim=16)

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the output, and in `forward_backward` also the gradients of q, k and v."""
        bias_Tt = causal_bias(self.seq_len, batch["q"].dtype.type) if self.causal and not self.depth else None
        k_BtKD, v_BtKD = (batch[name][:, : self.keys] for name in ("k", "v"))
        out_BTHD, pullback = attend(batch["q"], k_BtKD, v_BtKD, impl="einsum", bias_Tt=bias_Tt)
        gradients = pullback(batch["d_out"]) if mode == "forward_backward" else ()
        return dict(zip(OUTPUTS, (out_BTHD, *gradients), strict=False))

    def deviations(self, data: Data, mode: Mode, precision: str) -> Iterable[Arrays] | None:
        """Return how far off the output of numbers with scales may be; other arithmetic is rounding."""
        types = PRECISIONS[precision]
        if not types.scale:
            return None
        exact = self.reference(data, mode)
        return [
            {"out": fp8.margin(types) * np.abs(self.scaled_output(batch, types, np.float64) - step["out"])}
            for batch, step in zip(data.batches, exact, strict=True)
        ]

    def scaled_output(self, batch: Arrays, types: Precision, dtype: type[np.floating]) -> np.ndarray:
        """Return the output of numbers with scales; the sums and the softmax are in `dtype`."""
        factors = (fp8.scaled(value, types, axis) for value, axis in self.by_head(batch))
        q_BHTD, k_BHtD, v_BHtD = (numbers * scale.astype(dtype) for numbers, scale in factors)
        scores_BHTt = q_BHTD @ k_BHtD.swapaxes(-1, -2) * dtype(self.head_dim**-0.5)
        if self.causal:
            scores_BHTt += causal_bias(self.seq_len, dtype)
        weights_BHTt = np.exp(scores_BHTt - scores_BHTt.max(axis=-1, keepdims=True))
        weights_BHTt /= weights_BHTt.sum(axis=-1, keepdims=True)
        numbers, scale = fp8.scaled(weights_BHTt, types, -1)
        out_BHTD: np.ndarray = numbers * scale.astype(dtype) @ v_BHtD
        return out_BHTD.transpose(0, 2, 1, 3)

    def by_head(self, batch: Arrays) -> list[tuple[np.ndarray, int]]:
        """Return q, k and v as [B, H, T, D], and the axis along which numbers share a scale by row."""
        return [(batch[name].transpose(0, 2, 1, 3), axis) for name, axis in (("q", -1), ("k", -1), ("v", -2))]


@hookimpl
def define_problem() -> type[Problem]:
    """Return the attention problem."""
    return Attention


def by_row(keys_BtKD: np.ndarray) -> np.ndarray:
    """Return keys or values as a cache has them, [R, S, D]: R is batch · heads, S positions."""
    rows_RSD: np.ndarray = keys_BtKD.swapaxes(1, 2).reshape(-1, keys_BtKD.shape[1], keys_BtKD.shape[3])
    return rows_RSD
