"""Ranks: whose time goes where, and who waits for whom; every number is computed by hand."""

import json
import re

import pytest

from benchmarker.api.errors import UserError
from benchmarker.traces.formats.notation import collective_kind
from benchmarker.traces.ingest import ingest
from benchmarker.traces.profile_files import encode, load
from benchmarker.traces.ranks import bus_factor, ranks

MIB = 1 << 20


def event(category, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def nccl(name, ts, dur, number, nelems=MIB // 4, ranks=2, group="0", **args):
    """A collective and its launch; times in µs."""
    stated = {
        "Collective name": name,
        "In msg nelems": nelems,
        "Out msg nelems": nelems,
        "Group size": ranks,
        "dtype": "Float",
        "Process Group Name": group,
        "Process Group Ranks": str(list(range(ranks))),
        **({} if number is None else {"Seq": number}),
        **args,
    }
    call = int(ts)
    return [
        event("cpu_op", "record_param_comms", ts - 20, 10, **stated),
        event("cuda_runtime", "cudaLaunchKernel", ts - 19, 5, correlation=call),
        event("kernel", "ncclDevKernel_Generic", ts, dur, 7, device=0, stream=7, correlation=call, **stated),
    ]


def kernel(ts, dur):
    return [
        event("cuda_runtime", "cudaLaunchKernel", ts - 20, 5, correlation=int(ts)),
        event("kernel", "gemm", ts, dur, 8, device=0, stream=8, correlation=int(ts)),
    ]


def trace(tmp_path, rank, events, world=2):
    path = tmp_path / f"rank{rank}.json"
    content = {"schemaVersion": 1, "traceEvents": events}
    if world:
        content["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    path.write_text(json.dumps(content))
    return ingest(path)


def two(tmp_path, first, second):
    return ranks([trace(tmp_path, 1, second), trace(tmp_path, 0, first)], ["rank1.json", "rank0.json"])


def test_time_is_divided_and_the_wait_is_what_a_collective_takes_longer_than_on_the_rank_that_began_last(tmp_path):
    """Rank 0 computes 100 µs, then reduces for 300 µs, 50 of them hidden; rank 1 computes 300 µs, reduces for 100."""
    found = two(
        tmp_path,
        kernel(1000, 100) + nccl("allreduce", 1100, 300, 0) + kernel(1350, 50),
        kernel(5000, 300) + nccl("allreduce", 5300, 100, 0),
    )
    first, second = found.ranks
    assert (first.rank, second.rank) == (0, 1)
    assert (first.wall_ns, first.compute_ns, first.hidden_ns) == (400_000, 150_000, 50_000)
    assert (first.exposed_ns, first.waiting_ns, first.idle_ns) == (250_000, 200_000, 0)
    assert (second.compute_ns, second.exposed_ns, second.waiting_ns) == (300_000, 100_000, 0)
    assert found.last == 1
    assert found.notes == []


def test_bandwidths_are_those_of_nccl_tests_without_the_waiting(tmp_path):
    """Rank 1 began last: 1 MiB in 100 µs; an all-reduce of two ranks moves it once."""
    found = two(tmp_path, nccl("allreduce", 1000, 300, 0), nccl("allreduce", 5300, 100, 0))
    (line,) = found.collectives
    assert (line.kind, line.bytes, line.ranks, line.count) == ("all_reduce", MIB, 2, 1)
    assert line.group == "0 [0, 1]"
    assert line.shortest_ns == 100_000
    assert line.algorithm_bytes_per_s == pytest.approx(MIB / 100e-6)
    assert line.bus_bytes_per_s == pytest.approx(MIB / 100e-6)
    assert (line.last, line.last_share, line.waiting_ns) == (1, 1.0, 200_000)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("broadcast", 1)],
)
def test_the_factors_are_those_of_nccl_tests_for_eight_ranks(kind, factor):
    assert bus_factor(kind, 8) == factor


def test_the_size_of_a_gather_is_the_data_of_all_ranks(tmp_path):
    found = two(tmp_path, nccl("_allgather_base", 1000, 100, 0), nccl("_allgather_base", 5000, 100, 0))
    assert [(line.kind, line.bytes) for line in found.collectives] == [("all_gather", 2 * MIB)]


def test_collectives_are_matched_by_number_though_a_trace_lacks_some(tmp_path):
    """Rank 1's trace begins one collective later."""
    first = nccl("allreduce", 1000, 100, 4) + nccl("allreduce", 2000, 100, 5) + nccl("allreduce", 3000, 500, 6)
    second = nccl("allreduce", 2000, 300, 5) + nccl("allreduce", 3000, 100, 6)
    found = two(tmp_path, first, second)
    assert [each.waiting_ns for each in found.ranks] == [400_000, 200_000]
    assert found.collectives[0].count == 2
    assert found.notes == ["1 collective not compared: not every rank of the group has a counterpart"]


def test_without_numbers_they_are_matched_by_order_only_if_all_ranks_have_as_many(tmp_path):
    one, other = nccl("allreduce", 1000, 100, None), nccl("allreduce", 2000, 300, None)
    assert two(tmp_path, one + other, one + other).collectives[0].count == 2
    unlike = two(tmp_path, one + other, one)
    assert unlike.collectives == []
    assert unlike.notes == ["3 collectives not compared: not every rank of the group has a counterpart"]
    assert unlike.last is None


def test_pairs_are_not_collectives_of_a_group_and_are_counted(tmp_path):
    found = two(tmp_path, nccl("send", 1000, 100, 0), nccl("recv", 1000, 300, 0))
    assert found.collectives == []
    assert found.notes == ["2 sends, receives and permutations not compared: each connects only two ranks"]
    assert found.compared_share == 0


SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork)"


