import sys

import numpy as np
import pytest

from benchmarker import Case, Data, Problem, Workload
from benchmarker.worker.correctness import check, relative_error

CASE = Case(problem="p", framework="f", device="cpu", params={})
TRAINING = Case(problem="p", framework="f", device="cpu", params={}, mode="training")


class Told(Problem):
    """A problem whose reference is what it is told."""

    def __init__(self, *outputs):
        self.outputs = outputs

    def reference(self, params, data, mode):
        yield from self.outputs

    scopes = cost = data = small = None


def run(problem, *observed, case=CASE):
    results = iter(observed)
    return check(Workload(lambda: next(results), lambda result: result), Data({}, ()), problem, None, case)


def test_the_worst_output_is_found():
    exact = {"a": np.array([3.0, 4.0]), "b": np.array([1.0])}
    found = run(Told(exact), {"a": np.array([3.0, 4.0 + 5e-7]), "b": np.array([1.0 + 2e-7])})
    assert (found.output, found.ok) == ("b", True)
    assert found.error == pytest.approx(2e-7)
    assert not run(Told(exact), {"a": np.array([3.0, 4.1]), "b": np.array([1.0])}).ok


def test_each_training_step_is_held_against_its_own():
    losses = [{"loss": np.array(value)} for value in (3.0, 2.0, 1.0)]
    assert run(Told(*losses), *losses, case=TRAINING).ok
    wrong = [*losses[:2], {"loss": np.array(1.5)}]
    assert run(Told(*losses), *wrong, case=TRAINING).error == pytest.approx(0.5)


def test_an_imaginary_part_is_not_dropped():
    exact = {"a": np.array([3.0, 4.0])}
    assert run(Told(exact), {"a": np.array([3.0 + 0j, 4.0])}).ok
    found = run(Told(exact), {"a": np.array([3.0 + 1j, 4.0])})
    assert (found.error, found.ok) == (pytest.approx(0.2), False)
    exact = {"a": np.array([3.0 + 1j, 4.0])}
    assert run(Told(exact), exact).ok
    assert not run(Told(exact), {"a": np.array([3.0, 4.0])}).ok


def test_a_nan_is_wrong():
    found = run(Told({"a": np.ones(2)}), {"a": np.array([1.0, np.nan])})
    assert (found.error, found.ok) == (sys.float_info.max, False)


@pytest.mark.parametrize(
    ("expected", "observed", "error", "message"),
    [
        ({"a": np.array([np.nan])}, {"a": np.ones(1)}, RuntimeError, "the reference contains NaN"),
        ({}, {}, RuntimeError, "outputs"),
        ({"a": np.ones(1)}, {"b": np.ones(1)}, RuntimeError, r"the outputs are \['b'\], but the reference has \['a'\]"),
        ({"a": np.ones(1)}, {"a": np.ones(2)}, RuntimeError, r"shape \(2,\), but the reference has \(1,\)"),
    ],
)
def test_a_check_that_compares_nothing_is_an_error(expected, observed, error, message):
    with pytest.raises(error, match=message):
        run(Told(expected), observed)


def test_a_reference_that_ends_early_is_an_error():
    with pytest.raises(StopIteration):
        run(Told(), {"a": np.ones(1)})


def test_relative_error_of_zero_is_absolute():
    assert relative_error(np.array([0.5]), np.array([0.0])) == 0.5
