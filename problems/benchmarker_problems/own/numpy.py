"""Functions of the user in NumPy, or in any other library that computes on the CPU before it returns."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarker import Case, CountedBy, Framework, Support, Workload, hookimpl
from benchmarker_problems.own import Own
from benchmarker_problems.own.arguments import Inputs, placed, results
from benchmarker_problems.own.workload import Calls, workload

TYPES = {"fp64": np.float64, "fp32": np.float32}
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@hookimpl
def describe_workload() -> Support:
    """Return the types in which NumPy computes."""
    return Support({"inference": tuple(TYPES)})


@hookimpl
def build_workload(framework: Framework, case: Case, problem: Own, data: Inputs) -> Workload:
    """Build a step: a call of the function."""
    return workload(_NumpyCalls(framework, case, problem, data), data)


class _NumpyCalls(Calls[Arguments]):
    problem: Own

    def made(self, function: str, precision: str) -> Any:
        """Return the function, or an object of the class."""
        np.random.seed(self.case.seed % 2**32)
        return self.problem.made(function)

    def put(self, batch: Mapping[str, np.ndarray], precision: str) -> Arguments:
        """Return the arguments with copies of the arrays, which functions may write to."""

        def converted(value: np.ndarray) -> np.ndarray:
            kinds = {"f": np.dtype(TYPES[precision]), "c": np.result_type(TYPES[precision], np.complex64)}
            return value.astype(kinds.get(value.dtype.kind, value.dtype))

        return placed(self.template, lambda place: converted(batch[place.name]))

    def step(self, function: Any, *, compiled: bool) -> Callable[[Arguments], Any]:
        """Return a step that calls the function."""
        return lambda arguments: function(*arguments[0], **arguments[1])

    def outputs(self, result: Any) -> Mapping[str, np.ndarray]:
        """Return the results."""
        return results(result, np.ndarray | np.generic)

    def has_weights(self, function: Any) -> bool:
        """Return False: what weights an object has is not known."""
        return False

    def contents(self, arguments: Arguments) -> list[np.ndarray]:
        """Return copies of the arrays."""
        values = (*arguments[0], *arguments[1].values())
        return [value.copy() for value in values if isinstance(value, np.ndarray)]

    def overwrite(self, arguments: Arguments, batch: Mapping[str, np.ndarray]) -> bool:
        """Copy the contents into the arrays."""
        arrays = [value for value in (*arguments[0], *arguments[1].values()) if isinstance(value, np.ndarray)]
        for array, place in zip(arrays, batch, strict=False):
            np.copyto(array, batch[place], casting="same_kind")
        return len(arrays) == len(batch)

    def flops(self, function: Any, arguments: Arguments) -> tuple[int, CountedBy] | None:
        """Return None: NumPy counts nothing."""
        return None
