"""Profiles of several devices on the page: communication over the batch size, and its parts."""

import pytest
from support.records import make_record

from benchmarker.records.profile import DeviceTime, Exchange, Trace


def make_trace(communication_ns, hidden_ns=0, waiting_ns=None, **fields):
    """A trace of two devices and four steps, each with a wall time of 1000 ns."""
    devices = [DeviceTime(f"cpu:{number}", "", 1, 600, 400, 1000) for number in (0, 1)]
    names = (
        "outside_ns",
        "uncategorised_ns",
        "unmatched_ops",
        "unmatched_backward",
        "unlaunched",
        "overlapping",
        "uneven",
    )
    return Trace(
        format="chrome",
        framework="toy",
        separable=False,
        variables={},
        rows=2,
        kernels=2,
        steps=4,
        step_ns=[250] * 4,
        wall_ns=1000,
        busy_ns=1200,
        idle_ns=800,
        **dict.fromkeys(names, 0),
        devices=devices,
        missing=[],
        notes=[],
        complete=True,
        world_size=2,
        communication_ns=communication_ns,
        hidden_ns=hidden_ns,
        waiting_ns=waiting_ns,
        **fields,
    )


def profiled(batch_size, trace, trial=0):
    case = {"devices": 2, "ranks": 2, "params": {"batch_size": batch_size}}
    return make_record(1.0, trial=trial, case=case, design={"case_number": batch_size}, trace=trace)


def test_the_share_of_communication_is_drawn_over_the_batch_size(page_of, place, parts):
    records = [profiled(size, make_trace(1600 // size)) for size in (2, 4, 8)]
    found = parts(page_of(place(records)))
    (key,) = [key for key in found if key.endswith("communication_share")]
    figure = found[key]
    assert figure.title == "share of communication over batch_size"
    (line,) = figure.marks
    assert (line.x, line.y) == ((2, 4, 8), (0.4, 0.2, 0.1))
    assert (figure.y.unit, figure.y.limit) == ("%", (0.0, 1.0))
    assert "40.0% share of communication" in line.texts[0]


def test_communication_is_divided_into_waiting_and_transferring(page_of, place, parts):
    """Two trials of each case: the shares are means; most steps of both wait for rank 1."""
    traces = [
        make_trace(800, 200, 400, critical_ranks=[1, 1, 0, 1]),
        make_trace(1200, 400, 600, critical_ranks=[1, 1, 1, 0]),
    ]
    table = parts(page_of(place([profiled(2, each, trial) for trial, each in enumerate(traces)])))[
        "Communication"
    ].table
    assert [column.name for column in table.columns][-7:] == [
        *("communication", "hidden", "waiting", "transferring", "critical_rank", "of_steps", "trials"),
    ]
    (row,) = table.rows
    assert row[-7:] == pytest.approx((0.5, 0.15, 0.25, 0.25, 1, 0.75, 2))


def test_where_waiting_is_not_known_the_rest_is_shown(page_of, place, parts):
    (row,) = parts(page_of(place([profiled(2, make_trace(800))])))["Communication"].table.rows
    assert row[-7:] == (0.4, 0.0, None, None, None, None, 1)


def test_collectives_stand_beside_the_formula(page_of, place, parts):
    exchanges = [Exchange("all_reduce", 1.0, 76.0, 1, 100), Exchange("broadcast", 2.0, None, None, None)]
    table = parts(page_of(place([profiled(2, make_trace(800, exchanges=exchanges))])))["Collectives"].table
    assert [row[-6:] for row in table.rows] == [
        ("all_reduce", 1, 100, 1.0, 76.0, "-24.0% of bytes"),
        ("broadcast", None, None, 2.0, None, ""),
    ]


def test_of_one_device_nothing_is_said_of_communication(page_of, place, parts):
    found = parts(page_of(place([make_record(1.0, trace=make_trace(0))])))
    assert not {"Communication", "Collectives"} & found.keys()
