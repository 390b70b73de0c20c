"""What models are made of, independently of any framework: shapes and initial values of weights, tokens, and work.

The modules beside this one compute the layers in each framework, and in NumPy for the reference. A model is a module
of its own that calls them from top to bottom.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarker import PRECISIONS, Work
from benchmarker_problems import attention

Shapes = dict[str, tuple[int, ...]]

FOLLOWS = 0.9
"""Share of the tokens that follow the permutation; the others are uniformly random."""
DERIVED: Any = None
"""Default of a parameter that `fill` derives from others."""


def fill(params: Any, values: Mapping[str, Any]) -> None:
    """Give the parameters of a frozen dataclass that are still `DERIVED` their values."""
    for name, value in values.items():
        if getattr(params, name) is DERIVED:
            object.__setattr__(params, name, value)


def linear_shapes(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Shapes:
    """Return the shapes of a product with weights; a `kernel` is [inputs, outputs]."""
    shapes: Shapes = {f"{name}.kernel": (inputs, outputs)}
    if bias:
        shapes[f"{name}.bias"] = (outputs,)
    return shapes


def norm_shapes(name: str, width: int, *, bias: bool = True) -> Shapes:
    """Return the shapes of a normalisation: LayerNorm has a gain and a bias, RMSNorm only a gain."""
    shapes: Shapes = {f"{name}.scale": (width,)}
    if bias:
        shapes[f"{name}.bias"] = (width,)
    return shapes


def size_of(shapes: Shapes) -> int:
    """Return the number of parameters."""
    return sum(int(np.prod(shape)) for shape in shapes.values())


def draw(shapes: Shapes, precision: str, rng: np.random.Generator, residuals: int) -> dict[str, np.ndarray]:
    """Draw weights from N(0, 0.02²), as GPT-2 does; none is constant, so that one that is missing is detected.

    Kernels that end one of the `residuals` branches (`*_proj`) are divided by √residuals; gains are centred on 1.
    """
    weights = {}
    for name, shape in shapes.items():
        weight = rng.standard_normal(shape, dtype=np.float32)
        weight *= np.float32(0.02)
        if name.endswith("_proj.kernel"):
            weight *= np.float32(residuals**-0.5)
        if name.endswith(".scale"):
            weight += np.float32(1)
        weights[name] = weight.astype(np.float64) if precision == "fp64" else weight
    return weights


def sequences(
    batch_size: int, length: int, vocab_size: int, rng: np.random.Generator, batches: int
) -> Iterable[np.ndarray]:
    """Yield tokens [B, length] of each batch in which a token is mostly followed by a fixed other: this can be learned.

    The successor of each token is that of one random permutation for all batches.
    """
    follower = rng.permutation(vocab_size)
    for _ in range(batches):
        sequence_TB = rng.integers(vocab_size, size=(length, batch_size), dtype=np.int32)
        follows_TB = rng.random((length, batch_size)) < FOLLOWS
        for position in range(length - 1):
            following_B = follower[sequence_TB[position]]
            np.copyto(sequence_TB[position + 1], following_B, where=follows_TB[position + 1], casting="same_kind")
        yield np.ascontiguousarray(sequence_TB.T)


def next_tokens(
    batch_size: int, seq_len: int, vocab_size: int, rng: np.random.Generator, batches: int
) -> tuple[Mapping[str, np.ndarray], ...]:
    """Return batches of `tokens` and `targets` [B, T]: the token that follows each."""
    drawn = sequences(batch_size, seq_len + 1, vocab_size, rng, batches)
    return tuple({"tokens": each[:, :-1].copy(), "targets": each[:, 1:].copy()} for each in drawn)


@dataclass(frozen=True)
class Layers:
    """Work of layers that act on every one of `rows` (such as tokens) alike.

    The backward pass has two products for each product of the forward pass. It reads the inputs and the gradients of
    the outputs, and writes the gradients of the inputs.
    """

    rows: int
    precision: str
    backward: bool

    @property
    def weight_bytes(self) -> int:
        """Bytes of one weight."""
        return PRECISIONS[self.precision].parameter_bytes

    @property
    def item_bytes(self) -> int:
        """Bytes of one element between the layers."""
        return PRECISIONS[self.precision].compute_bytes

    def part(self, flops: int, *, read: int, written: int, weights: int = 0) -> Work:
        """Return the work of a part that reads and writes so many elements and weights in the forward pass."""
        read, written = read * self.item_bytes + weights * self.weight_bytes, written * self.item_bytes
        return Work(3 * flops, 3 * read + 2 * written) if self.backward else Work(flops, read + written)

    def first_linear(self, inputs: int, outputs: int) -> Work:
        """Return the work of a product of a batch's data with weights: the data needs no gradient."""
        flops = 2 * self.rows * inputs * outputs
        moved = self.rows * (inputs + outputs) * self.item_bytes + inputs * outputs * self.weight_bytes
        return Work((1 + self.backward) * flops, (1 + self.backward) * moved)

    def linear(self, inputs: int, outputs: int, *, residual: bool = False) -> Work:
        """Return the work of a product with weights, and of the addition to a residual that follows."""
        read = self.rows * (inputs + outputs * residual)
        return self.part(
            2 * self.rows * inputs * outputs, read=read, written=self.rows * outputs, weights=inputs * outputs
        )

    def norm(self, width: int, *, bias: bool = True) -> Work:
        """Return the work of LayerNorm, or without a bias of RMSNorm."""
        return self.pointwise(width, width, weights=width * (1 + bias))

    def pointwise(self, read: int, written: int, *, weights: int = 0) -> Work:
        """Return the work of an op that reads and writes so many elements of each row."""
        return self.part(0, read=self.rows * read, written=self.rows * written, weights=weights)


