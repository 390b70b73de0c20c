"""Initial weights, normally distributed inputs, and tokens and images that can be learned."""

from collections.abc import Iterable, Mapping

import numpy as np

from benchmarker_problems.layers import Shapes

FOLLOWS = 0.9
"""Share of the tokens that follow the permutation; the others are uniformly random."""


def normal(
    shapes: Mapping[str, tuple[int, ...]], precision: str, rng: np.random.Generator, batches: int
) -> tuple[Mapping[str, np.ndarray], ...]:
    """Draw batches of arrays from a normal distribution: float64 for fp64, otherwise float32."""
    dtype = np.float64 if precision == "fp64" else np.float32
    return tuple(
        {name: rng.standard_normal(shape, dtype=dtype) for name, shape in shapes.items()} for _ in range(batches)
    )


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


def labelled_images(
    batch_size: int,
    image_size: int,
    classes: int,
    rng: np.random.Generator,
    batches: int,
    *,
    channels: int = 3,
    squares: int = 8,
    noise: float = 1,
    scale: float = 0.5**0.5,
) -> tuple[Mapping[str, np.ndarray], ...]:
    """Return batches of `images` [B, H, W, C] in float32 and the `targets` [B], their classes: these can be learned.

    An image is the pattern of its class, a mosaic of squares × squares random colours with a variance of 1, and noise
    of this standard deviation, both times the scale.
    """
    patterns_KMMC = rng.standard_normal((classes, squares, squares, channels), dtype=np.float32)
    tile_S = np.arange(image_size) * squares // image_size

    def draw() -> Mapping[str, np.ndarray]:
        targets_B = rng.integers(classes, size=batch_size, dtype=np.int32)
        images_BHWC = rng.standard_normal((batch_size, image_size, image_size, channels), dtype=np.float32)
        images_BHWC *= np.float32(noise)
        images_BHWC += patterns_KMMC[targets_B][:, tile_S][:, :, tile_S]
        images_BHWC *= np.float32(scale)
        return {"images": images_BHWC, "targets": targets_B}

    return tuple(draw() for _ in range(batches))
