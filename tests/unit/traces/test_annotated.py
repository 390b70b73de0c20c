"""The annotated trace: every row comes back from Perfetto, to the nanosecond."""

import gzip
import random

import msgspec
import numpy as np
import pandas as pd
import pytest
from support import trace_processor

from benchmarker import UserError
from benchmarker.traces import annotated, events

BASE_NS = 1_763_000_000_123_456_789
HOSTILE = [
    'a "quoted" one"',
    "ends in a backslash \\",
    "C:\\temp\\x",
    "line\nfeed\ttab\r\x00nul\x1b[31m\x7f",
    "ünïcödé 😀 \u2028",
    "'; DROP TABLE slice; --",
    "%s {0} </script>",
    "]}\n]}",
    "long" * 250_000,
]
ALL = """
    SELECT slice.name, slice.category, ts, dur, depth, tid, pid, thread.name AS thread, process.name AS process,
        extract_arg(slice.arg_set_id, 'args.event_id') AS event_id
    FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)
"""


def table(rows: list[dict]) -> pd.DataFrame:
    columns: dict = {}
    for name in {name for row in rows for name in row}:
        if name in events.TEXTS:
            values = [row.get(name, "") for row in rows]
            columns[name] = events.words(np.arange(len(rows), dtype=np.int32), values)
        else:
            columns[name] = np.array([row.get(name, -1) for row in rows], np.int64)
    return events.frame(columns, len(rows))


def nested(rng: random.Random, track: str, begin: int, end: int, rows: list[dict]) -> None:
    """Slices that fill a span at random, some of them empty, some as long as what encloses them."""
    at = begin
    while at < end and len(rows) < 1500:
        dur = rng.choice([0, rng.randrange(1, 1 + (end - at)), end - at])
        rows.append(
            {"kind": "op", "name": f"op{len(rows)}", "device": "cpu", "track": track, "ts_ns": at, "dur_ns": dur}
        )
        if dur > 3 and rng.random() < 0.7:
            nested(rng, track, at, at + dur, rows)
        at += dur + rng.randrange(1, 1000)


@pytest.fixture
def mixed() -> pd.DataFrame:
    """Nested slices on three threads, launches, kernels that overlap on two streams, and hostile names."""
    rng = random.Random(7)
    rows: list[dict] = []
    for track in ("main", "worker 1", "worker 2"):
        of_track: list[dict] = []
        nested(rng, track, BASE_NS + rng.randrange(1000), BASE_NS + 40_000_000_000_001, of_track)
        rows += of_track
    for _ in range(2000):
        begin = BASE_NS + rng.randrange(100_000)
        launch = {
            "kind": "runtime",
            "name": "launch",
            "device": "cpu",
            "track": "launcher",
            "ts_ns": begin,
            "dur_ns": 7,
        }
        kernel = {"kind": "kernel", "name": "kernel", "device": "gpu:0", "track": rng.choice(["stream 7", "stream 8"])}
        late = {"ts_ns": begin + rng.randrange(500), "dur_ns": rng.randrange(900), "parent_id": len(rows)}
        rows += [launch, {**kernel, **late}]
    rows += [
        {
            "kind": "op",
            "name": name,
            "scope": name,
            "op": name,
            "device": "cpu",
            "track": name[:100],
            "ts_ns": BASE_NS + 999,
            "dur_ns": 10**14 + 1,
        }
        for name in HOSTILE
    ]
    rng.shuffle(rows[-len(HOSTILE) :])
    return table(rows)


def test_every_row_comes_back_to_the_nanosecond(mixed, tmp_path):
    path = tmp_path / "trace.json.gz"
    annotated.write_events(mixed, path)
    with trace_processor.open_trace(path) as trace:
        assert trace.dropped() == {}
        found = trace.query(ALL).set_index("event_id").sort_index()
        assert trace.query("SELECT count(*) AS n FROM slice").n.tolist() == [len(mixed)]
    assert found.index.tolist() == mixed.index.tolist()
    assert (found.ts + mixed.ts_ns.min()).tolist() == mixed.ts_ns.tolist()
    assert found.dur.tolist() == mixed.dur_ns.tolist()
    assert found.category.tolist() == mixed.kind.tolist()
    assert found.process.tolist() == mixed.device.tolist()
    plain = ~mixed.name.str.contains(r"[\\\x00-\x1f]")
    assert found.name[plain].tolist() == mixed.name[plain].tolist()
    streams = set(found.thread[mixed.device == "gpu:0"])
    assert {"stream 7", "stream 7 (2)", "stream 8", "stream 8 (2)"} <= streams
    assert {thread.partition(" (")[0] for thread in streams} == {"stream 7", "stream 8"}
    assert {"main", "worker 1", "worker 2"} <= set(found.thread)
    assert "main (2)" not in set(found.thread)
    assert found.tid.isin(found.pid).sum() == 0