def annotated(name, ts, dur, dims=None, kernel=SEND_RECV, outer=None):
    """A collective as older versions of PyTorch record it: only an annotation around the launch says what it is."""
    call, shapes = int(ts), {} if dims is None else {"Input Dims": [dims], "Input type": ["float"]}
    return [
        *([event("cpu_op", "record_param_comms", ts - 30, 25, **outer)] if outer else []),
        event("user_annotation", name, ts - 20, 10, **shapes),
        event("cuda_runtime", "cudaLaunchKernel", ts - 19, 5, correlation=call),
        event("kernel", kernel, ts, dur, 7, device=0, stream=7, correlation=call),
    ]


def test_an_annotation_says_what_a_kernel_named_send_recv_is(tmp_path):
    """The ranks send different amounts to each other; rank 1 begins last in two of three."""
    dims = ([1000, 4], [3000, 4])
    first, second = (
        [line for number, dur in enumerate(durs, 1) for line in annotated("nccl:all_to_all", 1000 * number, dur, each)]
        for durs, each in zip(([400, 400, 100], [100, 100, 200]), dims, strict=True)
    )
    found = two(tmp_path, first, second)
    (line,) = found.collectives
    assert (line.kind, line.count, line.bytes, line.ranks) == ("all_to_all", 3, 48_000, 2)
    assert (line.last, line.last_share, line.waiting_ns) == (1, 2 / 3, 700_000)
    assert [each.waiting_ns for each in found.ranks] == [600_000, 100_000]
    assert (found.last, found.notes, found.compared_share) == (1, [], 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nccl:all_reduce", "all_reduce"),
        ("nccl:_reduce_scatter_base", "reduce_scatter"),
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:broadcast", "broadcast"),
        ("rccl:all_to_all", "all_to_all"),
    ],
)
def test_no_kind_is_taken_from_a_kernels_name_where_an_annotation_states_it(tmp_path, name, kind):
    events = annotated(name, 1000, 100, [8])
    assert [line.kind for line in two(tmp_path, events, events).collectives] == [kind]


