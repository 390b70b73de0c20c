"""Attribution on small traces worked out by hand, and on real ones of GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import profiles

from benchmarker import UserError
from benchmarker.traces.attribution.categories import categorize
from benchmarker.traces.attribution.instructions import _explain, completed
from benchmarker.traces.events import constant, frame, words
from benchmarker.traces.formats.hlo import Instruction, Program
from benchmarker.traces.ingest import Expected, Ingested, ingest
from benchmarker.traces.statistics import describe, ops, work

SHARED = Path(__file__).parents[5] / "shared/traces"
HOST = {"pid": 1, "tid": 1}
GPU = {"pid": 0, "tid": 7}


def event(cat: str, name: str, ts: float, dur: float, place: Mapping[str, int] = HOST, **args: Any) -> dict[str, Any]:
    """A slice as PyTorch's profiler writes it; `_` in a name of an argument stands for a space."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": ts,
        "dur": dur,
        **place,
        "args": {key.replace("_", " "): value for key, value in args.items()},
    }


def kernel(name: str, ts: float, dur: float, correlation: int, stream: int = 7) -> dict[str, Any]:
    return event("kernel", name, ts, dur, {"pid": 0, "tid": stream}, device=0, stream=stream, correlation=correlation)


def read(folder: Path, events: list[dict[str, Any]], **scopes: int) -> Ingested:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return ingest(path, Expected(scopes))


TRAINING = [
    event("user_annotation", "ProfilerStep#3", 0, 100),
    event("user_annotation", "layer", 1, 20),
    event("cpu_op", "aten::linear", 2, 18, External_id=1, Sequence_number=5, Fwd_thread_id=0),
    event(
        "cpu_op",
        "aten::addmm",
        3,
        16,
        External_id=2,
        Sequence_number=5,
        Fwd_thread_id=0,
        Input_Dims=[[8], [4, 16], [16, 8], [], []],
        Input_type=["float", "float", "float", "Scalar", "Scalar"],
    ),
    event("cuda_runtime", "cudaLaunchKernel", 4, 2, correlation=11, External_id=2),
    event("cuda_runtime", "cudaLaunchKernel", 7, 2, correlation=12, External_id=2),
    kernel("ampere_sgemm_128x64_tn", 10, 30, 11),
    kernel("splitKreduce_kernel", 40, 5, 12),
    # The backward pass, on a thread of its own.
    event(
        "cpu_op",
        "autograd::engine::evaluate_function: AddmmBackward0",
        50,
        20,
        {"pid": 1, "tid": 2},
        Sequence_number=5,
        Fwd_thread_id=1,
    ),
    event("cpu_op", "aten::mm", 52, 10, {"pid": 1, "tid": 2}, External_id=3),
    event("cuda_runtime", "cudaLaunchKernel", 53, 2, {"pid": 1, "tid": 2}, correlation=13),
    kernel("ampere_sgemm_128x64_nt", 60, 20, 13),
    # The optimizer moves gradients while another stream computes; and one kernel was launched before the profile.
    event("cpu_op", "nccl:all_reduce", 80, 5, External_id=4),
    event("cuda_runtime", "cudaLaunchKernel", 81, 2, correlation=14),
    kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 70, 20, 14, stream=20),
    kernel("vectorized_elementwise_kernel", 0, 2, 99),
]


def test_kernels_take_scope_phase_step_and_op_of_their_launch(tmp_path):
    found = read(tmp_path, TRAINING, layer=1)
    rows = work(found.events).set_index("name")
    forward = rows.loc["ampere_sgemm_128x64_tn"]
    assert (forward["op"], forward["leaf"], forward["phase"], forward["step"]) == ("aten::addmm", "layer", "forward", 0)
    assert (forward["category"], forward["device"], forward["track"]) == ("gemm", "gpu:0", "stream 7")
    backward = rows.loc["ampere_sgemm_128x64_nt"]
    assert (backward["op"], backward["leaf"], backward["phase"]) == ("aten::mm", "layer", "backward")
    lost = rows.loc["vectorized_elementwise_kernel"]
    assert (lost["op"], lost["leaf"], lost["phase"], lost["parent_id"]) == ("", "", "", -1)
    assert found.trace.unlaunched == 1
    assert found.trace.missing == ["1 kernel or copy has no launch in the trace"]
    layer = {each.phase: each for each in found.scopes if each.scope == "layer"}
    assert (layer["forward"].occurrences, layer["forward"].expected, layer["forward"].root_ns) == (1, 1, 35_000)
    assert layer["backward"].occurrences == 1


