"""Check a workload's outputs against the problem's float64 reference.

Arithmetic in a short type, emulated in float64, shows how far off a correct result in that type is. The reference of a
problem is NumPy code. Given `rounded` data, it computes as an implementation does that keeps nothing in a longer type
than it must: weights, inputs, the factors of a product and the result of every operation are rounded. Sums within an
operation are not, since those of implementations have a much longer type. Exponents have no limits, as implementations
scale what would leave the range of fp16.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from math import inf, log2
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarker.api.case import Case
from benchmarker.api.precision import PRECISIONS, UNIT_ROUNDOFF, Precision
from benchmarker.api.problem import Data, Generates, Problem, Workload
from benchmarker.records.record import Check

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
FEW = 32
"""Numbers of an output below which its error may be small by chance."""
ROUNDOFFS = 32
"""Unit roundoffs of the lowest type that are allowed if all that is compared are so few numbers, such as losses."""


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
    return max((rank.worst for rank in ranks), key=_error_in_bounds)


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
    outputs = ((expected, workload.outputs(workload.step())) for expected in reference)
    compared = _compared(outputs, bounds, against, elements)
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
) -> Compared:
    """Compare pairs of expected and observed outputs, each before the next step, which may overwrite them.

    An error is the worse the larger its share of its bound. That of a single element, of outputs that are right as a
    whole, counts if it is above that of `elements`.
    """
    worst = Check(error=-1.0, output="", bound=1.0, ok=False)
    names: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for expected, observed in outputs:
        names.append((tuple(observed), tuple(expected)))
        for name, exact in expected.items():
            if name in observed:
                value, bound = _whole(observed[name]), bounds[name]
                error = relative_error(value, exact)
                what = name
                if error <= bound and name in elements and (of_one := element_error(value, exact)) > elements[name]:
                    what, error, bound = f"one element of {name}", of_one, elements[name]
                place = "" if error <= bound else _worst_place(value, exact, what != name)
                check = Check(error, what, bound, error <= bound, against, place)
                worst = max(worst, check, key=_error_in_bounds)
    return Compared(worst, *zip(*names, strict=True))


def _worst_place(value: np.ndarray, exact: np.ndarray, by_element: bool) -> str:
    """Return the element that is farthest off, or the first that is not finite: `[3, 17] is 0.51, not 0.75`.

    A single number has no place: ` is 0.51, not 0.75`. It is the farthest as `element_error` counts, if `by_element`.
    """
    off = np.abs(value - exact) / (_scale(exact) if by_element else 1.0)
    distance = np.where(np.isfinite(value), off, np.inf)
    index = np.unravel_index(int(np.argmax(distance)), exact.shape)
    place = f"[{', '.join(map(str, index))}]" if index else ""
    return f"{place} is {value[index]:.4g}, not {exact[index]:.4g}"


def _error_in_bounds(check: Check) -> float:
    """The error in bounds; infinite if nothing but 0 is allowed."""
    return check.error / check.bound if check.bound else inf * check.error if check.error else 0.0


def drawn(problem: Problem, precision: str, seed: int, batches: int) -> Data:
    """Return weights and inputs from the seed of a case; SFC64 is NumPy's fastest generator."""
    return problem.data(precision, np.random.Generator(np.random.SFC64(seed)), batches)


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
) -> dict[str, float]:
    """Return the largest relative error at which each output counts as correct; `exact_steps` are the reference's.

    That is the bound of the problem. Where weights, inputs or factors have a shorter type than the sums, it is `MARGIN`
    times the error of the reference itself in this type, from the same data, if that is larger. Gradients of weights of
    the same kind, such as all kernels or all biases, have the largest error of any of them in common, and outputs of a
    few numbers that of all outputs. If there are no others, `ROUNDOFFS` are allowed.
    """
    least, types = problem.numerics(case.mode, case.precision).bound, PRECISIONS[case.precision]
    bounds = {name: least for expected in exact_steps for name in expected}
    if not types.is_short:
        return bounds
    errors: defaultdict[str, float] = defaultdict(float)
    for outputs, expected in zip(reference(rounded(data, types)), exact_steps, strict=True):
        for name, exact in expected.items():
            error = relative_error(to_type(_whole(outputs[name]), result_type(types)), exact)
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


