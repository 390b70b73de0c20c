"""Arithmetic in a short type, emulated in float64."""

import numpy as np
import pytest

from benchmarker import PRECISIONS, Data
from benchmarker.worker.rounding import Rounded, quantized, rounded, to_type

VALUES = np.random.default_rng(0).standard_normal(1000) * 10.0 ** np.arange(-1, 4).repeat(200)


def in_bf16(values):
    return Rounded(values, PRECISIONS["bf16"], "bf16")


@pytest.mark.parametrize(("name", "numpy_type"), [("fp16", np.float16), ("fp32", np.float32), ("fp64", np.float64)])
def test_values_are_rounded_as_numpy_rounds(name, numpy_type):
    np.testing.assert_array_equal(to_type(VALUES, name), VALUES.astype(numpy_type).astype(np.float64))


def test_values_are_rounded_to_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="it comes with JAX")
    np.testing.assert_array_equal(to_type(VALUES, "bf16"), VALUES.astype(ml_dtypes.bfloat16).astype(np.float64))


def test_ties_go_to_even_and_what_is_no_number_stays():
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 0.0, -0.0, np.inf, -np.inf, np.nan])
    expected = [1, 1 + 2**-6, -1, 0, 0, np.inf, -np.inf, np.nan]
    np.testing.assert_array_equal(to_type(values, "bf16"), expected)
    np.testing.assert_array_equal(to_type(np.array(1 + 3 * 2**-8 + 2j), "bf16"), 1 + 2**-6 + 2j)


def test_tf32_is_truncated():
    """To ten bits after the first."""
    np.testing.assert_array_equal(to_type(np.array([1 + 2**-10 + 2**-11, -1 - 2**-11]), "tf32"), [1 + 2**-10, -1])


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x * x,
        lambda x: x / 3,
        np.exp,
        lambda x: x.sum(axis=0),
        lambda x: x.mean(),
        lambda x: x @ x.T,
        lambda x: np.einsum("ij,kj->ik", x, x),
        lambda x: np.tensordot(x, x, axes=((0,), (0,))),
        lambda x: np.concatenate([x * x, x / 3]),
        lambda x: np.where(x > 0, x / 3, 0),
    ],
)
def test_every_result_is_rounded_and_rounds_what_follows(operation):
    x = in_bf16(VALUES[:100].reshape(4, 25))
    found, exact = operation(x), operation(np.asarray(x))
    np.testing.assert_array_equal(np.asarray(found), to_type(np.asarray(exact), "bf16"))
    np.testing.assert_array_equal(np.asarray(found / 7), to_type(np.asarray(found) / 7, "bf16"))


def test_a_running_sum_is_rounded_at_each_row():
    """2⁸ in bf16 stays as it is when 1 is added."""
    x = in_bf16(np.array([[256.0, 1.0], [1.0, 1 / 3], [1.0, 1 / 3]]))
    third = to_type(np.array(1 / 3), "bf16")
    partial = to_type(1 + third, "bf16")
    expected = [[256, 1], [256, partial], [256, to_type(partial + third, "bf16")]]
    np.testing.assert_array_equal(np.asarray(np.add.accumulate(x)), expected)
    assert np.asarray(x.sum(axis=0))[0] == 258


def test_arrays_that_are_written_to_keep_their_type():
    data = rounded(Data({"w": np.array([1 / 3, 1 / 7], np.float32)}, ()), PRECISIONS["mixed_bf16"])
    weight = data.weights["w"].astype(np.float64)
    before = np.asarray(weight).copy()
    np.testing.assert_array_equal(before, np.array([1 / 3, 1 / 7], np.float32))
    weight[...] -= 1e-4 * weight
    update = to_type(1e-4 * before, "bf16")
    np.testing.assert_array_equal(np.asarray(weight), to_type(before - update, "fp32"))
    total = in_bf16(np.zeros(2))
    np.add.at(total, [0, 0, 1], in_bf16(np.array([1.0, 2**-8, 3.0])))
    np.testing.assert_array_equal(np.asarray(total), [1, 3])
    plain = np.zeros(2)
    plain += in_bf16(np.array([1 / 3, 1.0])) / 3
    np.testing.assert_array_equal(plain, to_type(plain, "bf16"))


def test_the_factors_of_a_product_have_their_own_type():
    weights = np.array([[1 + 2**-12]], np.float32)
    for precision, product in (("mixed_bf16", 1.0), ("tf32", 1.0), ("mixed_fp16", 1.0)):
        data = rounded(Data({"w": weights}, ()), PRECISIONS[precision])
        assert np.asarray(data.weights["w"] @ np.ones((1, 1))).item() == product
        assert np.asarray(np.ones((1, 1)) @ data.weights["w"]).item() == product
    types = PRECISIONS["tf32"]
    assert np.asarray(Rounded(weights, types, "fp32") * 1.0).item() == 1 + 2**-12
    assert (types.result, PRECISIONS["mixed_bf16"].result) == ("fp32", "bf16")


def test_quantised_values_are_127_steps_on_each_side():
    values = np.array([-2.54, 0.009, 0.011, 1.0])
    np.testing.assert_allclose(quantized(values), [-2.54, 0, 0.02, 1.0], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(quantized(np.zeros(2)), np.zeros(2))


def test_only_products_of_weights_are_quantised():
    """Weights may be transposed; results, other inputs, and products of inputs are those of fp32."""
    kernel, x = (VALUES[place : place + 100].reshape(10, 10).astype(np.float32) for place in (0, 100))
    data = rounded(Data({"kernel": kernel}, ({"x": x},)), PRECISIONS["int8_dynamic"])
    kernel_II, x_II = data.weights["kernel"].astype(np.float64), data.batches[0]["x"].astype(np.float64)
    exact = quantized(x.astype(np.float64)) @ quantized(kernel.T.astype(np.float64))
    np.testing.assert_array_equal(np.asarray(x_II @ kernel_II.T), to_type(exact, "fp32"))
    for others in (x_II, x_II @ kernel_II, kernel_II * 2.0):
        plain = np.asarray(others)
        np.testing.assert_array_equal(np.asarray(others @ others), to_type(plain @ plain, "fp32"))


def test_integers_stay_as_they_are():
    data = rounded(Data({"w": np.arange(3, dtype=np.int8)}, ({"tokens": np.arange(300)},)), PRECISIONS["bf16"])
    assert data.weights["w"].dtype == np.int8
    assert data.batches[0]["tokens"].tolist() == list(range(300))
    x = in_bf16(np.array([3.0, 1.0, 2.0]))
    assert (x.argmax(), np.argsort(x).tolist(), (x > 1.5).tolist()) == (0, [1, 2, 0], [True, False, True])
    assert type(x.argmax()) is not Rounded
