"""Layers in NumPy with handwritten backward passes, in the type of their arguments.

Each returns its result and a pullback: the function from the gradient of the result to the gradients of the inputs.
Shapes: B batch, T sequence, H heads, D head dimension, I inputs, O outputs, V vocabulary; N patches, P numbers of
a patch; C width or channels; `...` any axes.
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import erf

from benchmarker_problems.layers import Impl

Weights = Mapping[str, np.ndarray]
Gradients = dict[str, np.ndarray]
Pullback = Callable[[np.ndarray], tuple[np.ndarray, Gradients]]
"""From the gradient of a result to that of the input, and to that of each weight."""
Plain = Callable[[np.ndarray], np.ndarray]
"""The same of a layer without weights."""
Function = Callable[[np.ndarray], tuple[np.ndarray, Pullback]]
"""A layer with its weights."""
OfAttention = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""From the gradient of attention's result to those of queries, keys and values."""
Activation = Callable[[np.ndarray], tuple[np.ndarray, Plain]]


def linear(x_I: np.ndarray, weights: Weights) -> tuple[np.ndarray, Pullback]:
    """Return x·kernel + bias, [..., O]; the bias may be missing."""
    kernel_IO = weights["kernel"]
    axes = tuple(range(x_I.ndim - 1))

    def pullback(d_y_O: np.ndarray) -> tuple[np.ndarray, Gradients]:
        gradients = {"kernel": np.tensordot(x_I, d_y_O, axes=(axes, axes))}
        if "bias" in weights:
            gradients["bias"] = sum_of_rows(rows_of(d_y_O))
        return d_y_O @ kernel_IO.T, gradients

    y_O = x_I @ kernel_IO
    return y_O + weights["bias"] if "bias" in weights else y_O, pullback


def rows_of(d_C: np.ndarray) -> np.ndarray:
    """Return an array with all axes but the last as one, [N, C]."""
    return d_C.reshape(-1, d_C.shape[-1])


def sum_of_rows(d_NC: np.ndarray) -> np.ndarray:
    """Return the sum over the axis before the last, [..., C], row by row in the type of the rows.

    On CPUs, XLA adds up gradients of biases so, and PyTorch those of LayerNorm, also in short types.
    """
    total_C: np.ndarray = np.add.accumulate(d_NC, axis=-2)[..., -1, :]
    return total_C


