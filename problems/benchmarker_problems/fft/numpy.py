"""FFT in SciPy, whose pocketfft computes in the type of its argument and on several threads."""

from itertools import cycle

import numpy as np
import scipy.fft

from benchmarker import Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.numpy import NumpyFramework
from benchmarker_problems.fft import AXES, Fft


@hookimpl
def describe_workload() -> Support:
    """Return the types that pocketfft supports."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(framework: NumpyFramework, problem: Fft, data: Data) -> Workload:
    """Build a step: the transforms of one batch, on as many threads as the BLAS has."""
    transform = scipy.fft.fftn if problem.direction == "forward" else scipy.fft.ifftn
    batches = cycle([batch["x"] for batch in data.batches])
    workers = framework.threads()

    def step() -> np.ndarray:
        y_BXYZ: np.ndarray = transform(next(batches), axes=AXES, workers=workers)
        return y_BXYZ

    return Workload(step, lambda y_BXYZ: {"y": y_BXYZ})
