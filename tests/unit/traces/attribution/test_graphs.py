"""Kernels of graphs joined to the ops that were captured: minimal traces, with the fields that Kineto documents.

No real trace with a capture is at hand. The fields are those of libkineto/src/CudaMetadataFields.h.
"""

import json

import pytest

from benchmarker.traces.ingest import ingest
from benchmarker.traces.statistics import gemms, ops, work

HOST = {"ph": "X", "pid": 1, "tid": 1}


def call(name, ts, correlation=-1, dur=1):
    return {**HOST, "cat": "cuda_runtime", "name": name, "ts": ts, "dur": dur, "args": {"correlation": correlation}}


def op(name, ts, dims, correlation, launch="cudaLaunchKernel"):
    args = {"Input Dims": dims, "Input type": ["float"] * len(dims)}
    return [
        {**HOST, "cat": "cpu_op", "name": name, "ts": ts, "dur": 8, "args": args},
        call(launch, ts + 2, correlation),
    ]


def capture(at, rows=16, scope="layer"):
    """A capture of a product, a copy and an addition."""
    return [
        call("cudaStreamBeginCapture", at),
        {**HOST, "cat": "user_annotation", "name": scope, "ts": at + 5, "dur": 60},
        *op("aten::mm", at + 10, [[rows, 8], [8, 4]], at + 10),
        *op("aten::copy_", at + 20, [[rows, 4], [rows, 4]], at + 20, "cudaMemcpyAsync"),
        *op("aten::add", at + 30, [[rows, 4], [rows, 4]], at + 30),
        call("cudaStreamEndCapture", at + 90),
    ]


KERNELS = ("sgemm_128x64", "Memcpy DtoD (Device -> Device)", "vectorized_elementwise_kernel")


def replay(at, number, names=KERNELS, nodes=(40, 41, 42), tracks=(7, 7, 7)):
    """A launch of the graph; the rows come in the order of their nodes, 10 µs each."""
    rows = [call("cudaGraphLaunch", at, number)]
    for place, (name, node, track) in enumerate(zip(names, nodes, tracks, strict=True)):
        args = {"correlation": number, "device": 0, "stream": track, "graph id": 5}
        args |= {} if node is None else {"graph node id": node}
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        rows.append(
            {"ph": "X", "pid": 0, "tid": track, "cat": cat, "name": name, "ts": at + 10 * place + 10, "dur": 10}
            | {"args": args}
        )
    return rows


def read(folder, *parts):
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event for part in parts for event in part]}))
    return ingest(path)


OPS = ["aten::mm", "aten::copy_", "aten::add"]
NONE = (None, None, None)


def test_kernels_have_the_op_shape_scope_and_product_that_were_captured(tmp_path):
    found = read(tmp_path, capture(0), replay(100, 900), replay(200, 901))
    rows = work(found.events)
    assert rows["op"].tolist() == OPS * 2
    assert rows["graph"].tolist() == ["node"] * 6
    assert rows["leaf"].tolist() == ["layer"] * 6
    assert rows["phase"].tolist() == ["forward"] * 6
    assert rows["shapes"].tolist()[:2] == ["f32[16,8] f32[8,4]", "f32[16,4] f32[16,4]"]
    assert rows["flops"].tolist()[::3] == [2 * 16 * 4 * 8] * 2
    assert found.events["name"][rows["parent_id"]].unique().tolist() == ["cudaGraphLaunch"]
    (product,) = gemms(found.events)[0].to_dict("records")
    assert (product["m"], product["n"], product["k"], product["count"]) == (16, 4, 8, 2)
    assert product["flop_per_s"] == pytest.approx(2 * 16 * 4 * 8 / 10e-6)
    assert ops(found.events).set_index("op").loc["aten::mm", "flop_per_s"] == pytest.approx(product["flop_per_s"])
    assert found.trace.complete
    assert "6 kernels and copies of graphs (100.0% of the busy time) have the op that was captured" in str(
        found.trace.notes
    )