def layer_norm(x_C: np.ndarray, weights: Weights, eps: float) -> tuple[np.ndarray, Pullback]:
    """Normalise to zero mean and unit variance across C, then apply gain and bias (Ba et al., 2016)."""
    scale_C = weights["scale"]
    centred_C = x_C - x_C.mean(axis=-1, keepdims=True)
    rstd_1 = 1 / np.sqrt(np.square(centred_C).mean(axis=-1, keepdims=True) + x_C.dtype.type(eps))
    unit_C = centred_C * rstd_1

    def pullback(d_y_C: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_unit_C = d_y_C * scale_C
        along_1 = (d_unit_C * unit_C).mean(axis=-1, keepdims=True)
        d_x_C = rstd_1 * (d_unit_C - d_unit_C.mean(axis=-1, keepdims=True) - unit_C * along_1)
        return d_x_C, {"scale": sum_of_rows(rows_of(d_y_C * unit_C)), "bias": sum_of_rows(rows_of(d_y_C))}

    return unit_C * scale_C + weights["bias"], pullback


def rms_norm(x_C: np.ndarray, weights: Weights, eps: float) -> tuple[np.ndarray, Pullback]:
    """Divide by the root of the mean square across C, then apply the gain (Zhang and Sennrich, 2019)."""
    scale_C = weights["scale"]
    rstd_1 = 1 / np.sqrt(np.square(x_C).mean(axis=-1, keepdims=True) + x_C.dtype.type(eps))
    unit_C = x_C * rstd_1

    def pullback(d_y_C: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_unit_C = d_y_C * scale_C
        along_1 = (d_unit_C * unit_C).mean(axis=-1, keepdims=True)
        return rstd_1 * (d_unit_C - unit_C * along_1), {"scale": sum_of_rows(rows_of(d_y_C * unit_C))}

    return unit_C * scale_C, pullback


def relu(x: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return max(x, 0)."""
    return np.maximum(x, 0), lambda d_y: np.where(x > 0, d_y, 0)


def tanh(x: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return the hyperbolic tangent."""
    y = np.tanh(x)
    return y, lambda d_y: d_y * (1 - y**2)


def gelu_tanh(x: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), the approximate GELU (Hendrycks and Gimpel, 2016)."""
    slope, cubic = (2 / np.pi) ** 0.5, 0.044715
    tanh = np.tanh(slope * x * (1 + cubic * x * x))

    def pullback(d_y: np.ndarray) -> np.ndarray:
        d_tanh = (1 - tanh * tanh) * slope * (1 + 3 * cubic * x * x)
        d_x: np.ndarray = d_y * (0.5 * (1 + tanh) + 0.5 * x * d_tanh)
        return d_x

    return 0.5 * x * (1 + tanh), pullback


def gelu(x: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return x·Φ(x) with the normal distribution's Φ, the exact GELU (Hendrycks and Gimpel, 2016)."""
    below = 0.5 * (1 + erf(x / np.sqrt(2).astype(x.dtype)))

    def pullback(d_y: np.ndarray) -> np.ndarray:
        d_x: np.ndarray = d_y * (below + x * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi))
        return d_x

    return x * below, pullback


def silu(x: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return x·σ(x) (Elfwing et al., 2018)."""
    sigmoid = 1 / (1 + np.exp(-x))

    def pullback(d_y: np.ndarray) -> np.ndarray:
        d_x: np.ndarray = d_y * sigmoid * (1 + x * (1 - sigmoid))
        return d_x

    return x * sigmoid, pullback


def swiglu(gate_up_2F: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return silu(gate)·up of the two halves [gate, up] of the last axis, [..., F] (Shazeer, 2020)."""
    gate_F, up_F = np.split(gate_up_2F, 2, axis=-1)
    open_F, silu_pullback = silu(gate_F)

    def pullback(d_y_F: np.ndarray) -> np.ndarray:
        return np.concatenate([silu_pullback(d_y_F * up_F), d_y_F * open_F], axis=-1)

    return open_F * up_F, pullback


def rope_tables(seq_len: int, head_dim: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin [T, D/2] of the angles t·θ^(−2i/D) (Su et al., 2021), in float64 whatever uses them."""
    angles = np.arange(seq_len)[:, None] * theta ** (-np.arange(0, head_dim, 2) / head_dim)
    return np.cos(angles), np.sin(angles)


def rope(x_BTHD: np.ndarray, cos_Td: np.ndarray, sin_Td: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Rotate the pairs (i, i + D/2) of each head by the angles of the position: halves, as Llama's checkpoints have."""

    def rotated(x_BTHD: np.ndarray, sin_T1d: np.ndarray) -> np.ndarray:
        first, second = np.split(x_BTHD, 2, axis=-1)
        return np.concatenate([first * cos_T1d - second * sin_T1d, second * cos_T1d + first * sin_T1d], axis=-1)

    cos_T1d, sin_T1d = (table[:, None].astype(x_BTHD.dtype) for table in (cos_Td, sin_Td))
    return rotated(x_BTHD, sin_T1d), lambda d_y_BTHD: rotated(d_y_BTHD, -sin_T1d)


def causal_bias(seq_len: int, dtype: type[np.floating]) -> np.ndarray:
    """Return the mask to add to the scores: −∞ if the key comes after the query, otherwise 0."""
    return np.triu(np.full((seq_len, seq_len), -np.inf, dtype), k=1)


def attend(
    q_BTHD: np.ndarray, k_BtKD: np.ndarray, v_BtKD: np.ndarray, *, impl: Impl, bias_Tt: np.ndarray | None
) -> tuple[np.ndarray, OfAttention]:
    """Compute attention in the type of its arguments, and the function from its output's gradient to theirs.

    K and V may have fewer heads, each for a group of consecutive query heads.
    """
    kv_heads, group = k_BtKD.shape[2], q_BTHD.shape[2] // k_BtKD.shape[2]
    k_BtHD, v_BtHD = (np.repeat(of_K, group, axis=2) if group > 1 else of_K for of_K in (k_BtKD, v_BtKD))
    scale = q_BTHD.dtype.type(q_BTHD.shape[-1] ** -0.5)
    if impl == "einsum":
        scores_BHTt = np.einsum("BTHD,BtHD->BHTt", q_BTHD * scale, k_BtHD)
    else:
        scores_BHTt = (q_BTHD * scale).transpose(0, 2, 1, 3) @ k_BtHD.transpose(0, 2, 3, 1)
    if bias_Tt is not None:
        scores_BHTt += bias_Tt
    scores_BHTt -= scores_BHTt.max(axis=-1, keepdims=True)
    weights_BHTt = np.exp(scores_BHTt, out=scores_BHTt)
    weights_BHTt /= weights_BHTt.sum(axis=-1, keepdims=True)
    if impl == "einsum":
        out_BTHD = np.einsum("BHTt,BtHD->BTHD", weights_BHTt, v_BtHD)
    else:
        out_BTHD = (weights_BHTt @ v_BtHD.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)

    def pullback(d_out_BTHD: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        d_weights_BHTt = np.einsum("BTHD,BtHD->BHTt", d_out_BTHD, v_BtHD)
        carried_BHT1 = (d_weights_BHTt * weights_BHTt).sum(axis=-1, keepdims=True)
        d_scores_BHTt = weights_BHTt * (d_weights_BHTt - carried_BHT1) * scale
        return (
            np.einsum("BHTt,BtHD->BTHD", d_scores_BHTt, k_BtHD),
            of_groups(np.einsum("BHTt,BTHD->BtHD", d_scores_BHTt, q_BTHD)),
            of_groups(np.einsum("BHTt,BTHD->BtHD", weights_BHTt, d_out_BTHD)),
        )

    def of_groups(d_BtHD: np.ndarray) -> np.ndarray:
        if group == 1:
            return d_BtHD
        total_BtKD: np.ndarray = d_BtHD.reshape(*d_BtHD.shape[:2], kv_heads, group, -1).sum(axis=3)
        return total_BtKD

    return out_BTHD, pullback


def cross_entropy(logits_V: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of −log softmax(logits) at the targets, and its gradient with respect to the logits."""
    targets_1 = targets[..., None]
    shifted_V = logits_V - logits_V.max(axis=-1, keepdims=True)
    log_softmax_V = shifted_V - np.log(np.exp(shifted_V).sum(axis=-1, keepdims=True))
    loss = -np.take_along_axis(log_softmax_V, targets_1, axis=-1).mean()
    d_logits_V = np.exp(log_softmax_V)
    np.put_along_axis(d_logits_V, targets_1, np.take_along_axis(d_logits_V, targets_1, axis=-1) - 1, axis=-1)
    return np.asarray(loss), d_logits_V / targets.size


def embedding(weights_VC: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, Plain]:
    """Return the rows of the tokens, [..., C]; the pullback gives the gradient of the table."""

    def pullback(d_x_C: np.ndarray) -> np.ndarray:
        d_weights_VC = np.zeros_like(weights_VC)
        np.add.at(d_weights_VC, tokens, d_x_C)
        return d_weights_VC

    return weights_VC[tokens], pullback


def patches(images_BHWC: np.ndarray, size: int) -> np.ndarray:
    """Return the patches from left to right and from top to bottom, [B, N, P]; their pixels stay in this order."""
    batch_size, height, width, channels = images_BHWC.shape
    tiles = images_BHWC.reshape(batch_size, height // size, size, width // size, size, channels).swapaxes(2, 3)
    return tiles.reshape(batch_size, -1, size * size * channels)


def recomputed(layer: Function) -> Function:
    """Return the layer with a pullback that computes it again, so that only its input is kept.

    If inference keeps more, its memory is returned to the operating system after each step, and cleared in the next.
    """
    return lambda x_C: (layer(x_C)[0], lambda d_y_C: layer(x_C)[1](d_y_C))  # noqa: PLW0108 - again, when it is called


def select(weights: Weights, prefix: str) -> dict[str, np.ndarray]:
    """Return the weights whose names begin with a prefix, without the prefix."""
    start = prefix + "."
    return {name.removeprefix(start): weight for name, weight in weights.items() if name.startswith(start)}


def prefixed(prefix: str, gradients: Gradients) -> Gradients:
    """Return the gradients with a prefix added to their names."""
    return {f"{prefix}.{name}": gradient for name, gradient in gradients.items()}
