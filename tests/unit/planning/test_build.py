"""From settings to cases, with frameworks that say what they are told to say."""

import pytest

from benchmarker import Device, FrameworkInfo, Support, UserError
from benchmarker.hooks import registry
from benchmarker.planning import build
from benchmarker.planning.cases import Ability
from benchmarker.planning.factors import CASE_NAME, Description

CPU = Device("cpu", "a CPU", ("fp32", "fp64"))
CUDA = Device("cuda", "a GPU", ("fp32", "bf16"))
BASE = {"problem": "gemm", "framework": "torch"}


@pytest.fixture
def frameworks(monkeypatch):
    """Frameworks by name, which a test may change, and the questions that they were asked."""

    def ability(*devices, compiles="optional", **support):
        return Ability(
            FrameworkInfo("f", "1.0", devices, compiles, {}),
            Support({"inference": ("fp32", "bf16", "fp64")}, **support),
        )

    able = {"jax": ability(CPU, compiles="always"), "torch": ability(CPU), "numpy": ability(CPU, compiles="never")}
    asked = []

    def abilities(problem, names, environment):
        asked.append((problem, list(names)))
        return {name: able[name] for name in names}

    monkeypatch.setattr(build, "abilities", abilities)
    monkeypatch.setattr(build.gpus, "environment", lambda *_: {})
    return able, asked, ability


def test_text_and_values_give_the_same_case_once(frameworks):
    tables = [
        {**BASE, "m": 64, "transpose_a": True, "blocks": 5, "threads": 2, "preheat": False},
        {**BASE, "m": "64", "transpose_a": "true", "blocks": "5", "threads": "2", "median_precision": "null"},
    ]
    (case,), left_out = build.make_cases(tables)
    assert left_out == []
    assert (case.params["m"], case.params["transpose_a"], case.measuring.blocks, case.threads) == (64, True, 5, 2)


def test_each_framework_is_asked_once_a_problem(frameworks):
    _, asked, _ = frameworks
    tables = [
        {"problem": problem, "framework": framework, "seed": seed}
        for problem in ("gemm", "attention")
        for framework in ("jax", "torch")
        for seed in range(3)
    ]
    cases, _ = build.make_cases(tables)
    assert len(cases) == 12
    assert asked == [("gemm", ["jax", "torch"]), ("attention", ["jax", "torch"])]


def test_what_is_not_done_is_left_out_with_what_it_has_in_common(frameworks):
    able, _, ability = frameworks
    able["torch"] = ability(CPU, exclusions=({"transpose_a": "true", "precision": "fp64"},))
    able["jax"] = UserError("jax does not start: no library")
    tables = [
        {"problem": "gemm", "framework": framework, "m": m, "precision": precision, "transpose_a": True}
        for framework in ("jax", "torch")
        for m in (1, 2)
        for precision in ("fp32", "fp64")
    ]
    cases, left_out = build.make_cases(tables)
    assert [(case.framework, case.params["m"], case.precision) for case in cases] == [
        ("torch", 1, "fp32"),
        ("torch", 2, "fp32"),
    ]
    assert left_out == [
        "framework=jax (4 cases): jax does not start: no library",
        "framework=torch precision=fp64 (2 cases): gemm in torch does not support --transpose-a with --precision=fp64",
    ]


def test_what_has_no_implementation_or_does_not_compile_is_left_out(frameworks, monkeypatch):
    monkeypatch.setattr(registry, "implementing", lambda _: ["jax", "numpy"])
    tables = [{"problem": "gemm", "framework": name, "compile": True} for name in ("jax", "torch", "numpy")]
    cases, left_out = build.make_cases(tables)
    assert [case.framework for case in cases] == ["jax"]
    assert left_out == [
        "framework=torch: torch has no implementation of gemm; frameworks that have one: jax, numpy",
        "framework=numpy: numpy does not compile; leave --compile out",
    ]


