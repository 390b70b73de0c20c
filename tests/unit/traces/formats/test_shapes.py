"""Shapes, products and launches as text, worked out by hand."""

import pytest

from benchmarker.traces.formats import hlo, notation
from benchmarker.traces.formats.aten_cost import aten_gemm
from benchmarker.traces.formats.notation import Gemm, aten_inputs, launch, of_xla

F, BF = "float", "c10::BFloat16"


@pytest.mark.parametrize(
    ("dims", "types", "expected"),
    [
        ([[64, 128], [128, 256]], [F, BF], "f32[64,128] bf16[128,256]"),
        ([[4], [], [], []], ["c10::Float8_e4m3fn", "long int", "Scalar", ""], "f8e4m3fn[4] s64[]"),
        ([[[2, 3], []], [5]], ["TensorList", "bool"], "([2,3],[]) pred[5]"),
        ([[[2]] * 9], ["TensorList"], "(9 tensors)"),
        ([[7]], ["a type of tomorrow"], "?[7]"),
        ([["7"]], [F], "?"),
        ([[1 << 62] * 30] * 2, [F, F], " …"),
        ([[2]], 5, ""),
        ({}, [], ""),
        ([None], [None], ""),
    ],
)
def test_inputs_of_an_op_of_pytorch(dims, types, expected):
    found = aten_inputs(dims, types)
    assert found.endswith(expected) if expected == " …" else found == expected


ROW, COLUMN = [64, 1], [1, 64]


@pytest.mark.parametrize(
    ("op", "dims", "strides", "expected"),
    [
        ("aten::mm", [[8, 64], [64, 32]], [[64, 1], [32, 1]], Gemm("f32/bf16", 8, 32, 64, 1, "NN")),
        ("aten::mm", [[8, 64], [64, 32]], [[1, 8], [1, 64]], Gemm("f32/bf16", 8, 32, 64, 1, "TT")),
        ("aten::mm", [[8, 64], [64, 32]], [[0, 0], [64, 2]], Gemm("f32/bf16", 8, 32, 64, 1, "--")),
        ("aten::mm", [[8, 64], [64, 32]], [], Gemm("f32/bf16", 8, 32, 64, 1, "--")),
        ("aten::mm", [[8, 64], [64, 32]], None, Gemm("f32/bf16", 8, 32, 64, 1, "--")),
        ("aten::mm", [[8, 1], [1, 32]], [[1, 1], [1, 1]], Gemm("f32/bf16", 8, 32, 1, 1, "NN")),
        ("aten::mm", [[1, 64], [64, 32]], [[1, 9], [1, 64]], Gemm("f32/bf16", 1, 32, 64, 1, "TT")),
        ("aten::_scaled_mm", [[8, 64], [64, 32]], [[64, 1], [1, 64]], Gemm("f32/bf16", 8, 32, 64, 1, "NT")),
        ("aten::bmm", [[5, 8, 64], [5, 64, 32]], [[512, 64, 1], [64, 1, 64]], Gemm("f32/bf16", 8, 32, 64, 5, "NT")),
        ("aten::mv", [[8, 64], [64]], [[64, 1], [1]], Gemm("f32/bf16", 8, 1, 64, 1, "NN")),
        ("aten::linear", [[2, 4, 64], [32, 64]], [[256, 64, 1], [64, 1]], Gemm("f32/bf16", 8, 32, 64, 1, "NT")),
        ("aten::linear", [[64], [32, 64]], [[1], [1, 32]], Gemm("f32/bf16", 1, 32, 64, 1, "NN")),
        ("aten::linear", [[8, 64], [64]], [[64, 1], [1]], Gemm("f32/bf16", 8, 1, 64, 1, "NT")),
        ("aten::conv2d", [[8, 64], [64, 32]], [], None),
    ],
)
def test_products_of_pytorch(op, dims, strides, expected):
    assert aten_gemm(op, dims, [F, BF], strides) == expected


@pytest.mark.parametrize("op", ["aten::addmm", "aten::baddbmm", "aten::addmv"])
def test_a_matrix_that_is_added_is_no_factor(op):
    dims = {
        "aten::addmm": [[32], [8, 64], [64, 32]],
        "aten::baddbmm": [[5, 8, 32], [5, 8, 64], [5, 64, 32]],
        "aten::addmv": [[8], [8, 64], [64]],
    }[op]
    found = aten_gemm(op, dims, ["double", F, F], [])
    assert (found.dtype, found.m, found.k) == ("f32", 8, 64)
    assert (found.n, found.batch) == {"aten::addmm": (32, 1), "aten::baddbmm": (32, 5), "aten::addmv": (1, 1)}[op]


def test_a_product_is_read_from_its_text():
    made = Gemm("f8e4m3fn/f8e5m2", 8, 32, 64, 5, "-T")
    assert str(made) == "f8e4m3fn/f8e5m2 m=8 n=32 k=64 batch=5 -T"
    assert notation.parse(str(made)) == made
    assert notation.parse("") is None


def test_names_of_types_are_those_of_xla():
    client = pytest.importorskip("jaxlib.xla_client")
    of_xla_ = {kind.value: kind.name.lower() for kind in client.PrimitiveType}
    assert [name for number, name in of_xla_.items() if number in hlo._TYPES and hlo._TYPES[number][0] != name] == []


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (
            "regs:32 static_shared:512 dynamic_shared:1024 grid:4,2,1 block:128,1,1 occ_pct:62.5",
            "grid=4,2,1 block=128,1,1 registers=32 shared=1536 occupancy=62.5%",
        ),
        (
            " grid:219,40,1 block:256,1,1 private_mem:0 group_mem:49280 occ_pct:0",
            "grid=219,40,1 block=256,1,1 shared=49280",
        ),
        ("regs:32", "registers=32"),
        ("", ""),
    ],
)
def test_launches_that_xla_describes(details, expected):
    assert of_xla(details) == expected


def test_an_occupancy_of_zero_is_no_estimate():
    assert launch(grid="1,1,1", block=None, shared=0, occupancy=0) == "grid=1,1,1 shared=0"
