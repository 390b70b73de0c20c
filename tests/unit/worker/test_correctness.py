import sys
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest
from support.records import make_record

from benchmarker import PRECISIONS, Case, Data, Exact, Problem, Workload
from benchmarker.display.records import _how
from benchmarker.worker.correctness import (
    check,
    compare,
    compare_gradients,
    componentwise_error,
    element_error,
    relative_error,
    unlike_weights,
    worst_of,
)
from benchmarker.worker.rounding import to_type
from benchmarker.worker.trial import _error_text

CASE = Case(problem="p", framework="f", device="cpu", params={})
TRAINING = Case(problem="p", framework="f", device="cpu", params={}, mode="training")


@dataclass(frozen=True)
class Told(Problem):
    """A problem whose reference is what it is told."""

    outputs: tuple

    def reference(self, data, mode):
        yield from self.outputs

    scopes = cost = data = small = None


def test_one_wrong_element_is_found_that_the_norm_hides():
    exact = np.full(10_000, 2.0)
    value = exact.copy()
    value[7] = 2.4
    assert element_error(value, exact) == pytest.approx(0.4 / 4)
    assert element_error(np.zeros(0), np.zeros(0)) == 0
    assert element_error(np.full(3, 0.5), np.zeros(3)) == 0.5

    def worst(**bounds):
        held = Exact([{"x": exact}], {"x": 0.01}, "f in fp64", **bounds)
        workload = Workload(lambda: {"x": value}, dict, exact=lambda: held)
        return check(workload, Data({}, ()), None, None)

    assert worst().ok
    assert worst(elements={"x": 0.2}).ok
    wrong = worst(elements={"x": 0.05})
    assert (wrong.output, wrong.ok, wrong.bound) == ("one element of x", False, 0.05)
    assert (wrong.error, wrong.place) == (pytest.approx(0.1), "[7] is 2.4, not 2")


def told(*outputs):
    return Told(outputs)


def run(problem, *observed, case=CASE):
    results = iter(observed)
    return check(Workload(lambda: next(results), lambda result: result), Data({}, ()), problem, case)


def test_the_worst_output_is_found():
    exact = {"a": np.array([3.0, 4.0]), "b": np.array([1.0])}
    found = run(told(exact), {"a": np.array([3.0, 4.0 + 5e-7]), "b": np.array([1.0 + 2e-7])})
    assert (found.output, found.ok) == ("b", True)
    assert found.error == pytest.approx(2e-7)
    assert not run(told(exact), {"a": np.array([3.0, 4.1]), "b": np.array([1.0])}).ok


def test_each_training_step_is_held_against_its_own():
    losses = [{"loss": np.array(value)} for value in (3.0, 2.0, 1.0)]
    assert run(told(*losses), *losses, case=TRAINING).ok
    wrong = [*losses[:2], {"loss": np.array(1.5)}]
    assert run(told(*losses), *wrong, case=TRAINING).error == pytest.approx(0.5)


class Product(Problem):
    """c = a·b, with a bound of its own for the sums."""

    def step(self, weights, batch, mode):
        return {"c": batch["a"] @ batch["b"]}

    def numerics(self, mode, precision):
        return replace(PRECISIONS[precision], stated_bound=1e-9)

    scopes = cost = data = small = None


@pytest.fixture
def product():
    """Random factors, and a function that checks a value as their product in a precision."""
    rng = np.random.default_rng(0)
    factors = {"a": rng.standard_normal((64, 48), np.float32), "b": rng.standard_normal((48, 56), np.float32)}

    def checked(value, precision):
        case = msgspec.structs.replace(CASE, precision=precision)
        return check(Workload(lambda: {"c": value}, dict), Data({}, (factors,)), Product(), case)

    return checked, factors["a"].astype(np.float64), factors["b"].astype(np.float64)


@pytest.mark.parametrize("precision", ["fp64", "fp32", "int8"])
def test_the_bound_of_a_type_as_long_as_the_sums_is_that_of_the_problem(product, precision):
    checked, a, b = product
    assert checked(a @ b, precision).bound == 1e-9


@pytest.mark.parametrize(("precision", "roundoffs"), [("bf16", 8), ("fp16", 11), ("mixed_bf16", 8), ("mixed_fp16", 11)])
def test_the_bound_of_a_short_type_is_twice_the_error_of_rounding(product, precision, roundoffs):
    """Both factors and the result are rounded, each by 0.42 unit roundoffs in the root mean square."""
    checked, a, b = product
    assert checked(a @ b, precision).bound == pytest.approx(2 * 3**0.5 * 0.42 * 2.0**-roundoffs, rel=0.05)


