"""The cause of each idle gap, on traces worked out by hand."""

from pathlib import Path

import pytest
from support import profiles
from support.launched import step, trace, wait, work

from benchmarker.traces.ingest import ingest
from benchmarker.traces.intervals import Covered, union_ns
from benchmarker.traces.wall_time import (
    SYNC,
    bound,
    bound_of,
    bounds,
    idle_gaps,
    launch_rows,
    launch_statistics,
    launches,
    on_device,
    queue_lengths,
    states,
    streams,
)

SHARED = Path(__file__).parents[4] / "shared/traces"
FIRST = work((0, 5), (10, 20), "first")
"""Work of stream 7, after which a gap begins at 20 µs."""


def found(folder, *events):
    """Cause and length in µs of every gap but those before the first work."""
    gaps = idle_gaps(trace(folder, *events).events)
    return [(cause, ns / 1000) for cause, ns in zip(gaps["cause"], gaps["idle_ns"], strict=True)]


@pytest.mark.parametrize(
    ("cause", "gap", "events"),
    [
        ("host", 30, [work((40, 45), (50, 60))]),
        ("host", 25, [work((21, 24), (45, 60))]),
        ("sync", 30, [wait(12, 30), work((40, 45), (50, 60))]),
        ("host", 30, [wait(21, 30), work((40, 45), (50, 60))]),  # the device was idle before the host waited
        ("host", 30, [wait(12, 30, thread=2), work((40, 45), (50, 60))]),  # another thread waited
        ("host", 30, [wait(12, 45), work((40, 48), (50, 60), thread=2)]),
        ("kernel wait", 4, [work((11, 12), (24, 60))]),
        ("kernel wait", 4, [work(None, (24, 60))]),
        ("unknown", 30, [work((11, 12), (50, 60))]),
        ("unknown", 30, [work(None, (50, 60))]),
        ("host", 40, [work((11, 58), (60, 70))]),  # the call itself took long
        ("other stream", 30, [work((6, 7), (50, 60), stream=8)]),
        ("kernel wait", 4, [work((6, 21), (24, 60), stream=8)]),  # launched too late to have waited for stream 7
    ],
)
def test_a_gap_has_one_cause(tmp_path, cause, gap, events):
    assert found(tmp_path, FIRST, *events) == [(cause, gap)]


@pytest.mark.parametrize(
    ("cause", "name"), [("copy", "Memcpy HtoD"), ("collective", "ncclDevKernel_AllReduce"), ("other stream", "sgemm")]
)
def test_work_that_was_queued_behind_another_stream_waited_for_its_last_work(tmp_path, cause, name):
    events = [work((0, 1), (10, 20), name, stream=9), work((2, 3), (4, 12)), work((5, 6), (22, 30))]
    assert found(tmp_path, *events) == [(cause, 2)]


def test_the_time_after_the_last_work_is_the_hosts_or_that_of_a_sync_call(tmp_path):
    assert found(tmp_path, step(0, 0, 50), FIRST) == [("kernel wait", 10), ("host", 30)]
    assert found(tmp_path, step(0, 0, 50), FIRST, wait(12, 22)) == [("kernel wait", 10), ("sync", 30)]


def test_only_time_within_steps_is_idle_and_each_gap_belongs_to_the_step_of_the_work_that_ends_it(tmp_path):
    late = work((106, 108), (120, 130))
    ingested = trace(tmp_path, step(0, 0, 50), step(1, 100, 150), FIRST, late)
    gaps = idle_gaps(ingested.events)
    assert gaps["idle_ns"].tolist() == [10_000, 50_000, 20_000]  # 20 to 50 and 100 to 120 are one gap
    assert gaps["step"].tolist() == [0, 1, 1]
    assert gaps["idle_ns"].sum() == ingested.trace.idle_ns
    lines = bounds(states(ingested.events, on_device(ingested.events), gaps, "step"), "step")
    assert lines["wall_ns"].tolist() == [20_000, 80_000]
    assert lines["host_ns"].tolist() == [0, 70_000]
    assert lines["bound"].tolist() == ["kernel-bound", "host-bound"]


