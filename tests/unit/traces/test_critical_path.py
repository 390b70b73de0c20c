"""The critical path, on traces worked out by hand and on real ones."""

from pathlib import Path

import pytest
from support import profiles
from support.launched import host, step, trace, wait, work

from benchmarker.traces.critical_path import KINDS, critical_path, summed
from benchmarker.traces.ingest import ingest
from benchmarker.traces.wall_time import bound_of

SHARED = Path(__file__).parents[4] / "shared/traces"
EVENT = "cudaStreamWaitEvent"


def path(folder, *events, **choice):
    """Kind, name, begin and end in µs of each segment."""
    found = critical_path(trace(folder, *events).events, **choice)
    return [
        (kind, name, begin / 1000, end / 1000)
        for kind, name, begin, end in zip(found["kind"], found["name"], found["begin_ns"], found["end_ns"], strict=True)
    ]


def test_work_that_was_launched_late_leads_to_the_host(tmp_path):
    events = [
        step(0, 0, 100),
        host("cpu_op", "aten::add", 5, 30),
        work((10, 12), (20, 30), "first"),
        work((50, 52), (60, 110), "second", op="aten::mm"),
    ]
    assert path(tmp_path, *events) == [
        ("host", "", 0, 5),
        ("host", "aten::add", 5, 10),
        ("host", "cudaLaunchKernel", 10, 12),
        ("host", "aten::add", 12, 30),
        ("host", "", 30, 50),
        ("launch delay", "cudaLaunchKernel", 50, 60),
        ("kernel", "second", 60, 110),
    ]


def test_the_host_at_a_sync_call_waits_for_the_work_that_ended_last(tmp_path):
    events = [
        step(0, 0, 95),
        work((5, 6), (10, 50), "first"),
        work((7, 8), (52, 90), "Memcpy DtoH"),
        work((7.5, 8), (20, 40), "aside", stream=8),
        wait(9, 92),
    ]
    assert path(tmp_path, *events) == [
        ("host", "", 0, 5),
        ("launch delay", "cudaLaunchKernel", 5, 10),
        ("kernel", "first", 10, 50),
        ("stream wait", "Memcpy DtoH", 50, 52),
        ("copy", "Memcpy DtoH", 52, 90),
        ("sync", "cudaStreamSynchronize", 90, 92),
        ("host", "", 92, 95),
    ]


def test_a_sync_call_that_waits_for_nothing_in_the_trace_is_time_of_its_own(tmp_path):
    events = [step(0, 0, 90), work((1, 2), (3, 4)), wait(10, 20), work((50, 51), (60, 95), "late")]
    assert path(tmp_path, *events) == [
        ("host", "", 0, 1),
        ("host", "cudaLaunchKernel", 1, 2),
        ("host", "", 2, 3),
        ("unknown", "", 3, 4),
        ("host", "", 4, 10),
        ("sync", "cudaStreamSynchronize", 10, 20),
        ("host", "", 20, 50),
        ("launch delay", "cudaLaunchKernel", 50, 60),
        ("kernel", "late", 60, 95),
    ]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_stream_that_was_told_to_wait_for_an_event_waited_for_the_work_of_another(tmp_path, recorded):
    events = [
        step(0, 0, 20),
        work((1, 2), (5, 60), "long"),
        work((3, 4), (6, 10), "short", stream=8),
        host("cuda_runtime", EVENT, 5, 6) if recorded else [],
        work((7, 8), (62, 70), "after", stream=8),
    ]
    before = [("host", "", 0, 1), ("launch delay", "cudaLaunchKernel", 1, 5), ("kernel", "long", 5, 60)]
    assert path(tmp_path, *events) == [*before, ("event wait", "after", 60, 62), ("kernel", "after", 62, 70)]


def test_work_that_began_promptly_or_was_launched_after_the_event_was_not_waited_for(tmp_path):
    events = [
        step(0, 0, 20),
        work((3, 4), (6, 40), "short", stream=8),
        host("cuda_runtime", EVENT, 5, 6),
        work((5.5, 6), (10, 44), "later than the event"),
        work((7, 8), (46, 70), "after", stream=8),
    ]
    assert path(tmp_path, *events)[-3:] == [
        ("kernel", "short", 6, 40),
        ("stream wait", "after", 40, 46),
        ("kernel", "after", 46, 70),
    ]


def test_the_path_of_a_step_ends_where_it_reaches_work_of_the_step_before(tmp_path):
    events = [
        step(0, 0, 20),
        step(1, 20, 40),
        work((1, 2), (5, 50), "first"),
        work((21, 22), (52, 90), "second"),
    ]
    first, second = path(tmp_path, *events, step=0), path(tmp_path, *events, step=1)
    assert second == [("stream wait", "second", 50, 52), ("kernel", "second", 52, 90)]
    assert first == [("host", "", 0, 1), ("launch delay", "cudaLaunchKernel", 1, 5), ("kernel", "first", 5, 50)]
    assert path(tmp_path, *events) == first + second


def test_the_thread_of_the_backward_pass_fills_the_time_in_which_its_caller_has_no_op(tmp_path):
    events = [
        step(0, 0, 100),
        host("cpu_op", "aten::mm", 10, 20),
        host("cpu_op", "MmBackward0", 30, 80, 2),
        work((90, 91), (92, 120)),
    ]
    assert path(tmp_path, *events)[:5] == [
        ("host", "", 0, 10),
        ("host", "aten::mm", 10, 20),
        ("host", "", 20, 30),
        ("host", "MmBackward0", 30, 80),
        ("host", "", 80, 90),
    ]


def shares(folder, *events):
    """The share of each kind of segment."""
    found = summed(critical_path(trace(folder, *events).events), ["kind"])
    return dict(zip(found["kind"], found["share"].round(3), strict=True))


