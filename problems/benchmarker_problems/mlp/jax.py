"""MLP in JAX."""

from collections.abc import Callable, Mapping
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.gemm.jax import product_by_output
from benchmarker_problems.mlp import PRECISIONS_DONE, Mlp

Weights = Mapping[str, Array]


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type."""
    return Support(PRECISIONS_DONE)


def step_function(problem: Mlp, mode: Mode) -> Callable[..., dict[str, Array]]:
    """Return the function from (weights, x) to the outputs, or with backward from (weights, x, d_y)."""

    def mlp(weights: Weights, x_BC: Array) -> Array:
        for name in problem.names:
            with jax.named_scope(name), jax.named_scope("layer"):
                product_BC = product_by_output(x_BC, weights[name]) if problem.by_output else x_BC @ weights[name]
                x_BC = jnp.tanh(product_BC)
        return x_BC

    def forward(weights: Weights, x_BC: Array) -> dict[str, Array]:
        return {"y": mlp(weights, x_BC)}

    def forward_backward(weights: Weights, x_BC: Array, d_y_BC: Array) -> dict[str, Array]:
        y_BC, pullback = jax.vjp(mlp, weights, x_BC)
        gradients, d_x_BC = pullback(d_y_BC)
        return {"y": y_BC, "d_x": d_x_BC, **{f"d_{name}": gradient for name, gradient in gradients.items()}}

    return forward if mode == "inference" else forward_backward


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Mlp, data: Data) -> Workload:
    """Build a step: the outputs of a batch; in `forward_backward` also the gradients of inputs and weights."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    function = jax.jit(step_function(problem, case.mode))
    names = ("x",) if case.mode == "inference" else ("x", "d_y")
    weights = {name: framework.put(w.T if problem.by_output else w, dtype) for name, w in data.weights.items()}
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in names) for batch in data.batches])

    def step() -> dict[str, Array]:
        return function(weights, *next(batches))

    def outputs(result: dict[str, Array]) -> Mapping[str, np.ndarray]:
        is_turned = {f"d_{name}": problem.by_output for name in problem.names}
        named = {name: np.asarray(value, np.float64) for name, value in result.items()}
        return {name: value.T if is_turned.get(name) else value for name, value in named.items()}

    return Workload(step, outputs)
