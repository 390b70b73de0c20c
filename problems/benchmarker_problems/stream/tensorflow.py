"""STREAM in TensorFlow."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.tensorflow import CPU, DTYPES, TensorFlow
from benchmarker_problems.stream import PRECISIONS_DONE, SCALAR, Stream


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; both operations are supported."""
    return Support(PRECISIONS_DONE)


def copy(a: Any, b: Any) -> None:
    """Write `b` to the variable `a`."""
    with tf.name_scope("stream"):
        a.assign(b)


def triad(a: Any, b: Any, c: Any) -> None:
    """Write b + 3·c to the variable `a`."""
    with tf.name_scope("stream"):
        a.assign(b + tf.constant(SCALAR, b.dtype) * c)


@hookimpl
def build_workload(framework: TensorFlow, case: Case, problem: Stream, data: Data) -> Workload:
    """Build a step: one pass, into the variable of its set of inputs, whose memory XLA writes to."""
    dtype = DTYPES[case.precision]
    names = ("b",) if problem.op == "copy" else ("b", "c")
    function = framework.compiled(copy if problem.op == "copy" else triad)

    def arrays(batch: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
        with tf.device(CPU):
            a = tf.Variable(tf.zeros(problem.n, dtype))
        return (a, *(framework.put(batch[name], dtype) for name in names))

    sets = cycle([arrays(batch) for batch in data.batches])

    def step() -> Any:
        arguments = next(sets)
        function(*arguments)
        return arguments[0]

    def outputs(result: Any) -> Mapping[str, np.ndarray]:
        return {"a": result.numpy().astype(np.float64)}

    return Workload(step, outputs)