@pytest.mark.parametrize(("precision", "shorter"), [("fp16", "bf16"), ("tf32", "bf16"), ("mixed_fp16", "bf16")])
def test_a_shorter_type_is_found(product, precision, shorter):
    checked, a, b = product
    own = to_type(a, PRECISIONS[precision].compute) @ to_type(b, PRECISIONS[precision].compute)
    assert checked(own, precision).ok
    assert not checked(to_type(a, shorter) @ to_type(b, shorter), precision).ok


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16", "mixed_fp16", "mixed_bf16"])
def test_one_product_too_few_is_found(product, precision):
    checked, a, b = product
    found = checked(a[:, 1:] @ b[1:], precision)
    assert not found.ok
    assert found.error > 10 * found.bound


class Products(Product):
    """Whose elements are sums of products, with the bound of the precision."""

    sums_products = True
    numerics = Problem.numerics

    def reference(self, data, mode):
        for batch in data.batches:
            yield self.step({}, {name: value + 0.0 for name, value in batch.items()}, mode)


def by_element(a, b, value, precision="fp64"):
    case = msgspec.structs.replace(CASE, precision=precision)
    return check(Workload(lambda: {"c": value}, dict), Data({}, ({"a": a, "b": b},)), Products(), case)


def test_the_error_of_an_element_is_a_share_of_its_absolute_products():
    """c = (1·3 − 2·1, 8): the error of the first is a share of 3 + 2; it is nothing in the norm beside 2⁴⁰."""
    a, b = np.array([[1.0, -2.0], [2.0**40, 0.0]]), np.array([[3.0], [1.0]])
    value = np.array([[1 + 1e-9], [3 * 2.0**40]])
    assert componentwise_error(value, a @ b, np.abs(a) @ np.abs(b)) == pytest.approx(1e-9 / 5)
    found = by_element(a, b, value)
    assert found.error < found.bound == 32 * 2**-53
    wrong = found.componentwise
    assert (wrong.error, wrong.output, wrong.bound) == (pytest.approx(1e-9 / 5), "c", 32 * 2**-53)
    assert (found.ok, wrong.place) == (False, "[0, 0] is 1.000000001, not 1")
    assert by_element(a, b, a @ b).ok
    assert by_element(a, b, a @ b).componentwise.place == ""


def test_a_trial_says_which_element_is_wrong():
    a, b = np.array([[1.0, -2.0], [2.0**40, 0.0]]), np.array([[3.0], [1.0]])
    found = by_element(a, b, np.array([[1 + 1e-9], [3 * 2.0**40]]))
    assert _error_text(found, "fp64") == (
        "one element of c is off by 2e-10 (as a share of the sum of its absolute products, against float64); "
        "the bound for fp64 is 3.55e-15; c[0, 0] is 1.000000001, not 1"
    )
    assert _error_text(by_element(a, b, 2 * (a @ b)), "fp64").startswith("c is off by 1 (relative, against float64)")
    rows = _how(msgspec.structs.replace(make_record(), check=found))
    told = "by element: error 2e-10 of |A|·|B| (c), bound 3.6e-15"
    assert told in [row[1] for row in rows]


def test_an_element_without_products_and_one_that_is_not_finite():
    assert componentwise_error(np.array([0.5]), np.zeros(1), np.zeros(1)) == 0.5
    assert componentwise_error(np.array([np.inf]), np.ones(1), np.ones(1)) == sys.float_info.max


def test_integers_are_right_by_element_too():
    """int8 has −128, and no 128."""
    a, b = np.array([[-128, 1]], np.int8), np.array([[127], [1]], np.int8)
    exact = a.astype(float) @ b.astype(float)
    assert by_element(a, b, exact, "int8").componentwise.error == 0
    off = by_element(a, b, exact + 1, "int8").componentwise
    assert (off.error, off.bound) == (pytest.approx(1 / (128 * 127 + 1)), 0)


def test_the_worst_element_may_be_of_another_output_than_the_worst_norm():
    class Both(Products):
        def step(self, weights, batch, mode):
            return {"c": batch["a"] @ batch["b"], "d": batch["b"].T @ batch["a"].T}

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 9)), rng.standard_normal((9, 30))
    outputs = {"c": a @ b * (1 + 1e-13), "d": (a @ b).T.copy()}
    outputs["d"][3, 4] += 1e-12
    case = msgspec.structs.replace(CASE, precision="fp64")
    found = check(Workload(lambda: outputs, dict), Data({}, ({"a": a, "b": b},)), Both(), case)
    assert (found.output, found.componentwise.output, found.ok) == ("c", "d", False)


