import dataclasses
import json
import shlex

import msgspec
import pytest

from benchmarker import Allocation, Case, Device, FrameworkInfo, Measuring, Support, UserError
from benchmarker.api.case import CaseRequest
from benchmarker.cli import group
from benchmarker.hooks import launchers, registry
from benchmarker.planning.cases import Ability, command_line, duet_trouble, make_case, same_device
from benchmarker.records.plan import make_plan

CPU = Device("cpu", "a CPU", ("fp32", "fp64"))
GPU = Device("cuda", "a GPU", ("fp32", "tf32", "bf16"))
SUPPORT = Support({"inference": ("fp32", "tf32", "bf16", "fp64"), "training": ("fp32",)}, {"transpose_a": ("false",)})


def ability(*devices, compiles="optional"):
    return Ability(FrameworkInfo("f", "1.0", devices, compiles, {}), SUPPORT)


def make(ability, **given):
    problem = registry.problem("gemm")
    return make_case(CaseRequest(problem="gemm", **given), problem, "f", ability)


def test_the_preferred_device_and_its_defaults_are_taken():
    assert make(ability(CPU)).params["m"] == 1024
    case = make(ability(GPU, CPU))
    assert (case.device, case.params["m"]) == ("cuda", 8192)
    assert make(ability(GPU, CPU), device="cpu").params["m"] == 1024
    assert make(ability(CPU, GPU), device="gpu").device == "cuda"


def test_what_a_precision_cannot_hold_is_refused():
    with pytest.raises(UserError, match="int8 cannot hold entries of --range=wide"):
        in_int8 = dataclasses.replace(SUPPORT, precisions={"inference": ("int8",)})
        device = dataclasses.replace(CPU, precisions=("int8",))
        able = dataclasses.replace(ability(device), support=in_int8)
        make(able, precision="int8", params={"range": "wide"})


def test_every_parameter_of_a_case_is_decided():
    case = make(ability(CPU), params={"m": "7"})
    assert case.params == {
        "m": 7,
        "n": 1024,
        "k": 1024,
        "batch_size": 1,
        "transpose_a": False,
        "transpose_b": False,
        "range": "normal",
        "linear": False,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "forward_backward"}, "f does not support forward_backward; its modes are: inference, training"),
        ({"precision": "fp16"}, "gemm in f does not support inference in fp16; it supports: fp64, fp32"),
        ({"precision": "tf32"}, r"cpu \(a CPU\) does not support tf32 in f; it supports: fp64, fp32"),
        ({"device": "tpu"}, "f 1.0 reports no device 'tpu' here; it reports: cpu"),
        ({"device": "gpu"}, "f 1.0 reports no device 'gpu' here; it reports: cpu"),
        ({"gpu": 0}, "--gpus=0 is given, but f would run on the CPU"),
        ({"params": {"transpose_a": True}}, "gemm in f does not support --transpose-a; it supports: false"),
        ({"params": {"m": "0"}}, "--m=0: must be at least 1"),
    ],
)
def test_what_a_framework_does_not_do_is_refused_by_name(given, message):
    with pytest.raises(UserError, match=message):
        make(ability(CPU), **given)


def test_exclusions_are_refused_where_all_of_them_hold():
    support = Support({"inference": ("fp32", "fp64")}, exclusions=({"transpose_a": "true", "precision": "fp64"},))
    able = Ability(FrameworkInfo("f", "1.0", (CPU,), "never", {}), support)
    assert make(able, precision="fp64")
    assert make(able, params={"transpose_a": True})
    with pytest.raises(UserError, match="gemm in f does not support --transpose-a with --precision=fp64"):
        make(able, precision="fp64", params={"transpose_a": True})


def grouped(*parallel, by="one_process"):
    """What a framework supports that computes on any number of devices."""
    info = FrameworkInfo("f", "1.0", (Device("cpu", "a CPU", ("fp32",), count=None),), "never", {}, group=by)
    rules = ({"parallel": "tp", "precision": "fp32", "transpose_b": "true"},)
    return Ability(info, Support({"inference": ("fp32",)}, exclusions=rules, parallel=parallel))


def test_several_devices_divide_a_step_as_requested_or_as_the_implementation_prefers():
    able = grouped("dp", "tp")
    assert [make(able, devices=2, parallel=way).parallel for way in (None, "dp", "tp")] == ["dp", "dp", "tp"]
    assert make(grouped("none"), devices=2).parallel == "none"
    assert "--devices=2 --parallel=tp" in command_line(make(able, devices=2, parallel="tp"))


def test_on_one_device_all_ways_to_divide_a_step_are_the_same_case():
    able = grouped("dp", "tp")
    cases = [make(able, parallel=way) for way in (None, "none", "dp", "tp")]
    assert all(case == cases[0] for case in cases)
    assert "--parallel" not in command_line(cases[0])


@pytest.mark.parametrize(
    ("able", "given", "message"),
    [
        (grouped("dp", "tp"), {"parallel": "fsdp"}, "does not support --parallel=fsdp; it supports: dp, tp"),
        (grouped("dp"), {"parallel": "none", "devices": 2}, "does not support --parallel=none; it supports: dp"),
        (grouped("none"), {"parallel": "dp", "devices": 2}, "does not support --parallel=dp; omit it"),
        (grouped(), {"parallel": "dp"}, "does not support --parallel=dp; omit it"),
        (grouped(), {"parallel": "dp", "devices": 2}, "gemm in f computes on one device; omit --devices=2"),
        (
            grouped("dp", "tp"),
            {"parallel": "tp", "devices": 2, "params": {"transpose_b": True}},
            "gemm in f does not support --parallel=tp with --precision=fp32 with --transpose-b",
        ),
    ],
)
def test_how_devices_cannot_divide_a_step_is_refused(able, given, message):
    with pytest.raises(UserError, match=message):
        make(able, **given)