def _scale(exact: np.ndarray) -> np.ndarray:
    """Return what the errors of elements are shares of; 1 if all are zero."""
    scale: np.ndarray = np.abs(exact) + np.linalg.norm(exact) / max(1, exact.size) ** 0.5
    return np.where(scale == 0, 1.0, scale)


_PRODUCTS = {np.matmul, np.dot, np.einsum, np.tensordot}
"""Functions whose arguments are the factors of a product."""


def rounded(data: Data, types: Precision) -> Data:
    """Return weights and inputs as a precision stores them; what is computed from them is rounded as well."""

    def stored(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            name: Rounded(value, types, types.parameter) if value.dtype.kind == "f" else value
            for name, value in arrays.items()
        }

    return Data(stored(data.weights), tuple(map(stored, data.batches)))


def to_type(values: np.ndarray, name: str) -> np.ndarray:
    """Round float64 values to the significand of a type: to the nearest, ties to even, as IEEE 754 has it.

    Factors in tf32 are truncated: a kernel may leave the conversion to the Tensor Cores, which ignore the other bits.
    """
    dropped = 53 + round(log2(UNIT_ROUNDOFF[name]))
    if dropped == 0:
        return values
    bits = np.ascontiguousarray(values).view(np.int64)
    if name != "tf32":
        bits = bits + (1 << dropped - 1) - 1 + (bits >> dropped & 1)
    return (bits >> dropped << dropped).view(values.dtype).reshape(values.shape)


def result_type(types: Precision) -> str:
    """Return the type of results: that of the factors, or of the weights for tf32, in which nothing is stored."""
    return types.parameter if types.compute == "tf32" else types.compute


class Rounded(np.ndarray):
    """A float64 array of values that are representable in the type in which it is `stored`.

    An array to which an operation writes keeps its type: that of weights which an optimizer updates may be longer than
    that of other results.
    """

    types: Precision
    stored: str

    def __new__(cls, values: np.ndarray, types: Precision, stored: str) -> Rounded:
        """Round the values to the type in which they are stored."""
        array = to_type(np.asarray(values, np.float64), stored).view(cls)
        array.types, array.stored = types, stored
        return array

    def __array_finalize__(self, source: Any) -> None:
        """Let views have the types of what they show."""
        if isinstance(source, Rounded):
            self.types, self.stored = source.types, source.stored

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply an elementwise function, a sum, or a product of matrices, and round what it gives."""
        written = options.get("out", inputs[:1] if method == "at" else ())
        if method == "accumulate":
            return self._accumulated(ufunc, *inputs, **options)
        if "out" in options:
            options["out"] = tuple(map(_plain, written))
        result = getattr(ufunc, method)(*self._arguments(ufunc, inputs), **options)
        if not written:
            return self._wrapped(result)
        for target in written:
            values = _plain(target)
            values[...] = to_type(values, target.stored if isinstance(target, Rounded) else result_type(self.types))
        return written[0] if method != "at" else None

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        """Apply any other function of NumPy, and round what it gives."""
        plain_options = {name: _plain(value) for name, value in options.items()}
        return self._wrapped(function(*self._arguments(function, args), **plain_options))

    def _accumulated(self, ufunc: np.ufunc, values: Rounded, axis: int = 0) -> Rounded:
        """Apply a function of two to each row along an axis and the result so far, which is rounded, too."""
        results, name = _plain(values).copy(), result_type(self.types)
        rows = np.moveaxis(results, axis, 0)
        for number in range(1, len(rows)):
            rows[number] = to_type(ufunc(rows[number - 1], rows[number]), name)
        return Rounded(results, self.types, name)

    def _arguments(self, function: Any, arguments: Any) -> Any:
        plain = _plain(tuple(arguments))
        if function not in _PRODUCTS:
            return plain
        return tuple(to_type(value, self.types.compute) if _is_float64(value) else value for value in plain)

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, list):
            return [self._wrapped(item) for item in result]
        return Rounded(result, self.types, result_type(self.types)) if _is_float64(result) else result


def _plain(value: Any) -> Any:
    """Return an array, or a list or tuple of arrays, as NumPy's own."""
    if isinstance(value, list | tuple):
        return type(value)([_plain(item) for item in value])
    return value.view(np.ndarray) if isinstance(value, Rounded) else value


def _is_float64(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.float64) and value.dtype == np.float64
