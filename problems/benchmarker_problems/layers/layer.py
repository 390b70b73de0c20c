"""Layers of models: of each the shapes of its weights, its work by scope, and its result in NumPy.

Shapes: B batch, T sequence, H heads, K those of keys and values, D head dimension, C width, E width of queries, keys
and values; V vocabulary; `...` any axes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, TypeVar

import numpy as np

from benchmarker import Piece, Work
from benchmarker_problems.layers import Impl, Shapes, linear_shapes, norm_shapes
from benchmarker_problems.layers.reference import (
    Activation,
    Gradients,
    Pullback,
    Weights,
    attend,
    causal_bias,
    embedding,
    layer_norm,
    linear,
    patches,
    prefixed,
    rms_norm,
    rope,
    rope_tables,
    rows_of,
    select,
    sum_of_rows,
)
from benchmarker_problems.layers.work import RowWork

T = TypeVar("T")

SCORES = ("attn_q_k", "attn_softmax", "attn_att_v", "attn_fused")
"""Scopes of attention in any implementation: half of their FLOPs are those of Q·Kᵀ."""


class Applied(Protocol):
    """A layer, or several as one, in NumPy."""

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """See `Layer.forward`."""


class Layer(ABC):
    """A layer of a model."""

    def shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use."""
        return {}

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the work of every scope on so many rows, in order; nothing if only shapes change."""
        return {}

    def pieces(self, rows: int) -> Iterable[Piece]:
        """Return what of the layer on so many rows another problem measures alone; by default nothing."""
        return ()

    @abstractmethod
    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the result, and the function from its gradient to that of `x` and of each weight.

        The arrays of the batch are among the weights, and have no gradient.
        """


