"""Causal self-attention as in GPT: O = softmax(Q·Kᵀ/√D + mask)·V for every head.

Shapes: B batch, T sequence (t for keys), H heads, D head dimension.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Problem, Work, hookimpl

Impl = Literal["einsum", "matmul", "fused"]
ImplOption = Annotated[
    Impl,
    Meta(description="einsum on [B,T,H,D], matmul on transposed [B,H,T,D], or the framework's own fused attention"),
]

INPUTS: dict[Mode, tuple[str, ...]] = {"inference": ("q", "k", "v"), "forward_backward": ("q", "k", "v", "d_out")}
"""Inputs of a step, by mode."""
OUTPUTS = ("out", "d_q", "d_k", "d_v")
"""Outputs of a step, in order; without the backward pass, only the first."""

Pullback = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Attention(Problem):
    """Attention of given q, k and v; `forward_backward` adds their gradients for a given gradient of the output.

    Softmax is computed in fp32 (fp64 in fp64) regardless of the type of the products, and its result is cast back.
    """

    summary = "GPT self-attention softmax(Q·Kᵀ/√D + mask)·V on [B,T,H,D]"
    accelerator = {"batch_size": 16, "seq_len": 1024}
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
        return dict.fromkeys(scopes(self.impl), 1)

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
        item = PRECISIONS[precision].parameter_bytes
        return parts(
            self.batch_size,
            self.heads,
            self.seq_len,
            self.head_dim,
            self.impl,
            item,
            backward=mode == "forward_backward",
        )

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw q, k, v and the gradient of the output from a normal distribution."""
        dtype = np.float64 if precision == "fp64" else np.float32
        shape = (self.batch_size, self.seq_len, self.heads, self.head_dim)
        names = INPUTS["forward_backward"]
        return Data(
            {}, tuple({name: rng.standard_normal(shape, dtype=dtype) for name in names} for _ in range(batches))
        )

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


def scopes(impl: Impl) -> tuple[str, ...]:
    """Return the names of the parts of attention in an implementation."""
    return ("attn_fused",) if impl == "fused" else ("attn_q_k", "attn_softmax", "attn_att_v")


def parts(
    batch_size: int,
    heads: int,
    seq_len: int,
    head_dim: int,
    impl: Impl,
    item_bytes: int,
    *,
    backward: bool,
) -> dict[str, Work]:
    """Return the work of the parts of attention in an implementation."""
    flops = product_flops(batch_size, heads, seq_len, head_dim)
    rows = batch_size * seq_len * heads * head_dim * item_bytes
    scores = batch_size * heads * seq_len * seq_len * item_bytes
    if impl == "fused":
        return {"attn_fused": part(2 * flops, read=3 * rows, written=rows, backward=backward)}
    return {
        "attn_q_k": part(flops, read=2 * rows, written=scores, backward=backward),
        "attn_softmax": part(0, read=scores, written=scores, backward=backward),
        "attn_att_v": part(flops, read=scores + rows, written=rows, backward=backward),
    }


def part(flops: int, *, read: int, written: int, backward: bool) -> Work:
    """Return the work of a part; `read` and `written` are its bytes in the forward pass, including weights.

    The backward pass has two products for each product forward. It reads the inputs and the gradients of the outputs,
    and writes the gradients of the inputs.
    """
    return Work(3 * flops, 3 * read + 2 * written) if backward else Work(flops, read + written)


def product_flops(batch_size: int, heads: int, seq_len: int, head_dim: int) -> int:
    """Return the FLOPs of Q·Kᵀ, which are also those of weights·V."""
    return 2 * batch_size * heads * seq_len * seq_len * head_dim


def causal_bias(seq_len: int, dtype: type[np.floating]) -> np.ndarray:
    """Return the mask to add to the scores: −∞ if the key comes after the query, otherwise 0."""
    return np.triu(np.full((seq_len, seq_len), -np.inf, dtype), k=1)


def attend(
    q_BTHD: np.ndarray, k_BtHD: np.ndarray, v_BtHD: np.ndarray, *, impl: Impl, bias_Tt: np.ndarray | None
) -> tuple[np.ndarray, Pullback]:
    """Compute attention in the type of its arguments, and the function from its output's gradient to theirs."""
    scale = q_BTHD.dtype.type(q_BTHD.shape[-1] ** -0.5)
    if impl == "einsum":
        scores_BHTt = np.einsum("BTHD,BtHD->BHTt", q_BTHD * scale, k_BtHD)
    else:
        scores_BHTt = (q_BTHD * scale).transpose(0, 2, 1, 3) @ k_BtHD.transpose(0, 2, 3, 1)
    if bias_Tt is not None:
        scores_BHTt += bias_Tt
    scores_BHTt -= scores_BHTt.max(axis=-1, keepdims=True)
    weights_BHTt = np.exp(scores_BHTt, out=scores_BHTt)
    weights_BHTt /= weights_BHTt.sum(axis=-1, keepdims=True)
    if impl == "einsum":
        out_BTHD = np.einsum("BHTt,BtHD->BTHD", weights_BHTt, v_BtHD)
    else:
        out_BTHD = (weights_BHTt @ v_BtHD.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)

    def pullback(d_out_BTHD: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        d_weights_BHTt = np.einsum("BTHD,BtHD->BHTt", d_out_BTHD, v_BtHD)
        carried_BHT1 = (d_weights_BHTt * weights_BHTt).sum(axis=-1, keepdims=True)
        d_scores_BHTt = weights_BHTt * (d_weights_BHTt - carried_BHT1) * scale
        return (
            np.einsum("BHTt,BtHD->BTHD", d_scores_BHTt, k_BtHD),
            np.einsum("BHTt,BTHD->BtHD", d_scores_BHTt, q_BTHD),
            np.einsum("BHTt,BTHD->BtHD", weights_BHTt, d_out_BTHD),
        )

    return out_BTHD, pullback
