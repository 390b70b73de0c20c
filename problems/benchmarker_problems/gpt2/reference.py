"""GPT-2 in NumPy with a handwritten backward pass, in the type of its weights: the reference of every check.

Each part returns its result and a pullback: the function from the gradient of the result to the gradients of the
inputs. Shapes: B batch, T sequence, C width of the model, F width within the MLP, V vocabulary, H heads.
"""

from collections.abc import Callable, Mapping

import numpy as np

from benchmarker_problems.attention import Impl, attend, causal_bias

LAYER_NORM_EPS = 1e-5
LEARNING_RATE = 1e-3
BETA_1 = 0.9
BETA_2 = 0.95
ADAM_EPS = 1e-8
WEIGHT_DECAY = 0.1
"""For weights with two axes, including embeddings; gains and biases do not decay."""

Weights = Mapping[str, np.ndarray]
Gradients = dict[str, np.ndarray]


def forward(
    weights: Weights, tokens_BT: np.ndarray, n_layer: int, n_head: int
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """Return the logits of every position, and the function from their gradient to the gradient of each weight."""
    seq_len = tokens_BT.shape[1]
    wte_VC, wpe_PC = weights["wte"], weights["wpe"]
    bias_TT = causal_bias(seq_len, wte_VC.dtype.type)
    x_BTC = wte_VC[tokens_BT] + wpe_PC[:seq_len]
    pullbacks = []
    for layer in range(n_layer):
        x_BTC, pullback = block(x_BTC, select(weights, f"h.{layer}"), n_head, "einsum", bias_TT)
        pullbacks.append(pullback)
    normed_BTC, ln_f_pullback = layer_norm(x_BTC, select(weights, "ln_f"))
    logits_BTV = normed_BTC @ wte_VC.T

    def to_weights(d_logits_BTV: np.ndarray) -> Gradients:
        d_x_BTC, d_ln_f = ln_f_pullback(d_logits_BTV @ wte_VC)
        gradients = prefixed("ln_f", d_ln_f)
        for layer in reversed(range(n_layer)):
            d_x_BTC, d_block = pullbacks[layer](d_x_BTC)
            gradients |= prefixed(f"h.{layer}", d_block)
        d_wte_VC = np.einsum("BTV,BTC->VC", d_logits_BTV, normed_BTC)
        np.add.at(d_wte_VC, tokens_BT, d_x_BTC)
        d_wpe_PC = np.zeros_like(wpe_PC)
        d_wpe_PC[:seq_len] = d_x_BTC.sum(axis=0)
        return gradients | {"wte": d_wte_VC, "wpe": d_wpe_PC}

    return logits_BTV, to_weights


def block(
    x_BTC: np.ndarray, weights: Weights, n_head: int, impl: Impl, bias_TT: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray], tuple[np.ndarray, Gradients]]]:
    """Apply attention and MLP, each on its normalised input and with a residual connection."""
    batch_size, seq_len, d_model = x_BTC.shape
    by_head = (batch_size, seq_len, n_head, d_model // n_head)

    h_BTC, ln_1_pullback = layer_norm(x_BTC, select(weights, "ln_1"))
    qkv_BTE, qkv_pullback = linear(h_BTC, select(weights, "attn_qkv"))
    q_BTHD, k_BTHD, v_BTHD = (part.reshape(by_head) for part in np.split(qkv_BTE, 3, axis=-1))
    heads_BTHD, attend_pullback = attend(q_BTHD, k_BTHD, v_BTHD, impl=impl, bias_Tt=bias_TT)
    attended_BTC, proj_pullback = linear(heads_BTHD.reshape(x_BTC.shape), select(weights, "attn_proj"))
    x_BTC = x_BTC + attended_BTC

    h_BTC, ln_2_pullback = layer_norm(x_BTC, select(weights, "ln_2"))
    inner_BTF, fc_pullback = linear(h_BTC, select(weights, "mlp_fc"))
    inner_BTF, gelu_pullback = gelu(inner_BTF)
    mlp_BTC, mlp_proj_pullback = linear(inner_BTF, select(weights, "mlp_proj"))

    def pullback(d_x_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_inner_BTF, d_mlp_proj = mlp_proj_pullback(d_x_BTC)
        d_h_BTC, d_fc = fc_pullback(gelu_pullback(d_inner_BTF))
        d_branch_BTC, d_ln_2 = ln_2_pullback(d_h_BTC)
        d_x_BTC = d_x_BTC + d_branch_BTC

        d_attended_BTC, d_proj = proj_pullback(d_x_BTC)
        d_qkv = [part.reshape(d_x_BTC.shape) for part in attend_pullback(d_attended_BTC.reshape(by_head))]
        d_h_BTC, d_qkv_weights = qkv_pullback(np.concatenate(d_qkv, axis=-1))
        d_branch_BTC, d_ln_1 = ln_1_pullback(d_h_BTC)
        gradients = {
            **prefixed("ln_1", d_ln_1),
            **prefixed("attn_qkv", d_qkv_weights),
            **prefixed("attn_proj", d_proj),
            **prefixed("ln_2", d_ln_2),
            **prefixed("mlp_fc", d_fc),
            **prefixed("mlp_proj", d_mlp_proj),
        }
        return d_x_BTC + d_branch_BTC, gradients

    return x_BTC + mlp_BTC, pullback


def linear(
    x_BTI: np.ndarray, weights: Weights
) -> tuple[np.ndarray, Callable[[np.ndarray], tuple[np.ndarray, Gradients]]]:
    """Return x·kernel + bias."""
    kernel_IO = weights["kernel"]

    def pullback(d_y_BTO: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_kernel_IO = np.einsum("BTI,BTO->IO", x_BTI, d_y_BTO)
        return d_y_BTO @ kernel_IO.T, {"kernel": d_kernel_IO, "bias": d_y_BTO.sum(axis=(0, 1))}

    return x_BTI @ kernel_IO + weights["bias"], pullback


def layer_norm(
    x_BTC: np.ndarray, weights: Weights
) -> tuple[np.ndarray, Callable[[np.ndarray], tuple[np.ndarray, Gradients]]]:
    """Normalise to zero mean and unit variance across C, then apply gain and bias (Ba et al., 2016)."""
    scale_C = weights["scale"]
    centred_BTC = x_BTC - x_BTC.mean(axis=-1, keepdims=True)
    rstd_BT1 = 1 / np.sqrt(np.square(centred_BTC).mean(axis=-1, keepdims=True) + x_BTC.dtype.type(LAYER_NORM_EPS))
    unit_BTC = centred_BTC * rstd_BT1

    def pullback(d_y_BTC: np.ndarray) -> tuple[np.ndarray, Gradients]:
        d_unit_BTC = d_y_BTC * scale_C
        along_BT1 = (d_unit_BTC * unit_BTC).mean(axis=-1, keepdims=True)
        d_x_BTC = rstd_BT1 * (d_unit_BTC - d_unit_BTC.mean(axis=-1, keepdims=True) - unit_BTC * along_BT1)
        return d_x_BTC, {"scale": (d_y_BTC * unit_BTC).sum(axis=(0, 1)), "bias": d_y_BTC.sum(axis=(0, 1))}

    return unit_BTC * scale_C + weights["bias"], pullback


def gelu(x: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """Return x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))), GPT-2's approximate GELU (Hendrycks and Gimpel, 2016)."""
    slope, cubic = (2 / np.pi) ** 0.5, 0.044715
    tanh = np.tanh(slope * x * (1 + cubic * x * x))

    def pullback(d_y: np.ndarray) -> np.ndarray:
        d_tanh = (1 - tanh * tanh) * slope * (1 + 3 * cubic * x * x)
        d_x: np.ndarray = d_y * (0.5 * (1 + tanh) + 0.5 * x * d_tanh)
        return d_x

    return 0.5 * x * (1 + tanh), pullback


def cross_entropy(logits_BTV: np.ndarray, targets_BT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of −log softmax(logits) at the targets, and its gradient with respect to the logits."""
    targets_BT1 = targets_BT[..., None]
    shifted_BTV = logits_BTV - logits_BTV.max(axis=-1, keepdims=True)
    log_softmax_BTV = shifted_BTV - np.log(np.exp(shifted_BTV).sum(axis=-1, keepdims=True))
    loss = -np.take_along_axis(log_softmax_BTV, targets_BT1, axis=-1).mean()
    d_logits_BTV = np.exp(log_softmax_BTV)
    np.put_along_axis(d_logits_BTV, targets_BT1, np.take_along_axis(d_logits_BTV, targets_BT1, axis=-1) - 1, axis=-1)
    return np.asarray(loss), d_logits_BTV / targets_BT.size


class AdamW:
    """AdamW (Loshchilov and Hutter, 2019) with bias correction."""

    def __init__(self, weights: Weights) -> None:
        self.steps = 0
        self.first = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.second = {name: np.zeros_like(weight) for name, weight in weights.items()}

    def step(self, weights: Weights, gradients: Weights) -> None:
        """Update the weights in place."""
        self.steps += 1
        for name, weight in weights.items():
            gradient = gradients[name]
            self.first[name] = BETA_1 * self.first[name] + (1 - BETA_1) * gradient
            self.second[name] = BETA_2 * self.second[name] + (1 - BETA_2) * gradient**2
            mean = self.first[name] / (1 - BETA_1**self.steps)
            deviation = np.sqrt(self.second[name] / (1 - BETA_2**self.steps))
            decay = WEIGHT_DECAY * weight if weight.ndim == 2 else 0.0
            weight[...] -= LEARNING_RATE * (mean / (deviation + ADAM_EPS) + decay)


def select(weights: Weights, prefix: str) -> dict[str, np.ndarray]:
    """Return the weights whose names begin with a prefix, without the prefix."""
    start = prefix + "."
    return {name.removeprefix(start): weight for name, weight in weights.items() if name.startswith(start)}


def prefixed(prefix: str, gradients: Gradients) -> Gradients:
    """Return the gradients with a prefix added to their names."""
    return {f"{prefix}.{name}": gradient for name, gradient in gradients.items()}
