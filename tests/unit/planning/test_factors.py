"""From descriptions to settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarker import UserError
from benchmarker.planning.factors import Description, expand
from benchmarker.records.factors import setting


def test_axes_are_multiplied_zips_walked_and_cases_listed():
    description = Description(
        base={"problem": "gemm", "k": 1},
        axes={"m": [1, 2], "k": [5]},
        zips=[{"a": [1, 2], "b": [3, 4]}],
        cases=[{"framework": "jax"}, {"framework": "numpy", "precision": "fp64"}],
    )
    tables = expand(description)
    base = {"problem": "gemm", "k": 5}
    assert tables[:3] == [
        {**base, "m": 1, "a": 1, "b": 3, "framework": "jax"},
        {**base, "m": 1, "a": 1, "b": 3, "framework": "numpy", "precision": "fp64"},
        {**base, "m": 1, "a": 2, "b": 4, "framework": "jax"},
    ]
    assert len(tables) == 2 * 2 * 2


def test_without_factors_there_is_the_base():
    assert expand(Description(base={"m": 1})) == [{"m": 1}]


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(), min_size=1, max_size=4, unique=True)))
def test_a_product_holds_every_combination_once(axes):
    tables = expand(Description(base={}, axes=axes, trials=1))
    seen = {tuple(sorted(table.items())) for table in tables}
    size = 1
    for name, values in axes.items():
        size *= len(values)
        assert {table[name] for table in tables} == set(values)
    assert len(seen) == len(tables) == size


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"axes": {"m": []}}, "the axis m has no values"),
        ({"zips": [{"m": [], "n": []}]}, r"a zip \(m, n\) has no values"),
        ({"zips": [{}]}, r"a zip \(empty\) has no values"),
        ({"zips": [{"m": [1, 2], "n": [1]}]}, "but m has 2 values and n 1"),
        ({"zips": [{"m": [], "n": [1]}]}, "but m has 0 values and n 1"),
        ({"axes": {"m": [1]}, "zips": [{"m": [1], "n": [2]}]}, "m is varied twice"),
        ({"axes": {"m": [1]}, "cases": [{"n": 2}, {"m": 1}]}, "m is varied twice"),
        ({"axes": {"m": [0] * 1000, "n": [0] * 101}, "trials": 1}, "101000 cases with 1 trial each"),
        ({"trials": 100_001}, "1 case with 100001 trials each"),
    ],
)
def test_what_makes_no_plan_is_refused(parts, message):
    with pytest.raises(UserError, match=message):
        expand(Description(base={}, **parts))


def test_a_hostile_product_is_refused_without_being_made():
    with pytest.raises(UserError, match="at most 100,000 trials"):
        expand(Description(base={}, axes={f"x{index}": range(1000) for index in range(100)}))


def test_names_may_be_spelt_as_options():
    names = ["batch-size", "gpus", "preheat-max", "timeout", "power-min", "power-idle", "m"]
    spelt = ["batch_size", "gpu", "preheat_max_s", "timeout_s", "power_min_s", "power_idle_s", "m"]
    assert [setting(name) for name in names] == spelt