def test_the_file_is_plain_json_with_its_base(mixed, tmp_path):
    path = tmp_path / "trace.json.gz"
    annotated.write_events(mixed, path)
    content = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    assert content["displayTimeUnit"] == "ns"
    assert int(content["otherData"]["base_ts_ns"]) == mixed.ts_ns.min()
    slices = [event for event in content["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == len(mixed)
    assert all(isinstance(each["pid"], int) and isinstance(each["tid"], int) for each in slices)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]


def test_the_scopes_slices_are_found_by_sql(tmp_path):
    common = {"kind": "kernel", "device": "gpu:0", "track": "stream 7", "dur_ns": 5, "phase": "backward", "step": 3}
    frame = table(
        [
            {**common, "name": "k1", "ts_ns": 10, "scope": "layer_0/attn_q_k", "op": "dot.1", "leaf": "attn_q_k"},
            {**common, "name": "k2", "ts_ns": 20, "scope": "layer_0/attn_q_k", "self_ns": 4, "busy_ns": 0},
            {**common, "name": "k3", "ts_ns": 30, "op": "dot.3", "category": "gemm", "program": "jit_f", "step": -1},
        ]
    )
    annotated.write_events(frame, tmp_path / "trace")
    with trace_processor.open_trace(tmp_path / "trace") as trace:
        found = trace.query(
            "SELECT name, extract_arg(arg_set_id,'args.name') AS scope, dur FROM slice WHERE scope LIKE '%attn_q_k%'"
        )
        args = trace.query("SELECT slice.name, key, display_value FROM slice JOIN args USING (arg_set_id)")
    assert found.values.tolist() == [["k1", "layer_0/attn_q_k/dot.1", 5], ["k2", "layer_0/attn_q_k", 5]]
    held = {name: dict(zip(each.key, each.display_value, strict=True)) for name, each in args.groupby("name")}
    assert held["k1"] == {
        "args.event_id": "0",
        "args.name": "layer_0/attn_q_k/dot.1",
        "args.scope": "layer_0/attn_q_k",
        "args.leaf": "attn_q_k",
        "args.op": "dot.1",
        "args.phase": "backward",
        "args.step": "3",
    }
    assert held["k2"]["args.self_ns"] == "4"
    assert held["k2"]["args.busy_ns"] == "0"
    assert held["k3"] == {
        "args.event_id": "2",
        "args.op": "dot.3",
        "args.phase": "backward",
        "args.category": "gemm",
        "args.program": "jit_f",
    }


def test_arrows_lead_from_the_launch_to_each_kernel(tmp_path):
    launch = {"kind": "runtime", "name": "launch", "device": "cpu", "track": "main", "dur_ns": 5}
    kernel = {"kind": "kernel", "device": "gpu:0", "track": "stream 7", "dur_ns": 5}
    frame = table(
        [
            {**launch, "ts_ns": 0},
            {**launch, "ts_ns": 100, "name": "late"},
            {**kernel, "ts_ns": 3, "name": "first", "parent_id": 0},
            {**kernel, "ts_ns": 8, "name": "second", "parent_id": 0},
            {**kernel, "ts_ns": 20, "name": "before its launch", "parent_id": 1},
            {**kernel, "ts_ns": 30, "name": "without", "parent_id": 77},
        ]
    )
    annotated.write_events(frame, tmp_path / "trace")
    with trace_processor.open_trace(tmp_path / "trace") as trace:
        assert trace.dropped() == {}
        arrows = trace.query(
            "SELECT a.name AS a, b.name AS b FROM flow JOIN slice a ON a.id = slice_out JOIN slice b ON b.id = slice_in"
        )
    assert sorted(arrows.values.tolist()) == [["launch", "first"], ["launch", "second"]]


def test_part_of_a_table_and_an_empty_one(mixed, tmp_path):
    annotated.write_events(mixed[mixed.kind == "kernel"], tmp_path / "part")
    annotated.write_events(mixed[:0], tmp_path / "none")
    with trace_processor.open_trace(tmp_path / "part") as trace:
        found = trace.query("SELECT extract_arg(arg_set_id, 'args.event_id') AS event_id FROM slice")
        assert sorted(found.event_id) == mixed.index[mixed.kind == "kernel"].tolist()
    with trace_processor.open_trace(tmp_path / "none") as trace:
        assert trace.query("SELECT * FROM slice").empty


def test_many_rows_that_all_cross_take_no_quadratic_time(tmp_path):
    count = 30_000
    columns = {
        "ts_ns": np.arange(count),
        "dur_ns": np.full(count, count),
        **{name: events.constant("x", count) for name in ("kind", "name", "device", "track")},
    }
    annotated.write_events(events.frame(columns, count), tmp_path / "trace")
    with trace_processor.open_trace(tmp_path / "trace") as trace:
        assert trace.dropped() == {}
        assert trace.query("SELECT count(*) AS n FROM slice").n.tolist() == [count]


def test_clocks_that_disagree_are_refused(tmp_path):
    frame = table([{"kind": "op", "name": "a", "ts_ns": 5, "dur_ns": 1}, {"kind": "op", "ts_ns": BASE_NS, "dur_ns": 1}])
    with pytest.raises(UserError, match="more than 26 days"):
        annotated.write_events(frame, tmp_path / "trace")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(mixed, tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*nowhere"):
        annotated.write_events(mixed, tmp_path / "nowhere/trace.json.gz")
