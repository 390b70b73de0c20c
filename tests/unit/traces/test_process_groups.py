"""Profiles of several devices and ranks, recorded by `tests/fixtures/traces/make_*.py`: three steps of training on two.

A step of JAX's data parallel program has one all-reduce, its tensor parallel one one all-reduce too; see the programs.
"""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from support.profiles import Plane, space

from benchmarker import Collective
from benchmarker.records.profile import Exchange
from benchmarker.traces.ingest import Expected, ingest
from benchmarker.traces.ranks import ranks
from benchmarker.traces.statistics import work
from benchmarker.traces.together import ingest_ranks

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
STEPS = 3


def jax_trace(kind):
    return TRACES / f"jax-{kind}.xplane.pb.gz"


def jax_events(path):
    """Threads of the host as JAX's own reader gives them: lists of (begin_ns, duration_ns, name, stats)."""
    from jax.profiler import ProfileData

    plane = ProfileData.from_serialized_xspace(gzip.decompress(path.read_bytes())).find_plane_with_name("/host:CPU")
    for line in plane.lines:
        yield [(each.start_ns, each.duration_ns, each.name, dict(each.stats)) for each in line.events]


def union_ns(spans):
    total = end = 0
    for begin, until in sorted(spans):
        total += max(0, until - max(begin, end))
        end = max(end, until)
    return total


@pytest.mark.parametrize("kind", ["dp", "fsdp", "tp"])
def test_each_device_of_a_cpu_has_its_own_busy_time(kind):
    spans = defaultdict(list)
    for thread in jax_events(jax_trace(kind)):
        for begin, duration, _, stats in thread:
            if "device_ordinal" in stats and "hlo_op" in stats:
                spans[f"cpu:{stats['device_ordinal']}"].append((begin, begin + duration))
    trace = ingest(jax_trace(kind)).trace
    found = {each.device: each for each in trace.devices if not each.track}
    assert list(found) == ["cpu:0", "cpu:1"]
    for name, each in found.items():
        assert each.count == len(spans[name])
        assert each.busy_ns == pytest.approx(union_ns(spans[name]), abs=2 * each.count)  # rounded to ns
        assert each.busy_ns + each.idle_ns == trace.wall_ns
    assert trace.busy_ns == sum(each.busy_ns for each in found.values())
    assert trace.complete, trace.missing


@pytest.mark.parametrize(("kind", "each_step"), [("dp", 1), ("fsdp", 5), ("tp", 1)])
def test_the_devices_wait_while_threads_are_pending(kind, each_step):
    waits = defaultdict(float)
    for thread in jax_events(jax_trace(kind)):
        exchanges = [each for each in thread if "hlo_op" in each[3] and each[2].startswith("all-")]
        for begin, duration, name, _ in thread:
            for at, lasted, _, stats in exchanges:
                if name.startswith("Wait: pending_threads") and at <= begin < at + lasted:
                    waits[f"cpu:{stats['device_ordinal']}"] += duration
    found = ranks([ingest(jax_trace(kind))], ["trace"])
    assert sum(each.count for each in found.collectives) == each_step * STEPS
    for each in found.ranks:
        assert each.waiting_ns == pytest.approx(waits[each.device], abs=50)
        assert 0 <= each.waiting_ns < each.exposed_ns
    assert [each.step for each in found.steps] == list(range(STEPS))


def test_the_bytes_of_a_collective_are_those_of_its_operands():
    """Data parallel: the gradients of two weights of 64 x 256, and the loss, in fp32; fsdp gathers each weight."""
    (line,) = ranks([ingest(jax_trace("dp"))], ["trace"]).collectives
    assert (line.kind, line.bytes) == ("all_reduce", 4 * (2 * 64 * 256 + 1))
    gathers = [
        each.bytes for each in ranks([ingest(jax_trace("fsdp"))], ["trace"]).collectives if each.kind == "all_gather"
    ]
    assert sorted(gathers)[-2:] == [4 * 64 * 256] * 2
    (line,) = ranks([ingest(jax_trace("tp"))], ["trace"]).collectives
    assert (line.kind, line.bytes) == ("all_reduce", 4 * 32 * 64)