def test_time_of_a_device_divides_among_what_runs_at_once(tmp_path):
    found = read(tmp_path, TRAINING)
    rows = work(found.events).set_index("name")["busy_ns"]
    # From 70 to 80 both the product and the all-reduce run: half of that time each.
    assert rows["ampere_sgemm_128x64_nt"] == 15_000
    assert rows["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] == 15_000
    trace = found.trace
    assert (trace.busy_ns, trace.wall_ns, trace.idle_ns) == (67_000, 100_000, 33_000)
    assert (trace.communication_ns, trace.hidden_ns) == (20_000, 10_000)
    streams = {each.track: each.busy_ns for each in trace.devices}
    assert streams == {"": 67_000, "stream 7": 57_000, "stream 20": 20_000}


def test_wall_time_is_that_of_the_trace_on_any_number_of_devices(tmp_path):
    """Two devices that run side by side from 0 to 30 and from 10 to 20 µs."""
    events = [
        event("kernel", "k", at, dur, {"pid": number, "tid": 7}, device=number, stream=7)
        for number, (at, dur) in enumerate([(0, 30), (10, 10)])
    ]
    trace = read(tmp_path, events).trace
    assert trace.wall_ns == 30_000
    assert {each.wall_ns for each in trace.devices} == {30_000}
    assert (trace.busy_ns, trace.idle_ns, trace.busy_share) == (40_000, 20_000, pytest.approx(2 / 3))


def test_idle_time_is_that_within_the_profiled_steps(tmp_path):
    """A kernel that ran long before the steps, and a pause between two steps of 20 µs: neither makes idle time."""
    events = [
        kernel("before", 0, 10, 1),
        event("user_annotation", "ProfilerStep#1", 1000, 20),
        kernel("one", 1005, 5, 2),
        event("user_annotation", "ProfilerStep#2", 2000, 20),
        kernel("two", 2015, 15, 3),
    ]
    trace = read(tmp_path, events).trace
    assert (trace.wall_ns, trace.busy_ns, trace.idle_ns) == (10_000 + 20_000 + 30_000, 30_000, 30_000)


def test_kernels_of_graphs_have_no_op_and_every_table_says_so(tmp_path, command):
    events = [
        event("cpu_op", "aten::mm", 0, 10, External_id=1),
        event("cuda_runtime", "cudaLaunchKernel", 1, 2, correlation=1),
        kernel("gemm", 5, 10, 1),
        event("cuda_runtime", "cudaGraphLaunch", 20, 5, correlation=2),
        *(kernel("in_graph", 30 + 50 * at, 45, 2) for at in range(2)),
    ]
    found = read(tmp_path, events)
    text = "2 kernels and copies (90.0% of the busy time) were launched as graphs"
    assert found.trace.missing == [f"{text}, which do not record the op, scope and phase of each"]
    assert work(found.events)["phase"].tolist() == ["forward", "", ""]
    for table in (["kernels"], ["ops"], ["scopes"], ["kernels", "--by=phase"]):
        shown = command("profile", *table, "trace.json").stdout
        assert f"INCOMPLETE profile: {text}" in shown
        assert "note: the phase of 90.0% of the busy time is unknown" in shown


def test_an_unknown_phase_that_rounds_to_nothing_is_not_told(tmp_path):
    events = [
        event("cpu_op", "aten::mm", 0, 10, External_id=1),
        event("cuda_runtime", "cudaLaunchKernel", 1, 2, correlation=1),
        kernel("gemm", 5, 100_000, 1),
        event("cuda_runtime", "cudaGraphLaunch", 20, 5, correlation=2),
        kernel("in_graph", 100_010, 10, 2),
    ]
    assert not [note for note in read(tmp_path, events).trace.notes if "phase" in note]


def test_an_unknown_phase_is_null(tmp_path, command):
    """Another program's events have no phase; neither has a kernel that was launched outside any op."""
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"traceEvents": [event("cpu", "f", 0, 5)]}))
    for table in (["kernels", "--by=phase"], ["scopes"]):
        rows = json.loads(command("profile", *table, "other.json", "--json").stdout)
        assert [row["phase"] for row in rows] == [None]
    launched = [event("cuda_runtime", "cudaLaunchKernel", 0, 2, correlation=1), kernel("k", 5, 10, 1)]
    trace = read(tmp_path, launched).trace
    assert "1 kernels and copies (100.0% of the busy time) were launched outside any op" in trace.notes


