"""Stencil in JAX."""

from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.stencil import CENTRE, INNER, NEIGHBOUR, neighbours


@hookimpl
def describe_workload() -> Support:
    """Return the types of scientific computing."""
    return Support({"inference": ("fp64", "fp32")})


def sweep(v_XYZ: Array, u_XYZ: Array) -> Array:
    """Return the grid after a sweep over `u_XYZ`, in the donated memory of `v_XYZ`, which has the same boundary."""
    with jax.named_scope("sweep"):
        return v_XYZ.at[INNER].set(CENTRE * u_XYZ[INNER] + NEIGHBOUR * sum(neighbours(u_XYZ)))


@hookimpl
def build_workload(framework: JaxFramework, case: Case, data: Data) -> Workload:
    """Build a step: one sweep; XLA fuses it, and writes to the result of the previous step."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    batches = cycle([framework.put(batch["u"], dtype) for batch in data.batches])
    function = jax.jit(sweep, donate_argnums=0)
    v_XYZ = jnp.array(framework.put(data.batches[0]["u"], dtype), copy=True)  # donated, so no batch may share it

    def step() -> Array:
        nonlocal v_XYZ
        v_XYZ = function(v_XYZ, next(batches))
        return v_XYZ

    def outputs(result_XYZ: Array) -> dict[str, np.ndarray]:
        return {"v": np.array(result_XYZ, np.float64)}

    return Workload(step, outputs)
