"""Causal self-attention as in GPT: O = softmax(Q·Kᵀ/√D + mask)·V for every head.

With scales, as in fp8, Q, K and V are stored so, and so are the weights of the values, which are made in fp32 in each
step.

Shapes: B batch, T sequence (t for keys), H heads, D head dimension.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Precision, Problem, Work, hookimpl
from benchmarker_problems import fp8
from benchmarker_problems.fp8 import EMULATED, SCALED
from benchmarker_problems.layers import ImplOption
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
        "bytes = q, k, v and the output once, with backward also their gradients"
    )

    batch_size: Annotated[int, Meta(ge=1, description="sequences per step")] = 1
    heads: Annotated[int, Meta(ge=1, description="attention heads")] = 12
    seq_len: Annotated[int, Meta(ge=1, description="sequence length")] = 512
    head_dim: Annotated[int, Meta(ge=1, description="length of a head's query, key and value vectors")] = 64
    causal: Annotated[bool, Meta(description="mask the positions that come after the query")] = True
    impl: ImplOption = "matmul"

    def title(self, mode: Mode) -> str:
        """Return the shape and the implementation: `attention B=2 H=8 T=1024 D=64 einsum`."""
        shape = f"B={self.batch_size} H={self.heads} T={self.seq_len} D={self.head_dim}"
        backward = " fwd+bwd" * (mode == "forward_backward")
        return f"attention {shape} {self.impl}{' non-causal' * (not self.causal)}{backward}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the two products and the softmax, or one scope if they are fused."""
        return dict.fromkeys(self.parts(mode, "fp32"), 1)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count two products forward; the backward pass has two more of the same size for each."""
        item = PRECISIONS[precision].parameter_bytes
        flops = 2 * product_flops(self.batch_size, self.heads, self.seq_len, self.head_dim)
        of_output = 4 if PRECISIONS[precision].scale else item
        moved = self.batch_size * self.seq_len * self.heads * self.head_dim * (3 * item + of_output)
        backward = mode == "forward_backward"
        return Cost(
            flops=3 * flops if backward else flops,
            bytes=2 * moved if backward else moved,
            samples=self.batch_size,
            tokens=self.batch_size * self.seq_len,
        )

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of the two products and of the softmax on the scores, or of one part if they are fused.

        With scales there is no formula: scores have another type than what they are made of.
        """
        if PRECISIONS[precision].scale:
            return {}
        layer = layers.Attention(self.impl, self.heads, self.heads, self.head_dim, self.seq_len, self.seq_len)
        stored = PRECISIONS[precision].parameter
        return layer.parts(RowWork(self.batch_size * self.seq_len, stored, backward=mode == "forward_backward"))

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw q, k, v and the gradient of the output from a normal distribution."""
        shape = (self.batch_size, self.seq_len, self.heads, self.head_dim)
        return Data({}, normal(dict.fromkeys(INPUTS["forward_backward"], shape), precision, rng, batches))

    def small(self) -> Self:
        """Return the same attention with dimensions that all differ; every fused kernel supports D = 16."""
        return replace(self, batch_size=2, heads=3, seq_len=20, head_dim=16)

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the output, and in `forward_backward` also the gradients of q, k and v."""
        bias_Tt = causal_bias(self.seq_len, batch["q"].dtype.type) if self.causal else None
        out_BTHD, pullback = attend(batch["q"], batch["k"], batch["v"], impl="einsum", bias_Tt=bias_Tt)
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


def product_flops(batch_size: int, heads: int, seq_len: int, head_dim: int) -> int:
    """Return the FLOPs of Q·Kᵀ, which are also those of weights·V."""
    return 2 * batch_size * heads * seq_len * seq_len * head_dim