def test_kernels_under_backward_ops_are_backward_without_sequence_numbers(tmp_path):
    events = []
    node = "autograd::engine::evaluate_function: MulBackward0"
    names = ["aten::mm", "AddmmBackward0", node, "flash_attn::_flash_attn_backward"]
    for number, name in enumerate(names, 1):
        at = 100 * number
        events += [
            event("cpu_op", name, at, 50),
            event("cpu_op", "aten::mm", at + 1, 40),
            event("cuda_runtime", "cudaLaunchKernel", at + 5, 2, correlation=number),
            kernel(f"k{number}", at + 10, 5, number),
        ]
    assert work(read(tmp_path, events).events)["phase"].tolist() == ["forward", *["backward"] * 3]


def test_the_cost_of_an_op_is_that_of_its_heavy_kernel(tmp_path):
    found = read(tmp_path, TRAINING)
    flops = work(found.events).set_index("name")["flops"]
    assert flops["ampere_sgemm_128x64_tn"] == 2 * 4 * 16 * 8
    assert flops.notna().sum() == 1
    table = ops(found.events).set_index("op")
    assert (table.loc["aten::addmm", "device_ns"], table.loc["aten::addmm", "count"]) == (35_000, 1)
    assert table.loc["aten::addmm", "flop_per_s"] == pytest.approx(2 * 4 * 16 * 8 / 35e-6)
    assert "flops" in describe(work(found.events), ["category"])


def test_bytes_of_an_instruction_are_counted_once_though_it_ran_as_several_kernels(tmp_path):
    """A fusion without a product reads and writes 64 bytes; a set of memory and two kernels executed it."""
    gpu = profiles.Plane("/device:GPU:0")
    common = {"program_id": 14, "hlo_op": "fusion.2"}
    names = {"memset32_aligned1D": 9, "fusion_2": 4, "fusion_2__1": 1}
    kernels = [gpu.event(name, at * 20_000_000, ns * 1000, **common) for at, (name, ns) in enumerate(names.items())]
    gpu.line("Stream #7(Kernel)", kernels)
    metadata = profiles.Plane("/host:metadata").program("jit_f(14)", profiles.small_program())
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(profiles.space(metadata, gpu, profiles.Plane("/host:CPU")))
    rows = work(ingest(path).events).set_index("name")
    assert rows["bytes"].dropna().to_dict() == {"fusion_2": 2 * 2 * 4 * 4}


def test_a_set_of_memory_never_does_the_work_of_a_product(tmp_path):
    """The kernel of a product is not in the trace; what is there of it is a set of memory."""
    shapes = {"Input_Dims": [[2048, 2048], [2048, 2048]], "Input_type": ["float", "float"]}
    events = [
        event("cpu_op", "aten::mm", 0, 20, **shapes),
        event("cuda_runtime", "cudaMemsetAsync", 1, 2, correlation=1),
        event("gpu_memset", "Memset (Device)", 10, 1.5, GPU, device=0, stream=7, correlation=1),
    ]
    assert work(read(tmp_path, events).events)["flops"].isna().all()
    events += [event("cuda_runtime", "cudaLaunchKernel", 5, 2, correlation=2), kernel("sgemm", 12, 2000, 2)]
    flops = work(read(tmp_path, events).events).set_index("name")["flops"]
    assert flops.dropna().to_dict() == {"sgemm": 2 * 2048**3}


