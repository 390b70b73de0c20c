"""Inclusive times of scopes, worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import profiles
from unit.traces.test_statistics import table

from benchmarker.traces.ingest import ingest
from benchmarker.traces.statistics import difference
from benchmarker.traces.summary import inclusive


def event(cat, name, ts, dur, tid=1, **args):
    args = {key.replace("_", " "): value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args}


def launched(number, ts, dur, tid=1, **args):
    """An op, the call by which it launches a kernel, and the kernel, which runs `dur` µs."""
    device = event("kernel", f"k{number}", 1000 * number, dur, 7, correlation=number, device=0, stream=7)
    call = event("cuda_runtime", "cudaLaunchKernel", ts + 1, 1, tid, correlation=number)
    return [event("cpu_op", "aten::mm", ts, 5, tid, **args), call, {**device, "pid": 0}]


NESTED = [
    event("user_annotation", "## forward ##", 0, 100),
    *launched(1, 2, 1),
    event("user_annotation", "layer/0", 10, 50),
    *launched(2, 12, 10, Sequence_number=5, Fwd_thread_id=0),
    event("user_annotation", "attn", 30, 20),
    *launched(3, 32, 100),
    event("user_annotation", "attn", 40, 9),
    *launched(4, 41, 1000),
    *launched(5, 200, 7),
    event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 300, 50, 2, Sequence_number=5, Fwd_thread_id=1),
    *launched(6, 310, 3, 2),
]


def test_a_scope_includes_what_ran_in_the_scopes_within_it(tmp_path, command):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": NESTED}))
    found = ingest(path)
    times = {(row["scope"], row["phase"]): row["inclusive_ns"] for row in inclusive(found.events).to_dict("records")}
    assert times == {
        ("## forward ##", "forward"): 1_111_000,
        ("layer/0", "forward"): 1_110_000,
        ("attn", "forward"): 1_100_000,
        ("", "forward"): 7_000,
        ("## forward ##", "backward"): 3_000,
        ("layer/0", "backward"): 3_000,
    }
    roots = [time for (scope, _), time in times.items() if scope in ("## forward ##", "")]
    assert sum(roots) == found.trace.busy_ns
    rows = json.loads(command("profile", "scopes", "trace.json", "--json", "--sort=inclusive").stdout)
    assert (rows[0]["scope"], rows[0]["inclusive_ns"], rows[0]["root_ns"]) == ("## forward ##", 1_111_000, 1_000)
    assert rows[-1]["inclusive_ns"] == 3_000


def test_a_scope_without_work_of_its_own_has_a_line(tmp_path, command):
    events = [event("user_annotation", "model", 0, 50), event("user_annotation", "layer", 1, 40), *launched(1, 5, 2)]
    (tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    rows = json.loads(command("profile", "scopes", "trace.json", "--json").stdout)
    assert [(row["scope"], row["inclusive_ns"], row["root_ns"]) for row in rows] == [
        ("layer", 2_000, 2_000),
        ("model", 2_000, 0),
    ]
    shown = command("profile", "scopes", "trace.json").stdout
    assert "inclusive" in shown
    assert "purity" not in shown  # nothing is fused


@pytest.mark.parametrize("made", [profiles.small_cpu_space, profiles.small_gpu_space])
def test_instructions_are_within_the_scopes_of_their_path(tmp_path, made):
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(made())
    found = ingest(path)
    times = inclusive(found.events)
    assert {"attn"} <= set(times["scope"])
    assert times["inclusive_ns"].sum() == found.trace.busy_ns  # no scope is within another


def test_rows_of_a_damaged_table_that_enclose_each_other_end(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": NESTED}))
    events = ingest(path).events
    scopes = events.index[events["kind"] == "scope"].to_numpy()
    parent = events["parent_id"].to_numpy().copy()
    parent[scopes] = scopes[::-1]
    assert len(inclusive(events.assign(parent_id=parent)))


def rows(**busy_ns):
    return table(
        [
            {"kind": "kernel", "name": name, "busy_ns": each, "self_ns": each, "dur_ns": each}
            for name, each in busy_ns.items()
        ]
    )


def test_what_was_added_gone_slower_faster_and_the_same():
    before = rows(old=100, same=50, slow=10, fast=40)
    after = rows(new=300, same=50, slow=30, fast=20)
    found = difference(before, after, ["name"]).set_index("name")
    assert found["change"].to_dict() == {
        "new": "added",
        "old": "gone",
        "slow": "slower",
        "fast": "faster",
        "same": "same",
    }
    assert found.index.tolist() == ["new", "old", "fast", "slow", "same"]
    assert found["difference_ns"].to_dict() == {"new": 300, "old": -100, "fast": -20, "slow": 20, "same": 0}
    assert found["difference_ns"].sum() == 400 - 200
    assert found["difference_share"].to_dict() == {"new": 1.5, "old": -0.5, "fast": -0.1, "slow": 0.1, "same": 0}
    assert found["ratio"].dropna().to_dict() == {"slow": 3.0, "fast": 0.5, "same": 1.0}


def test_traces_of_different_lengths_are_compared_by_step():
    found = difference(rows(k=100), rows(k=300), ["name"], (1, 3))
    assert found[["change", "difference_ns", "before_count"]].to_numpy().tolist() == [["same", 0.0, 1.0]]
    assert found["after_count"].tolist() == pytest.approx([1 / 3])
    assert np.isnan(found["difference_share"]).all()


def trace(folder, name, **kernels):
    """A trace with one kernel of each name and duration, in µs."""
    place = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
    events = [{**place, "name": each, "ts": 1000 * at, "dur": dur} for at, (each, dur) in enumerate(kernels.items())]
    (folder / name).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


@pytest.mark.parametrize("by", ["kernels", "ops", "scopes"])
def test_two_results_are_shown_side_by_side(command, tmp_path, by):
    trace(tmp_path, "a.json", sgemm=10, copy=5)
    trace(tmp_path, "b.json", sgemm=20, gelu=5)
    done = command("profile", by, "a.json", "b.json")
    assert done.returncode == 0, done.stderr
    assert "busy time: before 15 µs, after 25 µs (+66.7%); one profile of each, so no verdict" in done.stdout
    lines = json.loads(command("profile", by, "a.json", "b.json", "--json").stdout)
    assert sum(line["difference_ns"] for line in lines) == 10_000
    assert sum(line["difference_share"] for line in lines) == pytest.approx(1)
    if by == "kernels":
        assert {line["name"]: line["change"] for line in lines} == {"sgemm": "slower", "gelu": "added", "copy": "gone"}


@pytest.mark.parametrize("by", ["kernels", "ops"])
def test_three_results_are_refused(command, tmp_path, by):
    done = command("profile", by, "a", "b", "c")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "name one to show it, or two" in done.stderr