def times(count: int, parts: Mapping[str, Work]) -> dict[str, Work]:
    """Return the work of parts that run `count` times."""
    return {name: Work(count * work.flops, count * work.bytes) for name, work in parts.items()}


def block_scopes(impl: attention.Impl) -> tuple[str, ...]:
    """Return the parts of a transformer block of GPT-2's kind: LayerNorm and biases, and an MLP with GELU."""
    mlp = ("ln_2", "mlp_fc", "mlp_gelu", "mlp_proj")
    return ("ln_1", "attn_qkv", *attention.scopes(impl), "attn_proj", *mlp)


def block_shapes(name: str, d_model: int, d_ff: int) -> Shapes:
    """Return the shapes of such a block's weights."""
    return {
        **norm_shapes(f"{name}.ln_1", d_model),
        **linear_shapes(f"{name}.attn_qkv", d_model, 3 * d_model),
        **linear_shapes(f"{name}.attn_proj", d_model, d_model),
        **norm_shapes(f"{name}.ln_2", d_model),
        **linear_shapes(f"{name}.mlp_fc", d_model, d_ff),
        **linear_shapes(f"{name}.mlp_proj", d_ff, d_model),
    }


def block_flops(tokens: int, seq_len: int, d_model: int, d_ff: int) -> int:
    """Return the FLOPs of such a block in the forward pass, on sequences of `seq_len` tokens."""
    return 2 * tokens * (4 * d_model**2 + 2 * d_model * d_ff + 2 * seq_len * d_model)


def block_parts(
    layers: Layers, seq_len: int, d_model: int, n_head: int, d_ff: int, impl: attention.Impl
) -> dict[str, Work]:
    """Return the work of the parts of such a block."""
    batch_size, head_dim = layers.rows // seq_len, d_model // n_head
    return {
        "ln_1": layers.norm(d_model),
        "attn_qkv": layers.linear(d_model, 3 * d_model),
        **attention.parts(batch_size, n_head, seq_len, head_dim, impl, layers.item_bytes, backward=layers.backward),
        "attn_proj": layers.linear(d_model, d_model, residual=True),
        "ln_2": layers.norm(d_model),
        "mlp_fc": layers.linear(d_model, d_ff),
        "mlp_gelu": layers.pointwise(d_ff, d_ff),
        "mlp_proj": layers.linear(d_ff, d_model, residual=True),
    }


def labelled_images(
    batch_size: int, image_size: int, classes: int, rng: np.random.Generator, batches: int
) -> tuple[Mapping[str, np.ndarray], ...]:
    """Return batches of `images` [B, H, W, 3] in float32 and the `targets` [B], their classes: these can be learned.

    An image is noise on the pattern of its class, a mosaic of 8×8 random colours; both have a variance of 1/2.
    """
    mosaic = 8
    patterns_KMM3 = rng.standard_normal((classes, mosaic, mosaic, 3), dtype=np.float32)
    tile_S = np.arange(image_size) * mosaic // image_size

    def draw() -> Mapping[str, np.ndarray]:
        targets_B = rng.integers(classes, size=batch_size, dtype=np.int32)
        images_BHW3 = rng.standard_normal((batch_size, image_size, image_size, 3), dtype=np.float32)
        images_BHW3 += patterns_KMM3[targets_B][:, tile_S][:, :, tile_S]
        images_BHW3 *= np.float32(0.5**0.5)
        return {"images": images_BHW3, "targets": targets_B}

    return tuple(draw() for _ in range(batches))