def test_busy_time_is_divided_and_adds_up_with_idle_time_to_the_wall_time(tmp_path):
    events = [
        work((0, 1), (10, 30), op="aten::mm"),
        work((1, 2), (20, 50), "ncclDevKernel_AllReduce", stream=9),
        work((2, 3), (40, 60), "Memcpy HtoD", stream=8),
        work((70, 71), (100, 110), op="aten::add", launch="cudaLaunchKernelExC"),
    ]
    events = trace(tmp_path, *events).events
    lines = states(events, on_device(events), idle_gaps(events))
    times = dict(zip(lines["cause"], lines["time_ns"], strict=True))
    assert times == {"kernels": 30_000, "collectives alone": 20_000, "copies alone": 10_000, "host": 40_000}
    assert lines["share"].tolist() == [0.3, 0.2, 0.1, 0.4]
    last = lines.iloc[-1]
    assert (last["gaps"], last["longest_ns"], last["op"]) == (1, 40_000, "aten::add")
    assert (last["scope"], last["call"]) == ("", "cudaLaunchKernelExC")
    whole = bound(lines)
    assert whole.verdict == "host-bound"
    assert whole.shares == pytest.approx({"host": 0.4, "kernel": 0.3, "communication": 0.2, "copy": 0.1} | NONE)
    assert list(whole.shares)[:2] == ["host", "kernel"]


NONE = {"latency": 0, "unknown": 0}


def test_gaps_whose_cause_is_unknown_are_no_verdict_on_host_or_device(tmp_path):
    events = trace(tmp_path, FIRST, work((11, 12), (90, 95))).events
    assert bound_of(events).verdict == "bound by unknown waits"


def test_a_profile_of_a_cpu_has_no_gaps_and_is_bound_by_nothing(tmp_path):
    (tmp_path / "cpu.pb").write_bytes(profiles.small_cpu_space())
    events = ingest(tmp_path / "cpu.pb").events
    assert len(idle_gaps(events)) == 0
    assert bound_of(events) is None


def test_devices_wait_each_for_itself(tmp_path):
    events = trace(tmp_path, FIRST, work((21, 24), (40, 60), device=1), work((41, 42), (50, 60))).events
    gaps = idle_gaps(events)
    assert gaps["device"].tolist() == ["gpu:0", "gpu:1"]
    assert gaps["idle_ns"].tolist() == [30_000, 30_000]
    lines = bounds(states(events, on_device(events), gaps, "device"), "device")
    assert lines["wall_ns"].tolist() == [50_000, 50_000]


@pytest.mark.parametrize(
    ("name", "waits"),
    {
        "cudaDeviceSynchronize": True,
        "hipStreamSynchronize": True,
        "cuEventSynchronize": True,
        "cudaMemcpy": True,
        "cudaMemcpyAsync": False,
        "hipMemcpyWithStream": True,
        "cuMemcpyDtoHAsync_v2": False,
        "cuMemcpyDtoH_v2": True,
        "cudaFree": True,
        "cudaFreeHost": False,
        "cudaMemsetAsync": False,
        "cudaStreamWaitEvent": False,
        "cudaLaunchKernel": False,
    }.items(),
)
def test_calls_in_which_the_host_waits(name, waits):
    assert bool(SYNC.search(name)) == waits


@pytest.mark.parametrize(
    "name",
    [
        "b200_torch_eager.json.gz",
        "h100_torch_qwen_inference.json.gz",
        "mi300_torch_resnet_training_checkpointed.json.gz",
        "torch_compile_triton.json.gz",
        "mi300_jax_conv.xplane.pb",
    ],
)
def test_the_gaps_of_real_traces_are_exactly_their_idle_time(name):
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED} is not here")
    ingested = ingest(SHARED / name)
    gaps = idle_gaps(ingested.events)
    assert gaps["idle_ns"].sum() == ingested.trace.idle_ns
    lines = states(ingested.events, on_device(ingested.events), gaps)
    assert lines["time_ns"].sum() == ingested.trace.busy_ns + ingested.trace.idle_ns


B200, H100 = "b200_torch_eager.json.gz", "h100_torch_qwen_inference.json.gz"
MI300, TRITON = "mi300_torch_resnet_training_checkpointed.json.gz", "torch_compile_triton.json.gz"
OVERLAPPING_US, UNLAUNCHED_US = 69.278, 9.117
"""HTA subtracts overlaps of kernels of one stream, and counts some gaps before kernels without launch as host wait."""
HTA = {
    B200: {"stream 7": (72_470.09, 351.32 + OVERLAPPING_US, 0, 2)},
    H100: {"stream 7": (1_509.72 - UNLAUNCHED_US, 2_495.81 + UNLAUNCHED_US, 0, 111)},
    MI300: {"stream 0": (0, 2_347.42, 32_974.83, 1840), "stream 4": (0, 111.94, 8_901.36, None)},
    TRITON: {"stream 0": (0, 0.01, 0, None)},
}
"""Host wait, kernel wait and other in µs, and the longest queue: HTA without rounding of times to µs.

HTA does not know the calls hipExtLaunchKernel and hipModuleLaunchKernel, so that it reports other queues or none.
"""


