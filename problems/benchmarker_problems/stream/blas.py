"""STREAM's copy in a bare BLAS. There is no triad: `axpy` and `axpby` overwrite one of their inputs."""

from ctypes import c_int64
from functools import partial

import numpy as np

from benchmarker import Arrays, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.blas import DTYPES, BlasFramework, pointer
from benchmarker_problems.steps import calls
from benchmarker_problems.steps.calls import Prepared
from benchmarker_problems.stream import Stream


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; only the copy is supported."""
    return Support({"inference": tuple(DTYPES)}, choices={"op": ("copy",)})


@hookimpl
def build_workload(framework: BlasFramework, case: Case, problem: Stream, data: Data) -> Workload:
    """Build a step: one call of `cblas_dcopy` or `cblas_scopy`."""
    copy, length, distance = framework.routine("copy", DTYPES[case.precision]), c_int64(problem.n), c_int64(1)

    def prepared(batch: Arrays) -> Prepared:
        a, b = np.zeros_like(batch["b"]), batch["b"].copy()
        return {"a": a}, [partial(copy, length, pointer(b), distance, pointer(a), distance)]

    return calls.workload(map(prepared, data.batches))
