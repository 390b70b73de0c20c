"""FFT in SciPy, whose pocketfft computes in the type of its argument and on several threads."""

import scipy.fft

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.numpy import NumpyFramework
from benchmarker_problems.fft import AXES, Fft
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that pocketfft supports."""
    return Support(DONE)


@hookimpl
def build_workload(framework: NumpyFramework, case: Case, problem: Fft, data: Data) -> Workload:
    """Build a step: the transforms of one batch, on as many threads as the BLAS has."""
    transform = scipy.fft.fftn if problem.direction == "forward" else scipy.fft.ifftn
    workers = framework.threads()
    return workload(case, data, lambda _, batch, __: {"y": transform(batch["x"], axes=AXES, workers=workers)})
