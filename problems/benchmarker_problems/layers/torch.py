"""Layers that PyTorch does not have.

Shapes: B batch, T sequence, C width of the model, F width within the MLP, H heads, D head dimension, V vocabulary; of
images, H height, W width, C channels, N patches, P numbers of a patch.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker_plugins.frameworks.torch import scope
from benchmarker_problems.attention.torch import Attend, attend
from benchmarker_problems.layers import Impl

SOME_ROWS = range(2, 33)
"""Numbers of rows that MKL multiplies faster by packed weights."""


def product(x_I: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return x·weightᵀ + bias, [..., O].

    For one position of several sequences, or for several samples, MKL packs the weights at the first time, as with
    `torch.compile` and `freezing`. What is packed takes one to two times the memory of the weights, and 8 MB more.
    """
    rows = x_I.shape[:-1].numel()
    if rows not in SOME_ROWS or (x_I.ndim > 2 and x_I.shape[-2] > 1) or not _packs(x_I):
        return F.linear(x_I, weight_OI, bias_O)
    packed: dict[tuple[int, int], Tensor] = weight_OI.__dict__.setdefault("packed", {})
    version = 0 if weight_OI.is_inference() else weight_OI._version
    if (rows, version) not in packed:
        packed.clear()
        packed[rows, version] = torch.ops.mkl._mkl_reorder_linear_weight(weight_OI, rows)
    y_O: Tensor = torch.ops.mkl._mkl_linear(x_I, packed[rows, version], weight_OI, bias_O, rows)
    return y_O


def _packs(x_I: Tensor) -> bool:
    """Whether MKL can multiply by packed weights here: on a CPU in fp32, without gradients."""
    return (
        torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and x_I.device.type == "cpu"
        and x_I.dtype == torch.float32
        and not (torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling())
    )


class Linear(nn.Linear):
    """A linear layer that is also fast for one position of several sequences."""

    def forward(self, x_I: Tensor) -> Tensor:
        """Return x·weightᵀ + bias, [..., O]."""
        return product(x_I, self.weight, self.bias)


class TransformerBlock(nn.Module):
    """Attention and MLP of GPT-2's kind, each with a residual connection.

    LayerNorm with `eps` comes before them, or after the addition (`post_norm`). GELU is exact, or approximate
    (`tanh_gelu`). `linear` makes the linear layers.
    """

    def __init__(
        self,
        d_model: int,
        n_head: int,
        d_ff: int,
        *,
        eps: float,
        impl: Impl,
        tanh_gelu: bool = False,
        post_norm: bool = False,
        linear: Callable[[int, int], nn.Module] = nn.Linear,
    ) -> None:
        super().__init__()
        self.head_dim = d_model // n_head
        self.impl: Impl = impl
        self.gelu = "tanh" if tanh_gelu else "none"
        self.post_norm = post_norm
        self.ln_1 = nn.LayerNorm(d_model, eps=eps)
        self.attn_qkv = linear(d_model, 3 * d_model)
        self.attn_proj = linear(d_model, d_model)
        self.ln_2 = nn.LayerNorm(d_model, eps=eps)
        self.mlp_fc = linear(d_model, d_ff)
        self.mlp_proj = linear(d_ff, d_model)

    def forward(self, x_BTC: Tensor, bias_TT: Tensor | None = None, attention: Attend | None = None) -> Tensor:
        """Apply the block; the attention is causal if `bias_TT` is given, or another one if that is given."""
        h_BTC = x_BTC if self.post_norm else normed(self.ln_1, "ln_1", x_BTC)
        with scope("attn_qkv"):
            q_BTHD, k_BTHD, v_BTHD = self.attn_qkv(h_BTC).unflatten(-1, (3, -1, self.head_dim)).unbind(2)
        attention = attention or partial(attend, impl=self.impl, bias_Tt=bias_TT)
        heads_BTHD = attention(q_BTHD, k_BTHD, v_BTHD)
        with scope("attn_proj"):
            x_BTC = x_BTC + self.attn_proj(heads_BTHD.flatten(2))
        if self.post_norm:
            x_BTC = normed(self.ln_1, "ln_1", x_BTC)

        h_BTC = x_BTC if self.post_norm else normed(self.ln_2, "ln_2", x_BTC)
        with scope("mlp_fc"):
            inner_BTF = self.mlp_fc(h_BTC)
        with scope("mlp_gelu"):
            inner_BTF = F.gelu(inner_BTF, approximate=self.gelu)
        with scope("mlp_proj"):
            x_BTC = x_BTC + self.mlp_proj(inner_BTF)
        return normed(self.ln_2, "ln_2", x_BTC) if self.post_norm else x_BTC


def normed(norm: nn.LayerNorm, name: str, x_BTC: Tensor) -> Tensor:
    """Apply LayerNorm in a scope of the given name."""
    with scope(name):
        y_BTC: Tensor = norm(x_BTC)
        return y_BTC


def rope(x_BTHD: Tensor, cos_T1d: Tensor, sin_T1d: Tensor) -> Tensor:
    """Rotate the pairs (i, i + D/2) of each head by the angles of the position."""
    first, second = x_BTHD.chunk(2, dim=-1)
    return torch.cat(
        [
            torch.addcmul(first * cos_T1d, second, sin_T1d, value=-1),
            torch.addcmul(second * cos_T1d, first, sin_T1d),
        ],
        dim=-1,
    )


def patches(images_BHWC: Tensor, size: int) -> Tensor:
    """Return the patches from left to right and from top to bottom, [B, N, P]; their pixels stay in this order."""
    batch_size, height, width, channels = images_BHWC.shape
    tiles = images_BHWC.view(batch_size, height // size, size, width // size, size, channels).transpose(2, 3)
    return tiles.reshape(batch_size, -1, size * size * channels)


def swiglu(gate_up: Tensor) -> Tensor:
    """Return silu(gate)·up of the two halves of the last axis."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def cross_entropy(logits_V: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy, in fp32 or fp64."""
    with scope("loss"):
        sum_dtype = torch.promote_types(logits_V.dtype, torch.float32)
        return F.cross_entropy(logits_V.flatten(0, -2).to(sum_dtype), targets.flatten())