@dataclass(frozen=True)
class Linear(Layer):
    """x·kernel + bias; the data of a batch (`of_data`) needs no gradient, and a `residual` is added afterwards."""

    name: str
    inputs: int
    outputs: int
    bias: bool = True
    residual: bool = False
    of_data: bool = False

    def shapes(self) -> Shapes:
        """Return the kernel, [inputs, outputs], and the bias."""
        return linear_shapes(self.name, self.inputs, self.outputs, bias=self.bias)

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the product."""
        if self.of_data:
            return {self.name: at.first_linear(self.inputs, self.outputs)}
        return {self.name: at.linear(self.inputs, self.outputs, residual=self.residual)}

    def pieces(self, rows: int) -> Iterable[Piece]:
        """Return the product; that of a batch's data has one product less in the backward pass than a `gemm`."""
        options = {"m": rows, "n": self.outputs, "k": self.inputs}
        return [] if self.of_data else [Piece((self.name,), "gemm", options)]

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the product; adding the residual is not part of it."""
        y, pullback = linear(x, select(weights, self.name))
        return y, prefixing(self.name, pullback)


@dataclass(frozen=True)
class TiedHead(Layer):
    """x·wteᵀ, and a bias of its own if it has a name: logits by the weights of the embedding, which has their shape."""

    name: str
    d_model: int
    vocab_size: int
    bias: str | None = None

    def shapes(self) -> Shapes:
        """Return the bias."""
        return {self.bias: (self.vocab_size,)} if self.bias else {}

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the product; an embedding is not quantised."""
        return {self.name: replace(at, weight_type="full").linear(self.d_model, self.vocab_size)}

    def pieces(self, rows: int) -> Iterable[Piece]:
        """Return the product with the embedding, which is stored by output."""
        options = {"m": rows, "n": self.vocab_size, "k": self.d_model, "transpose_b": True}
        return [Piece((self.name,), "gemm", options)]

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the logits, [..., V]."""
        bias = {"bias": weights[self.bias]} if self.bias else {}
        logits_V, linear_pullback = linear(x, {"kernel": weights["wte"].T, **bias})

        def pullback(d_logits_V: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_x, gradients = linear_pullback(d_logits_V)
            d_bias = {self.bias: gradients["bias"]} if self.bias else {}
            return d_x, {"wte": gradients["kernel"].T, **d_bias}

        return logits_V, pullback


@dataclass(frozen=True)
class Norm(Layer):
    """LayerNorm with gain and bias, or without a bias RMSNorm."""

    name: str
    width: int
    eps: float
    bias: bool = True

    def shapes(self) -> Shapes:
        """Return the gain, and the bias."""
        return norm_shapes(self.name, self.width, bias=self.bias)

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the normalisation."""
        return {self.name: at.norm(self.width, bias=self.bias)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the normalised rows."""
        y, pullback = (layer_norm if self.bias else rms_norm)(x, select(weights, self.name), self.eps)
        return y, prefixing(self.name, pullback)


@dataclass(frozen=True)
class Pointwise(Layer):
    """A function without weights, from so many elements of each row to so many others.

    Without a name, its work belongs to the layer before it.
    """

    name: str | None
    function: Activation
    inputs: int = 0
    outputs: int = 0

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return what is read and written."""
        return {self.name: at.pointwise(self.inputs, self.outputs)} if self.name else {}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the values of the function."""
        y, pullback = self.function(x)
        return y, lambda d_y: (pullback(d_y), {})


@dataclass(frozen=True)
class Moved(Layer):
    """Elements of each row that are read and written beside a model: its result stays as it is.

    Of these, `cached` are kept from step to step.
    """

    name: str
    read: int
    written: int = 0
    cached: int = 0

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return what is read and written."""
        rows = at.rows
        return {self.name: at.part(0, read=rows * self.read, written=rows * self.written, cached=rows * self.cached)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the rows."""
        return x, lambda d_x: (d_x, {})


@dataclass(frozen=True)
class Embedding(Layer):
    """The rows of the tokens in a table `wte`; with positions also those of `wpe`, and with types the first of `wtt`.

    A sequence has `seq_len` positions, from `first_position` on. The gradient of tokens is nothing.
    """

    vocab_size: int
    d_model: int
    seq_len: int = 0
    positions: int = 0
    first_position: int = 0
    types: int = 0

    def shapes(self) -> Shapes:
        """Return the tables."""
        rows = {"wte": self.vocab_size, "wpe": self.positions, "wtt": self.types}
        return {name: (count, self.d_model) for name, count in rows.items() if count}

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return what is written, with a row of the table for each token; positions and types are read once."""
        rows = at.rows + (self.seq_len if self.positions else 0) + (self.types > 0)
        return {"embed": at.pointwise(0, self.d_model, weights=rows * self.d_model)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the sum of the rows of tokens [B, T], their positions and their type, [B, T, C]."""
        places = slice(self.first_position, self.first_position + x.shape[1])
        x_BTC, table_pullback = embedding(weights["wte"], x)
        if self.positions:
            x_BTC = x_BTC + weights["wpe"][places]
        if self.types:
            x_BTC = x_BTC + weights["wtt"][0]

        def pullback(d_x_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            gradients = {"wte": table_pullback(d_x_BTC)}
            if self.positions:
                gradients["wpe"] = np.zeros_like(weights["wpe"])
                gradients["wpe"][places] = d_x_BTC.sum(axis=0)
            if self.types:
                gradients["wtt"] = np.zeros_like(weights["wtt"])
                gradients["wtt"][0] = sum_of_rows(rows_of(d_x_BTC))
            return np.empty(0), gradients

        return x_BTC, pullback


@dataclass(frozen=True)
class Patches(Layer):
    """Images [B, H, W, channels] as patches of so many pixels in height and width, [B, N, numbers of a patch]."""

    size: int

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the patches in the type of the weights; images need no gradient."""
        return patches(x.astype(weights["patch_embed.kernel"].dtype), self.size), lambda _: (np.empty(0), {})


@dataclass(frozen=True)
class Rope(Layer):
    """Rotary positions of queries and keys, within the heads [queries, keys, values] of the last axis."""

    heads: int
    kv_heads: int
    head_dim: int
    theta: float

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the rotation of queries and keys."""
        rotated = (self.heads + self.kv_heads) * self.head_dim
        return {"rope": at.pointwise(rotated, rotated)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return [B, T, E] with queries and keys rotated by the angle of their position."""
        by_head = (*x.shape[:2], -1, self.head_dim)
        rotated = self.heads + self.kv_heads
        tables = rotations(x.shape[1], self.head_dim, self.theta)

        def by_kind(x_BTE: np.ndarray) -> list[np.ndarray]:
            return np.split(x_BTE.reshape(by_head), [rotated], axis=2)

        first_BTHD, values_BTKD = by_kind(x)
        first_BTHD, rope_pullback = rope(first_BTHD, *tables)

        def pullback(d_BTE: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_first_BTHD, d_values_BTKD = by_kind(d_BTE)
            return np.concatenate([rope_pullback(d_first_BTHD), d_values_BTKD], axis=2).reshape(x.shape), {}

        return np.concatenate([first_BTHD, values_BTKD], axis=2).reshape(x.shape), pullback


@dataclass(frozen=True)
class Attention(Layer):
    """Attention of queries, keys and values that lie side by side in the last axis; several queries may share a key.

    `tokens` of each sequence attend to `keys` positions in the mean, of which the first are in a cache (`cached`) that
    has `room` for so many positions, unless it is in pages.
    """

    impl: Impl
    heads: int
    kv_heads: int
    head_dim: int
    tokens: int
    keys: float
    causal: bool = False
    cached: bool = False
    room: int | None = None

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the two products and the softmax, or one scope if they are fused."""
        queries = at.rows * self.heads
        rows = queries * self.head_dim
        kv_rows = int(at.rows // self.tokens * self.keys * self.kv_heads * self.head_dim)
        scores, flops = int(queries * self.keys), int(2 * queries * self.keys * self.head_dim)
        cached = kv_rows if self.cached else 0
        if self.impl == "fused":
            return {"attn_fused": at.part(2 * flops, read=rows + 2 * kv_rows, written=rows, cached=2 * cached)}
        return {
            "attn_q_k": at.part(flops, read=rows + kv_rows, written=scores, cached=cached),
            "attn_softmax": at.part(0, read=scores, written=scores),
            "attn_att_v": at.part(flops, read=scores + kv_rows, written=rows, cached=cached),
        }

    def pieces(self, rows: int) -> Iterable[Piece]:
        """Return the attention of whole sequences, or to the mean position of a cache that is not in pages."""
        lengths = {"seq_len": self.tokens}
        if self.cached:
            if self.room is None:
                return []
            lengths = {"seq_len": self.room, "depth": round(self.keys) - 1}
        heads = {"heads": self.heads, "kv_heads": self.kv_heads, "head_dim": self.head_dim}
        options = {"batch_size": rows // self.tokens, **heads, **lengths, "causal": self.causal, "impl": self.impl}
        return [Piece(tuple(self.parts(RowWork(rows, "fp32", backward=False))), "attention", options)]

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the heads, [B, T, C], of [B, T, E]."""
        batch_size, seq_len, _ = x.shape
        by_head = (batch_size, seq_len, -1, self.head_dim)
        q_BTHD, k_BTKD, v_BTKD = np.split(x.reshape(by_head), [self.heads, self.heads + self.kv_heads], axis=2)
        bias_TT = causal_mask(seq_len, x.dtype.name) if self.causal else None
        out_BTHD, attend_pullback = attend(q_BTHD, k_BTKD, v_BTKD, impl=self.impl, bias_Tt=bias_TT)

        def pullback(d_out_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_BTED = np.concatenate(attend_pullback(d_out_BTC.reshape(by_head)), axis=2)
            return d_BTED.reshape(x.shape), {}

        return out_BTHD.reshape(batch_size, seq_len, -1), pullback


@dataclass(frozen=True)
class Residual(Layer):
    """x + branch(norm(x)), or norm(x + branch(x)) if the norm comes `after`."""

    norm: Layer
    branch: tuple[Layer, ...]
    after: bool = False

    def shapes(self) -> Shapes:
        """Return those of the norm, then those of the branch."""
        return shapes_of((self.norm, *self.branch))

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return those of the norm, then those of the branch."""
        return parts_of((self.norm, *self.branch), at)

    def pieces(self, rows: int) -> Iterable[Piece]:
        """Return those of the norm, then those of the branch."""
        return [piece for layer in (self.norm, *self.branch) for piece in layer.pieces(rows)]

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the sum, or its norm."""
        if self.after:
            y, branch_pullback = chain(self.branch, x, weights)
            y, norm_pullback = self.norm.forward(x + y, weights)

            def after(d_y: np.ndarray) -> tuple[np.ndarray, Gradients]:
                d_sum, d_norm = norm_pullback(d_y)
                d_x, d_branch = branch_pullback(d_sum)
                return d_sum + d_x, d_norm | d_branch

            return y, after
        y, pullback = chain((self.norm, *self.branch), x, weights)

        def before(d_y: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_x, gradients = pullback(d_y)
            return d_y + d_x, gradients

        return x + y, before


@lru_cache(maxsize=2)
def causal_mask(seq_len: int, dtype: str) -> np.ndarray:
    """Return the bias of causal attention, which all blocks share."""
    return causal_bias(seq_len, np.dtype(dtype).type)


@lru_cache(maxsize=2)
def rotations(seq_len: int, head_dim: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the tables of rotary positions, which all blocks share."""
    return rope_tables(seq_len, head_dim, theta)


def shapes_of(layers: Iterable[Layer]) -> Shapes:
    """Return the shapes of the weights of all layers; raises `ValueError` if two have the same name."""
    return united(layer.shapes() for layer in layers)


def parts_of(layers: Iterable[Layer], at: RowWork) -> dict[str, Work]:
    """Return the work of all layers by scope; raises `ValueError` if two have the same scope."""
    return united(layer.parts(at) for layer in layers)


def united(several: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Return several mappings as one; raises `ValueError` if two have the same name."""
    whole: dict[str, T] = {}
    for one in several:
        if twice := whole.keys() & one.keys():
            raise ValueError(f"two layers have the name {min(twice)}")
        whole |= one
    return whole


def chain(layers: Iterable[Applied], x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
    """Return the result of layers that are applied one after the other; the gradients of shared weights are added."""
    pullbacks = []
    for layer in layers:
        x, pullback = layer.forward(x, weights)
        pullbacks.append(pullback)

    def chained(d_x: np.ndarray) -> tuple[np.ndarray, Gradients]:
        total: Gradients = {}
        for pullback in reversed(pullbacks):
            d_x, gradients = pullback(d_x)
            add_to(total, gradients)
        return d_x, total

    return x, chained


def add_to(total: Gradients, gradients: Gradients) -> None:
    """Add gradients to those of the same weights."""
    for name, gradient in gradients.items():
        total[name] = total[name] + gradient if name in total else gradient


def prefixing(prefix: str, pullback: Pullback) -> Pullback:
    """Return the pullback with a prefix added to the names of the weights' gradients."""

    def with_prefix(d_y: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_x, gradients = pullback(d_y)
        return d_x, prefixed(prefix, gradients)

    return with_prefix
