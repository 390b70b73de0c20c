"""Check a workload's outputs against the problem's float64 reference."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from math import inf
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from benchmarker.api.case import Case
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import Data, Generates, Problem, Workload
from benchmarker.records.record import Check, Componentwise
from benchmarker.worker.rounding import rounded, to_type

REFERENCE = "reference"
Outputs = Mapping[str, np.ndarray]
"""What a step gives, by name."""
TRAINING_STEPS = 3
"""Steps in a check of training: the later losses show whether the first gradients were right."""
MARGIN = 2.0
"""How much larger the error of a correct result in a short type may be than that of the reference in this type.

Implementations round less than it does: compilers and fused kernels keep intermediate results in fp32. But each rounds
other results. The next shorter type has errors at least eight times as large: fp16 and tf32 have three bits more than
bf16.
"""
NOTHING = Check(error=-1.0, output="", bound=1.0, ok=False)
"""The check of a rank that has none of the outputs."""
FEW = 32
"""Numbers of an output below which its error may be small by chance."""
ROUNDOFFS = 32
"""Unit roundoffs of the lowest type that are allowed if all that is compared are so few numbers, such as losses."""


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the errors of single elements are shares of, by step, and the largest share that counts as correct."""

    steps: Sequence[Outputs]
    bounds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Compared:
    """How the outputs that one process has compare with the reference: the worst error, and both names by step.

    `copies` has, for each device of the process, digests of the weights that all devices must have alike.
    """

    worst: Check
    observed: tuple[tuple[str, ...], ...]
    expected: tuple[tuple[str, ...], ...]
    copies: tuple[dict[str, str], ...] = ()


def check(workload: Workload, data: Data, problem: Problem, case: Case) -> Check | str:
    """Check a workload against the reference for the same problem and data, or return why there is nothing to.

    Raises `RuntimeError` if its outputs have other names or shapes than those of the reference, or if the reference
    itself is not finite.
    """
    compared = compare(workload, data, problem, case)
    return compared if isinstance(compared, str) else worst_of([compared])


def worst_of(ranks: Sequence[Compared]) -> Check:
    """Return the check with the worst error of several ranks, which together must have all outputs."""
    for step, names in enumerate(ranks[0].expected):
        observed = {name for rank in ranks for name in rank.observed[step]}
        if not observed >= set(names) or not names or (step == 0 and observed > set(names)):
            raise RuntimeError(f"the outputs are {sorted(observed)}, but the reference has {sorted(names)}")
    return _worst([rank.worst for rank in ranks])


def unlike_weights(ranks: Sequence[Compared]) -> str:
    """Return which weight is not the same to the bit on all devices of several ranks; empty if there is none."""
    devices = [copies for rank in ranks for copies in rank.copies]
    for device, copies in enumerate(devices):
        for name, digest in copies.items():
            if digest != devices[0][name]:
                return f"after {TRAINING_STEPS} steps, {name} of device {device} is not that of device 0"
    return ""


def compare(workload: Workload, data: Data, problem: Problem, case: Case) -> Compared | str:
    """Compare the outputs that this process has with what they are held to, or return why there is nothing to.

    Raises `RuntimeError` as `check` does.
    """
    sums = None
    if workload.exact:
        exact = workload.exact()
        if isinstance(exact, str):
            return exact
        reference, bounds, against, elements = exact.steps, exact.bounds, exact.against, exact.elements
    else:
        steps = partial(steps_of, problem, case)
        reference = steps(data)
        bounds, against = bounds_of(problem, case, data, steps, reference), REFERENCE
        elements = {}
        if problem.sums_products:
            of_sums = steps(absolute(data))
            sums = _Sums(of_sums, bounds_of(problem, case, data, steps, reference, of_sums))
    outputs = ((expected, workload.outputs(workload.step())) for expected in reference)
    compared = _compared(outputs, bounds, against, elements, sums)
    if workload.weights is None:
        return compared
    return replace(compared, copies=tuple(map(_digests, workload.weights())))


