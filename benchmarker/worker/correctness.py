"""Check a workload's outputs against the problem's float64 reference."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarker.records.record import Check

if TYPE_CHECKING:
    from benchmarker.api.case import Case
    from benchmarker.api.problem import Data, Problem, Workload

TRAINING_STEPS = 3
"""Steps in a check of training: the later losses show whether the first gradients were right."""


@dataclass(frozen=True, slots=True)
class Compared:
    """How the outputs that one process has compare with the reference: the largest error, and both names by step.

    `copies` has, for each device of the process, digests of the weights that all devices must have alike.
    """

    worst: Check
    observed: tuple[tuple[str, ...], ...]
    expected: tuple[tuple[str, ...], ...]
    copies: tuple[dict[str, str], ...] = ()


def check(workload: Workload, data: Data, problem: Problem, params: Any, case: Case) -> Check:
    """Check a workload against the reference for the same parameters and data.

    Raises `RuntimeError` if its outputs have other names or shapes than those of the reference, or if the reference
    itself is not finite.
    """
    return worst_of([compare(workload, data, problem, params, case)])


def worst_of(ranks: Sequence[Compared]) -> Check:
    """Return the check with the largest error of several ranks, which together must have all outputs."""
    for step, names in enumerate(ranks[0].expected):
        observed = {name for rank in ranks for name in rank.observed[step]}
        if not names or observed != set(names):
            raise RuntimeError(f"the outputs are {sorted(observed)}, but the reference has {sorted(names)}")
    return max((rank.worst for rank in ranks), key=lambda check: check.error)


def unlike_weights(ranks: Sequence[Compared]) -> str:
    """Return which weight is not the same to the bit on all devices of several ranks; empty if there is none."""
    devices = [copies for rank in ranks for copies in rank.copies]
    for device, copies in enumerate(devices):
        for name, digest in copies.items():
            if digest != devices[0][name]:
                return f"after {TRAINING_STEPS} steps, {name} of device {device} is not that of device 0"
    return ""


def compare(workload: Workload, data: Data, problem: Problem, params: Any, case: Case) -> Compared:
    """Compare the outputs that this process has with the reference; raises `RuntimeError` as `check` does."""
    steps = TRAINING_STEPS if case.mode == "training" else problem.check_steps(params)
    bound = problem.bound(params, case.mode, case.precision)
    reference = problem.reference(params, data, case.mode)
    outputs = ((next(reference, {}), workload.outputs(workload.step())) for _ in range(steps))
    compared = _compared(outputs, bound)
    if workload.weights is None:
        return compared
    return replace(compared, copies=tuple(map(_digests, workload.weights())))


def compare_gradients(workload: Workload, data: Data, problem: Problem, params: Any) -> Compared:
    """Compare the gradients that each device of this process has in a step in fp64 with those of the whole batch.

    The losses of a few steps do not suffice: AdamW takes gradients that are too large by a factor for the right ones,
    and in a short type a loss is hardly worse if each device trains by itself. Raises `RuntimeError` as `check` does,
    and if the workload has no gradients.
    """
    if workload.gradients is None:
        raise RuntimeError("it divides a training step, but has no Workload.gradients to check the exchange by")
    exact = next(problem.reference(params, data, "forward_backward"))
    bound = problem.bound(params, "forward_backward", "fp64")
    return _compared([(exact, gradients) for gradients in workload.gradients()], bound)


def _compared(outputs: Iterable[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]], bound: float) -> Compared:
    """Compare pairs of expected and observed outputs, each before the next step, which may overwrite them."""
    worst = Check(error=-1.0, output="", bound=bound, ok=False)
    names: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for expected, observed in outputs:
        names.append((tuple(observed), tuple(expected)))
        for name, exact in expected.items():
            if name in observed and (error := relative_error(_whole(observed[name]), exact)) > worst.error:
                worst = Check(error=error, output=name, bound=bound, ok=error <= bound)
    return Compared(worst, *zip(*names, strict=True))


def _digests(weights: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {name: blake2b(value.tobytes(), digest_size=8).hexdigest() for name, value in weights.items()}


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