def polls(begin, end):
    """Calls that ask whether an event has come, one after the other."""
    return [call for at in range(begin, end, 5) for call in host("cuda_runtime", "cudaEventQuery", at, at + 1)]


@pytest.mark.parametrize("calls", [[], polls(10, 1000)])
def test_a_host_that_waits_without_a_call_waits_for_the_device(tmp_path, calls):
    """Two steps whose host does nothing, or asks again and again, until its work has ended."""
    events = [step(0, 0, 1010), work((1, 3), (8, 1000)), calls]
    events += [step(1, 1010, 2020), work((1011, 1013), (1018, 2010))]
    assert path(tmp_path, *events, step=0) == [
        ("host", "", 0, 1),
        ("launch delay", "cudaLaunchKernel", 1, 8),
        ("kernel", "sgemm", 8, 1000),
        ("sync", "", 1000, 1010),
    ]
    assert shares(tmp_path, *events)["kernel"] == 0.982
    assert bound_of(trace(tmp_path, *events).events).shares["kernel"] == pytest.approx(0.982, abs=1e-3)


@pytest.mark.parametrize(
    ("ran", "then", "kinds"),
    [
        ((5, 200), 150, ["unknown"]),  # the device still works when the host goes on
        ((5, 100), 150, ["unknown", "host"]),  # the host goes on long after the device has ended
        ((5, 28), 30, ["unknown", "host"]),  # too short for a wait
        ((5, 130), 140, ["kernel", "sync"]),
        ((5, 500), 540, ["kernel", "host"]),  # late, but by less than a tenth of the wait
        (None, 150, ["host"]),  # the device does nothing
    ],
)
def test_the_time_of_a_host_that_does_nothing_while_the_device_works_is_not_the_hosts(tmp_path, ran, then, kinds):
    events = [
        step(0, 0, 600),
        work((1, 2), ran, "before") if ran else host("cpu_op", "aten::view", 1, 2),
        work((then, then + 2), (then + 5, 610), "after", stream=8),
    ]
    found = [(kind, begin) for kind, _, begin, _ in path(tmp_path, *events)]
    between = [kind for kind, begin in found if 2 <= begin < then and kind != "launch delay"]
    assert between == ["host"] * (ran is not None and "kernel" not in kinds) + kinds
    assert "after" in [name for _, name, *_ in path(tmp_path, *events)]


def test_paths_do_not_overlap_and_are_no_longer_than_the_wall(tmp_path):
    """Work of the first step ends after the second has begun, that of the second after a hole that is no wall time."""
    events = [
        step(0, 0, 20),
        work((1, 2), (5, 60), "first"),
        step(1, 20, 80),
        work((70, 71), (150, 170), "last", stream=8),
    ]
    found = critical_path(trace(tmp_path, *events).events)
    assert found["begin_ns"].tolist()[1:] == found["end_ns"].tolist()[:-1]
    assert found["time_ns"].sum() == trace(tmp_path, *events).trace.wall_ns == 100_000
    second = path(tmp_path, *events, step=1)
    assert second == [
        ("host", "", 60, 70),
        ("launch delay", "cudaLaunchKernel", 70, 150),
        ("kernel", "last", 150, 170),
    ]


def test_a_step_whose_work_ends_within_the_path_of_another_has_none(tmp_path):
    events = [step(0, 0, 20), work((1, 2), (5, 100)), step(1, 20, 40), work((21, 22), (30, 35), "short", stream=8)]
    assert path(tmp_path, *events, step=1) == []
    assert len(path(tmp_path, *events)) == 3


def test_clocks_that_disagree_end_the_path_at_work_it_has_met(tmp_path):
    events = [step(0, 0, 90), wait(5, 30), work((40, 41), (20, 20), "early"), work((50, 51), (60, 95), "last")]
    found = path(tmp_path, *events)
    assert found[-1] == ("kernel", "last", 60, 95)
    assert sum(end - begin for *_, begin, end in found) == 95


def test_before_work_without_launch_and_predecessor_the_path_is_unknown(tmp_path):
    assert path(tmp_path, work((0, 1), (5, 20), stream=8), work(None, (60, 70))) == [
        ("unknown", "sgemm", 5, 60),
        ("kernel", "sgemm", 60, 70),
    ]


def test_lines_sum_segments_and_shares_are_of_the_path(tmp_path):
    events = [step(0, 0, 20), work((1, 2), (5, 50)), work((3, 4), (50, 90)), work((5, 6), (90, 100), "other")]
    found = summed(critical_path(trace(tmp_path, *events).events), ["kind", "name", "category"])
    assert found["name"].tolist()[0] == "sgemm"
    numbers = found.loc[0, ["time_ns", "share", "count", "longest_ns", "category"]]
    assert numbers.tolist() == [85_000, 0.85, 2, 45_000, "gemm"]
    assert found["share"].sum() == pytest.approx(1)


def test_a_profile_of_a_cpu_has_no_path(tmp_path):
    (tmp_path / "cpu.pb").write_bytes(profiles.small_cpu_space())
    assert len(critical_path(ingest(tmp_path / "cpu.pb").events)) == 0


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
def test_the_segments_of_real_traces_follow_each_other_without_gaps(name):
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED} is not here")
    ingested = ingest(SHARED / name)
    found = critical_path(ingested.events)
    assert set(found["kind"]) <= set(KINDS)
    for _, each in found.groupby("step"):
        assert (each["begin_ns"].to_numpy()[1:] == each["end_ns"].to_numpy()[:-1]).all()
    assert found["time_ns"].sum() <= ingested.trace.wall_ns
