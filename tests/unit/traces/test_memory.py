"""Memory over time: peaks and what was allocated then, by hand and on a real trace."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from support.launched import allocation, host, step, trace, work

from benchmarker.traces import profile_files
from benchmarker.traces.ingest import ingest
from benchmarker.traces.statistics import BEFORE, at_peak, peaks, timeline

SHARED = Path(__file__).parents[4] / "shared/traces"
H100 = "h100_torch_qwen_inference.json.gz"


@pytest.fixture
def ingested(tmp_path):
    """100 bytes from before the profile; 30 freed again before the peak of 350; device 1 and the CPU aside."""
    return trace(
        tmp_path,
        step(0, 0, 100),
        host("user_annotation", "attn", 5, 60),
        host("cpu_op", "aten::mm", 10, 20),
        host("cpu_op", "aten::empty", 11, 12),
        host("cpu_op", "aten::add", 30, 50),
        [
            allocation(11, 200, 300, address=1),
            allocation(15, 30, 330, address=2),
            allocation(18, -30, 300, address=2),
            allocation(35, 50, 350, address=2),
            allocation(35.5, 7, 7, address=1, device=1),
            allocation(36, 1, 1, address=9, device=-1),
            allocation(36.5, -1, 0, address=9, device=-1),
            allocation(70, -200, 150, address=1),
            allocation(80, 100, 250, address=3),
        ],
        work((13, 14), (20, 40)),
    )


def test_every_allocation_has_the_op_scope_and_step_that_made_it(ingested):
    found = timeline(ingested.events)
    assert found["size"].tolist() == [200, 30, -30, 50, 7, 1, -1, -200, 100]
    assert found["allocated"].tolist() == [300, 330, 300, 350, 7, 1, 0, 150, 250]
    assert found["device"].tolist() == [*["gpu:0"] * 4, "gpu:1", "cpu", "cpu", "gpu:0", "gpu:0"]
    assert found["op"].tolist() == [*["aten::mm"] * 3, *["aten::add"] * 4, "", ""]  # not aten::empty
    assert found["category"].tolist()[:4] == [*["gemm"] * 3, "elementwise"]
    assert found["scope"].tolist() == [*["attn"] * 7, "", ""]
    assert set(found["step"]) == {0}
    assert found["phase"].tolist() == [*["forward"] * 7, "", ""]


def test_the_peak_of_each_device_has_a_time_and_a_cause(ingested):
    found = peaks(timeline(ingested.events)).set_index("device")
    assert found.loc["gpu:0"].to_dict() == {
        "peak_allocated": 350,
        "peak_reserved": 1 << 31,
        "at_ns": 24_000,
        "before": 100,
        "allocations": 4,
        "step": 0,
        "op": "aten::add",
        "scope": "attn",
        "phase": "forward",
    }
    assert found["peak_allocated"].to_dict() == {"cpu": 1, "gpu:0": 350, "gpu:1": 7}


def test_what_was_allocated_at_the_peak_adds_up_to_it(ingested):
    memory = timeline(ingested.events)
    found = at_peak(memory[memory["device"] == "gpu:0"].reset_index(drop=True), "op")
    assert found[["op", "bytes", "allocations"]].to_numpy().tolist() == [
        ["aten::mm", 200, 1],
        [BEFORE, 100, 0],
        ["aten::add", 50, 1],
    ]
    assert found["share"].sum() == pytest.approx(1)


def test_memory_events_are_no_work_and_survive_the_event_table(tmp_path, ingested):
    assert ingested.trace.kernels == 1
    assert not any("memory" in note for note in ingested.trace.notes)
    (tmp_path / "t.parquet").write_bytes(profile_files.encode(ingested))
    loaded = timeline(profile_files.load(tmp_path / "t.parquet").events)
    assert loaded.equals(timeline(ingested.events))


def test_a_trace_without_memory_events_has_an_empty_timeline_and_no_further_columns(tmp_path):
    events = trace(tmp_path, work((0, 1), (2, 3))).events
    assert len(timeline(events)) == 0
    assert "allocated" not in events


@pytest.mark.parametrize("damage", [{"Bytes": None}, {"Bytes": "8"}, {"Addr": 1 << 70}, {"Device Id": 0.5}])
def test_a_memory_event_without_its_numbers_is_told_as_left_out(tmp_path, damage):
    bad = allocation(1, 8, 8)
    bad["args"] |= damage
    ingested = trace(tmp_path, work((0, 1), (2, 3)), [bad])
    assert ingested.trace.notes[0] == "events left out: 1 memory"
    assert len(timeline(ingested.events)) == 0


def test_the_totals_of_a_real_trace_are_those_of_its_events():
    path = SHARED / H100
    if not path.exists():
        pytest.skip(f"{SHARED} is not here")
    raw = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    raw = [each["args"] for each in raw if each["name"] == "[memory]"]
    memory = timeline(ingest(path).events)
    assert len(memory) == len(raw) == 2450
    of = memory[memory["device"] == "gpu:0"]
    assert of["allocated"].max() == max(each["Total Allocated"] for each in raw) == 2_088_508_416
    assert (np.diff(of["allocated"]) == of["size"].to_numpy()[1:]).all()
    for by in ("scope", "op", "category", "phase"):
        held = at_peak(memory, by)
        assert held.groupby("device")["bytes"].sum().to_dict() == {"cpu": 16, "gpu:0": 2_088_508_416}