def test_collectives_of_unlike_sizes_are_lines_of_their_own(tmp_path):
    events = [
        line
        for number, size in enumerate((64, 256, 1024), 1)
        for line in annotated("nccl:all_reduce", 1000 * number, 100, [size])
    ]
    found = two(tmp_path, events, events)
    assert [(line.kind, line.bytes) for line in found.collectives] == [
        ("all_reduce", size) for size in (256, 1024, 4096)
    ]


def test_what_an_annotation_does_not_state_is_taken_from_the_op_around_it(tmp_path):
    outer = {"Collective name": "all_to_allv", "In msg nelems": 10, "dtype": "Float", "Group size": 2, "Seq": 7}
    outer |= {"Process Group Name": "ep"}
    events = annotated("nccl:all_to_all", 1000, 100, outer=outer)
    (line,) = two(tmp_path, events, events).collectives
    assert (line.kind, line.group, line.bytes) == ("all_to_all", "ep", 40)


def test_send_recv_kernels_that_nothing_describes_are_counted_not_compared(tmp_path):
    bare = [event("kernel", SEND_RECV, 1000, 300, 7, device=0, stream=7)]
    reduced = annotated("nccl:all_reduce", 2000, 100, [8])
    found = two(tmp_path, bare + reduced, bare + reduced)
    assert [line.kind for line in found.collectives] == ["all_reduce"]
    assert found.notes == [
        "2 kernels named SendRecv not compared: all-to-alls are named so too, "
        "and the profile of the host does not tell which they are"
    ]
    assert found.compared_share == 0.25


def test_the_rank_that_the_others_wait_for_is_by_time_not_by_number(tmp_path):
    """Rank 1 begins last twice, and is waited for 20 µs; rank 0 once, and is waited for 500 µs."""
    first, second = (
        [line for at, dur in enumerate(durs, 1) for line in nccl("allreduce", 1000 * at, dur, at)]
        for durs in ([110, 110, 100], [100, 100, 600])
    )
    found = two(tmp_path, first, second)
    assert found.collectives[0].last == 1
    assert found.last == 0


def test_a_bandwidth_that_no_memory_has_is_none_and_counted(tmp_path):
    events = nccl("allreduce", 1000, 1, 0, nelems=1 << 30)
    found = two(tmp_path, events, events)
    assert [(line.bytes, line.bus_bytes_per_s) for line in found.collectives] == [(1 << 32, None)]
    (note,) = found.notes
    assert note.startswith("1 line has no bandwidth: it would be above 1.2 times that of the memory of any device")


def test_missing_ranks_are_told(tmp_path):
    several = [trace(tmp_path, rank, nccl("allreduce", 1000, 100, 0, ranks=8), world=8) for rank in (0, 3)]
    found = ranks(several, ["a", "b"])
    assert [each.rank for each in found.ranks] == [0, 3]
    assert found.notes == ["traces of 2 of 8 ranks: waiting for the others is unknown"]
    assert found.collectives[0].bus_bytes_per_s == pytest.approx(1.75 * MIB / 100e-6)


def test_one_rank_or_the_same_rank_twice_is_refused(tmp_path):
    one = trace(tmp_path, 0, kernel(1000, 100))
    with pytest.raises(UserError, match=re.escape("rank0.json is of one rank; give a trace of each rank")):
        ranks([one], ["rank0.json"])
    with pytest.raises(UserError, match="a and b are traces of the same rank"):
        ranks([one, one], ["a", "b"])


def test_the_devices_of_one_trace_are_its_ranks(tmp_path):
    events = kernel(1000, 100) + [{**each, "args": {**each["args"], "device": 1}} for each in kernel(2000, 300)]
    found = ranks([trace(tmp_path, 0, events, world=None)], ["both.json"])
    assert [(each.rank, each.device, each.compute_ns) for each in found.ranks] == [
        (0, "gpu:0", 100_000),
        (1, "gpu:1", 300_000),
    ]


