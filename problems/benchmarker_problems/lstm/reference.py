"""LSTM in NumPy with a handwritten backward pass through time, in the type of its weights.

Each part returns its result and a pullback: the function from the gradient of the result to the gradients of the
inputs. Shapes: T sequence, B batch, I size of an input, H hidden size, E the gates i, f, g, o.
"""

from collections.abc import Callable, Mapping

import numpy as np

from benchmarker_problems.layers.reference import rows_of, sum_of_rows

Weights = Mapping[str, np.ndarray]
Gradients = dict[str, np.ndarray]
Pullback = Callable[[np.ndarray], tuple[np.ndarray, Gradients]]


def forward(weights: Weights, x_TBI: np.ndarray, layers: int) -> tuple[np.ndarray, Pullback]:
    """Return the outputs of the last layer."""
    pullbacks = []
    for number in range(layers):
        x_TBI, of_layer = layer(x_TBI, weights[f"{number}.w_x"], weights[f"{number}.w_h"], weights[f"{number}.b"])
        pullbacks.append(of_layer)

    def pullback(d_x_TBI: np.ndarray) -> tuple[np.ndarray, Gradients]:
        gradients: Gradients = {}
        for number in reversed(range(layers)):
            d_x_TBI, own = pullbacks[number](d_x_TBI)
            gradients |= {f"{number}.{name}": gradient for name, gradient in own.items()}
        return d_x_TBI, gradients

    return x_TBI, pullback


def layer(x_TBI: np.ndarray, w_x_IE: np.ndarray, w_h_HE: np.ndarray, b_E: np.ndarray) -> tuple[np.ndarray, Pullback]:
    """Return the outputs of one layer: c = f·c + i·g and h = o·tanh(c), from a state of zero."""
    seq_len, batch_size, _ = x_TBI.shape
    projected_TBE = x_TBI @ w_x_IE + b_E
    # States have one position more: the first is before the sequence.
    h_SBH = np.zeros((seq_len + 1, batch_size, w_h_HE.shape[0]), x_TBI.dtype)
    c_SBH = np.zeros_like(h_SBH)
    gates_TBE = np.empty_like(projected_TBE)
    for t in range(seq_len):
        i_BH, f_BH, g_BH, o_BH = np.split(projected_TBE[t] + h_SBH[t] @ w_h_HE, 4, axis=-1)
        i_BH, f_BH, g_BH, o_BH = sigmoid(i_BH), sigmoid(f_BH), np.tanh(g_BH), sigmoid(o_BH)
        c_SBH[t + 1] = f_BH * c_SBH[t] + i_BH * g_BH
        h_SBH[t + 1] = o_BH * np.tanh(c_SBH[t + 1])
        gates_TBE[t] = np.concatenate([i_BH, f_BH, g_BH, o_BH], axis=-1)

    def pullback(d_out_TBH: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_projected_TBE = np.empty_like(projected_TBE)
        d_h_BH = np.zeros_like(h_SBH[0])
        d_c_BH = np.zeros_like(h_SBH[0])
        for t in reversed(range(seq_len)):
            i_BH, f_BH, g_BH, o_BH = np.split(gates_TBE[t], 4, axis=-1)
            tanh_c_BH = np.tanh(c_SBH[t + 1])
            d_h_BH = d_h_BH + d_out_TBH[t]
            d_c_BH = d_c_BH + d_h_BH * o_BH * (1 - tanh_c_BH**2)
            d_gates = (
                d_c_BH * g_BH * i_BH * (1 - i_BH),
                d_c_BH * c_SBH[t] * f_BH * (1 - f_BH),
                d_c_BH * i_BH * (1 - g_BH**2),
                d_h_BH * tanh_c_BH * o_BH * (1 - o_BH),
            )
            d_projected_TBE[t] = np.concatenate(d_gates, axis=-1)
            d_h_BH = d_projected_TBE[t] @ w_h_HE.T
            d_c_BH = d_c_BH * f_BH
        gradients = {
            "w_x": np.einsum("TBI,TBE->IE", x_TBI, d_projected_TBE),
            "w_h": np.einsum("TBH,TBE->HE", h_SBH[:-1], d_projected_TBE),
            "b": sum_of_rows(rows_of(d_projected_TBE)),
        }
        return d_projected_TBE @ w_x_IE.T, gradients

    return h_SBH[1:], pullback


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1/(1 + exp(−x)), as a tanh, which does not overflow."""
    y: np.ndarray = 0.5 * (1 + np.tanh(0.5 * x))
    return y
