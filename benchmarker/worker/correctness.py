"""Check a workload's outputs against the problem's float64 reference."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarker.records.record import Check

if TYPE_CHECKING:
    from benchmarker.api.case import Case
    from benchmarker.api.problem import Data, Problem, Workload

TRAINING_STEPS = 3
"""Steps in a check of training: the later losses show whether the first gradients were right."""


def check(workload: Workload, data: Data, problem: Problem, params: Any, case: Case) -> Check:
    """Check a workload against the reference for the same parameters and data.

    Raises `RuntimeError` if its outputs have other names or shapes than those of the reference, or if the reference
    itself is not finite.
    """
    steps = TRAINING_STEPS if case.mode == "training" else problem.check_steps(params)
    bound = problem.bound(params, case.mode, case.precision)
    worst = Check(error=-1.0, output="", bound=bound, ok=False)
    reference = problem.reference(params, data, case.mode)
    for _ in range(steps):
        expected = next(reference)
        observed = workload.outputs(workload.step())
        if not expected or observed.keys() != expected.keys():
            raise RuntimeError(f"the outputs are {sorted(observed)}, but the reference has {sorted(expected)}")
        for name, exact in expected.items():
            error = relative_error(_whole(observed[name]), exact)
            if error > worst.error:
                worst = Check(error=error, output=name, bound=bound, ok=error <= bound)
    return worst


def _whole(value: np.ndarray) -> np.ndarray:
    """Return the output in float64, or complex128: an imaginary part must not be dropped."""
    value = np.asarray(value)
    return value.astype(np.complex128 if np.iscomplexobj(value) else np.float64)


def relative_error(value: np.ndarray, exact: np.ndarray) -> float:
    """‖value − exact‖₂ / ‖exact‖₂; the largest float if `value` contains NaN or infinity."""
    if value.shape != exact.shape:
        raise RuntimeError(f"an output has shape {value.shape}, but the reference has {exact.shape}")
    if not np.isfinite(exact).all():
        raise RuntimeError("the reference contains NaN or infinity")
    if not np.isfinite(value).all():
        return sys.float_info.max
    return float(np.linalg.norm(value - exact) / (np.linalg.norm(exact) or 1.0))