def test_nodes_are_joined_by_their_numbers_whatever_their_time(tmp_path):
    rows = work(read(tmp_path, capture(0), replay(100, 900, KERNELS[::-1], (42, 41, 40), (8, 7, 7))).events)
    assert rows.set_index("name")["op"].to_dict() == dict(zip(KERNELS, OPS, strict=True))


def test_nodes_without_numbers_are_joined_by_order_and_marked(tmp_path):
    found = read(tmp_path, capture(0), replay(100, 900, nodes=NONE))
    rows = work(found.events)
    assert rows["op"].tolist() == OPS
    assert rows["graph"].tolist() == ["order"] * 3
    assert "joined by order" in str(found.trace.notes)


ODD = {
    "another number of kernels": [capture(0), replay(100, 900, KERNELS[:2], NONE[:2], (7, 7))],
    "a copy where a kernel was captured": [capture(0), replay(100, 900, (KERNELS[1], *KERNELS[:2]), NONE)],
    "a kernel of another category": [capture(0), replay(100, 900, ("flash_fwd_kernel", *KERNELS[1:]))],
    "no order among several streams": [capture(0), replay(100, 900, nodes=NONE, tracks=(7, 8, 7))],
    "two captures that differ": [capture(0), capture(100, rows=32), replay(200, 900)],
    "two captures in different scopes": [capture(0), capture(100, scope="other"), replay(200, 900)],
    "a capture without an end": [capture(0)[:-1], replay(100, 900)],
    "no capture": [replay(100, 900)],
}


@pytest.mark.parametrize("name", ODD)
def test_nothing_is_guessed(tmp_path, name):
    found = read(tmp_path, *ODD[name])
    rows = work(found.events)
    assert set(rows["op"]) == {""}
    assert set(rows["graph"]) == {""}
    assert f"{len(rows)} kernels and copies (100.0% of the busy time) were launched as graphs" in str(
        found.trace.missing
    )


def test_two_captures_of_the_same_ops_are_one(tmp_path):
    found = read(tmp_path, capture(0), capture(100), replay(200, 900))
    assert work(found.events)["op"].tolist() == OPS


def test_what_is_not_joined_stays_counted(tmp_path):
    found = read(tmp_path, capture(0), replay(100, 900), replay(200, 901, KERNELS[:1], (50,), (7,)))
    assert work(found.events)["op"].tolist() == [*OPS, ""]
    assert "1 kernels and copies (25.0% of the busy time) were launched as graphs" in str(found.trace.missing)


def test_a_capture_in_a_file_of_its_own(command, tmp_path):
    """Its correlations are those of kernels in the trace itself, and its rows are not in the table."""
    eager = [*op("aten::relu", 90, [[16, 4]], 10), *replay(300, 10, ("relu_kernel",), (None,), (7,))[1:]]
    own = [*eager, *replay(100, 900)]
    for name, events in (("capture.json", capture(0)), ("t.json", own), ("eager.json", eager)):
        (tmp_path / name).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    assert command("profile", "import", "t.json", "--capture=capture.json").returncode == 0
    rows = json.loads(command("profile", "kernels", "t.events.parquet", "--by=op", "--json").stdout)
    assert {each["op"]: each["count"] for each in rows} == dict.fromkeys([*OPS, "aten::relu"], 1)
    found = ingest(tmp_path / "t.json", capture=tmp_path / "capture.json")
    assert len(found.events) == len(ingest(tmp_path / "t.json").events)
    assert found.events["scope_id"].max() < len(found.events)
    assert work(found.events)["leaf"].tolist() == ["", *["layer"] * 3]
    assert found.trace.complete
    for words, text in (
        (["t.json", "--capture=eager.json"], "eager.json: it contains no capture of a graph"),
        (["eager.json", "--capture=capture.json"], "eager.json: it launches no graph; leave --capture out"),
        (["t.json", "--capture=none.json"], "none.json: No such file"),
    ):
        done = command("profile", "import", *words)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
