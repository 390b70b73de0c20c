"""DiT, the diffusion transformer: predicts the noise of a latent image from the image, the time step and the class.

As published (Peebles and Xie, 2023) for images that an autoencoder has made 8 times smaller: fixed sine-cosine
positions, blocks conditioned by adaLN-Zero, and a prediction of noise and of the sampler's variance (sigma). The
autoencoder and the sampler are not part of it; with classifier-free guidance, a sampler evaluates each image twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import Data, Mode, Precision, Problem, Published, hookimpl
from benchmarker_problems.dit.reference import (
    FREQUENCIES,
    LATENT_CHANNELS,
    TIMESTEPS,
    Adapted,
    Joined,
    LabelEmbedding,
    Positions,
    TimeWaves,
    noise_loss,
)
from benchmarker_problems.layers import DERIVED, Impl
from benchmarker_problems.layers.data import draw, labelled_images
from benchmarker_problems.layers.layer import Attention, Linear, Moved, Patches, Pointwise, chain
from benchmarker_problems.layers.model import Model, Stage, attention_and_mlp
from benchmarker_problems.layers.reference import Gradients, Weights, gelu_tanh, silu
from benchmarker_problems.layers.transformer import Blocks, Heads, InnerWidth, Transformer
from benchmarker_problems.steps import AdamW
from benchmarker_problems.steps.reference import Batch

Size = Literal["s2", "s4", "s8", "b2", "b4", "b8", "l2", "l4", "l8", "xl2", "xl4", "xl8"]
WIDTHS = {"s": (12, 384, 6), "b": (12, 768, 12), "l": (24, 1024, 16), "xl": (28, 1152, 16)}
"""Layers, width and heads (Peebles and Xie, 2023, table 1)."""
SIZES: Mapping[str, Mapping[str, int]] = {
    f"{name}{patch_size}": {"n_layer": n_layer, "d_model": d_model, "n_head": n_head, "patch_size": patch_size}
    for name, (n_layer, d_model, n_head) in WIDTHS.items()
    for patch_size in (2, 4, 8)
}
"""DiT-S/2 to DiT-XL/8; a patch has so many latent pixels in height and width."""
REDUCTION = 8
"""Pixels of an image, in height and width, for a pixel of its latent."""
CLASSES = 1000
DROPPED = 0.1
"""Share of the labels that are replaced by the null class, for classifier-free guidance."""
BETAS = (1e-4, 0.02)
"""First and last variance of the noise that a time step adds; linear between (Ho et al., 2020)."""
MODULATION = 10
"""Factor of the weights drawn for modulations; with gates of about 0.2, the blocks show in the prediction."""
LEARNING_RATE = 1e-4
"""The authors', and here that of the width of DiT-XL."""

_PAPER = "Peebles and Xie, 2023, table 4; its Gflops are multiply-adds"
_CODE = "; parameters as the authors' train.py prints them, without the fixed positions"