@pytest.fixture
def two_nodes(monkeypatch):
    """This process runs in an allocation of two nodes."""
    monkeypatch.setattr(launchers, "allocation", lambda: Allocation("slurm", "7", ["a", "b"], 0))
    monkeypatch.setattr(launchers, "check_nodes", lambda *_: None)


@pytest.mark.parametrize(
    ("by", "nodes", "ranks", "devices"),
    [
        ("process_per_device", 1, 4, [[0], [1], [2], [3]]),
        ("process_per_device", 2, 4, [[0], [1], [2], [3]]),
        ("process_per_node", 1, 1, [[0, 1, 2, 3]]),
        ("process_per_node", 2, 2, [[0, 1], [2, 3]]),
        ("one_process", 1, 1, [[0, 1, 2, 3]]),
    ],
)
def test_a_framework_has_a_process_for_each_device_or_one_for_those_of_a_node(two_nodes, by, nodes, ranks, devices):
    case = make(grouped("dp", by=by), devices=4, nodes=nodes)
    assert (case.nodes, case.ranks) == (nodes, ranks)
    assert [[*case.devices_of(rank)] for rank in range(ranks)] == devices
    assert make(grouped("dp", by=by), devices=4, nodes=nodes, independent=True).ranks == 4


def test_one_process_for_all_devices_is_on_one_node(two_nodes, monkeypatch):
    monkeypatch.setattr("benchmarker.planning.cases.usable_cores", lambda: 2)
    ways = ("process_per_device", "process_per_node", "one_process")
    assert [make(grouped("dp", by=by), devices=4).nodes for by in ways] == [2, 2, 1]
    with pytest.raises(UserError, match="f computes in one process, on one node; omit --nodes=2"):
        make(grouped("dp"), devices=4, nodes=2)


def test_compile_is_refused_where_nothing_compiles():
    with pytest.raises(UserError, match="f does not compile; leave --compile out"):
        make(ability(CPU, compiles="never"), compile=True)
    assert make(ability(CPU, compiles="always")).compile
    assert not make(ability(CPU)).compile


@pytest.mark.parametrize(
    ("compiles", "own", "expected"),
    [
        ("never", (), ["eager"]),
        ("optional", (), ["eager", "compiled"]),
        ("always", (), ["compiled"]),
        ("always", ("jitted",), ["jitted"]),
        ("optional", ("interpreted", "translated"), ["interpreted", "translated"]),
    ],
)
def test_a_case_has_the_word_of_its_framework_for_how_a_step_runs(compiles, own, expected):
    able = ability(CPU, compiles=compiles)
    able = dataclasses.replace(able, info=dataclasses.replace(able.info, executions=own))
    chosen = [
        make(able, compile=compiled).execution for compiled in ((False,) if len(expected) == 1 else (False, True))
    ]
    assert chosen == expected


def test_frameworks_on_different_devices_are_refused():
    cases = [make(ability(CPU)), make(ability(GPU, CPU))]
    with pytest.raises(UserError, match=r"different devices \(f on cpu, f on cuda\); name one with --device"):
        same_device(cases)
    same_device(cases[:1])


def test_each_round_holds_each_case_once_in_an_order_of_its_own():
    cases = [make(ability(CPU), seed=seed) for seed in range(4)]
    made = make_plan(cases, 50, seed=1)
    rounds = [made.order[start : start + 4] for start in range(0, 200, 4)]
    assert all(sorted(round_) == [(index, trial) for index in range(4)] for trial, round_ in enumerate(rounds))
    firsts = [round_[0][0] for round_ in rounds]
    assert all(5 <= firsts.count(index) <= 20 for index in range(4))
    assert made.order == make_plan(cases, 50, seed=1).order
    assert made.order != make_plan(cases, 50).order
    assert made.processes() == [[place] for place in made.order]


def test_a_duet_is_two_trials_a_process():
    cases = [make(ability(CPU), seed=seed) for seed in range(2)]
    made = make_plan(cases, 3, design="duet")
    assert [sorted(places) for places in made.processes()] == [[(0, trial), (1, trial)] for trial in range(3)]
    assert duet_trouble(cases) is None
    other = msgspec.structs.replace(cases[0], precision="fp64")
    assert duet_trouble([cases[0], other]) == (
        "a duet shares one process, but the cases differ in precision (fp32, fp64)"
    )
    assert "measures two cases, not 1" in duet_trouble(cases[:1])
    on_two = [msgspec.structs.replace(case, devices=2) for case in cases]
    assert duet_trouble(on_two) == "a duet measures on one device"


def test_the_command_repeats_the_case():
    case = make(
        ability(CPU),
        params={"m": 7, "transpose_b": True},
        precision="fp64",
        seed=3,
        threads=2,
        compile=True,
        measuring=Measuring(preheat=True, seconds=2.5, timeout_s=9, median_precision=0.01),
    )
    words = shlex.split(command_line(case))
    assert words[:4] == ["python", "-m", "benchmarker", "run"]
    command = group.get_command(None, "run")
    options = command.make_context("run", words[4:]).params
    assert (options["m"], options["transpose_a"], options["transpose_b"]) == ("7", False, True)
    assert (options["precision"], options["seed"], options["threads"], options["compile"]) == (["fp64"], 3, 2, True)
    assert (options["preheat"], options["seconds"], options["timeout_s"]) == (True, 2.5, 9)
    assert options["median_precision"] == 0.01


def test_a_case_survives_json():
    case = make(ability(CPU))
    assert msgspec.json.decode(json.dumps(msgspec.to_builtins(case)).encode(), type=Case) == case
