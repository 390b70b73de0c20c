"""GEMM in TensorFlow."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarker import STORED_FLOATS, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.tensorflow import DTYPES, TensorFlow
from benchmarker_problems.gemm import INPUTS, OUTPUTS, Gemm


@hookimpl
def describe_workload() -> Support:
    """Return the types of each mode; integers have no gradient."""
    return Support({"inference": (*STORED_FLOATS, "int8"), "forward_backward": STORED_FLOATS})


def step_function(problem: Gemm, precision: str, mode: Mode) -> Callable[..., tuple[Any, ...]]:
    """Return the function from (a, b) to (c,), or with backward from (a, b, dc) to (c, da, db)."""
    multiply = partial(
        tf.matmul,
        transpose_a=problem.transpose_a,
        transpose_b=problem.transpose_b,
        output_type=tf.int32 if precision == "int8" else None,
    )

    def forward(a: Any, b: Any) -> tuple[Any, ...]:
        with tf.name_scope("gemm"):
            return (multiply(a, b),)

    def forward_backward(a: Any, b: Any, dc: Any) -> tuple[Any, ...]:
        with tf.GradientTape() as tape:
            tape.watch((a, b))
            (c_MN,) = forward(a, b)
        return (c_MN, *tape.gradient(c_MN, (a, b), dc))

    return forward if mode == "inference" else forward_backward


@hookimpl
def build_workload(framework: TensorFlow, case: Case, problem: Gemm, data: Data) -> Workload:
    """Build a step: one product; in `forward_backward` also the gradients of A and B, by a tape."""
    dtype, names = DTYPES[case.precision], INPUTS[case.mode]
    function = framework.compiled(step_function(problem, case.precision, case.mode))
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in names) for batch in data.batches])

    def step() -> tuple[Any, ...]:
        return function(*next(batches))

    def outputs(result: tuple[Any, ...]) -> Mapping[str, np.ndarray]:
        return {name: value.numpy().astype(np.float64) for name, value in zip(OUTPUTS, result, strict=False)}

    return Workload(step, outputs)
