import dataclasses

import numpy as np
import pytest

from benchmarker import PRECISIONS
from benchmarker.api.precision import ITEM_BYTES, UNIT_ROUNDOFF


@pytest.mark.parametrize(("name", "numpy_type"), [("fp64", np.float64), ("fp32", np.float32), ("fp16", np.float16)])
def test_unit_roundoff_is_half_of_numpy_eps(name, numpy_type):
    assert UNIT_ROUNDOFF[name] == np.finfo(numpy_type).eps / 2
    assert ITEM_BYTES[name] == np.dtype(numpy_type).itemsize


def test_unit_roundoff_of_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert UNIT_ROUNDOFF["bf16"] == float(ml_dtypes.finfo(ml_dtypes.bfloat16).eps) / 2


@pytest.mark.parametrize(
    ("name", "code"),
    [("fp8_e4m3", "float8_e4m3fn"), ("fp8_e5m2", "float8_e5m2"), ("fp4_e2m1", "float4_e2m1fn")],
)
def test_unit_roundoff_of_fp8_and_fp4(name, code):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert UNIT_ROUNDOFF[name] == float(ml_dtypes.finfo(code).eps) / 2
    assert ITEM_BYTES[name] == ml_dtypes.finfo(code).bits / 8


def test_two_int4_share_a_byte():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert ITEM_BYTES["int4"] == ml_dtypes.iinfo("int4").bits / 8
    weights = dataclasses.replace(PRECISIONS["bf16"], parameter="int4")
    assert (weights.parameter_bytes, weights.lowest) == (1, "int4")


@pytest.mark.parametrize(
    ("name", "lowest"),
    [
        ("fp64", "fp64"),
        ("fp32", "fp32"),
        ("tf32", "tf32"),
        ("bf16", "bf16"),
        ("fp16", "fp16"),
        ("fp8_e4m3", "fp8_e4m3"),
        ("fp8_e5m2_row", "fp8_e5m2"),
        ("mxfp8_e4m3", "fp8_e4m3"),
        ("mxfp4", "fp4_e2m1"),
        ("nvfp4", "fp4_e2m1"),
        ("int8", "int8"),
        ("fp64_int8x8", "int8"),
        ("int8_dynamic", "int8"),
        ("mixed_bf16", "bf16"),
        ("mixed_fp16", "fp16"),
    ],
)
def test_lowest_is_the_coarsest_type_touched(name, lowest):
    assert PRECISIONS[name].lowest == lowest


def test_bounds_are_those_of_the_sums():
    assert PRECISIONS["fp64"].bound == 32 * 2**-53
    assert {PRECISIONS[name].bound for name in ("fp32", "tf32", "fp16", "mixed_bf16")} == {32 * 2**-24}
    assert PRECISIONS["int8"].bound == 0
    assert PRECISIONS["fp64_int8x8"].bound == PRECISIONS["fp64"].bound
    assert PRECISIONS["fp8_e4m3"].bound == PRECISIONS["fp32"].bound


def test_between_quantised_products_is_what_is_not_quantised():
    types = PRECISIONS["int8_dynamic"]
    assert (types.result, types.compute_bytes, types.bound) == ("fp32", 4, PRECISIONS["fp32"].bound)


def test_a_precision_is_short_if_what_is_summed_is_rounded_to_less():
    assert {name for name, types in PRECISIONS.items() if types.is_short} == {
        "tf32",
        "bf16",
        "fp16",
        "int8_dynamic",
        "mixed_bf16",
        "mixed_fp16",
        *("fp8_e4m3", "fp8_e5m2", "fp8_e4m3_row", "fp8_e5m2_row"),
        *("mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"),
        *(f"fp64_int8x{slices}" for slices in range(6, 11)),
    }
    assert PRECISIONS["mixed_bf16"].roundoff == 2**-8
