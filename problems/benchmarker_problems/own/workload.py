"""A function of the user as a workload: its steps, what they are held to, and the work that they do."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from typing import Any, Generic, TypeVar

import numpy as np

from benchmarker import (
    PRECISIONS,
    Case,
    Counted,
    CountedBy,
    Data,
    Exact,
    Framework,
    Workload,
    element_error,
    relative_error,
)
from benchmarker_problems.own import Foreign, protection
from benchmarker_problems.own.arguments import Inputs

MARGIN = 4.0
"""How much larger an error may be than that of what a function is held to, computed in the same precision."""
ROUNDOFFS = 32
"""Unit roundoffs that are allowed if what a function is held to cannot be computed in that precision."""
FEW = 32
"""Numbers of a result below which its error may be small by chance: one unit roundoff is always allowed."""
OF_ZEROS = 1.0
"""The relative error of zeros; a bound from here on finds no wrong result."""
STEPS = {"inference": 1, "forward_backward": 1, "training": 3}
"""Steps that a check compares, by mode."""
FP64 = "the check computes {} in fp64; arrays that are no arguments keep their type: make them arguments"
"""What to know if that fails."""

_FORMULA: CountedBy = "formula"
S = TypeVar("S")
Outputs = Mapping[str, np.ndarray]


class Calls(ABC, Generic[S]):
    """How one framework calls functions in the mode of a case; S is a set of arguments on its device."""

    def __init__(self, framework: Framework, case: Case, problem: Foreign, data: Inputs) -> None:
        self.framework = framework
        self.case = case
        self.problem = problem
        self.template = data.template

    @abstractmethod
    def made(self, function: str, precision: str) -> Any:
        """Return a function of the file, or an object of a class with weights from the case's seed."""

    @abstractmethod
    def put(self, batch: Outputs, precision: str) -> S:
        """Return a set of arguments on the device."""

    @abstractmethod
    def step(self, function: Any, *, compiled: bool) -> Callable[[S], Any]:
        """Return a step that calls the function in the mode of the case."""

    @abstractmethod
    def outputs(self, result: Any) -> Outputs:
        """Return the results of a step by name on the host, in float64."""

    @abstractmethod
    def has_weights(self, function: Any) -> bool:
        """Whether a function has weights of its own."""

    @abstractmethod
    def contents(self, arguments: S) -> list[np.ndarray] | None:
        """Return what is in a set of arguments now; None if the framework's arrays are immutable."""

    @abstractmethod
    def overwrite(self, arguments: S, batch: Outputs) -> bool:
        """Write other contents into the memory of a set of arguments; returns whether the framework can."""

    @abstractmethod
    def flops(self, function: Any, arguments: S) -> tuple[int, CountedBy] | None:
        """Count the FLOPs of a step; None if the framework counts none."""

    def fp64(self) -> AbstractContextManager[object]:
        """Let the framework compute in float64."""
        return self.framework.fp64()


