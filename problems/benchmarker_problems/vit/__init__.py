"""ViT, the vision transformer: pre-LN encoder of image patches and a class token, with learned positions, exact GELU.

As published (Dosovitskiy et al., 2021) and fine-tuned: the head on the class token is one product. Without dropout.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Published, Work, hookimpl
from benchmarker_problems.attention import IMPL_HELP, Impl
from benchmarker_problems.layers import (
    DERIVED,
    Shapes,
    block_shapes,
    fill,
    linear_shapes,
    norm_shapes,
    require_multiples,
    size_of,
)
from benchmarker_problems.layers.data import draw, labelled_images
from benchmarker_problems.layers.reference import cross_entropy
from benchmarker_problems.layers.work import (
    Layers,
    block_flops,
    block_parts,
    block_recomputed_flops,
    block_scopes,
    times,
    update,
)
from benchmarker_problems.steps import (
    ADAMW,
    MICROBATCHES_HELP,
    RECOMPUTE_HELP,
    refuse_without_backward,
    step_scopes,
    steps_title,
)
from benchmarker_problems.steps.reference import steps
from benchmarker_problems.vit.reference import forward

Size = Literal["b16", "l16"]
SIZES: Mapping[Size, Mapping[str, int]] = {
    "b16": {"n_layer": 12, "d_model": 768, "n_head": 12, "patch_size": 16},
    "l16": {"n_layer": 24, "d_model": 1024, "n_head": 16, "patch_size": 16},
}
"""ViT-B/16 and ViT-L/16 (Dosovitskiy et al., 2021, table 1)."""
NAMES: Mapping[Size, str] = {"b16": "ViT-B/16", "l16": "ViT-L/16"}
CHANNELS = 3
CLASSES = 1000

_TORCHVISION = "torchvision's documentation of vit_b_16 and vit_l_16; its GFLOPS are multiply-adds"


@dataclass(frozen=True)
class Vit(Problem):
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

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "b16"
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, a multiple of n_head")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="attention heads")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP; 4·d_model if omitted")] = DERIVED
    patch_size: Annotated[int, Meta(ge=1, description="height and width of a patch in pixels")] = DERIVED
    image_size: Annotated[int, Meta(ge=1, description="height and width of an image, a multiple of patch_size")] = 224
    classes: Annotated[int, Meta(ge=2, description="number of classes")] = CLASSES
    batch_size: Annotated[int, Meta(ge=1, description="images per step")] = 1
    impl: Annotated[Impl, Meta(description=IMPL_HELP)] = "matmul"
    recompute: Annotated[bool, Meta(description=RECOMPUTE_HELP)] = False
    microbatches: Annotated[int, Meta(ge=1, description=MICROBATCHES_HELP)] = 1

    def __post_init__(self) -> None:
        fill(self, SIZES[self.size])
        fill(self, {"d_ff": 4 * self.d_model})
        require_multiples(self, d_model="n_head", image_size="patch_size", batch_size="microbatches")

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

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head

    def title(self, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads, patches of P pixels unless it is published), the mode and B."""
        sizes = {name: getattr(self, name) for name in SIZES[self.size]}
        own = f"ViT L={self.n_layer} d={self.d_model} H={self.n_head} P={self.patch_size}"
        size = NAMES[self.size] if sizes == SIZES[self.size] else own
        inner = "" if self.d_ff == 4 * self.d_model else f" d_ff={self.d_ff}"
        classes = "" if self.classes == CLASSES else f" {self.classes} classes"
        impl = "" if self.impl == Vit.impl else f" {self.impl}"
        steps = steps_title(recompute=self.recompute, microbatches=self.microbatches)
        what = mode.replace("forward_backward", "fwd+bwd")
        return f"{size}{inner}{classes} {what}, B={self.batch_size} {self.image_size}×{self.image_size}{impl}{steps}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks."""
        blocks = dict.fromkeys(block_scopes(self.impl), self.n_layer)
        scopes = {"patch_embed": 1, "embed": 1, **blocks, "ln_f": 1, "head": 1}
        return step_scopes(scopes, mode, self.microbatches)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the work; the backward pass has two products for each of the forward pass, but images no gradient."""
        types = PRECISIONS[precision]
        patches = 2 * self.batch_size * self.patches * self.patch_len * self.d_model
        blocks = self.n_layer * block_flops(self.batch_size * self.seq_len, self.seq_len, self.d_model, self.d_ff)
        flops = patches + blocks + 2 * self.batch_size * self.d_model * self.classes
        weights = self.parameter_count() * types.parameter_bytes
        images_bytes = self.batch_size * CHANNELS * self.image_size**2 * types.parameter_bytes
        targets_bytes, logits_bytes = 4 * self.batch_size, self.batch_size * self.classes * types.compute_bytes
        moved = {
            "inference": weights + images_bytes + logits_bytes,
            "forward_backward": 2 * weights + images_bytes + targets_bytes,
            "training": ADAMW.WEIGHTS_MOVED * weights + images_bytes + targets_bytes,
        }
        return Cost(
            flops=flops if mode == "inference" else 3 * flops - patches, bytes=moved[mode], samples=self.batch_size
        )

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        backward = mode != "inference"
        batch_size = self.batch_size // self.microbatches
        rows = (batch_size * self.patches, batch_size * self.seq_len, batch_size)
        patches, layers, images = (Layers(each, precision, backward) for each in rows)
        parts = {
            "patch_embed": patches.first_linear(self.patch_len, self.d_model),
            "embed": layers.part(
                0,
                read=patches.rows * self.d_model,
                written=layers.rows * self.d_model,
                weights=(self.seq_len + 1) * self.d_model,
            ),
            **times(self.n_layer, block_parts(layers, self.seq_len, self.d_model, self.n_head, self.d_ff, self.impl)),
            "ln_f": images.norm(self.d_model),
            "head": images.linear(self.d_model, self.classes),
            "loss": images.pointwise(self.classes, 0),
        }
        optimizer = update(ADAMW.WEIGHTS_MOVED * self.parameter_count() * layers.weight_bytes)
        parts = {**times(self.microbatches, parts), "optimizer": optimizer}
        return {name: parts[name] for name in self.scopes(mode)}

    def refuse(self, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass."""
        refuse_without_backward(mode, recompute=self.recompute, microbatches=self.microbatches)

    def parameter_count(self) -> int:
        """Return the number of weights."""
        return size_of(self.weight_shapes())

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights as for GPT-2, random biases and gains too, and images that can be told apart."""
        weights = draw(self.weight_shapes(), precision, rng, residuals=2 * self.n_layer)
        return Data(weights, labelled_images(self.batch_size, self.image_size, self.classes, rng, batches))

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ; every fused kernel supports a head size of 16."""
        return replace(
            self,
            n_layer=min(self.n_layer, 2),
            d_model=48,
            n_head=3,
            d_ff=160,
            patch_size=4,
            image_size=20,
            classes=7,
            batch_size=5 * self.microbatches,
        )

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the logits; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        return steps(
            data,
            mode,
            "logits",
            lambda weights, batch: forward(weights, batch["images"].astype(np.float64), self),
            lambda logits_BK, batch: cross_entropy(logits_BK, batch["targets"]),
        )

    def recomputed_flops(self, *, scores: bool) -> int:
        """Return the FLOPs that a backward pass repeats in the blocks; `scores`: fused kernels repeat Q·Kᵀ."""
        tokens = self.batch_size * self.seq_len
        return self.n_layer * block_recomputed_flops(
            tokens, self.seq_len, self.d_model, self.d_ff, scores=scores, recompute=self.recompute
        )

    def weight_shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
        shapes: Shapes = {
            **linear_shapes("patch_embed", self.patch_len, self.d_model),
            "class_token": (self.d_model,),
            "wpe": (self.seq_len, self.d_model),
        }
        for layer in range(self.n_layer):
            shapes |= block_shapes(f"h.{layer}", self.d_model, self.d_ff)
        return shapes | norm_shapes("ln_f", self.d_model) | linear_shapes("head", self.d_model, self.classes)


@hookimpl
def define_problem() -> type[Problem]:
    """Return the ViT problem."""
    return Vit