def written(tmp_path, *events, ordinals=(0, 1)):
    """A thread that ran an op on each of two devices, the second an all-reduce around `events`; times in ns."""
    plane = Plane("/host:CPU")
    ops = [
        plane.event("dot.1", 0, 3_000_000, hlo_op="dot.1", run_id=7, device_ordinal=ordinals[0]),
        plane.event("all-reduce.2", 4_000_000, 5_000_000, hlo_op="all-reduce.2", run_id=7, device_ordinal=ordinals[1]),
        *(plane.event(name, 1000 * begin, 1000 * duration) for name, begin, duration in events),
    ]
    path = tmp_path / "made.xplane.pb"
    path.write_bytes(space(plane.line("tf_XLAPjRtCpuClient/1", ops)))
    return ingest(path)


def test_a_thread_is_no_device(tmp_path):
    meeting = ("Rendezvous", 4100, 4000), ("Wait: pending_threads=1/2", 4200, 1500), ("InvokeRendezvous", 6000, 100)
    found = written(tmp_path, *meeting)
    rows = work(found.events)
    assert rows[["device", "track", "busy_ns", "waiting_ns"]].to_numpy().tolist() == [
        ["cpu:0", "tf_XLAPjRtCpuClient/1", 3000, -1],
        ["cpu:1", "tf_XLAPjRtCpuClient/1", 5000, 1500],
    ]
    assert [(each.device, each.busy_ns) for each in found.trace.devices] == [("cpu:0", 3000), ("cpu:1", 5000)]


def test_where_no_threads_meet_waiting_is_unknown(tmp_path):
    assert work(written(tmp_path, ("Wait: pending_threads=1/2", 4200, 1500)).events)["waiting_ns"].tolist() == [-1, -1]
    assert work(written(tmp_path, ("Rendezvous", 4200, 1500)).events)["waiting_ns"].tolist() == [-1, 0]


def test_a_single_device_is_the_cpu(tmp_path):
    assert [each.device for each in written(tmp_path, ordinals=(0, 0)).trace.devices] == ["cpu"]


def test_the_file_for_jaxs_viewer_names_the_devices_too(tmp_path):
    ops = [
        {
            "ph": "X",
            "pid": 1,
            "tid": 2,
            "ts": 10 * number,
            "dur": 5,
            "name": "dot.1",
            "args": {"hlo_op": "dot.1", **args},
        }
        for number, args in enumerate([{"device_ordinal": "0"}, {"device_ordinal": "1"}])
    ]
    names = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}}]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*names, *ops]}))
    assert [each.device for each in ingest(path).trace.devices] == ["cpu:0", "cpu:1"]


def torch_trace(kind, rank):
    return TRACES / f"torch-{kind}.rank{rank}.json.gz"


