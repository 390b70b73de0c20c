"""ViT, the vision transformer: pre-LN encoder of image patches and a class token, with learned positions, exact GELU.

As published (Dosovitskiy et al., 2021) and fine-tuned: the head on the class token is one product. Without dropout.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import Data, Mode, Precision, Problem, Published, Work, hookimpl
from benchmarker_problems.layers import DERIVED, Shapes
from benchmarker_problems.layers.data import draw, labelled_images
from benchmarker_problems.layers.layer import Attention, Layer, Linear, Moved, Norm, Patches
from benchmarker_problems.layers.model import Model, Stage, transformer_block
from benchmarker_problems.layers.reference import Gradients, Pullback, Weights, gelu
from benchmarker_problems.layers.transformer import Blocks, Heads, InnerWidth, Transformer, Width
from benchmarker_problems.layers.work import RowWork

Size = Literal["b16", "l16"]
SIZES: Mapping[Size, Mapping[str, int]] = {
    "b16": {"n_layer": 12, "d_model": 768, "n_head": 12, "patch_size": 16},
    "l16": {"n_layer": 24, "d_model": 1024, "n_head": 16, "patch_size": 16},
}
"""ViT-B/16 and ViT-L/16 (Dosovitskiy et al., 2021, table 1)."""
NAMES: Mapping[Size, str] = {"b16": "ViT-B/16", "l16": "ViT-L/16"}
CHANNELS = 3
CLASSES = 1000
LAYER_NORM_EPS = 1e-6
"""As in the authors' code and in torchvision; transformers has 1e-12."""

_TORCHVISION = "torchvision's documentation of vit_b_16 and vit_l_16; its GFLOPS are multiply-adds"


@dataclass(frozen=True)
class Vit(Transformer):
    """ViT: forward only, forward and backward, or training with AdamW.

    `inference` returns the logits of every class. The loss is the mean cross-entropy.
    """

    summary = "ViT image classifier: logits, loss and gradients, or an AdamW step"
    accelerator = {"batch_size": 64, "impl": "fused"}
    published = (
        Published({"size": "b16"}, _TORCHVISION, parameters=86_567_656, flops=2 * 17.564e9),
        Published({"size": "l16"}, _TORCHVISION, parameters=304_326_632, flops=2 * 61.555e9),
    )
    cost_formula = (
        "flops = 2·B·(N·3·patch²·d_model + T·L·(4·d_model² + 2·d_model·d_ff + 2·T·d_model) + d_model·classes) with "
        "N = (image/patch)² patches and T = N + 1 tokens, 3 times that with backward, but 2 times for the patches\n"
        "bytes = weights, images and logits once; 2·weights with backward; 7·weights with AdamW's two moments"
    )

    input = "images"

    sizes = SIZES
    dimensions = (*Transformer.dimensions, "patch_size")
    multiples = {**Transformer.multiples, "image_size": "patch_size"}

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "b16"
    n_layer: Blocks = DERIVED
    d_model: Width = DERIVED
    n_head: Heads = DERIVED
    d_ff: InnerWidth = DERIVED
    patch_size: Annotated[int, Meta(ge=1, description="height and width of a patch in pixels")] = DERIVED
    image_size: Annotated[int, Meta(ge=1, description="height and width of an image, a multiple of patch_size")] = 224
    classes: Annotated[int, Meta(ge=2, description="number of classes")] = CLASSES
    batch_size: Annotated[int, Meta(ge=1, description="images per step")] = 1

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def seq_len(self) -> int:
        """Tokens of an image: its patches and the class token."""
        return self.patches + 1

    @property
    def patch_len(self) -> int:
        """Numbers in a patch."""
        return CHANNELS * self.patch_size**2

    def size_title(self) -> str:
        """Return the size, or its dimensions and patches of P pixels unless it is published, and what differs."""
        size = NAMES[self.size] if self.is_published() else f"ViT {self.dimensions_title()} P={self.patch_size}"
        classes = "" if self.classes == CLASSES else f" {self.classes} classes"
        return f"{size}{self.inner_title()}{classes}"

    def batch_title(self, mode: Mode) -> str:
        """Return the mode, B and the size of an image."""
        return f"{super().batch_title(mode)} {self.image_size}×{self.image_size}"

    def model(self) -> Model:
        """Return the layers of a microbatch: of its patches, its tokens, and its images."""
        batch_size, d_model = self.batch_size // self.microbatches, self.d_model
        tokens = batch_size * self.seq_len
        attention = Attention(self.impl, self.n_head, self.n_head, self.head_dim, self.seq_len, self.seq_len)
        block = transformer_block(d_model, (attention,), self.d_ff, gelu, LAYER_NORM_EPS)
        patch_embed = Patches(self.patch_size), Linear("patch_embed", self.patch_len, d_model, of_data=True)
        head = OfClassToken(), Norm("ln_f", d_model, LAYER_NORM_EPS), Linear("head", d_model, self.classes)
        return Model(
            (
                Stage(batch_size * self.patches, patch_embed),
                Stage(tokens, (ClassToken(self.seq_len, d_model),)),
                Stage(tokens, block, self.n_layer, unrepeated="mlp_proj"),
                Stage(batch_size, head),
            ),
            loss=Stage(batch_size, (Moved("loss", self.classes),)),
        )

    def data_bytes(self, mode: Mode, types: Precision) -> int:
        """Return the bytes of the images, and of the logits or the targets."""
        images_bytes = self.batch_size * CHANNELS * self.image_size**2 * types.parameter_bytes
        logits_bytes = self.batch_size * self.classes * types.compute_bytes
        return images_bytes + (logits_bytes if mode == "inference" else 4 * self.batch_size)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights as for GPT-2, random biases and gains too, and images that can be told apart."""
        weights = draw(self.weight_shapes(), precision, rng, residuals=2 * self.n_layer)
        return Data(weights, labelled_images(self.batch_size, self.image_size, self.classes, rng, batches))

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ."""
        return replace(super().small(), patch_size=4, image_size=20, classes=7, batch_size=5 * self.microbatches)


@dataclass(frozen=True)
class ClassToken(Layer):
    """A class token before the patches [B, N, C] of each image, and the positions: [B, T, C]."""

    seq_len: int
    width: int

    def shapes(self) -> Shapes:
        """Return the class token and the positions."""
        return {"class_token": (self.width,), "wpe": (self.seq_len, self.width)}

    def parts(self, at: RowWork) -> Mapping[str, Work]:
        """Return what is read and written."""
        patches = at.rows - at.rows // self.seq_len
        weights = (self.seq_len + 1) * self.width
        return {"embed": at.part(0, read=patches * self.width, written=at.rows * self.width, weights=weights)}

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the tokens."""
        class_B1C = np.broadcast_to(weights["class_token"], (len(x), 1, self.width))

        def pullback(d_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            return d_BTC[:, 1:], {"class_token": d_BTC[:, 0].sum(axis=0), "wpe": d_BTC.sum(axis=0)}

        return np.concatenate([class_B1C, x], axis=1) + weights["wpe"], pullback


class OfClassToken(Layer):
    """The class token of each image, [B, C]."""

    def forward(self, x: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
        """Return the first of the tokens [B, T, C]."""

        def pullback(d_BC: np.ndarray) -> tuple[np.ndarray, Gradients]:
            d_BTC = np.zeros_like(x)
            d_BTC[:, 0] = d_BC
            return d_BTC, {}

        return x[:, 0], pullback


@hookimpl
def define_problem() -> type[Problem]:
    """Return the ViT problem."""
    return Vit
