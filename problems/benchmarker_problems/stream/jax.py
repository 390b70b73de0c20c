"""STREAM in JAX."""

from collections import deque
from collections.abc import Mapping
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.stream import PRECISIONS_DONE, SCALAR, Stream


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; both operations are supported."""
    return Support(PRECISIONS_DONE)


def copy(a: Array, b: Array) -> Array:
    """Return a copy of `b`, in the donated memory of `a`."""
    with jax.named_scope("stream"):
        return jnp.copy(b)


def triad(a: Array, b: Array, c: Array) -> Array:
    """Return b + 3·c, in the donated memory of `a`."""
    with jax.named_scope("stream"):
        return b + jnp.asarray(SCALAR, b.dtype) * c


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Stream, data: Data) -> Workload:
    """Build a step: one pass; the last result from its set of inputs is donated to it, so no memory is allocated."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    names = ("b",) if problem.op == "copy" else ("b", "c")
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in names) for batch in data.batches])
    function = jax.jit(copy if problem.op == "copy" else triad, donate_argnums=0, keep_unused=True)
    results = deque(framework.put(np.zeros(problem.n), dtype) for _ in data.batches)

    def step() -> Array:
        a = function(results.popleft(), *next(batches))
        results.append(a)
        return a

    def outputs(result: Array) -> Mapping[str, np.ndarray]:
        return {"a": np.asarray(result, np.float64)}

    return Workload(step, outputs)