def torch_slices(path):
    """Name, begin and duration in µs of each slice, by plain JSON."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [(each["name"], each["ts"], each["dur"]) for each in events if each["ph"] == "X"]


STEP_OF = {
    "dp": {"all_reduce": 1},
    "fsdp": {"all_gather": 4, "reduce_scatter": 2},
    "tp": {"all_reduce": 1},
}
"""Collectives of a step: DDP has one bucket; FSDP gathers two layers in each pass, and scatters their gradients."""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind", STEP_OF)
def test_a_collective_of_gloo_is_counted_once_with_the_time_of_its_transfer(kind, rank):
    slices = torch_slices(torch_trace(kind, rank))
    calls = [name for name, _, _ in slices if name.startswith("c10d::")]
    spans = [(1000 * ts, 1000 * (ts + dur)) for name, ts, dur in slices if name.startswith("gloo:")]
    found = ingest(torch_trace(kind, rank))
    rows = work(found.events)
    rows = rows[rows["category"] == "communication"]
    assert len(rows) == len(calls) == sum(STEP_OF[kind].values()) * STEPS
    assert rows["collective"].value_counts()[list(STEP_OF[kind])].to_dict() == {
        name: number * STEPS for name, number in STEP_OF[kind].items()
    }
    assert sorted(rows["op"]) == sorted(calls)
    assert found.trace.communication_ns == pytest.approx(union_ns(spans), abs=2 * len(spans))
    assert sorted(rows["step"]) == sorted([*range(STEPS)] * (len(rows) // STEPS))
    assert found.trace.complete, found.trace.missing


def test_a_wait_for_a_transfer_and_the_ops_around_it_are_not_work():
    """`aten::sub` waits for its input, in a row of DTensor; what it computes is a row of its own."""
    events = ingest(torch_trace("tp", 0)).events
    waits = events[events["name"] == "_c10d_functional::wait_tensor"]
    assert len(waits) == STEPS
    assert set(waits["kind"]) == {"runtime"}
    around = events.loc[events.loc[waits["parent_id"], "parent_id"]]
    assert around[["name", "kind"]].to_numpy().tolist() == [["aten::sub", "runtime"]] * STEPS
    assert (events["kind"][events["name"] == "aten::sub"] == "op").sum() == STEPS


def test_a_transfer_has_the_scope_and_the_pass_of_its_call():
    rows = work(ingest(torch_trace("dp", 0)).events)
    assert set(rows["phase"][rows["collective"] != ""]) == {"backward"}
    rows = work(ingest(torch_trace("tp", 0)).events)
    assert set(rows["leaf"][rows["collective"] != ""]) == {"mlp"}


def exchanged(kind, framework, expected=None):
    paths = [jax_trace(kind)] if framework == "jax" else [torch_trace(kind, rank) for rank in (0, 1)]
    return ingest_ranks(paths, Expected(collectives=expected)).trace.exchanges


UP, DOWN = 4 * (64 * 256 + 256), 4 * (256 * 64 + 64)
"""Bytes of the weights and biases of the layers of PyTorch's program; JAX's has no biases."""


@pytest.mark.parametrize(
    ("kind", "framework", "found"),
    [
        ("dp", "torch", [("all_reduce", 1, UP + DOWN)]),
        ("fsdp", "torch", [("all_gather", 4, 2 * (UP + DOWN)), ("reduce_scatter", 2, UP + DOWN)]),
        ("tp", "torch", [("all_reduce", 1, 4 * 32 * 64)]),
        ("dp", "jax", [("all_reduce", 1, 4 * (2 * 64 * 256 + 1))]),
        ("tp", "jax", [("all_reduce", 1, 4 * 32 * 64)]),
    ],
)
def test_the_collectives_of_a_step_have_the_bytes_of_the_weights_or_activations(kind, framework, found):
    assert [(each.op, each.count, each.bytes) for each in exchanged(kind, framework)] == found


def test_collectives_stand_beside_those_of_the_formula():
    formula = [Collective("all_reduce", 2, UP + DOWN), Collective("broadcast", 1, 8)]
    assert exchanged("dp", "torch", formula) == [
        Exchange("all_reduce", 1, UP + DOWN, 2, UP + DOWN),
        Exchange("broadcast", 0, 0, 1, 8),
    ]
    (unexpected,) = exchanged("dp", "torch", [])
    assert (unexpected.expected_count, unexpected.difference) == (0, "not in the formula")


@pytest.mark.parametrize(
    ("count", "size", "expected", "difference"),
    [
        (1, 100, (1, 100), "none"),
        (1, 100, (3, 100), "combined"),
        (5, 100, (3, 100), "divided"),
        (1, 76, (1, 100), "-24.0% of bytes"),
        (1, 150, (3, 100), "+50.0% of bytes, combined"),
        (1, 100_004, (1, 100_000), "+4e-05 of bytes"),
        (0, 0, (1, 100), "not in the profile"),
        (1, 100, (0, 0), "not in the formula"),
        (1, None, (1, 100), "none"),
        (1, 100, (None, None), ""),
    ],
)
def test_a_difference_from_the_formula_has_a_name(count, size, expected, difference):
    assert Exchange("all_reduce", count, size, *expected).difference == difference


def test_ranks_on_one_clock_wait_for_the_last_to_begin():
    """By durations alone, a rank that lost its core within a collective would seem to have waited."""
    begins, ends = ([], [])
    for rank in (0, 1):
        rows = work(ingest(torch_trace("fsdp", rank)).events)
        rows = rows[rows["collective"] != ""].sort_values("ts_ns")
        begins.append(rows["ts_ns"].to_numpy())
        ends.append((rows["ts_ns"] + rows["dur_ns"]).to_numpy())
    last = np.maximum(*begins)
    waited = sum(int((np.minimum(last, until) - begin).sum()) for begin, until in zip(begins, ends, strict=True))
    found = ingest_ranks([torch_trace("fsdp", rank) for rank in (0, 1)], Expected())
    assert sum(each.waiting_ns for each in ranks([found], ["table"]).ranks) == waited
    rows = found.events[found.events["waiting_ns"] >= 0]
    assert rows["waiting_ns"].sum() == waited
    assert set(rows["device"]) == {"cpu:0", "cpu:1"}
    assert 0 < found.trace.waiting_ns <= waited
    assert len(found.trace.critical_ranks) == STEPS


def test_what_is_said_of_every_rank_is_told_once(tmp_path):
    paths = [torch_trace("dp", rank) for rank in (0, 1)]
    assert ingest_ranks(paths, Expected()).trace.notes == ["each rank: events left out: 2 instant, 1 trace"]
    found = ingest_ranks(paths, Expected(scopes={"mlp": 2})).trace.missing
    assert found == ["each rank: scope mlp ran 3 times but 6 were expected"]
    cut = tmp_path / "cut.json"
    cut.write_bytes(gzip.decompress(paths[1].read_bytes())[:-3000])
    (missing,) = ingest_ranks([paths[0], cut], Expected()).trace.missing
    assert missing.startswith("rank 1: the last ")


def test_ranks_of_different_clocks_are_told(tmp_path):
    """The second is of a run an hour later."""
    later = json.loads(gzip.decompress(torch_trace("dp", 1).read_bytes()))
    for event in later["traceEvents"]:
        if "ts" in event:
            event["ts"] += 3600e6
    path = tmp_path / "later.json"
    path.write_text(json.dumps(later))
    (missing,) = ingest_ranks([torch_trace("dp", 0), path], Expected()).trace.missing
    assert missing == "the clocks of the ranks disagree: their steps are 3.6e+03 s apart"


def gloo(tmp_path, *slices):
    """A trace of calls on thread 1 and transfers on thread 2; begins and durations in µs."""
    events = [
        {
            "ph": "X",
            "cat": "cpu_op" if "::" in name else "user_annotation",
            "name": name,
            "pid": 1,
            "ts": ts,
            "dur": dur,
        }
        | {"tid": 1 if "::" in name or name == "gloo:send" else 2}
        for name, ts, dur in slices
    ]
    path = tmp_path / "gloo.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    rows = ingest(path).events
    return rows[rows["kind"] == "op"][["op", "collective"]].to_numpy().tolist()


def test_transfers_are_of_calls_in_their_order(tmp_path):
    """Two are in the queue; gloo reduces and scatters by an all-reduce."""
    assert gloo(
        tmp_path,
        ("c10d::_reduce_scatter_base_", 10, 5),
        ("c10d::allreduce_", 20, 5),
        ("gloo:all_reduce", 30, 5),
        ("gloo:all_reduce", 40, 5),
    ) == [["c10d::_reduce_scatter_base_", "reduce_scatter"], ["c10d::allreduce_", "all_reduce"]]


def test_several_transfers_may_be_of_one_call(tmp_path):
    """A reduce-scatter of a list is an all-reduce of each."""
    several = ("c10d::reduce_scatter_", 10, 5), ("gloo:all_reduce", 20, 5), ("gloo:all_reduce", 30, 5)
    assert gloo(tmp_path, *several, ("c10d::allreduce_", 40, 5), ("gloo:all_reduce", 50, 5)) == [
        ["c10d::reduce_scatter_", "reduce_scatter"],
        ["c10d::reduce_scatter_", "reduce_scatter"],
        ["c10d::allreduce_", "all_reduce"],
    ]


def test_beside_an_accelerator_transfers_of_the_host_change_nothing(tmp_path):
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 1, "tid": 7, "ts": 10, "dur": 5, "args": {"device": 0}}
    host = [
        {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "pid": 1, "tid": 1, "ts": 10, "dur": 5},
        {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 2, "ts": 12, "dur": 5},
    ]
    path = tmp_path / "both.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [kernel, *host]}))
    events = ingest(path).events
    assert events.set_index("name")["kind"].to_dict() == {
        "gemm": "kernel",
        "c10d::allreduce_": "op",
        "gloo:all_reduce": "op",
    }


def test_a_send_that_lasts_while_the_host_asks_for_more_is_a_transfer(tmp_path):
    assert gloo(
        tmp_path,
        ("c10d::send", 10, 5),
        ("gloo:send", 12, 30),
        ("c10d::recv_", 20, 5),
        ("gloo:recv", 45, 5),
    ) == [["c10d::send", "send"], ["c10d::recv_", "recv"]]


def test_a_transfer_whose_call_was_before_the_profile_remains_what_it_is(tmp_path):
    assert gloo(tmp_path, ("gloo:all_reduce", 5, 5), ("c10d::allreduce_", 20, 5), ("gloo:all_reduce", 30, 5)) == [
        ["gloo:all_reduce", "all_reduce"],
        ["c10d::allreduce_", "all_reduce"],
    ]