class Measured(Generic[S]):
    """One function under measurement: its sets of inputs, and what its results are held to."""

    def __init__(self, calls: Calls[S], data: Data) -> None:
        self.calls = calls
        self.data = data
        self.sets = [calls.put(batch, calls.case.precision) for batch in data.batches]
        function = calls.made(calls.problem.measured, calls.case.precision)
        self.has_weights = calls.has_weights(function)
        self.call = calls.step(function, compiled=calls.case.compile)
        self.unheld: frozenset[str] = frozenset()
        """Results that nothing is held to, as rounding alone changes them as much as zeros would."""

    @property
    def against(self) -> str | None:
        """The function that this one is held to, maybe itself in float64 if it has weights; None if there is none."""
        problem = self.calls.problem
        is_held_to_itself = problem.held_to != "reference" or self.calls.case.mode == "training"
        return problem.measured if self.has_weights and is_held_to_itself else problem.held_to

    def expected(self, number: int) -> list[Outputs]:
        """Return the results that so many sets of inputs should have, one after the other, computed in float64."""
        assert self.against is not None
        with self.calls.fp64():
            try:
                step = self.calls.step(self.calls.made(self.against, "fp64"), compiled=False)
                return [self.calls.outputs(step(self.calls.put(batch, "fp64"))) for batch in self.data.batches[:number]]
            except Exception as error:
                error.add_note(FP64.format(self.against))
                raise

    def exact(self) -> Exact | str:
        """Return what the function is held to, or why there is nothing."""
        problem, mode = self.calls.problem, self.calls.case.mode
        if self.against is None and problem.any_result:
            return "its results are checked by the test alone"
        if self.against is None:
            return f"there is no `reference`; the others are checked against {problem.measured}, the first function"
        steps = self.expected(STEPS[mode])
        words = f"{'itself' if self.against == problem.measured else self.against} in fp64"
        bounds, elements = self.bounds(steps)
        if problem.helper("bound", self.calls.case.precision) is None:
            self.unheld = frozenset(name for name, bound in bounds.items() if bound >= OF_ZEROS)
        if self.unheld:
            why = f"rounding to {self.calls.case.precision} alone changes {_listed(self.unheld)} too much for a check"
            if self.unheld == bounds.keys():
                return why
            words += f", but {why}"
            steps = [self._held(step) for step in steps]
        # In a gradient, the rounding of a whole sum may end in one element, such as the largest of a row of softmax.
        return Exact(steps, bounds, words, elements if mode == "inference" else {})

    def outputs(self, result: Any) -> Outputs:
        """Return the results of a step that are held to something, by name on the host."""
        return self._held(self.calls.outputs(result))

    def _held(self, outputs: Outputs) -> Outputs:
        return {name: value for name, value in outputs.items() if name not in self.unheld}

    def bounds(self, expected: Sequence[Outputs]) -> tuple[dict[str, float], dict[str, float]]:
        """Return the largest relative error of each result that is right, and of its elements, for these sets.

        That is what the file says, or a small multiple of the largest error of what the function is held to in this
        precision. Elements have no bound if the file says one, or if that is not known.
        """
        calls, types = self.calls, PRECISIONS[self.calls.case.precision]
        assert self.against is not None
        if (given := calls.problem.helper("bound", calls.case.precision)) is not None:
            return dict.fromkeys(expected[0], float(given)), {}
        try:
            step = calls.step(calls.made(self.against, types.name), compiled=False)
            sets = [calls.put(batch, types.name) for batch in self.data.batches[: len(expected)]]
            observed = [calls.outputs(step(arguments)) for arguments in sets]
        except Exception:  # noqa: BLE001 - what others are held to need not work in every precision
            return dict.fromkeys(expected[0], max(types.bound, ROUNDOFFS * types.roundoff)), {}

        def bounds(error_of: Callable[[np.ndarray, np.ndarray], float]) -> dict[str, float]:
            pairs = [*zip(observed, expected, strict=True)]
            return {
                name: max(
                    types.roundoff if types.is_short and value.size < FEW else types.bound,
                    MARGIN * max(error_of(one[name], exact[name]) for one, exact in pairs),
                )
                for name, value in expected[0].items()
            }

        return bounds(relative_error), bounds(element_error)

    def counted(self) -> Counted:
        """Return the work of a step as the file states it, or as the framework counts it."""
        calls, problem = self.calls, self.calls.problem
        flops, source = problem.helper("flops", calls.case.precision), _FORMULA
        if flops is None and (
            by_framework := calls.flops(calls.made(problem.measured, calls.case.precision), self.sets[0])
        ):
            flops, source = by_framework
        samples, tokens = (problem.helper(name, calls.case.precision) for name in ("samples", "tokens"))
        return Counted(
            flops=None if flops is None else int(flops),
            bytes=None if (moved := problem.helper("bytes", calls.case.precision)) is None else int(moved),
            samples=1 if samples is None else int(samples),
            tokens=tokens,
            source=source if flops is not None else None,
        )


def _listed(names: Collection[str]) -> str:
    first, *more = sorted(names)
    return f"{first} and {len(more)} more" if more else first


def workload(calls: Calls[Any], data: Data) -> Workload:
    """Return the workload of a function: each step calls it with the next of the sets of inputs."""
    measured = Measured(calls, data)
    turns, call = cycle(measured.sets), measured.call
    return Workload(
        step=lambda: call(next(turns)),
        outputs=measured.outputs,
        exact=measured.exact,
        counted=measured.counted(),
        verify=lambda _: protection.trouble(measured),
        suspicions=lambda: protection.suspicions(measured),
    )