@dataclass(frozen=True)
class Dit(Transformer):
    """DiT: one evaluation of the denoiser, forward and backward, or training with AdamW.

    `inference` returns the prediction, [B, H, W, noise and sigma of each channel]. The loss is the mean squared error
    of the noise (Ho et al., 2020). Sigma has no part in it, so the weights of the head that compute it have a gradient
    of zero; the outputs of `inference` contain it.
    """

    summary = "DiT diffusion transformer: predicted noise, loss and gradients, or an AdamW step"
    accelerator = {"size": "xl2", "batch_size": 16, "impl": "fused"}
    published = (
        Published({"size": "s2"}, _PAPER, flops=2 * 6.06e9),
        Published({"size": "b2"}, _PAPER, flops=2 * 23.01e9),
        Published({"size": "l2"}, _PAPER, flops=2 * 80.71e9),
        Published({"size": "xl2"}, _PAPER + _CODE, parameters=675_129_632 - 256 * 1152, flops=2 * 118.64e9),
        Published({"size": "xl2", "image_size": 512}, _PAPER, flops=2 * 524.60e9),
    )
    cost_formula = (
        "flops = 2·B·(N·4·patch²·d_model + 256·d_model + d_model² + L·6·d_model² "
        "+ N·L·(4·d_model² + 2·d_model·d_ff + 2·N·d_model) + 2·d_model² + N·d_model·8·patch²) with "
        "N = (image/8/patch)² patches, 3 times that with backward, but 2 times for the first two products\n"
        "bytes = weights, latents, time steps, labels and prediction once; with backward the noise, and 2·weights; "
        "7·weights with AdamW's two moments"
    )

    output = "prediction"

    sizes = SIZES
    dimensions = (*Transformer.dimensions, "patch_size")

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "s2"
    n_layer: Blocks = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, a multiple of n_head and of 4")] = DERIVED
    n_head: Heads = DERIVED
    d_ff: InnerWidth = DERIVED
    patch_size: Annotated[int, Meta(ge=1, description="height and width of a patch in latent pixels")] = DERIVED
    image_size: Annotated[
        int, Meta(ge=1, description="height and width of an image; its latent, a multiple of patch_size, has 1/8 of it")
    ] = 256
    classes: Annotated[int, Meta(ge=2, description="number of classes, without the null class")] = CLASSES
    batch_size: Annotated[int, Meta(ge=1, description="images per step")] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % 4:
            raise ValueError(f"d_model={self.d_model} is not a multiple of 4: sine and cosine of a row and of a column")
        if self.image_size % (REDUCTION * self.patch_size):
            pixels = REDUCTION * self.patch_size
            raise ValueError(f"image_size={self.image_size} is not a multiple of {pixels}, 8·patch_size")

    @property
    def latent_size(self) -> int:
        """Height and width of a latent."""
        return self.image_size // REDUCTION

    @property
    def side(self) -> int:
        """Patches in a row and in a column."""
        return self.latent_size // self.patch_size

    @property
    def seq_len(self) -> int:
        """Patches of a latent."""
        return self.side**2

    @property
    def patch_len(self) -> int:
        """Numbers in a patch of a latent; that of a prediction, of noise and sigma, has twice as many."""
        return LATENT_CHANNELS * self.patch_size**2

    def size_title(self) -> str:
        """Return the size, or its dimensions and patches of P unless it is published, and what differs."""
        own = f"DiT {self.dimensions_title()} P={self.patch_size}"
        size = f"DiT-{self.size[:-1].upper()}/{self.size[-1]}" if self.is_published() else own
        classes = "" if self.classes == CLASSES else f" {self.classes} classes"
        return f"{size}{self.inner_title()}{classes}"

    def batch_title(self, mode: Mode) -> str:
        """Return the mode, B and the size of an image."""
        return f"{super().batch_title(mode)} {self.image_size}×{self.image_size}"

    def model(self) -> Model:
        """Return the layers of a microbatch: of its patches, and of the condition of its images."""
        batch_size, d_model = self.batch_size // self.microbatches, self.d_model
        patches = batch_size * self.seq_len
        heads = Attention(self.impl, self.n_head, self.n_head, self.head_dim, self.seq_len, self.seq_len)
        attention, mlp = attention_and_mlp(d_model, (heads,), self.d_ff, gelu_tanh)
        block = Adapted("modulation", d_model, self.seq_len, {"ln_1": attention, "ln_2": mlp})
        patch_embed = Linear("patch_embed", self.patch_len, d_model, of_data=True)
        head = (
            Adapted("modulation_f", d_model, self.seq_len, {"ln_f": ()}),
            Linear("head", d_model, 2 * self.patch_len),
            Joined(self.side, self.patch_size),
        )
        condition = (
            TimeWaves(),
            Linear("time_fc", FREQUENCIES, d_model, of_data=True),
            Pointwise("time_silu", silu, d_model, d_model),
            Linear("time_out", d_model, d_model),
            LabelEmbedding(self.classes + 1, d_model),
        )
        return Model(
            (
                Stage(patches, (Patches(self.patch_size), patch_embed, Positions(self.side, d_model))),
                Stage(batch_size, condition),
                # The last product of a block is repeated too: the gradient of its gate needs the result.
                Stage(patches, (block,), self.n_layer, shared=("condition",)),
                Stage(patches, head),
            ),
            loss=Stage(patches, (Moved("loss", 2 * self.patch_len),)),
        )

    def forward(
        self, weights: Weights, batch: Batch, impl: Impl = "einsum"
    ) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
        """Return the prediction, [B, H, W, E], and the function from its gradient to the gradient of each weight."""
        arrays = {**weights, **batch}
        patch_embed, condition, *rest = replace(self, impl=impl).model().stages
        x_BNC, patch_pullback = patch_embed.forward(batch["latents"], arrays)
        condition_BC, condition_pullback = condition.forward(batch["timesteps"], arrays)
        prediction_BHWE, pullback = chain(rest, x_BNC, {**arrays, "condition": condition_BC})

        def to_weights(d_prediction_BHWE: np.ndarray) -> Gradients:
            d_x_BNC, gradients = pullback(d_prediction_BHWE)
            _, d_condition = condition_pullback(gradients.pop("condition"))
            return gradients | patch_pullback(d_x_BNC)[1] | d_condition

        return prediction_BHWE, to_weights

    def loss_of(self, result: np.ndarray, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean squared error of the noise, and its gradient with respect to the prediction."""
        return noise_loss(result, batch["noise"])

    def data_bytes(self, mode: Mode, types: Precision) -> int:
        """Return the bytes of latents, time steps and labels, and of the prediction or the noise."""
        numbers = self.batch_size * self.seq_len * self.patch_len
        results_bytes = 2 * numbers * types.compute_bytes if mode == "inference" else numbers * types.parameter_bytes
        return numbers * types.parameter_bytes + 2 * 4 * self.batch_size + results_bytes

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights as for GPT-2, random biases too, and noisy latents whose noise can be found.

        The modulations of adaLN-Zero and the head begin at zero in the authors' training, and would hide what lies
        behind them from checks. They are random here as all weights, the modulations ten times as large.
        """
        weights = draw(self.weight_shapes(), precision, rng, residuals=2 * self.n_layer)
        larger = {name: MODULATION * weight for name, weight in weights.items() if "modulation" in name}
        return Data(weights | larger, self.noisy_latents(rng, batches))

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ."""
        return replace(super().small(), patch_size=2, image_size=80, classes=7, batch_size=6 * self.microbatches)

    def optimizer(self) -> AdamW:
        """Return the authors' settings: no decay of the weights, and a constant learning rate.

        It is inversely proportional to the width (Yang et al., 2022), so that the small size of checks learns quickly.
        """
        rate = LEARNING_RATE * SIZES["xl2"]["d_model"] / self.d_model
        return AdamW(learning_rate=rate, beta_1=0.9, beta_2=0.999, eps=1e-8, weight_decay=0.0)

    def noisy_latents(self, rng: np.random.Generator, batches: int) -> tuple[Mapping[str, np.ndarray], ...]:
        """Return batches of `latents` x_t [B, H, W, 4], their `timesteps` t and `labels` [B], and their `noise` ε.

        x_t = √ᾱ·x_0 + √(1 − ᾱ)·ε with ᾱ = Π (1 − β) to t (Ho et al., 2020), for latents x_0 of which each class has its
        pattern. Noise, time steps and dropped labels are drawn here, not in the step, so all frameworks have the same.
        """
        kept_T = np.cumprod(1 - np.linspace(*BETAS, TIMESTEPS))

        def noisy(batch: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            clean_BHWL, labels_B = batch["images"], batch["targets"]
            noise_BHWL = rng.standard_normal(clean_BHWL.shape, dtype=np.float32)
            timesteps_B = rng.integers(TIMESTEPS, size=self.batch_size, dtype=np.int32)
            kept_B111 = kept_T[timesteps_B, None, None, None]
            latents_BHWL = np.sqrt(kept_B111) * clean_BHWL + np.sqrt(1 - kept_B111) * noise_BHWL
            labels_B = np.where(rng.random(self.batch_size) < DROPPED, np.int32(self.classes), labels_B)
            return {
                "latents": latents_BHWL.astype(np.float32),
                "timesteps": timesteps_B,
                "labels": labels_B,
                "noise": noise_BHWL,
            }

        images = labelled_images(
            self.batch_size, self.latent_size, self.classes, rng, batches, channels=LATENT_CHANNELS
        )
        return tuple(map(noisy, images))


@hookimpl
def define_problem() -> type[Problem]:
    """Return the DiT problem."""
    return Dit
