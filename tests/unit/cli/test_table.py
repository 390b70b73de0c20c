"""Tables fit the width that they are given, and say what they left out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from benchmarker.formatting import shortened
from benchmarker.tables import terminal
from benchmarker.tables.table import Table, coloured
from benchmarker.tables.terminal import NARROW

LONG = "attention B=2 H=8 T=1024 D=64 einsum"
KERNEL = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_64x4_nn_align8>(Params)"


def lines(headings, rows, width=None, paint=lambda text, _: text, **kept):
    """The lines of a table of texts."""
    return terminal.lines(Table.of(headings, rows, **kept), width, paint)


def test_numbers_are_aligned_to_the_right_and_texts_to_the_left():
    made = lines(["case", "time", "n"], [["a", "3.5 ms", "6"], ["bcd", "12.25 ms", "-"]])
    assert made.headings == ["case      time  n"]
    assert made.rows == ["a       3.5 ms  6", "bcd   12.25 ms  -"]
    assert made.left_out == []


def test_a_verdict_that_begins_with_a_number_is_a_text():
    assert lines(["B is"], [["27% faster"], ["2% slower"]]).rows == ["27% faster", "2% slower"]


def test_headings_wrap_before_a_column_is_left_out():
    made = lines(["step time median", "n"], [["3.5 ms", "6"]], 9, drop=["n"])
    assert made.headings == ["  step  n", "  time", "median"]
    assert made.rows == ["3.5 ms  6"]
    assert made.left_out == []


def test_the_least_important_columns_are_left_out_first_and_named_in_their_order():
    headings, row = ["case", "a", "b", "c"], ["x" * 20, "1" * 10, "2" * 10, "3" * 10]
    assert lines(headings, [row], 56, drop=["b", "a"]).left_out == []
    assert lines(headings, [row], 55, drop=["b", "a"]).left_out == ["b"]
    made = lines(headings, [row], 40, drop=["b", "a"])
    assert made.left_out == ["a", "b"]
    assert made.rows == ["x" * 20 + "  " + "3" * 10]


def test_without_a_width_all_columns_stay_whole():
    made = lines(["case", "a"], [[LONG * 10, "1"]], drop=["a"])
    assert made.rows == [LONG * 10 + "  1"]


def test_long_texts_wrap_at_spaces_and_kernels_are_shortened():
    made = lines(["case", "time"], [[LONG, "3.5 ms"]], NARROW + 8)
    assert made.rows == ["attention B=2 H=8 T=1024  3.5 ms", "  D=64 einsum"]
    made = lines(["name", "time"], [[KERNEL, "3.5 ms"]], 40, cut=["name"])
    (row,) = made.rows
    assert len(row) == 40
    assert row.startswith("cutlass::Kernel2…")
    assert "…128x128_64x4…" in row


def test_words_are_not_broken_while_there_is_another_way():
    rows = [["procurement-distributed", "Collectives and sharded training, then generation-of-text workloads"]]
    made = lines(["name", "summary"], rows, 52)
    assert made.rows == [
        "procurement-distributed  Collectives and sharded",
        "                           training, then",
        "                           generation-of-text",
        "                           workloads",
    ]
    made = lines(["name", "summary", "time"], [[*rows[0], "x" * 20]], 52, drop=["time"])
    assert made.left_out == ["time"]


def test_a_colour_covers_a_whole_cell_and_changes_no_width():
    rows = [[coloured("faster", "green"), "1"], ["same", "2"]]
    made = lines(["B is", "n"], rows, paint=lambda text, colour: f"<{colour}:{text}>")
    assert made.rows == ["<green:faster>  1", "same    2"]


def test_control_characters_are_escaped():
    made = lines(["\x1b[1mcase"], [["\x1b[31mred"]])
    assert (made.headings, made.rows) == (["\\x1b[1mcase"], ["\\x1b[31mred"])
    assert lines(["\x07", "b"], [["1" * 50, "2" * 50]], 60, drop=["\x07"]).left_out == ["\\x07"]


@pytest.mark.parametrize("width", [1, 2, 5, 40])
def test_a_text_is_shortened_to_the_width(width):
    assert len(shortened("0123456789" * 5, width)) == width
    assert shortened("ab", 2) == "ab"


TEXT = st.text(st.sampled_from("ab ×µ"), max_size=60) | st.text(st.sampled_from("漢 "), max_size=60)
ROWS = st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(TEXT, min_size=n, max_size=n), min_size=1, max_size=4))


@settings(deadline=None)
@given(ROWS, st.sampled_from([80, 100, 160]))
def test_no_table_of_five_columns_is_wider_than_the_terminal(rows, width):
    headings = [f"column {at}" for at in range(len(rows[0]))]
    made = lines(headings, rows, width, drop=headings[2:])
    assert max(map(cell_len, [*made.headings, *made.rows])) <= width


def test_a_text_of_a_million_characters_takes_no_longer_than_one_of_a_hundred():
    made = lines(["case", "n"], [["x" * 1_000_000, "1"]], 80, cut=["case"])
    assert len(made.rows[0]) == 80
