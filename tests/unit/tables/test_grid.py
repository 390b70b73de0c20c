"""Cases by rows and columns: in the order of the plan, and never two cases in one cell."""

import msgspec
import pytest
from support.records import make_record

from benchmarker import UserError
from benchmarker.hooks.cases import Cases
from benchmarker.tables.grid import grid


def cases(*several):
    """Two trials of each case, given by its parameters and fields."""
    return [
        make_record(trial=trial, case=case, design={"case_number": number})
        for number, case in enumerate(several)
        for trial in (0, 1)
    ]


def nap(framework="toy", precision="fp32", **params):
    return {"framework": framework, "precision": precision, "params": params}


def test_cells_are_in_the_order_of_the_plan_by_the_first_factor_then_the_second():
    several = [nap(ms=ms, size=size) for ms in (2, 1) for size in ("small", "large")]
    made = grid(Cases.of(cases(*several)), "size,ms", "framework")
    assert made.rows == (("small", 2), ("small", 1), ("large", 2), ("large", 1))
    assert made.columns == (("toy",),)
    assert all(len(records) == 2 for records in made.cells.values())


def test_without_names_frameworks_are_columns_and_the_fewest_factors_that_tell_cases_apart_are_rows():
    several = [
        nap(framework, size=size, layers=layers, ms=ms)
        for size, layers in (("small", 2), ("large", 4))
        for ms in (1, 2)
        for framework in ("jax", "torch")
    ]
    made = grid(Cases.of(cases(*several)), None, None)
    assert (made.row_factors, made.column_factors) == (("ms", "size"), ("framework",))
    assert grid(Cases.of(cases(nap(ms=1))), None, None).cells.keys() == {((), ())}


def test_cases_that_would_share_a_cell_are_refused_with_the_factor_and_the_remedy():
    several = cases(nap(size="small", ms=1), nap(size="small", ms=2), nap(size="large", ms=1))
    with pytest.raises(UserError) as caught:
        grid(Cases.of(several), "size", "framework")
    assert str(caught.value) == (
        "cases that differ in ms (1, 2) would share a cell (small, toy); "
        "add ms to --rows or --columns, or select with --where=ms=1"
    )


def test_how_cases_were_measured_tells_them_apart_too():
    with pytest.raises(UserError, match=r"differ in seed \(0, 3\)"):
        grid(Cases.of(cases(nap(ms=1), nap(ms=1) | {"seed": 3})), "ms", "framework")


def test_hosts_are_an_axis_but_no_cases_of_their_own():
    records = cases(nap(ms=1))
    there = msgspec.structs.replace(records[0].machine, host="there")
    records[1] = msgspec.structs.replace(records[1], machine=there)
    assert len(grid(Cases.of(records), "ms", "framework").cells) == 1
    assert len(grid(Cases.of(records), "ms", "host").cells) == 2


def test_an_unknown_factor_is_refused_with_those_that_are_spelt_alike():
    with pytest.raises(UserError, match=r"--rows=siez: the records have no such factor; did you mean size"):
        grid(Cases.of(cases(nap(size="small"))), "siez", None)
    with pytest.raises(UserError, match=r"--columns=zzz: the records have no such factor; there are: .*framework"):
        grid(Cases.of(cases(nap(size="small"))), "size", "zzz")
    with pytest.raises(UserError, match="size is in --rows and in --columns"):
        grid(Cases.of(cases(nap(size="small"))), "size", "size")


def test_factors_may_be_spelt_like_options():
    assert grid(Cases.of(cases(nap(seq_len=1))), "seq-len", "framework").row_factors == ("seq_len",)