def test_where_nothing_is_left_all_reasons_are_said(frameworks):
    tables = [{**BASE, "precision": "bf16"}, {**BASE, "mode": "training"}]
    with pytest.raises(
        UserError, match=r"nothing is left to run: framework=torch .*bf16.*; framework=torch .*training"
    ):
        build.make_cases(tables)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"problem": "gem"}, "no problem is named 'gem'; did you mean gemm?"),
        ({"problem": 3}, "problem=3: not text"),
        ({"framework": "troch"}, "no framework is named 'troch'; did you mean torch?"),
        ({"precision": "fp31"}, "precision=fp31: not one of fp64, fp32, "),
        ({"mode": "trainig"}, "mode=trainig: not one of inference, "),
        ({"precison": "fp32"}, "no setting of gemm is named 'precison'; did you mean precision"),
        ({"batch_sise": 1}, "no setting of gemm is named 'batch_sise'; did you mean batch_size?"),
        ({"m": 0}, "m=0: must be at least 1"),
        ({"m": "x"}, "m=x: not a whole number"),
        ({"m": True}, "m=true: not a whole number"),
        ({"gpu": -1}, "gpu=-1: must be at least 0"),
        ({"threads": 0}, "threads=0: must be at least 1"),
        ({"compile": "maybe"}, "compile=maybe: not true or false"),
        ({"seed": "-1"}, "seed=-1: must be at least 0"),
        ({"seconds": 0}, "seconds=0: must be greater than 0"),
        ({"seconds": float("inf")}, "seconds=inf: not a finite number"),
        ({"timeout_s": "nan"}, "timeout_s=nan: not a time: write 250ms, 90s, 10m or 1.5h"),
        ({"seconds": "0s"}, "seconds=0s: must be greater than 0"),
        ({"median_precision": 2}, "median_precision=2: must be at most 1"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_asked(frameworks, given, message):
    _, asked, _ = frameworks
    with pytest.raises(UserError) as caught:
        build.make_cases([BASE, {**BASE, **given}])
    assert message in str(caught.value)
    assert asked == []


@pytest.mark.parametrize("name", ["problem", "framework"])
def test_a_problem_and_a_framework_must_be_named(name):
    with pytest.raises(UserError, match=f"no {name} is given; give one for all cases, or vary it"):
        build.make_cases([{key: value for key, value in BASE.items() if key != name}])


def test_cases_whose_device_is_left_open_share_one(frameworks):
    able, _, ability = frameworks
    able["jax"] = ability(CUDA, CPU)
    tables = [{**BASE, "framework": name, "seed": seed} for name in ("jax", "torch") for seed in range(2)]
    with pytest.raises(UserError, match=r"different devices \(jax on cuda, torch on cpu\); name one with --device"):
        build.make_cases(tables)
    cases, _ = build.make_cases([{**table, "device": "cpu"} for table in tables])
    assert {case.device for case in cases} == {"cpu"}
    cases, _ = build.make_cases([{**BASE, "framework": "jax", "device": device} for device in ("cpu", "cuda")])
    assert [case.device for case in cases] == ["cpu", "cuda"]


def test_the_plan_keeps_design_seed_and_what_is_left_out(frameworks):
    description = Description(
        base=BASE, axes={"m": [1, 2], "precision": ["fp32", "bf16"]}, trials=3, design="duet", order_seed=7
    )
    plan = build.from_description(description)
    assert (len(plan.cases), plan.trials, plan.design, plan.seed) == (2, 3, "duet", 7)
    assert len(plan.left_out) == 1
    assert plan.left_out[0].startswith("framework=torch precision=bf16 (2 cases): cpu (a CPU) does not support bf16")
    with pytest.raises(UserError, match="measures two cases, not 3"):
        build.from_description(Description(base=BASE, axes={"m": [1, 2, 3]}, design="duet"))


def test_many_cases_do_not_look_up_the_same_again(frameworks, monkeypatch):
    looked = []
    registered = registry.registered

    def counted(kind=None):
        looked.append(kind)
        return registered(kind)

    monkeypatch.setattr(registry, "registered", counted)
    cases, _ = build.make_cases([{**BASE, "m": m} for m in range(1, 2001)])
    assert len(cases) == 2000
    assert len(looked) < 10


def described(**changes):
    base = {"problem": "gemm", "preheat": "true", "device": "cpu"}
    cases = [{"m": 64, CASE_NAME: "small"}, {"m": "128"}]
    given = {"base": base, "axes": {"framework": ["torch", "numpy"]}, "cases": cases, "trials": 2, "name": "mine"}
    return Description(**(given | changes))


def test_a_plan_of_a_named_description_knows_its_suite(frameworks):
    plan = build.from_description(described(version="3"))
    assert (plan.suite.name, plan.suite.version, plan.suite.trials) == ("mine", "3", 2)
    assert [(each.name, each.case_numbers) for each in plan.suite.cases] == [
        ("small", [0]),
        (None, [1]),
        ("small", [2]),
        (None, [3]),
    ]
    assert plan.suite.cases[1].settings == {"framework": "torch", "m": 128, "preheat": True, "problem": "gemm"}
    assert [plan.suite_of(number).case for number in range(4)] == ["small", None, "small", None]


def test_the_suite_is_the_same_whatever_the_machine_supports(frameworks):
    able, _, ability = frameworks
    whole = build.from_description(described())
    able["numpy"] = UserError("numpy does not start")
    part = build.from_description(described(order_seed=3))
    assert (len(whole.cases), len(part.cases)) == (4, 2)
    assert [each.case_numbers for each in part.suite.cases] == [[0], [1], [], []]
    able["torch"] = ability(CUDA)
    other = build.from_description(described(base={"problem": "gemm", "preheat": True, "device": "cuda"}))
    assert {each.suite.sha256 for each in (whole, part, other)} == {build.suite_of(described()).sha256}


def test_a_suite_case_on_several_devices_has_several_cases_in_the_plan(frameworks):
    able, _, ability = frameworks
    able["torch"] = ability(CPU, CUDA)
    axes = {"framework": ["torch"], "device": ["cpu", "cuda"]}
    plan = build.from_description(described(base={"problem": "gemm"}, axes=axes, cases=[]))
    assert [each.case_numbers for each in plan.suite.cases] == [[0, 1]]


def test_ways_to_divide_a_step_share_the_case_of_one_device(frameworks):
    able, _, _ = frameworks
    info = FrameworkInfo("f", "1.0", (Device("cpu", "a CPU", ("fp32",), count=None),), "never", {}, group="one_process")
    able["torch"] = Ability(info, Support({"inference": ("fp32",)}, parallel=("dp", "tp")))
    axes = {"devices": [1, 2], "parallel": ["dp", "tp"]}
    cases, _ = build.make_cases(build.factors.expand(described(base=BASE, axes=axes, cases=[], name=None)))
    assert [(case.devices, case.parallel) for case in cases] == [(1, "none"), (2, "dp"), (2, "tp")]
    with pytest.raises(UserError, match=r"parallel=pp: not one of none, dp, fsdp, tp"):
        build.make_cases([{**BASE, "parallel": "pp"}])


def test_a_setting_that_is_left_open_is_not_in_a_suite(frameworks):
    (case, *_) = build.suite_of(described()).cases
    assert "parallel" not in case.settings


def test_a_description_without_a_name_is_no_suite(frameworks):
    plan = build.from_description(described(name=None))
    assert (plan.suite, plan.suite_of(0)) == (None, None)


def test_the_name_of_a_case_is_no_setting_elsewhere(frameworks):
    with pytest.raises(UserError, match="no setting of gemm is named 'name'"):
        build.from_description(described(axes={"framework": ["torch"], "name": ["x"]}))
