"""What a node measures, by the devices that it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from unit.fleet.test_values import asked

from benchmarker import Device, FrameworkInfo, Support, UserError
from benchmarker.fleet import node_plan
from benchmarker.fleet.folder import LinkStage, Stage
from benchmarker.planning import build
from benchmarker.planning.cases import Ability
from benchmarker.records.factors import factors_of
from benchmarker_problems.parallel import STRATEGIES

PLAN = """
framework = "torch"
[[case]]
problem = "gemm"
m = 64
n = 64
k = 64
[[case]]
problem = "stream"
n = 64
[[case]]
problem = "collective"
bytes = 64
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a node with so many GPUs; returns the folder of its fleet."""

    def make(gpus: int, text: str = PLAN) -> Path:
        (tmp_path / "fleet.toml").write_text(text)

        def abilities(problem: str, names: list[str], environment: Mapping[str, str]) -> dict[str, Ability]:
            device = (
                Device("cuda", "Card", ("fp32",), count=gpus) if gpus else Device("cpu", "CPU", ("fp32",), count=None)
            )
            info = FrameworkInfo("torch", "2", (device,), "never", {}, group="process_per_device")
            parallel = {"collective": ("none",), "gpt2": STRATEGIES, "llama": STRATEGIES}.get(problem, ())
            return {
                name: Ability(info, Support({"inference": ("fp32",), "training": ("fp32",)}, parallel=parallel))
                for name in names
            }

        monkeypatch.setattr(node_plan, "abilities", abilities)
        monkeypatch.setattr(build, "abilities", abilities)
        monkeypatch.setattr("benchmarker.machine.gpus.environment", lambda *_: {})
        return tmp_path

    return make


def test_each_of_several_devices_works_by_itself_but_in_an_exchange(node) -> None:
    plan = node_plan.plan_of(node(4), asked(["n1"]), Stage(["n1"], 2))
    assert [(case.problem, case.devices, case.independent) for case in plan.cases] == [
        ("gemm", 4, True),
        ("stream", 4, True),
        ("collective", 4, False),
    ]
    assert (plan.trials, plan.left_out) == (2, [])


@pytest.mark.parametrize("gpus", [0, 1])
def test_one_device_exchanges_nothing(node, gpus) -> None:
    plan = node_plan.plan_of(node(gpus), asked(["n1"]), Stage(["n1"], 2))
    assert [(case.problem, case.devices, case.independent) for case in plan.cases] == [
        ("gemm", 1, False),
        ("stream", 1, False),
    ]
    assert plan.left_out == ["problem=collective: one device exchanges nothing"]


@pytest.mark.parametrize("problem", ["gpt2", "llama"])
@pytest.mark.parametrize(("gpus", "devices"), [(4, 4), (1, 1), (0, 1)])
def test_each_device_trains_by_itself(node, problem, gpus, devices) -> None:
    text = f'framework = "torch"\nproblem = "{problem}"\nmode = "training"\n'
    plan = node_plan.plan_of(node(gpus, text), asked(["n1"]), Stage(["n1"], 2))
    assert [(case.devices, case.independent, case.parallel) for case in plan.cases] == [(devices, devices > 1, "none")]
    assert plan.left_out == []


def test_a_case_that_states_its_devices_is_left_as_it_is(node) -> None:
    plan = node_plan.plan_of(node(4, PLAN.replace("m = 64", "m = 64\ndevices = 1")), asked(["n1"]), Stage(["n1"], 1))
    assert (plan.cases[0].problem, plan.cases[0].devices, plan.cases[1].devices) == ("gemm", 1, 4)


def test_a_repeat_has_the_chosen_cases_and_their_names(node) -> None:
    path = node(4, PLAN.replace('problem = "stream"', 'name = "memory"\nproblem = "stream"'))
    first = node_plan.plan_of(path, asked(["n1"]), Stage(["n1"], 2))
    again = node_plan.plan_of(path, asked(["n1"]), Stage(["n1"], 7, [factors_of(first.cases[1])]))
    assert again.cases == [first.cases[1]]
    assert (again.trials, again.suite_of(0).case) == (7, "memory")
    with pytest.raises(UserError, match="has none of the cases"):
        node_plan.plan_of(path, asked(["n1"]), Stage(["n1"], 7, [{"problem": "other"}]))


BETWEEN = """
[[case]]
problem = "collective"
nodes = 2
bytes = 1024
[[case]]
problem = "collective"
nodes = 2
devices = 2
bytes = 64
"""


@pytest.fixture
def spread(monkeypatch) -> None:
    """An allocation of enough nodes, of a launcher that starts programs on them."""
    monkeypatch.setattr("benchmarker.planning.cases.launchers.check_nodes", lambda *_: None)


@pytest.mark.parametrize(("gpus", "devices"), [(4, 8), (1, 2), (0, 2)])
def test_a_link_has_all_devices_of_both_nodes_unless_it_states_them(node, spread, gpus, devices) -> None:
    path = node(gpus, PLAN + BETWEEN)
    plan = node_plan.link_plan_of(path, asked(["n1", "n2"]), LinkStage([("n1", "n2")], 5))
    assert [(case.problem, case.nodes, case.devices, case.independent) for case in plan.cases] == [
        ("collective", 2, devices, False),
        ("collective", 2, 2, False),
    ]
    assert plan.trials == 5
    again = node_plan.link_plan_of(path, asked(["n1"]), LinkStage([("n1", "n2")], 7, [factors_of(plan.cases[1])]))
    assert (again.cases, again.trials) == ([plan.cases[1]], 7)


def test_a_node_measures_no_case_of_two_nodes(node, spread) -> None:
    alone = node_plan.plan_of(node(4), asked(["n1"]), Stage(["n1"], 2))
    both = node_plan.plan_of(node(4, PLAN + BETWEEN), asked(["n1"]), Stage(["n1"], 2))
    assert (both.cases, both.left_out) == (alone.cases, [])


@pytest.mark.parametrize(
    ("text", "measures"),
    [(PLAN, ("nodes",)), (PLAN + BETWEEN, ("nodes", "links")), ('framework = "torch"' + BETWEEN, ("links",))],
)
def test_what_a_plan_file_measures(node, text, measures) -> None:
    description = node_plan.description_of(node(1, text) / "fleet.toml", asked(["n1"]))
    assert node_plan.measures(description) == measures


def test_a_case_of_three_nodes_is_refused(node) -> None:
    description = node_plan.description_of(node(1, PLAN + BETWEEN.replace("= 2", "= 3")) / "fleet.toml", asked(["n1"]))
    with pytest.raises(UserError, match=r"nodes = 3: a fleet measures .*; write nodes = 2"):
        node_plan.measures(description)


def test_nothing_left_is_an_error(node) -> None:
    text = 'framework = "torch"\nproblem = "collective"\nbytes = 64\n'
    with pytest.raises(UserError, match=r"nothing is left to run: .*one device exchanges nothing"):
        node_plan.plan_of(node(1, text), asked(["n1"]), Stage(["n1"], 2))
