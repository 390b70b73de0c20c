"""MLP in NumPy, on its BLAS."""

from dataclasses import replace

import numpy as np

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_problems.mlp import Mlp
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support(DONE)


@hookimpl
def build_workload(case: Case, problem: Mlp, data: Data) -> Workload:
    """Build a step: the outputs of a batch; weights that are stored by output are transposed views."""
    stored = {name: np.ascontiguousarray(w.T).T if problem.by_output else w for name, w in data.weights.items()}
    return workload(case, replace(data, weights=stored), problem.step)
