"""ViT in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Shapes: B batch, H height, W width, N patches, P numbers of a patch, T tokens, C width of the model, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarker_problems.attention import Impl
from benchmarker_problems.layers.reference import (
    Gradients,
    Weights,
    blocks,
    gelu,
    layer_norm,
    linear,
    patches,
    pre_norm,
    prefixed,
    select,
    transformer_block,
)

if TYPE_CHECKING:
    from benchmarker_problems.vit import Vit

LAYER_NORM_EPS = 1e-6
"""As in the authors' code and in torchvision; transformers has 1e-12."""


def forward(
    weights: Weights, images_BHW3: np.ndarray, problem: Vit, impl: Impl = "einsum"
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits, [B, K], and the function from their gradient to the gradient of each weight."""
    patches_BNC, patch_pullback = linear(patches(images_BHW3, problem.patch_size), select(weights, "patch_embed"))
    class_B1C = np.broadcast_to(weights["class_token"], (len(patches_BNC), 1, problem.d_model))
    x_BTC = np.concatenate([class_B1C, patches_BNC], axis=1) + weights["wpe"]
    block = partial(
        transformer_block, residual=pre_norm, activation=gelu, eps=LAYER_NORM_EPS, n_head=problem.n_head, impl=impl
    )
    x_BTC, blocks_pullback = blocks(x_BTC, weights, problem.n_layer, block)
    normed_BC, ln_f_pullback = layer_norm(x_BTC[:, 0], select(weights, "ln_f"), LAYER_NORM_EPS)
    logits_BK, head_pullback = linear(normed_BC, select(weights, "head"))

    def to_weights(d_logits_BK: np.ndarray) -> Gradients:
        d_normed_BC, d_head = head_pullback(d_logits_BK)
        d_x_BTC = np.zeros_like(x_BTC)
        d_x_BTC[:, 0], d_ln_f = ln_f_pullback(d_normed_BC)
        gradients = prefixed("ln_f", d_ln_f) | prefixed("head", d_head)
        d_x_BTC, d_blocks = blocks_pullback(d_x_BTC)
        gradients |= d_blocks
        _, d_patch_embed = patch_pullback(d_x_BTC[:, 1:])
        gradients |= {"class_token": d_x_BTC[:, 0].sum(axis=0), "wpe": d_x_BTC.sum(axis=0)}
        return gradients | prefixed("patch_embed", d_patch_embed)

    return logits_BK, to_weights
