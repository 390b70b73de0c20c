"""Names of kernels in the width of a table: cut where they agree, kept where they differ."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarker.formatting import shortened
from benchmarker.tables.shortening import apart

TILE = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{}x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
)
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 2ul> >"
    "(int, at::native::{}, std::array<char*, 2ul>)"
)


def test_what_fits_is_unchanged():
    assert apart(["void f<int>(int)", "g"], 20) == ["void f<int>(int)", "g"]


def test_tile_sizes_are_kept_where_the_rest_agrees():
    assert apart([TILE.format("128x128"), TILE.format("64x256")], 44) == [
        "sm90_xmma_gemm_bf16bf16…tilesize128x128x64…",
        "sm90_xmma_gemm_bf16bf16…tilesize64x256x64…",
    ]


def test_a_function_that_a_kernel_applies_is_kept():
    functions = ["CUDAFunctor_add<c10::BFloat16>", "(anonymous namespace)::silu_kernel", "CUDAFunctor_add<float>"]
    found = apart([ELEMENTWISE.format(each, each) for each in functions], 40)
    assert [each.startswith("vectorized") for each in found] == [True] * 3
    for text, word in zip(found, ("BFloat16", "silu", "float"), strict=True):
        assert word in text
    assert max(map(len, found)) <= 40


def test_what_cpp_repeats_goes_first():
    name = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"
    assert apart([name], 40) == ["vectorized_gather_kernel<16, long>"]
    lambda_ = "void at::native::(anonymous namespace)::pad<at::native::f()::{lambda(int)#1}>(int, float, double)"
    assert apart([lambda_], 40) == ["pad<f()::{lambda(int)#1}>"]
    guarded = "std::enable_if<(((8)>(0))), void>::type vllm::norm_kernel<float, 8>(float*, float const*)"
    assert (
        apart([guarded], 64) == ["std::enable_if<(((8)>(0))), void>::type vllm::norm_kernel<flo…"]
        or len(apart([guarded], 64)[0]) <= 64
    )


def test_the_tile_size_and_the_template_of_a_single_name_are_kept():
    gemm = TILE.format("128x128")
    gather = "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel, std::array<char*, 2ul> >(int)"
    assert apart([gemm, gather], 50) == [
        "sm90_xmma_gemm_bf16bf16…tilesize128x128x64…",
        "vectorized_elementwise_kernel<4, exp_kernel, std…",
    ]


def test_a_name_that_resembles_no_other_is_cut_in_the_middle():
    name = "a_kernel_" + "x" * 99 + "_end"
    assert apart([name, "b"], 30) == [shortened(name, 30), "b"]


def test_overloads_stay_apart():
    names = [f"void scale<float>(float*, {kind}{' const*' * 20})" for kind in ("int", "long", "double")]
    found = apart(names, 40)
    assert len(set(found)) == 3
    assert max(map(len, found)) <= 40


def test_equal_names_are_cut_alike():
    first, second, third = apart([TILE.format("8x8"), TILE.format("9x9"), TILE.format("8x8")], 40)
    assert first == third != second


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab<>(),:_ 12", max_size=80), max_size=8),
    st.integers(20, 60),
)
def test_any_names_stay_apart_within_the_width(names, width):
    found = apart(names, width)
    assert len(found) == len(names)
    for name, text in zip(names, found, strict=True):
        assert len(text) <= width
        assert text == name or len(name) > width


@pytest.mark.parametrize("length", [100_000])
def test_a_very_long_name_takes_no_time(length):
    assert len(apart(["<(" * length, "<(" * length + "x", "a " * length], 56)[0]) <= 56
