"""LSTM in JAX: the products with the inputs of all positions at once, then a scan over the positions.

Shapes: T sequence, B batch, I size of an input, H hidden size, E the gates i, f, g, o.
"""

from collections.abc import Callable, Mapping
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.lstm import PRECISIONS_DONE, Lstm

Weights = Mapping[str, Array]
State = tuple[Array, Array]


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type."""
    return Support(PRECISIONS_DONE)


def lstm(weights: Weights, x_TBI: Array, layers: int) -> Array:
    """Return the outputs of the last layer, [T, B, H]."""
    with jax.named_scope("lstm"):
        for number in range(layers):
            x_TBI = layer(x_TBI, weights[f"{number}.w_x"], weights[f"{number}.w_h"], weights[f"{number}.b"])
        return x_TBI


def layer(x_TBI: Array, w_x_IE: Array, w_h_HE: Array, b_E: Array) -> Array:
    """Return the outputs of one layer."""

    def cell(state: State, projected_BE: Array) -> tuple[State, Array]:
        h_BH, c_BH = state
        i_BH, f_BH, g_BH, o_BH = jnp.split(projected_BE + h_BH @ w_h_HE, 4, axis=-1)
        c_BH = jax.nn.sigmoid(f_BH) * c_BH + jax.nn.sigmoid(i_BH) * jnp.tanh(g_BH)
        h_BH = jax.nn.sigmoid(o_BH) * jnp.tanh(c_BH)
        return (h_BH, c_BH), h_BH

    zeros_BH = jnp.zeros((x_TBI.shape[1], w_h_HE.shape[0]), x_TBI.dtype)
    _, out_TBH = jax.lax.scan(cell, (zeros_BH, zeros_BH), x_TBI @ w_x_IE + b_E)
    return out_TBH


def step_function(problem: Lstm, mode: Mode) -> Callable[..., dict[str, Array]]:
    """Return the function from (weights, x) to the outputs, or with backward from (weights, x, d_out)."""

    def forward(weights: Weights, x: Array) -> dict[str, Array]:
        return {"out": lstm(weights, x, problem.layers)}

    def forward_backward(weights: Weights, x: Array, d_out: Array) -> dict[str, Array]:
        out, pullback = jax.vjp(lambda weights, x: lstm(weights, x, problem.layers), weights, x)
        gradients, d_x = pullback(d_out)
        return {"out": out, "d_x": d_x, **{f"d_{name}": gradient for name, gradient in gradients.items()}}

    return forward if mode == "inference" else forward_backward


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Lstm, data: Data) -> Workload:
    """Build a step: the outputs of one batch; in `forward_backward` also the gradients of inputs and weights."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    function = jax.jit(step_function(problem, case.mode))
    names = ("x",) if case.mode == "inference" else ("x", "d_out")
    weights = {name: framework.put(weight, dtype) for name, weight in data.weights.items()}
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in names) for batch in data.batches])

    def step() -> dict[str, Array]:
        return function(weights, *next(batches))

    def outputs(result: dict[str, Array]) -> Mapping[str, np.ndarray]:
        return {name: np.asarray(value, np.float64) for name, value in result.items()}

    return Workload(step, outputs)