def test_a_kernel_without_fields_has_those_of_the_op_that_launched_it(tmp_path):
    """As in traces of AMD's profiler."""
    several = []
    for rank, dur in ((0, 100), (1, 300)):
        op, call, run = nccl("allreduce", 1000, dur, 0)
        run["args"] = {name: run["args"][name] for name in ("device", "stream", "correlation")}
        several.append(trace(tmp_path, rank, [op, call, run]))
    (line,) = ranks(several, ["a", "b"]).collectives
    assert (line.kind, line.bytes, line.last) == ("all_reduce", MIB, 0)


def test_gloo_states_collectives_as_annotations_with_shapes(tmp_path):
    several = []
    for rank, dur in ((0, 500), (1, 100)):
        shapes = {"Input Dims": [[256, 4], []], "Input type": ["float", ""]}
        wrapper = event("cpu_op", "c10d::allreduce_", 990, 5)
        several.append(
            trace(tmp_path, rank, [wrapper, event("user_annotation", "gloo:all_reduce", 1000, dur, 2, **shapes)])
        )
    (line,) = ranks(several, ["a", "b"]).collectives
    assert (line.kind, line.bytes, line.waiting_ns, line.last) == ("all_reduce", 4096, 400_000, 1)


def test_hostile_fields_are_unknown_values(tmp_path):
    odd = {"In msg nelems": "many", "Group size": [], "dtype": {}, "Process Group Name": 7, "Seq": -3.5}
    several = [trace(tmp_path, rank, nccl("allreduce", 1000, 100, 0, **odd)) for rank in (0, 1)]
    (line,) = ranks(several, ["a", "b"]).collectives
    assert (line.bytes, line.bus_bytes_per_s, line.group) == (None, None, "7 [0, 1]")


def test_an_event_table_keeps_rank_and_collectives(tmp_path):
    (tmp_path / "table").write_bytes(encode(trace(tmp_path, 1, nccl("allreduce", 1000, 100, 3))))
    again = load(tmp_path / "table")
    assert (again.trace.rank, again.trace.world_size) == (1, 2)
    states = again.events[again.events["collective"] != ""]
    assert set(states["collective_nr"]) == {3}
    assert set(states["message_bytes"]) == {MIB}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("all-reduce-start", "all_reduce"),
        ("all_to_allv", "all_to_all"),
        ("ncclDevKernel_SendRecv", "send_recv"),
        ("ncclDevKernel_Generic", ""),
        ("collective-permute", "collective_permute"),
    ],
)
def test_one_name_for_each_kind_of_collective(text, kind):
    assert collective_kind(text) == kind


def test_the_command_says_who_waits_for_whom(tmp_path, cli):
    for rank, dur in ((0, 300), (1, 100)):
        trace(tmp_path, rank, kernel(1000, 100) + nccl("allreduce", 1100, dur, 0))
    shown = cli("profile", "ranks", str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    assert (
        "waiting for another rank takes 33.3% of the wall time; most of it for rank 1, and most in all_reduce of 1"
        in (shown.stdout)
    )
    assert "PARTIAL" not in shown.stdout
    several = json.loads(cli("profile", "ranks", *map(str, sorted(tmp_path.glob("rank*.json"))), "--json").stdout)
    assert [each["waiting_ns"] for each in several["ranks"]] == [200_000, 0]
    assert several["last"] == 1


def test_the_command_says_how_much_of_the_communication_it_compares(tmp_path, cli):
    for rank in (0, 1):
        trace(tmp_path, rank, nccl("send", 1000, 300, 0) + nccl("allreduce", 2000, 100, 1))
    shown = cli("profile", "ranks", str(tmp_path)).stdout
    assert "PARTIAL: only 25% of the time of communication is compared" in shown
    assert "note: 2 sends, receives and permutations not compared: each connects only two ranks" in shown