def compare_gradients(workload: Workload, data: Data, problem: Problem) -> Compared:
    """Compare the gradients that each device of this process has in a step in fp64 with those of the whole batch.

    The losses of a few steps do not suffice: AdamW takes gradients that are too large by a factor for the right ones.
    Nor does the precision of a case: in a short type, rounding hides what is wrong with a few of many devices. Raises
    `RuntimeError` as `check` does, and if the workload has no gradients.
    """
    if workload.gradients is None:
        raise RuntimeError("it divides a training step, but has no Workload.gradients to check the exchange by")
    exact = next(problem.reference(data, "forward_backward"))
    bound = problem.numerics("forward_backward", "fp64").bound
    return _compared([(exact, gradients) for gradients in workload.gradients()], dict.fromkeys(exact, bound))


def _compared(
    outputs: Iterable[tuple[Outputs, Outputs]],
    bounds: Mapping[str, float],
    against: str = REFERENCE,
    elements: Mapping[str, float] = MappingProxyType({}),
    sums: _Sums | None = None,
) -> Compared:
    """Compare pairs of expected and observed outputs, each before the next step, which may overwrite them.

    An error is the worse the larger its share of its bound. That of a single element, of outputs that are right as a
    whole, counts if it is above that of `elements`. Elements that are `sums` of products have a bound of their own.
    """
    checks = []
    names: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for step, (expected, observed) in enumerate(outputs):
        names.append((tuple(observed), tuple(expected)))
        for name, exact in expected.items():
            if name in observed:
                value, bound = _whole(observed[name]), bounds[name]
                error = relative_error(value, exact)
                what = name
                if error <= bound and name in elements and (of_one := element_error(value, exact)) > elements[name]:
                    what, error, bound = f"one element of {name}", of_one, elements[name]
                place = "" if error <= bound else _worst_place(value, exact, 1.0 if what == name else _scale(exact))
                by_element = _by_element(name, value, exact, sums, step) if sums else None
                checks.append(Check(error, what, bound, error <= bound, against, place, by_element))
    return Compared(_worst(checks) if checks else NOTHING, *zip(*names, strict=True))


def _worst(checks: Sequence[Check]) -> Check:
    """Return the check with the worst error and the worst of a single element, which may be of two outputs."""
    by_element = [check.componentwise for check in checks if check.componentwise]
    worst = msgspec.structs.replace(
        max(checks, key=_error_in_bounds), componentwise=max(by_element, key=_error_in_bounds, default=None)
    )
    return msgspec.structs.replace(worst, ok=worst.is_within)


def _by_element(name: str, value: np.ndarray, exact: np.ndarray, sums: _Sums, step: int) -> Componentwise:
    """Compare the elements of an output that are sums of products."""
    scale, bound = sums.steps[step][name], sums.bounds[name]
    error = componentwise_error(value, exact, scale)
    place = "" if error <= bound else _worst_place(value, exact, _or_1(scale))
    return Componentwise(error, name, bound, place)


def _worst_place(value: np.ndarray, exact: np.ndarray, scale: np.ndarray | float) -> str:
    """Return the element that is farthest off in a scale, or the first that is not finite: `[3, 17] is 0.51, not 0.75`.

    A single number has no place: ` is 0.51, not 0.75`. Numbers have as many digits as it takes to tell them apart.
    """
    off = np.abs(value - exact) / scale
    distance = np.where(np.isfinite(value), off, np.inf)
    index = np.unravel_index(int(np.argmax(distance)), exact.shape)
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return f"{place} {_told_apart(value[index], exact[index])}"


def _told_apart(value: Any, exact: Any) -> str:
    """Return what a number is and should be, with as many digits as it takes to tell them apart."""
    for digits in (4, 8, 12, 17):
        text, right = f"{value:.{digits}g}", f"{exact:.{digits}g}"
        if text != right:
            break
    return f"is {text}, not {right}"


def _error_in_bounds(check: Check | Componentwise) -> float:
    """The error in bounds; infinite if nothing but 0 is allowed."""
    return check.error / check.bound if check.bound else inf * check.error if check.error else 0.0


def steps_of(problem: Problem, case: Case, data: Data) -> list[Outputs]:
    """Return the outputs of the reference in each step that a check compares."""
    reference = problem.reference(data, case.mode)
    own = problem.check_steps() if isinstance(problem, Generates) else 1
    steps = TRAINING_STEPS if case.mode == "training" else own
    return [next(reference, {}) for _ in range(steps)]