def test_problems_of_other_outputs_have_no_error_by_element(product):
    checked, a, b = product
    assert checked(a @ b, "fp64").componentwise is None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_bound_of_an_element_in_a_short_type_is_twice_that_of_rounding(precision):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((64, 48), (48, 56)))
    own = [to_type(each.astype(np.float64), precision) for each in (a, b)]
    rounded = to_type(own[0] @ own[1], precision)
    found = by_element(a, b, rounded, precision)
    assert found.componentwise.error == pytest.approx(found.componentwise.bound / 2)
    assert found.ok
    sums = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert not by_element(a, b, rounded + 2 * found.componentwise.bound * sums, precision).ok


def test_a_reference_that_leaves_the_emulated_arithmetic_has_rounded_inputs_and_outputs():
    class Plain(Product):
        def reference(self, data, mode):
            yield {"c": np.array(data.batches[0]["a"] + 0, np.float64) / 5}

    data = Data({}, ({"a": np.full(50, 1 + 2**-9, np.float32)},))
    case = msgspec.structs.replace(CASE, precision="bf16")
    found = check(Workload(lambda: {"c": np.full(50, 1 / 5)}, dict), data, Plain(), case)
    off = to_type(np.array(1 / 5), "bf16").item() / ((1 + 2**-9) / 5) - 1
    assert found.bound == pytest.approx(2 * abs(off))


def test_few_numbers_have_a_fixed_bound_in_a_short_type():
    """Whose errors are small by chance; those that are exact in the type must be exact."""
    case = msgspec.structs.replace(CASE, precision="bf16")
    for value, bound in ((1 / 3, 32 * 2**-8), (0.5, 1e-9)):
        factors = {"a": np.full((1, 1), value, np.float32), "b": np.ones((1, 1), np.float32)}
        workload = Workload(lambda value=value: {"c": np.full((1, 1), value)}, dict)
        assert check(workload, Data({}, (factors,)), Product(), case).bound == bound


def test_kinds_of_gradients_have_their_own_bounds():
    """An error that would be nothing in a bias is found in a kernel."""

    class Layers(Product):
        def reference(self, data, mode):
            total = np.add.accumulate(data.batches[0]["x"].astype(np.float64))[-1]
            yield {"d_1.kernel": data.batches[0]["x"][0].astype(np.float64), "d_1.bias": total}

    x = np.random.default_rng(0).standard_normal((300, 40), np.float32)
    exact = {"d_1.kernel": x[0].astype(np.float64), "d_1.bias": x.sum(axis=0, dtype=np.float64)}
    case = msgspec.structs.replace(CASE, precision="bf16")

    def checked(name):
        outputs = {**exact, name: 1.02 * exact[name]}
        return check(Workload(lambda: outputs, dict), Data({}, ({"x": x},)), Layers(), case)

    assert checked("d_1.bias").ok
    assert not checked("d_1.kernel").ok


def test_the_reference_may_have_less_in_later_steps_and_not_in_the_first():
    losses = [{"loss": np.array(value), "m_w": np.ones(2)} for value in (3.0, 2.0, 1.0)]
    expected = [losses[0], *({"loss": step["loss"]} for step in losses[1:])]
    assert run(told(*expected), *losses, case=TRAINING).ok
    with pytest.raises(RuntimeError, match=r"the outputs are \['loss', 'm_w'\], but the reference has \['loss'\]"):
        run(told(*({"loss": step["loss"]} for step in losses)), *losses, case=TRAINING)
    with pytest.raises(RuntimeError, match=r"the outputs are \['loss'\], but"):
        run(told(*losses), losses[0], *expected[1:], case=TRAINING)


def test_an_imaginary_part_is_not_dropped():
    exact = {"a": np.array([3.0, 4.0])}
    assert run(told(exact), {"a": np.array([3.0 + 0j, 4.0])}).ok
    found = run(told(exact), {"a": np.array([3.0 + 1j, 4.0])})
    assert (found.error, found.ok) == (pytest.approx(0.2), False)
    exact = {"a": np.array([3.0 + 1j, 4.0])}
    assert run(told(exact), exact).ok
    assert not run(told(exact), {"a": np.array([3.0, 4.0])}).ok


def test_a_nan_is_wrong():
    found = run(told({"a": np.ones(2)}), {"a": np.array([1.0, np.nan])})
    assert (found.error, found.ok) == (sys.float_info.max, False)
    assert _error_text(found, "fp64") == "a contains NaN or infinity; a[1] is nan, not 1"


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
        run(told(expected), observed)


def test_a_reference_that_ends_early_is_an_error():
    with pytest.raises(RuntimeError, match=r"but the reference has \[\]"):
        run(told(), {"a": np.ones(1)})


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
    trained = compare(workload, Data({}, ()), told(*[exact] * 3), TRAINING)
    return trained, compare_gradients(workload, Data({}, ()), told(exact | {"d_w": np.array(4.0)}))


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
        compare_gradients(Workload(dict, lambda result: result), Data({}, ()), told({}))
