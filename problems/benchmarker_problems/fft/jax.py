"""FFT in JAX."""

from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import JaxFramework
from benchmarker_problems.fft import AXES, Fft


@hookimpl
def describe_workload() -> Support:
    """Return the types of which XLA has complex numbers."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(framework: JaxFramework, problem: Fft, data: Data) -> Workload:
    """Build a step: the transforms of one batch."""
    transform = jnp.fft.fftn if problem.direction == "forward" else jnp.fft.ifftn
    batches = cycle([framework.put(batch["x"]) for batch in data.batches])

    @jax.jit
    def function(x_BXYZ: Array) -> Array:
        with jax.named_scope("fft"):
            return transform(x_BXYZ, axes=AXES)

    def step() -> Array:
        return function(next(batches))

    return Workload(step, lambda y_BXYZ: {"y": np.asarray(y_BXYZ, np.complex128)})
