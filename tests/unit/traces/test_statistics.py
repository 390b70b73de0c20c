"""Statistics of groups against pandas and NumPy."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarker.traces import events
from benchmarker.traces.statistics import describe, ops, work

NAMES = ["gemm", "", "'; DROP TABLE x; --", "naïve\x00", "b"]


def table(rows: list[dict]) -> pd.DataFrame:
    """An event table of rows; what is not given is none."""
    columns: dict = {}
    for name in {name for row in rows for name in row}:
        values = [row.get(name) for row in rows]
        if name in events.TEXTS:
            columns[name] = events.words(np.arange(len(rows), dtype=np.int32), [value or "" for value in values])
        elif name in events.INTEGERS:
            columns[name] = np.array([-1 if value is None else value for value in values], np.int64)
        else:
            columns[name] = np.array([np.nan if value is None else value for value in values], float)
    return events.frame(columns, len(rows))


kernels = st.fixed_dictionaries(
    {
        "kind": st.just("kernel"),
        "name": st.sampled_from(NAMES),
        "category": st.sampled_from(["gemm", "memory"]),
        "dur_ns": st.integers(0, 1 << 40),
        "self_ns": st.integers(0, 1 << 40),
        "busy_ns": st.integers(0, 1 << 40),
        "flops": st.none() | st.integers(0, 1000),
        "bytes": st.none() | st.integers(0, 1000),
    }
)


@settings(max_examples=30, deadline=None)
@given(st.lists(kernels, min_size=1, max_size=30), st.sampled_from([["name"], ["name", "category"], ["category"]]))
def test_groups_are_those_of_pandas(rows, by):
    frame = table(rows)
    found = describe(frame, by).set_index(by).sort_index()
    plain = frame.assign(**{name: frame[name].astype(object) for name in by})
    key = by[0] if len(by) == 1 else by
    groups = plain.groupby(key)
    assert found.index.tolist() == list(groups.groups)
    assert found["count"].tolist() == groups.size().tolist()
    for name in ("dur_ns", "self_ns", "busy_ns"):
        column = "total_ns" if name == "dur_ns" else name
        assert found[column].tolist() == groups[name].sum().tolist()
    own = groups["self_ns"]
    np.testing.assert_allclose(found["mean_ns"], own.mean(), rtol=1e-12)
    np.testing.assert_allclose(found["median_ns"], own.median(), rtol=1e-12)
    np.testing.assert_allclose(found["p5_ns"], own.apply(lambda each: np.percentile(each, 5)), rtol=1e-12)
    np.testing.assert_allclose(found["p95_ns"], own.apply(lambda each: np.percentile(each, 95)), rtol=1e-12)
    assert found["min_ns"].tolist() == own.min().tolist()
    assert found["max_ns"].tolist() == own.max().tolist()
    np.testing.assert_allclose(found["std_ns"], own.std(ddof=0), rtol=1e-6, atol=1e-3)
    np.testing.assert_allclose(found["share"], groups["busy_ns"].sum() / max(1, frame["busy_ns"].sum()), rtol=1e-12)
    for name, rate in (("flops", "flop_per_s"), ("bytes", "bytes_per_s")):
        known = plain[plain[name].notna()].groupby(key)
        amount = known[name].sum().reindex(found.index)
        np.testing.assert_allclose(found[name], amount, rtol=1e-12)
        took_s = known["self_ns"].sum().reindex(found.index) / 1e9
        np.testing.assert_allclose(found[rate], amount / took_s.where(took_s > 0), rtol=1e-9)


def test_by_hand_and_in_order():
    rows = [
        {"kind": "kernel", "name": "a", "dur_ns": 10, "self_ns": 10, "busy_ns": 10, "flops": 100.0},
        {"kind": "kernel", "name": "b", "dur_ns": 40, "self_ns": 40, "busy_ns": 30},
        {"kind": "kernel", "name": "a", "dur_ns": 20, "self_ns": 20, "busy_ns": 10},
    ]
    found = describe(table(rows), ["name"])
    assert found["name"].tolist() == ["b", "a"]
    assert found["share"].tolist() == [0.6, 0.4]
    assert found["median_ns"].tolist() == [40, 15]
    assert found["p5_ns"].tolist() == [40, 10.5]
    assert found["std_ns"].tolist() == [0, 5]
    assert found["flop_per_s"].tolist()[1] == pytest.approx(100 / 10e-9)
    assert found["flops_share"].tolist()[1] == pytest.approx(10 / 30)
    assert np.isnan(found["flop_per_s"].tolist()[0])
    assert np.isnan(found["flops_share"].tolist()[0])


def test_a_rate_is_that_of_the_kernels_own_duration_though_others_ran_beside_it():
    rows = [
        {"kind": "kernel", "name": name, "dur_ns": 20, "self_ns": 20, "busy_ns": 10, "flops": 100.0, "bytes": 40.0}
        for name in ("a", "b")
    ]
    found = describe(table(rows), ["name"])
    assert found["busy_ns"].tolist() == [10, 10]
    assert found["flop_per_s"].tolist() == pytest.approx([100 / 20e-9] * 2)
    assert found["bytes_per_s"].tolist() == pytest.approx([40 / 20e-9] * 2)


def test_an_asynchronous_op_lasts_until_it_is_complete():
    """Launched in 2 ns, complete after 11; another op ran in between, so that only 5 ns are its own."""
    dot = {"kind": "op", "name": "dot", "ts_ns": 5, "dur_ns": 2, "end_ns": 16, "self_ns": 5, "busy_ns": 5}
    found = describe(table([{**dot, "flops": 110.0}]), ["name"])
    assert found["flop_per_s"].tolist() == pytest.approx([10e9])
    assert found["total_ns"].tolist() == [11]


def test_the_rate_of_an_op_is_that_of_whole_calls_of_known_work():
    """Of two calls, one has shapes: its product of 6 ns and the kernel of 4 ns that adds up its parts."""
    host = {"kind": "op", "device": "cpu", "track": "t", "self_ns": 5, "dur_ns": 5, "name": "aten::mm"}
    device = {"kind": "kernel", "op": "aten::mm", "name": "k"}
    rows = [
        {**host, "ts_ns": 0},
        {**host, "ts_ns": 10},
        {**device, "parent_id": 0, "dur_ns": 6, "self_ns": 6, "busy_ns": 3, "flops": 100.0},
        {**device, "parent_id": 0, "dur_ns": 4, "self_ns": 4, "busy_ns": 4},
        {**device, "parent_id": 1, "dur_ns": 90, "self_ns": 90, "busy_ns": 90},
    ]
    (found,) = ops(table(rows)).to_dict("records")
    assert (found["device_ns"], found["kernel_ns"]) == (97, 100)
    assert found["flop_per_s"] == pytest.approx(100 / 10e-9)
    assert found["flops_share"] == pytest.approx(0.1)


def test_a_row_within_another_of_its_group_is_not_counted_twice():
    common = {"kind": "op", "name": "f", "track": "t", "device": "cpu"}
    frame = table(
        [
            {**common, "ts_ns": 0, "dur_ns": 100, "self_ns": 60, "busy_ns": 60},
            {**common, "ts_ns": 10, "dur_ns": 40, "self_ns": 40, "busy_ns": 40},
            {**common, "ts_ns": 10, "dur_ns": 7, "self_ns": 7, "busy_ns": 7, "track": "u"},
        ]
    )
    found = describe(frame, ["name"])
    assert found[["count", "total_ns", "self_ns"]].to_numpy().tolist() == [[3, 107, 107]]


def test_total_is_never_below_self():
    """The second row begins within the first, of the same name, and ends after it; the third is complete late."""
    common = {"kind": "op", "name": "f", "track": "t", "device": "cpu"}
    frame = table(
        [
            {**common, "ts_ns": 0, "dur_ns": 100, "self_ns": 40},
            {**common, "ts_ns": 40, "dur_ns": 90, "self_ns": 90},
            {**common, "ts_ns": 200, "dur_ns": 10, "end_ns": 230, "self_ns": 30},
        ]
    )
    found = describe(frame, ["name"])
    assert found[["total_ns", "self_ns"]].to_numpy().tolist() == [[160, 160]]


def test_work_is_what_a_device_ran_or_the_hosts_ops():
    rows = [{"kind": kind} for kind in ("op", "scope", "runtime", "step")]
    assert work(table(rows))["kind"].tolist() == ["op"]
    assert work(table([*rows, {"kind": "copy"}, {"kind": "kernel"}]))["kind"].tolist() == ["copy", "kernel"]


def test_ops_have_the_time_of_what_they_launched():
    host = {"kind": "op", "device": "cpu", "track": "t", "self_ns": 5, "dur_ns": 5}
    rows = [
        {**host, "name": "aten::mm", "ts_ns": 0},
        {**host, "name": "aten::add", "ts_ns": 10},
        {**host, "name": "aten::mm", "ts_ns": 20},
        *({"kind": "kernel", "op": "aten::mm", "name": "k", "dur_ns": 9, "self_ns": 9, "busy_ns": 9} for _ in range(2)),
    ]
    found = ops(table(rows)).set_index("op")
    assert found["device_ns"].to_dict() == {"aten::mm": 18, "aten::add": 0}
    assert found["share"].to_dict() == {"aten::mm": 1.0, "aten::add": 0.0}
    assert found["count"].to_dict() == {"aten::mm": 2, "aten::add": 1}


@pytest.mark.parametrize("by", [["name"], ["name", "category"]])
def test_no_rows_have_no_groups(by):
    found = describe(table([{"kind": "kernel", "name": "a"}])[:0], by)
    assert len(found) == 0
    assert {"count", "share", "p95_ns", "flop_per_s"} <= set(found.columns)
