import sys

import numpy as np
import pytest

from benchmarker import Case, Data, Problem, Workload
from benchmarker.worker.correctness import (
    check,
    compare,
    compare_gradients,
    relative_error,
    unlike_weights,
    worst_of,
)

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
    with pytest.raises(RuntimeError, match=r"but the reference has \[\]"):
        run(Told(), {"a": np.ones(1)})


def test_relative_error_of_zero_is_absolute():
    assert relative_error(np.array([0.5]), np.array([0.0])) == 0.5


def rank(*of_devices):
    """What a rank with so many devices compares after training; each device has weights, and the gradient `d_w`."""
    exact = {"loss": np.array(2.0)}
    workload = Workload(
        lambda: exact,
        lambda result: result,
        weights=lambda: [{"w": np.array(weight)} for weight, _ in of_devices],
        gradients=lambda: [exact | {"d_w": np.array(gradient)} for _, gradient in of_devices],
    )
    trained = compare(workload, Data({}, ()), Told(*[exact] * 3), None, TRAINING)
    return trained, compare_gradients(workload, Data({}, ()), Told(exact | {"d_w": np.array(4.0)}), None)


def test_weights_must_be_the_same_to_the_bit_on_all_devices():
    alike, _ = rank((1.0, 4.0), (1.0, 4.0))
    other, _ = rank((1.0, 4.0), (1.0 + 2**-52, 4.0))
    assert unlike_weights([alike, alike]) == ""
    assert unlike_weights([alike, other]) == "after 3 steps, w of device 3 is not that of device 0"
    assert worst_of([alike, other]).ok


def test_gradients_of_every_device_are_held_against_those_of_the_whole_batch():
    right, wrong = rank((1.0, 4.0), (1.0, 4.0))[1], rank((1.0, 4.0), (1.0, 8.0))[1]
    assert worst_of([right]).ok
    found = worst_of([right, wrong])
    assert (found.ok, found.output, found.error) == (False, "d_w", 1.0)
    assert found.bound < 1e-14


def test_a_division_without_gradients_is_an_error():
    with pytest.raises(RuntimeError, match=r"has no Workload\.gradients"):
        compare_gradients(Workload(dict, lambda result: result), Data({}, ()), Told({}), None)