@pytest.mark.parametrize(("op", "cost"), [("dot.1", {}), ("copy.3", {"bytes": 64.0})])
def test_a_copy_does_the_work_only_of_an_instruction_that_moves_memory(tmp_path, op, cost):
    program = profiles.hlo(
        "jit_f",
        14,
        main=[
            profiles.instruction("a", "parameter", 1, profiles.shape(2, 4)),
            profiles.instruction("copy.3", "copy", 2, profiles.shape(2, 4), [1]),
            profiles.instruction(
                "dot.1",
                "dot",
                3,
                profiles.shape(2, 2),
                [1, 2],
                (),
                "",
                (30, profiles.message((1, b"\1"), (2, b"\1"))),
            ),
        ],
    )
    gpu = profiles.Plane("/device:GPU:0")
    gpu.line("Stream #7(Memcpy)", [gpu.event("MemcpyD2D", 0, 1_000_000, program_id=14, hlo_op=op)])
    metadata = profiles.Plane("/host:metadata").program("jit_f(14)", program)
    (tmp_path / "t.xplane.pb").write_bytes(profiles.space(metadata, gpu, profiles.Plane("/host:CPU")))
    (row,) = work(ingest(tmp_path / "t.xplane.pb").events)[["flops", "bytes"]].to_dict("records")
    assert {name: value for name, value in row.items() if not np.isnan(value)} == cost


def test_an_asynchronous_copy_is_one_copy_that_lasts_until_it_is_waited_for(tmp_path):
    """Two runs on a TPU: 4 KiB are read and written in 2 µs, while something else runs for 1.5 µs."""
    program = profiles.hlo(
        "jit_f",
        14,
        main=[
            profiles.instruction("p", "parameter", 1, profiles.shape(1024)),
            profiles.instruction(
                "copy-start.1",
                "copy-start",
                2,
                profiles.shape(of=13, parts=[profiles.shape(1024), profiles.shape(1024), profiles.shape(of=8)]),
                [1],
            ),
            profiles.instruction("copy-done.1", "copy-done", 3, profiles.shape(1024), [2]),
            profiles.instruction("negate.1", "negate", 4, profiles.shape(8), [1]),
        ],
    )
    tpu = profiles.Plane("/device:TPU:0")
    ran = [("copy-start.1", 0, 1), ("negate.1", 100, 1500), ("copy-done.1", 1900, 100)]
    events = [
        tpu.event(name, (run * 5000 + at) * 1000, ns * 1000, hlo_op=name, program_id=14, run_id=run)
        for run in (0, 1)
        for name, at, ns in ran
    ]
    tpu.line("XLA Ops", events, 1_763_000_000_123_456_789)
    metadata = profiles.Plane("/host:metadata").program("jit_f(14)", program)
    (tmp_path / "t.xplane.pb").write_bytes(profiles.space(metadata, tpu, profiles.Plane("/host:CPU")))
    found = ingest(tmp_path / "t.xplane.pb")
    rows = found.events.set_index("op")
    assert (rows.loc["copy-start.1", "end_ns"] - rows.loc["copy-start.1", "ts_ns"]).tolist() == [2000, 2000]
    assert rows.loc["copy-start.1", "bytes"].tolist() == [8192, 8192]
    assert rows.loc["copy-done.1", "bytes"].isna().all()
    line = ops(found.events).set_index("op").loc["copy-start.1"]
    assert line["bytes_per_s"] == pytest.approx(8192 / 2e-6)
    assert found.trace.busy_ns == 2 * 2000  # of the copy, what nothing else overlaps