def test_a_call_is_as_late_as_its_first_work_and_short_if_it_took_longer_than_all_its_work(tmp_path):
    graph = work((10, 20), (50, 60), launch="cudaGraphLaunch")
    second = work(None, (60, 61))
    second[0]["args"]["correlation"] = graph[0]["args"]["correlation"]
    ingested = trace(tmp_path, graph, second, work((20, 30), (28, 33)), work((40, 45), (39, 49), stream=8))
    found = launches(ingested.events, on_device(ingested.events))
    assert found["call_ns"].tolist() == [10_000, 10_000, 5_000]
    assert found["work_ns"].tolist() == [11_000, 5_000, 10_000]
    assert found["delay_ns"].tolist() == [30_000, 0, 0]
    assert found["early"].tolist() == [False, False, True]


def test_the_queue_is_counted_over_time(tmp_path):
    events = trace(
        tmp_path,
        step(0, 0, 90),
        work((10, 12), (20, 50)),
        work((20, 22), (50, 60)),
        work((30, 32), (60, 90)),
    ).events
    rows = on_device(events)
    times, lengths = queue_lengths(events, rows)
    assert times.tolist() == [10_000, 20_000, 30_000, 50_000, 60_000]
    assert lengths.tolist() == [1, 1, 2, 1, 0]
    found = launch_statistics(events, rows, Covered.of(events, rows)).iloc[0]
    assert found["launches"] == 3
    assert (found["delay_median_ns"], found["delay_max_ns"]) == (28_000, 28_000)
    assert found["delay_p95_ns"] == 28_000
    assert (found["queue_median"], found["queue_max"], found["queue_empty"]) == (1, 2, 40 / 90)
    assert (found["short"], found["early"]) == (0, 0)


def test_the_waits_of_a_stream_do_not_ask_what_other_streams_do(tmp_path):
    events = trace(
        tmp_path,
        work((0, 1), (10, 20)),
        work((2, 3), (24, 30)),
        work((40, 41), (50, 60)),
        work((42, 43), (100, 110)),
        work((0, 1), (10, 105), stream=8),
    ).events
    found = streams(events, on_device(events)).set_index("stream")
    assert found.loc["stream 7"].drop("device").to_dict() == {
        "count": 4,
        "busy_ns": 36_000,
        "idle_ns": 64_000,
        "host_wait_ns": 20_000,
        "kernel_wait_ns": 4_000,
        "other_ns": 40_000,
        "queue_max": 2,
    }
    assert found.loc["stream 8", "idle_ns"] == 0


@pytest.mark.parametrize("name", HTA)
def test_waits_and_queues_of_real_traces_equal_those_of_holistic_trace_analysis(name):
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED} is not here")
    events = ingest(SHARED / name).events
    rows = on_device(events)
    if name == MI300:  # of a file with several steps, HTA leaves out work without launch
        rows = rows[launch_rows(events, rows) >= 0]
    found = streams(events, rows).set_index("stream")
    for stream, (host, kernel, other, longest) in HTA[name].items():
        line = found.loc[stream]
        assert line["host_wait_ns"] / 1000 == pytest.approx(host, abs=0.02)
        assert line["kernel_wait_ns"] / 1000 == pytest.approx(kernel, abs=0.02)
        assert line["other_ns"] / 1000 == pytest.approx(other, abs=0.02)
        if longest is not None:
            assert line["queue_max"] == longest


@pytest.mark.parametrize(
    ("name", "calls", "delays"), [(B200, 708, (2.968, 192.551)), (H100, 1197, (1204.458, 3121.709))]
)
def test_launch_delays_equal_those_of_holistic_trace_analysis(name, calls, delays):
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED} is not here")
    events = ingest(SHARED / name).events
    found = launches(events, on_device(events))
    known = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"]  # all that HTA counts
    delay = found[events["name"].loc[found["call"]].isin(known).to_numpy()]["delay_ns"] / 1000
    assert len(delay) == calls
    assert (delay.median(), delay.max()) == pytest.approx(delays, abs=0.002)


def test_hidden_communication_equals_that_of_holistic_trace_analysis():
    if not (SHARED / MI300).exists():
        pytest.skip(f"{SHARED} is not here")
    events = ingest(SHARED / MI300).events
    rows = on_device(events)
    rows = rows[launch_rows(events, rows) >= 0]
    moves, copies = (rows["category"] == "communication").to_numpy(), (rows["kind"] == "copy").to_numpy()

    def union(which):
        begin = rows["ts_ns"].to_numpy()[which]
        return union_ns(begin, begin + rows["dur_ns"].to_numpy()[which])

    both = union(moves) + union(~moves & ~copies) - union(~copies)
    assert round(100 * both / union(moves), 2) == 25.25
    assert union(~moves & ~copies) / 1000 == pytest.approx(19_234.094, abs=0.02)
