"""MLP in TensorFlow."""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarker import STORED_FLOATS, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.tensorflow import DTYPES, TensorFlow
from benchmarker_problems.mlp import PRECISIONS_DONE, Mlp

Weights = dict[str, Any]


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type that is stored."""
    return Support(dict.fromkeys(PRECISIONS_DONE, STORED_FLOATS))


def step_function(problem: Mlp, mode: Mode) -> Callable[..., dict[str, Any]]:
    """Return the function from (weights, x) to the outputs, or with backward from (weights, x, d_y)."""

    def forward(weights: Weights, x_BC: Any) -> dict[str, Any]:
        for name in problem.names:
            with tf.name_scope(name), tf.name_scope("layer"):
                x_BC = tf.tanh(tf.matmul(x_BC, weights[name], transpose_b=problem.by_output))
        return {"y": x_BC}

    def forward_backward(weights: Weights, x_BC: Any, d_y_BC: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            tape.watch((weights, x_BC))
            y_BC = forward(weights, x_BC)["y"]
        gradients, d_x_BC = tape.gradient(y_BC, (weights, x_BC), d_y_BC)
        return {"y": y_BC, "d_x": d_x_BC, **{f"d_{name}": gradient for name, gradient in gradients.items()}}

    return forward if mode == "inference" else forward_backward


@hookimpl
def build_workload(framework: TensorFlow, case: Case, problem: Mlp, data: Data) -> Workload:
    """Build a step: the outputs of a batch; in `forward_backward` also the gradients of inputs and weights."""
    dtype = DTYPES[case.precision]
    function = framework.compiled(step_function(problem, case.mode))
    names = ("x",) if case.mode == "inference" else ("x", "d_y")
    weights = {name: framework.put(w.T if problem.by_output else w, dtype) for name, w in data.weights.items()}
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in names) for batch in data.batches])

    def step() -> dict[str, Any]:
        return function(weights, *next(batches))

    def outputs(result: dict[str, Any]) -> Mapping[str, np.ndarray]:
        is_turned = {f"d_{name}": problem.by_output for name in problem.names}
        named = {name: value.numpy().astype(np.float64) for name, value in result.items()}
        return {name: value.T if is_turned.get(name) else value for name, value in named.items()}

    return Workload(step, outputs)