def bounds_of(
    problem: Problem,
    case: Case,
    data: Data,
    reference: Callable[[Data], list[Outputs]],
    exact_steps: Sequence[Outputs],
    sums: Sequence[Outputs] = (),
) -> dict[str, float]:
    """Return the largest relative error at which each output counts as correct; `exact_steps` are the reference's.

    That is the bound of the problem. Where weights, inputs or factors have a shorter type than the sums, it is `MARGIN`
    times the error of the reference itself in this type, from the same data, if that is larger. Gradients of weights of
    the same kind, such as all kernels or all biases, have the largest error of any of them in common, and outputs of a
    few numbers that of all outputs. If there are no others, `ROUNDOFFS` are allowed. In arithmetic of which the problem
    states the `deviations`, these are added to its bound. Given the `sums` of absolute products of the reference,
    errors are those of single elements.
    """
    least, types = problem.numerics(case.mode, case.precision).bound, PRECISIONS[case.precision]
    bounds = {name: least for expected in exact_steps for name in expected}
    if (deviations := problem.deviations(data, case.mode, case.precision)) is not None:
        for step, (off, expected) in enumerate(zip(deviations, exact_steps, strict=False)):
            for name, exact in expected.items():
                share = off[name] / _or_1(sums[step][name]) if sums else off[name] / (np.linalg.norm(exact) or 1.0)
                error = float(np.max(share) if sums else np.linalg.norm(share))
                bounds[name] = max(bounds[name], least + error)
        return bounds
    if not types.is_short:
        return bounds
    errors: defaultdict[str, float] = defaultdict(float)
    for step, (outputs, expected) in enumerate(zip(reference(rounded(data, types)), exact_steps, strict=True)):
        for name, exact in expected.items():
            value = to_type(_whole(outputs[name]), types.result)
            error = componentwise_error(value, exact, sums[step][name]) if sums else relative_error(value, exact)
            for kind in ("", _kind(name, exact)):
                errors[kind] = max(errors[kind], error)
    if errors[""] and sum(exact.size for expected in exact_steps for exact in expected.values()) < FEW:
        return dict.fromkeys(bounds, max(least, ROUNDOFFS * types.roundoff))
    for expected in exact_steps:
        for name, exact in expected.items():
            bounds[name] = max(least, MARGIN * errors[_kind(name, exact)])
    return bounds


def _kind(name: str, exact: np.ndarray) -> str:
    """Return with which outputs one has its bound in common: those whose names end alike, or all if it is small."""
    return name.rpartition(".")[2] if exact.size >= FEW else ""


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


def element_error(value: np.ndarray, exact: np.ndarray) -> float:
    """Return max |value − exact| / (|exact| + rms of exact): the worst element's error, which a norm of many hides.

    An element near zero, such as a sum whose terms cancel, has errors as large as those of others.
    """
    return float(np.max(np.abs(value - exact) / _scale(exact), initial=0.0))


def componentwise_error(value: np.ndarray, exact: np.ndarray, sums: np.ndarray) -> float:
    """Return max |value − exact| / sums, where `sums` has the sum of the absolute products of each element.

    Of C = A·B that is |A|·|B|. The error of a sum of k products in any order is at most k·u / (1 − k·u) of it, for a
    unit roundoff u (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.5); it is the largest float
    if `value` contains NaN or infinity. Where no product is other than zero, it is the error itself.
    """
    if not np.isfinite(value).all():
        return sys.float_info.max
    return float(np.max(np.abs(value - exact) / _or_1(sums), initial=0.0))


def _scale(exact: np.ndarray) -> np.ndarray:
    """Return what the errors of elements are shares of; 1 if all are zero."""
    return _or_1(np.abs(exact) + np.linalg.norm(exact) / max(1, exact.size) ** 0.5)


def _or_1(scale: np.ndarray) -> np.ndarray:
    return np.where(scale == 0, 1.0, scale)


def absolute(data: Data) -> Data:
    """Return the absolute values of weights and inputs, in float64: int8 has no 128."""

    def of(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.abs(value.astype(np.float64)) for name, value in arrays.items()}

    return Data(of(data.weights), tuple(map(of, data.batches)))
