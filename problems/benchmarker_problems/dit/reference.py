"""The layers that only DiT has, and its tables: in NumPy, with a handwritten backward pass.

Shapes: B batch, H height, W width, L channels of a latent, E of a prediction, S patches in a row and in a column, N all
patches, C width of the model, T time steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from benchmarker import Work
from benchmarker_problems.layers import Shapes
from benchmarker_problems.layers.layer import Layer, Linear, chain, parts_of, shapes_of
from benchmarker_problems.layers.reference import (
    Function,
    Gradients,
    Pullback,
    Weights,
    embedding,
    layer_norm,
    patches,
    recomputed,
    rope_tables,
    silu,
    sum_of_rows,
)
from benchmarker_problems.layers.work import RowWork

LATENT_CHANNELS = 4
LAYER_NORM_EPS = 1e-6
TIMESTEPS = 1000
FREQUENCIES = 256
"""Sines and cosines by which a time step is given to the model."""
PERIOD = 10_000.0
"""The longest period of sines and cosines, divided by 2π."""


@dataclass(frozen=True)
class Positions(Layer):
    """The fixed positions of the patches, added to them."""

    side: int
    width: int

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return patches [B, N, C] with their positions."""
        return x + position_table(self.side, self.width).astype(x.dtype), lambda d_x: (d_x, {})