@pytest.mark.parametrize(
    ("beside", "took", "of"),
    [
        ({}, 1.5, "any device that is known (5033 TFLOP/s, 8 TB/s)"),
        ({"deviceProperties": [{"id": 0, "name": "NVIDIA A30"}]}, 40, "NVIDIA A30 (330 TFLOP/s, 933 GB/s)"),
        ({"deviceProperties": [{"id": 0, "name": "NVIDIA A30"}]}, 50, ""),
        ({"deviceProperties": [{"id": 0, "name": "Abacus"}, 7]}, 40, ""),
    ],
)
def test_a_cost_that_no_device_can_do_in_the_time_is_none_and_counted(tmp_path, beside, took, of):
    """A product of 2·2048³ FLOP and 48 MiB."""
    shapes = {"Input_Dims": [[2048, 2048], [2048, 2048]], "Input_type": ["float", "float"]}
    events = [
        event("cpu_op", "aten::mm", 0, 20, **shapes),
        event("cuda_runtime", "cudaLaunchKernel", 1, 2, correlation=1),
        kernel("sgemm", 10, took, 1),
    ]
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **beside}))
    found = ingest(tmp_path / "t.json")
    (line,) = describe(work(found.events), ["name"]).to_dict("records")
    assert np.isnan(line["flop_per_s"]) == bool(of)
    assert [note for note in found.trace.notes if "no FLOPs" in note] == (
        [
            "1 event has no FLOPs or bytes: their rate would be above 1.2 times the peak of "
            f"{of}, so the cost is not theirs, or their data was in a cache"
        ]
        if of
        else []
    )


def test_a_line_of_a_record_has_the_flops_of_all_its_rows(tmp_path):
    """Two launches of one kernel: the shapes of only one are known."""
    shapes = {"Input_Dims": [[2, 3], [3, 4]], "Input_type": ["float", "float"]}
    events = []
    for number, known in enumerate((shapes, {}), 1):
        at = 100 * number
        events += [
            event("cpu_op", "aten::mm", at, 10, External_id=number, **known),
            event("cuda_runtime", "cudaLaunchKernel", at + 1, 2, correlation=number),
            kernel("sgemm", at + 20, 5 * number, number),
        ]
    lines = read(tmp_path, events).kernels()
    assert [(each.count, each.self_ns, each.flops) for each in lines] == [(1, 10_000, None), (1, 5_000, 48.0)]


def test_a_foreach_op_is_an_optimizers_only_within_its_step(tmp_path):
    """The same kernel, launched by a step of Adam and by the clipping of gradients before it."""
    name = "multi_tensor_apply_kernel<BinaryOpScalarFunctor>"
    events = [
        event("cpu_op", "aten::_foreach_mul_", 0, 10),
        event("cuda_runtime", "cudaLaunchKernel", 1, 2, correlation=1),
        kernel(name, 5, 3, 1),
        event("user_annotation", "Optimizer.step#Adam.step", 20, 30),
        event("cpu_op", "aten::_foreach_mul_", 22, 10),
        event("cuda_runtime", "cudaLaunchKernel", 23, 2, correlation=2),
        kernel(name, 27, 3, 2),
    ]
    rows = work(read(tmp_path, events).events)
    assert rows["category"].tolist() == ["elementwise", "optimizer"]


RECOMPUTED = [
    event("user_annotation", "block", 0, 10),
    event("cpu_op", "aten::mul", 1, 5, Sequence_number=7, Fwd_thread_id=0),
    event(
        "cpu_op",
        "autograd::engine::evaluate_function: MulBackward0",
        20,
        30,
        {"pid": 1, "tid": 2},
        Sequence_number=7,
        Fwd_thread_id=1,
    ),
    event("cpu_op", "aten::mul", 22, 5, {"pid": 1, "tid": 2}, Sequence_number=7, Fwd_thread_id=0),
    event("cpu_op", "aten::sum", 40, 5, {"pid": 1, "tid": 2}),
    event(
        "cpu_op",
        "autograd::engine::evaluate_function: X",
        60,
        5,
        {"pid": 1, "tid": 2},
        Sequence_number=99,
        Fwd_thread_id=1,
    ),
]


def test_forward_work_done_again_in_the_backward_pass_is_remat(tmp_path):
    found = read(tmp_path, RECOMPUTED)
    rows = found.events[found.events["kind"] == "op"]
    assert rows["phase"].tolist() == ["forward", "backward", "remat", "backward", "backward"]
    assert rows["leaf"].tolist() == ["block", "block", "block", "block", ""]
    assert found.trace.unmatched_backward == 1
    assert not found.trace.complete


def test_a_scope_that_did_not_run_as_often_as_expected_is_told(tmp_path):
    found = read(tmp_path, TRAINING, layer=2, other=1)
    assert "scope layer ran 1 time but 2 were expected" in found.trace.missing
    assert "scope other ran 0 times but 1 was expected" in found.trace.missing


