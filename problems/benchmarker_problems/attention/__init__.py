"""Causal self-attention as in GPT: O = softmax(Q·Kᵀ/√D + mask)·V for every head.

Shapes: B batch, T sequence (t for keys), H heads, D head dimension.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Problem, Work, hookimpl
from benchmarker_problems.layers import ImplOption
from benchmarker_problems.layers import layer as layers
from benchmarker_problems.layers.data import normal
from benchmarker_problems.layers.reference import attend, causal_bias
from benchmarker_problems.layers.work import RowWork

INPUTS: dict[Mode, tuple[str, ...]] = {"inference": ("q", "k", "v"), "forward_backward": ("q", "k", "v", "d_out")}
"""Inputs of a step, by mode."""
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
        moved = 4 * self.batch_size * self.seq_len * self.heads * self.head_dim * item
        backward = mode == "forward_backward"
        return Cost(
            flops=3 * flops if backward else flops,
            bytes=2 * moved if backward else moved,
            samples=self.batch_size,
            tokens=self.batch_size * self.seq_len,
        )

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of the two products and of the softmax on the scores, or of one part if they are fused."""
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


@hookimpl
def define_problem() -> type[Problem]:
    """Return the attention problem."""
    return Attention


def product_flops(batch_size: int, heads: int, seq_len: int, head_dim: int) -> int:
    """Return the FLOPs of Q·Kᵀ, which are also those of weights·V."""
    return 2 * batch_size * heads * seq_len * seq_len * head_dim
