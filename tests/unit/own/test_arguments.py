"""Arguments apart from their arrays, and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from benchmarker import UserError
from benchmarker_problems.own.arguments import placed, results, taken


def back(inputs, batch=0):
    return placed(inputs.template, lambda place: inputs.batches[batch][place.name])


def test_nested_arguments_come_back_as_they_were_with_arrays_on_the_host():
    arguments = (torch.ones(2), {"a": [jnp.zeros(3), 7]}, "text", None)
    inputs = taken("f.py", [arguments], "fp32")
    (one, two, three, four), named = back(inputs)
    assert named == {}
    assert (three, four, two["a"][1]) == ("text", None, 7)
    np.testing.assert_array_equal(one, np.ones(2, np.float32))
    np.testing.assert_array_equal(two["a"][0], np.zeros(3, np.float32))
    assert set(inputs.batches[0]) == {"0", "1.a.0"}


def test_a_dictionary_is_keyword_arguments_and_an_array_is_one_argument():
    assert back(taken("f.py", [{"x": np.ones(1), "k": 3}], "fp64")) == ((), {"x": np.ones(1), "k": 3})
    assert back(taken("f.py", [np.arange(2)], "fp32"))[0][0].tolist() == [0, 1]


@pytest.mark.parametrize(("precision", "dtype"), [("fp64", np.float64), ("fp32", np.float32), ("bf16", np.float32)])
def test_numbers_follow_the_precision_and_integers_do_not(precision, dtype):
    (batch,) = taken(
        "f.py", [(np.ones(1), torch.ones(1), np.ones(1, np.int16), np.ones(1, complex))], precision
    ).batches
    assert [str(batch[name].dtype) for name in ("0", "1", "2")] == [np.dtype(dtype).name] * 2 + ["int16"]
    assert batch["3"].dtype == np.result_type(dtype, np.complex64)


def test_types_that_a_file_chooses_stay_and_must_be_asked_for():
    arguments = (torch.ones(2, dtype=torch.bfloat16), torch.ones(2))
    with pytest.raises(UserError, match=r"bfloat16/float32; use --precision=bf16"):
        taken("f.py", [arguments], "fp32")
    inputs = taken("f.py", [arguments], "bf16")
    assert [place.dtype for place in inputs.template] == ["bfloat16", "float32"]
    assert taken("f.py", [jnp.ones(2, jnp.bfloat16)], "bf16").template[0].dtype == "bfloat16"


def test_sets_must_be_of_one_kind():
    with pytest.raises(UserError, match="other kinds"):
        taken("f.py", [np.ones(1), (np.ones(1), 2)], "fp32")


def test_a_key_of_jax_is_no_array():
    key = jax.random.key(0)
    assert taken("f.py", [(key, np.ones(1))], "fp32").template[0] is key


def test_results_have_places_and_are_whole():
    both = (torch.ones(2, dtype=torch.bfloat16), {"z": torch.tensor(1j)}, 3)
    named = results(both, torch.Tensor)
    assert {name: value.dtype.name for name, value in named.items()} == {
        "0": "float64",
        "1.z": "complex128",
        "2": "float64",
    }
    assert set(results(np.ones(2), np.ndarray)) == {"result"}


class _Later(torch.Tensor):
    """What computes when it is read."""


@pytest.mark.parametrize("value", ["text", None, object(), np.ones(1), torch.ones(1).as_subclass(_Later)])
def test_a_result_that_is_no_array_of_the_framework_is_refused(value):
    with pytest.raises(RuntimeError, match=r"not an array of its framework|returned None; return what it computes"):
        results(value, torch.Tensor)
