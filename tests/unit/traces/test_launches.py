"""Launch calls, queues and the waits of streams: by hand, and as Holistic Trace Analysis 0.5.0 reports them."""

from pathlib import Path

import pytest
from support.launched import step, trace, work

from benchmarker.traces.ingest import ingest
from benchmarker.traces.intervals import Covered, union_ns
from benchmarker.traces.wall_time import launch_rows, launch_statistics, launches, on_device, queue_lengths, streams

SHARED = Path(__file__).parents[4] / "shared/traces"
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
