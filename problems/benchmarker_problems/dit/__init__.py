"""DiT, the diffusion transformer: predicts the noise of a latent image from the image, the time step and the class.

As published (Peebles and Xie, 2023) for images that an autoencoder has made 8 times smaller: fixed sine-cosine
positions, blocks conditioned by adaLN-Zero, and a prediction of noise and of the sampler's variance (sigma). The
autoencoder and the sampler are not part of it; with classifier-free guidance, a sampler evaluates each image twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Published, Work, hookimpl
from benchmarker_problems.attention import IMPL_HELP, Impl
from benchmarker_problems.dit.reference import FREQUENCIES, LATENT_CHANNELS, TIMESTEPS, forward, noise_loss
from benchmarker_problems.layers import DERIVED, Shapes, fill, linear_shapes, require_multiples, size_of
from benchmarker_problems.layers.data import draw, labelled_images
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
    MICROBATCHES_HELP,
    RECOMPUTE_HELP,
    AdamW,
    refuse_without_backward,
    step_scopes,
    steps_title,
)
from benchmarker_problems.steps.reference import steps

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
class Dit(Problem):
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

    size: Annotated[Size, Meta(description="published size; the five options below override it")] = "s2"
    n_layer: Annotated[int, Meta(ge=1, description="transformer blocks")] = DERIVED
    d_model: Annotated[int, Meta(ge=1, description="width of the model, a multiple of n_head and of 4")] = DERIVED
    n_head: Annotated[int, Meta(ge=1, description="attention heads")] = DERIVED
    d_ff: Annotated[int, Meta(ge=1, description="width within the MLP; 4·d_model if omitted")] = DERIVED
    patch_size: Annotated[int, Meta(ge=1, description="height and width of a patch in latent pixels")] = DERIVED
    image_size: Annotated[
        int, Meta(ge=1, description="height and width of an image; its latent, a multiple of patch_size, has 1/8 of it")
    ] = 256
    classes: Annotated[int, Meta(ge=2, description="number of classes, without the null class")] = CLASSES
    batch_size: Annotated[int, Meta(ge=1, description="images per step")] = 1
    impl: Annotated[Impl, Meta(description=IMPL_HELP)] = "matmul"
    recompute: Annotated[bool, Meta(description=RECOMPUTE_HELP)] = False
    microbatches: Annotated[int, Meta(ge=1, description=MICROBATCHES_HELP)] = 1

    def __post_init__(self) -> None:
        fill(self, SIZES[self.size])
        fill(self, {"d_ff": 4 * self.d_model})
        require_multiples(self, d_model="n_head", batch_size="microbatches")
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

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_head

    def title(self, mode: Mode) -> str:
        """Return the size (L layers, width d, H heads, patches of P unless it is published), the mode and B."""
        sizes = {name: getattr(self, name) for name in SIZES[self.size]}
        own = f"DiT L={self.n_layer} d={self.d_model} H={self.n_head} P={self.patch_size}"
        size = f"DiT-{self.size[:-1].upper()}/{self.size[-1]}" if sizes == SIZES[self.size] else own
        inner = "" if self.d_ff == 4 * self.d_model else f" d_ff={self.d_ff}"
        classes = "" if self.classes == CLASSES else f" {self.classes} classes"
        impl = "" if self.impl == Dit.impl else f" {self.impl}"
        steps = steps_title(recompute=self.recompute, microbatches=self.microbatches)
        what = mode.replace("forward_backward", "fwd+bwd")
        return f"{size}{inner}{classes} {what}, B={self.batch_size} {self.image_size}×{self.image_size}{impl}{steps}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the parts of a block, which run once per layer, and those before and after the blocks."""
        scopes = {
            **dict.fromkeys(("patch_embed", "time_fc", "time_silu", "time_out", "label_embed"), 1),
            **dict.fromkeys(("modulation", *block_scopes(self.impl)), self.n_layer),
            **dict.fromkeys(("modulation_f", "ln_f", "head"), 1),
        }
        return step_scopes(scopes, mode, self.microbatches)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the work; the backward pass has two products for each of the forward pass, but data no gradient."""
        types = PRECISIONS[precision]
        patches = self.batch_size * self.seq_len
        first = 2 * (patches * self.patch_len + self.batch_size * FREQUENCIES) * self.d_model
        conditions = 2 * self.batch_size * (1 + 6 * self.n_layer + 2) * self.d_model**2
        blocks = self.n_layer * block_flops(patches, self.seq_len, self.d_model, self.d_ff)
        flops = first + conditions + blocks + 2 * patches * self.d_model * 2 * self.patch_len
        weights = self.parameter_count() * types.parameter_bytes
        latents_bytes = patches * self.patch_len * types.parameter_bytes
        inputs_bytes = latents_bytes + 2 * 4 * self.batch_size
        moved = {
            "inference": weights + inputs_bytes + patches * 2 * self.patch_len * types.compute_bytes,
            "forward_backward": 2 * weights + inputs_bytes + latents_bytes,
            "training": self.adamw().WEIGHTS_MOVED * weights + inputs_bytes + latents_bytes,
        }
        return Cost(
            flops=flops if mode == "inference" else 3 * flops - first, bytes=moved[mode], samples=self.batch_size
        )

    def parts(self, mode: Mode, precision: str) -> Mapping[str, Work]:
        """Return the work of every scope of the model; the scopes of a block count for all blocks."""
        backward = mode != "inference"
        batch_size = self.batch_size // self.microbatches
        images, patches = (Layers(rows, precision, backward) for rows in (batch_size, batch_size * self.seq_len))
        hidden = patches.rows * self.d_model
        condition = images.rows * self.d_model

        def gated_linear(inputs: int) -> Work:
            """Return the work of a product with weights, of the gate, and of the addition to the residual."""
            read = patches.rows * inputs + condition + hidden
            weights = inputs * self.d_model
            return patches.part(2 * patches.rows * weights, read=read, written=hidden, weights=weights)

        norm = patches.part(0, read=hidden + 2 * condition, written=hidden)
        block = {
            "modulation": images.linear(self.d_model, 6 * self.d_model),
            **block_parts(patches, self.seq_len, self.d_model, self.n_head, self.d_ff, self.impl),
            **dict.fromkeys(("ln_1", "ln_2"), norm),
            "attn_proj": gated_linear(self.d_model),
            "mlp_proj": gated_linear(self.d_ff),
        }
        parts = {
            "patch_embed": patches.first_linear(self.patch_len, self.d_model),
            "time_fc": images.first_linear(FREQUENCIES, self.d_model),
            "time_silu": images.pointwise(self.d_model, self.d_model),
            "time_out": images.linear(self.d_model, self.d_model),
            "label_embed": images.pointwise(self.d_model, self.d_model, weights=condition),
            **times(self.n_layer, block),
            "modulation_f": images.linear(self.d_model, 2 * self.d_model),
            "ln_f": norm,
            "head": patches.linear(self.d_model, 2 * self.patch_len),
            "loss": patches.pointwise(2 * self.patch_len, 0),
        }
        optimizer = update(self.adamw().WEIGHTS_MOVED * self.parameter_count() * images.weight_bytes)
        parts = {**times(self.microbatches, parts), "optimizer": optimizer}
        return {name: parts[name] for name in self.scopes(mode)}

    def refuse(self, mode: Mode) -> None:
        """Refuse in inference what concerns the backward pass."""
        refuse_without_backward(mode, recompute=self.recompute, microbatches=self.microbatches)

    def parameter_count(self) -> int:
        """Return the number of weights; the positions are fixed."""
        return size_of(self.weight_shapes())

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw weights as for GPT-2, random biases too, and noisy latents whose noise can be found.

        The modulations of adaLN-Zero and the head begin at zero in the authors' training, and would hide what lies
        behind them from checks. They are random here as all weights, the modulations ten times as large.
        """
        weights = draw(self.weight_shapes(), precision, rng, residuals=2 * self.n_layer)
        larger = {name: MODULATION * weight for name, weight in weights.items() if "modulation" in name}
        return Data(weights | larger, self.noisy_latents(rng, batches))

    def small(self) -> Self:
        """Return at most two layers with dimensions that all differ; every fused kernel supports a head size of 16."""
        return replace(
            self,
            n_layer=min(self.n_layer, 2),
            d_model=48,
            n_head=3,
            d_ff=160,
            patch_size=2,
            image_size=80,
            classes=7,
            batch_size=6 * self.microbatches,
        )

    def reference(self, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the prediction; or the loss and the gradient of each weight; or the loss before each AdamW step."""
        return steps(
            data,
            mode,
            "prediction",
            lambda weights, batch: forward(weights, batch, self),
            lambda prediction_BHWE, batch: noise_loss(prediction_BHWE, batch["noise"]),
            self.adamw(),
        )

    def recomputed_flops(self, *, scores: bool, modulation: bool = True) -> int:
        """Return the FLOPs that a backward pass repeats in the blocks; `scores`: fused kernels repeat Q·Kᵀ.

        The last product of a block is among them: the gradient of its gate needs the result. `modulation` is whether a
        block that is computed again repeats that product, whose input is kept.
        """
        flops = block_recomputed_flops(
            self.batch_size * self.seq_len,
            self.seq_len,
            self.d_model,
            self.d_ff,
            scores=scores,
            recompute=self.recompute,
            result_needed=True,
        )
        repeated = 2 * self.batch_size * 6 * self.d_model**2 if self.recompute and modulation else 0
        return self.n_layer * (flops + repeated)

    def adamw(self) -> AdamW:
        """Return the authors' settings: no decay of the weights, and a constant learning rate.

        It is inversely proportional to the width (Yang et al., 2022), so that the small size of checks learns quickly.
        """
        rate = LEARNING_RATE * SIZES["xl2"]["d_model"] / self.d_model
        return AdamW(learning_rate=rate, beta_1=0.9, beta_2=0.999, eps=1e-8, weight_decay=0.0)

    def weight_shapes(self) -> Shapes:
        """Return the shape of every weight by name, in order of use; a `kernel` is [inputs, outputs]."""
        shapes: Shapes = {
            **linear_shapes("patch_embed", self.patch_len, self.d_model),
            **linear_shapes("time_fc", FREQUENCIES, self.d_model),
            **linear_shapes("time_out", self.d_model, self.d_model),
            "label_embed": (self.classes + 1, self.d_model),
        }
        for layer in range(self.n_layer):
            shapes |= linear_shapes(f"h.{layer}.modulation", self.d_model, 6 * self.d_model)
            shapes |= linear_shapes(f"h.{layer}.attn_qkv", self.d_model, 3 * self.d_model)
            shapes |= linear_shapes(f"h.{layer}.attn_proj", self.d_model, self.d_model)
            shapes |= linear_shapes(f"h.{layer}.mlp_fc", self.d_model, self.d_ff)
            shapes |= linear_shapes(f"h.{layer}.mlp_proj", self.d_ff, self.d_model)
        shapes |= linear_shapes("modulation_f", self.d_model, 2 * self.d_model)
        return shapes | linear_shapes("head", self.d_model, 2 * self.patch_len)

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