def test_copies_join_by_external_number_where_the_call_is_not_there(tmp_path):
    copies = [
        event("cpu_op", "aten::to", 0, 10, External_id=8),
        event("gpu_memcpy", "Memcpy HtoD", 5, 3, GPU, device=1, stream=2, External_id=8, correlation=77),
    ]
    (row,) = work(read(tmp_path, copies).events).to_dict("records")
    assert (row["kind"], row["op"], row["category"], row["device"]) == ("copy", "aten::to", "memory", "gpu:1")


@pytest.mark.parametrize(
    ("argument", "reduced", "category"),
    [
        ("subtract", True, "softmax"),  # exp(x - max(x)), as XLA fuses a softmax
        ("negate", True, "reduction"),  # a sigmoid that is summed
        ("subtract", False, "elementwise"),
    ],
)
def test_a_fused_softmax_is_in_the_category_of_pytorchs(argument, reduced, category):
    """PyTorch's is `aten::_softmax`."""
    members = [
        *([Instruction("max", "reduce", id=1)] if reduced else []),
        Instruction("argument", argument, id=2, operands=(1,)),
        Instruction("exp", "exponential", id=3, operands=(2,)),
    ]
    fusion = Instruction("ynn_fusion", "fusion", id=4, calls=(1,), paths=("jit(f)/attn/exp",))
    program = Program("f", 5, {each.name: each for each in [*members, fusion]}, {0: [fusion], 1: members})
    assert _explain(program, "ynn_fusion", "", ())["category"] == category
    assert categorize(name="aten::_softmax")[0] == "softmax"


def test_an_asynchronous_op_is_complete_when_its_result_is_first_used():
    """A dot ends at 10, but its marker comes at 90; a transpose of it, through a bitcast, begins at 30."""
    dot = Instruction("dot", "dot", id=1)
    bitcast = Instruction("bitcast", "bitcast", id=2, operands=(1,))
    transpose = Instruction("transpose", "transpose", id=3, operands=(2,))
    instructions = [dot, bitcast, transpose]
    program = Program("f", 5, {each.name: each for each in instructions}, {0: instructions})
    assert program.users("dot") == {"transpose"}
    events = frame(
        {
            "kind": constant("op", 4),
            "op": words(np.array([0, 1, 0, 1]), ["dot", "transpose"]),
            "ts_ns": np.array([0, 30, 100, 400]),
            "dur_ns": np.array([10, 5, 10, 5]),
            "end_ns": np.array([90, -1, 105, -1]),
            "program_id": np.full(4, 5),
            "run": np.array([0, 0, 1, 1]),
        },
        4,
    )
    assert completed(events, {5: program}, np.ones(4, bool)).tolist() == [30, -1, -1, -1]
    assert completed(events, {}, np.ones(4, bool)).tolist() == [90, -1, -1, -1]


def node(name: str, ts: float, dur: float, sequence: int) -> dict[str, Any]:
    """A node of the backward pass."""
    return event("cpu_op", name, ts, dur, Sequence_number=sequence, Fwd_thread_id=1)


SLICES = [
    event("user_annotation", "layer", 0, 10),
    event("cpu_op", "aten::mul_", 1, 5, Sequence_number=18, Fwd_thread_id=0),
    node("autograd::engine::evaluate_function: torch::autograd::CopySlices", 20, 12, 19),
    node("torch::autograd::CopySlices", 21, 10, 19),
    event("cpu_op", "aten::clone", 22, 2),
    node("MulBackward0", 25, 5, 18),
    event("cpu_op", "aten::mul", 26, 3),
]


def test_a_node_of_slices_belongs_to_the_op_that_changed_them(tmp_path):
    """The number 19 is that of no forward op; the node within has that of the op that changed a slice in place."""
    found = read(tmp_path, SLICES)
    assert found.trace.unmatched_backward == 0
    assert found.trace.complete
    rows = found.events.set_index("name")
    assert rows.loc[["torch::autograd::CopySlices", "aten::clone", "aten::mul"], "leaf"].tolist() == ["layer"] * 3
    assert rows.loc[["torch::autograd::CopySlices", "aten::clone", "aten::mul"], "phase"].tolist() == ["backward"] * 3