class TimeWaves(Layer):
    """Cosines and sines of time steps."""

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the rows of time steps [B] in the table, [B, 256]."""
        return time_table()[x].astype(weights["label_embed"].dtype), lambda _: (np.empty(0), {})


@dataclass(frozen=True)
class LabelEmbedding(Layer):
    """SiLU of the sum of what time step and label give: the condition, the input of every modulation."""

    rows: int
    width: int

    def shapes(self) -> Shapes:
        """Return the table of the labels."""
        return {"label_embed": (self.rows, self.width)}

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return what is read and written, with a row of the table for each label."""
        return {"label_embed": at.pointwise(self.width, self.width, weights=at.rows * self.width)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the condition, [B, C]."""
        label_BC, to_table = embedding(weights["label_embed"], weights["labels"])
        condition_BC, silu_pullback = silu(x + label_BC)

        def pullback(d_condition_BC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_sum_BC = silu_pullback(d_condition_BC)
            return d_sum_BC, {"label_embed": to_table(d_sum_BC)}

        return condition_BC, pullback


@dataclass(frozen=True)
class Adapted(Layer):
    """Layers that a modulation adapts, a product of the `condition` of each image; its rows are the patches of images.

    A block has two branches, each with a norm; the modulation has shift, scale and gate of each. A branch adds
    gate·branch(norm(x)·(1 + scale) + shift) to x. An empty branch is only the norm with shift and scale.
    """

    modulation: str
    width: int
    seq_len: int
    branches: Mapping[str, tuple[Layer, ...]]
    """The layers of each branch by the name of its norm."""

    @property
    def product(self) -> Linear:
        """The product of the condition."""
        parts = sum(3 if branch else 2 for branch in self.branches.values())
        return Linear(self.modulation, self.width, parts * self.width)

    def shapes(self) -> Shapes:
        """Return those of the modulation and of the branches."""
        return shapes_of((self.product, *(layer for branch in self.branches.values() for layer in branch)))

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return the modulation, on images; then each norm, and its branch, whose end has the gate."""
        images = replace(at, rows=at.rows // self.seq_len)
        hidden, condition = at.rows * self.width, images.rows * self.width
        parts = dict(self.product.parts(images))
        for norm, branch in self.branches.items():
            parts[norm] = at.part(0, read=hidden + 2 * condition, written=hidden)
            parts |= parts_of(branch, at)
            if branch:
                parts[next(reversed(parts))] += at.part(0, read=condition, written=0)
        return parts

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return what the branches give of patches [B, N, C].

        The pullback gives the gradient of `condition` with those of the weights.
        """
        modulation_BE, modulation_pullback = self.product.forward(weights["condition"], weights)
        shares_B1E = np.split(modulation_BE[:, None], len(self.branches), axis=-1)
        pullbacks = []
        for share_B1E, branch in zip(shares_B1E, self.branches.values(), strict=True):
            adapted = gated(share_B1E, branch, weights) if branch else shifted(share_B1E)
            x, pullback = recomputed(adapted)(x)
            pullbacks.append(pullback)

        def chained(d_x: np.ndarray) -> tuple[np.ndarray, Gradients]:
            total: Gradients = {}
            d_shares_B1E = []
            for pullback in reversed(pullbacks):
                d_x, gradients = pullback(d_x)
                d_shares_B1E.append(gradients.pop("modulation"))
                total |= gradients
            d_modulation_B1E = np.concatenate(d_shares_B1E[::-1], axis=-1)
            d_condition_BC, d_product = modulation_pullback(d_modulation_B1E[:, 0])
            return d_x, total | d_product | {"condition": d_condition_BC}

        return x, chained


def gated(modulation_B1E: np.ndarray, branch: tuple[Layer, ...], weights: Weights) -> Function:
    """Return x + gate·branch(adaptive_norm(x, shift, scale)) as a layer whose weights include the `modulation`."""
    shift_B1C, scale_B1C, gate_B1C = np.split(modulation_B1E, 3, axis=-1)

    def forward(x_BNC: np.ndarray) -> tuple[np.ndarray, Pullback]:
        h_BNC, norm_pullback = adaptive_norm(x_BNC, shift_B1C, scale_B1C)
        y_BNC, branch_pullback = chain(branch, h_BNC, weights)

        def pullback(d_BNC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_h_BNC, gradients = branch_pullback(d_BNC * gate_B1C)
            d_x_BNC, *d_modulation = norm_pullback(d_h_BNC)
            d_modulation.append(sum_of_rows(d_BNC * y_BNC)[:, None])
            return d_BNC + d_x_BNC, gradients | {"modulation": np.concatenate(d_modulation, axis=-1)}

        return x_BNC + gate_B1C * y_BNC, pullback

    return forward


def shifted(modulation_B1E: np.ndarray) -> Function:
    """Return adaptive_norm(x, shift, scale) as a layer whose weight is the `modulation`."""

    def forward(x_BNC: np.ndarray) -> tuple[np.ndarray, Pullback]:
        y_BNC, norm_pullback = adaptive_norm(x_BNC, *np.split(modulation_B1E, 2, axis=-1))

        def pullback(d_y_BNC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_x_BNC, *d_modulation = norm_pullback(d_y_BNC)
            return d_x_BNC, {"modulation": np.concatenate(d_modulation, axis=-1)}

        return y_BNC, pullback

    return forward


@dataclass(frozen=True)
class Joined(Layer):
    """The patches as an image."""

    side: int
    patch_size: int

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the image, [B, H, W, E]."""
        return joined(x, self.side, self.patch_size), lambda d_BHWE: (patches(d_BHWE, self.patch_size), {})


def adaptive_norm(
    x_BNC: np.ndarray, shift_B1C: np.ndarray, scale_B1C: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Return LayerNorm(x)·(1 + scale) + shift; LayerNorm has no weights of its own."""
    one, zero = np.ones(1, x_BNC.dtype), np.zeros(1, x_BNC.dtype)
    unit_BNC, unit_pullback = layer_norm(x_BNC, {"scale": one, "bias": zero}, LAYER_NORM_EPS)

    def pullback(d_y_BNC: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        d_x_BNC, _ = unit_pullback(d_y_BNC * (1 + scale_B1C))
        d_scale_B1C = sum_of_rows(d_y_BNC * unit_BNC)[:, None]
        return d_x_BNC, sum_of_rows(d_y_BNC)[:, None], d_scale_B1C

    return unit_BNC * (1 + scale_B1C) + shift_B1C, pullback


def joined(tiles_BNP: np.ndarray, side: int, patch_size: int) -> np.ndarray:
    """Return the image of which these are the patches, [B, H, W, E]."""
    size = side * patch_size
    tiles = tiles_BNP.reshape(-1, side, side, patch_size, patch_size, 2 * LATENT_CHANNELS)
    return tiles.swapaxes(2, 3).reshape(-1, size, size, 2 * LATENT_CHANNELS)


def noise_loss(prediction_BHWE: np.ndarray, noise_BHWL: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean squared error of the predicted noise, and its gradient: that of sigma is zero."""
    difference_BHWL = prediction_BHWE[..., :LATENT_CHANNELS] - noise_BHWL
    d_prediction_BHWE = np.zeros_like(prediction_BHWE)
    d_prediction_BHWE[..., :LATENT_CHANNELS] = 2 * difference_BHWL / difference_BHWL.size
    return np.square(difference_BHWL).mean(), d_prediction_BHWE


@cache
def time_table() -> np.ndarray:
    """Return cosines and sines of every time step, [T, 256], in float64: their angles are too large for fp32."""
    return np.concatenate(rope_tables(TIMESTEPS, FREQUENCIES, PERIOD), axis=-1)


@cache
def position_table(side: int, width: int) -> np.ndarray:
    """Return sines and cosines of the column of each patch, then those of its row, [N, C], as in the authors' code."""
    cos_SD, sin_SD = rope_tables(side, width // 2, PERIOD)
    line_SE = np.concatenate([sin_SD, cos_SD], axis=-1)
    column_SSE, row_SSE = np.broadcast_to(line_SE, (side, *line_SE.shape)), np.repeat(line_SE[:, None], side, axis=1)
    return np.concatenate([column_SSE, row_SSE], axis=-1).reshape(side * side, width)
