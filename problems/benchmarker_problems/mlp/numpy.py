"""MLP in NumPy, on its BLAS."""

import numpy as np

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_problems.mlp import Mlp
from benchmarker_problems.steps.numpy import DONE, workload
from benchmarker_problems.steps.reference import Batch, Weights


@hookimpl
def describe_workload() -> Support:
    """Return the types that BLAS supports."""
    return Support(DONE)


@hookimpl
def build_workload(case: Case, problem: Mlp, data: Data) -> Workload:
    """Build a step: the outputs of a batch; weights that are stored by output are transposed views."""
    stored = {name: np.ascontiguousarray(w.T).T if problem.by_output else w for name, w in data.weights.items()}

    def forward(_: Weights, batch: Batch) -> tuple[np.ndarray, None]:
        y_BC = batch["x"]
        for name in problem.names:
            y_BC = np.tanh(y_BC @ stored[name])
        return y_BC, None

    return workload(case, data, "y", forward)