def test_a_node_of_slices_without_its_op_is_missing(tmp_path):
    found = read(tmp_path, [each for each in SLICES if each["name"] != "MulBackward0"])
    assert found.trace.unmatched_backward == 2
    assert found.events.set_index("name").loc["aten::clone", "leaf"] == ""


def test_a_node_that_autograd_made_by_itself_is_noted_and_not_missing(tmp_path):
    restored = [
        node("autograd::engine::evaluate_function: AsStridedBackward0", 40, 5, 20),
        node("AsStridedBackward0", 41, 3, 20),
    ]
    found = read(tmp_path, [*SLICES, *restored]).trace
    assert found.complete
    assert found.unmatched_backward == 0
    assert found.notes[-1].startswith("2 backward ops belong to no scope: autograd made AsStridedBackward")


REAL = {
    "h100_torch_qwen_inference.json.gz": (1707, 1198),
    "b200_torch_eager.json.gz": (929, 927),
    "mi300_torch_resnet_training_checkpointed.json.gz": (3653, 2685),
    "torch_compile_triton.json.gz": (12, 12),
}
"""Kernels, copies and sets of each trace, and how many of them have an op that launched them in it."""


@pytest.mark.parametrize("name", REAL)
def test_each_kernel_of_a_real_trace_that_has_a_launch_has_its_op(name):
    """The counts were taken with a few lines of plain Python over the JSON, by correlation and External id."""
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED} is not here")
    found = ingest(SHARED / name)
    rows = work(found.events)
    assert (len(rows), int((rows["op"] != "").sum())) == REAL[name]
    assert found.trace.uncategorised_ns < 0.05 * found.trace.busy_ns
    assert found.trace.unmatched_backward == 0
    if "training" in name:
        backward = rows[(rows["phase"] == "backward") & (rows["leaf"] != "")]
        assert len(backward) > 500
        assert {"Conv2d_19", "BatchNorm2d_0"} < set(backward["leaf"])
        assert (rows["phase"] == "remat").sum() > 500


def test_the_kernels_of_a_real_trace_of_jax_are_joined_to_its_programs():
    path = SHARED / "mi300_jax_conv.xplane.pb"
    if not path.exists():
        pytest.skip(f"{SHARED} is not here")
    found = ingest(path)
    rows = work(found.events)
    assert len(rows) == 235
    computing = rows[rows["category"] == "convolution"]
    assert set(computing[computing["op"] != ""]["opcode"]) == {"custom-call"}
    assert len(found.trace.devices) == 8 + 4  # eight devices, the first with four streams
    assert found.trace.unmatched_ops == 0


def test_many_scopes_are_each_counted(tmp_path):
    """More names than a byte numbers, some rows outside any."""
    events = [event("cpu_op", "aten::mul", 10_000 + at, 0.5) for at in range(3)]
    for at in range(300):
        events += [event("user_annotation", f"scope{at}", 10 * at, 8), event("cpu_op", "aten::add", 10 * at + 1, 2)]
    found = read(tmp_path, events)
    counts = {each.scope: (each.occurrences, each.root_ns) for each in found.scopes}
    assert counts.pop("") == (None, 1500)
    assert counts == {f"scope{at}": (1, 2000) for at in range(300)}


def test_a_trace_without_any_scope_and_without_its_kernels_says_both(tmp_path):
    hosts = [each for each in TRAINING if each["cat"] != "kernel" and each["name"] != "layer"]
    assert read(tmp_path, hosts, layer=2, other=1).trace.missing == [
        "none of the scopes is in the trace: a step that is compiled as a whole has no scopes",
        "work was launched on a device, but no kernel is in the trace: all times are host times",
    ]


def test_work_of_more_than_104_days_is_no_trace(tmp_path):
    """2^53 ns: shares of a longer time are not exact."""
    path = tmp_path / "trace.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 2**53 / 999}
    path.write_text(json.dumps({"traceEvents": [kernel]}))
    with pytest.raises(UserError, match="a device worked for more than 104 days"):
        ingest(path)
