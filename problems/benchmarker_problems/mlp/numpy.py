"""MLP in NumPy, on its BLAS."""

import numpy as np

from benchmarker import Arrays, Case, Data, Mode, Support, Workload, hookimpl
from benchmarker_problems.mlp import Mlp
from benchmarker_problems.steps.numpy import DONE, workload


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support(DONE)


@hookimpl
def build_workload(case: Case, problem: Mlp, data: Data) -> Workload:
    """Build a step: the outputs of a batch; weights that are stored by output are transposed views."""
    weights = [np.ascontiguousarray(w.T).T if problem.by_output else w for w in data.weights.values()]

    def step(_: Arrays, batch: Arrays, __: Mode) -> Arrays:
        y_BC = batch["x"]
        for w in weights:
            y_BC = np.tanh(y_BC @ w)
        return {"y": y_BC}

    return workload(case, data, step)
