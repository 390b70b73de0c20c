"""Fleets whose nodes are played by processes of this machine: who is named, and what becomes of nodes that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
from support.pages import figures_in
from support.played import ENTRY_POINTS, PLAYED
from support.toy import install

PLAN = """
problem = "nap"
framework = "toy"
trials = 1
[measuring]
power = "none"
warmup_steps = 1
blocks = {blocks}
[axes]
ms = {ms}
"""
NODES = "node1,node2,node3,node4"


class Fleet:
    """The command line on the first node of an allocation of played nodes."""

    def __init__(self, program: Any, folder: Path, path: str) -> None:
        self.program, self.folder, self.path = program, folder, path

    def env(self, unwell: str = "", nodes: str = NODES, **more: str) -> dict[str, str]:
        return {"PLAYED_NODES": nodes, "PLAYED_UNWELL": unwell, "PYTHONPATH": self.path, **more}

    def plan(self, ms: str = "[1.0, 2.0]", blocks: int = 2) -> str:
        (self.folder / "naps.toml").write_text(PLAN.format(ms=ms, blocks=blocks))
        return "naps.toml"

    def run(self, *options: str, **env: str) -> Any:
        return self.program("nodes", "run", self.plan(), *options, env=self.env(**env), timeout=300)

    def show(self, *words: str) -> Any:
        return self.program("nodes", "show", *words, env={"PYTHONPATH": self.path})

    @property
    def one(self) -> Path:
        (found,) = (self.folder / "results").iterdir()
        return found

    def state(self, node: str) -> dict[str, Any]:
        return json.loads((self.one / node / "node.json").read_text())

    def processes(self) -> list[psutil.Process]:
        """All processes of played nodes of this fleet."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("PYTHONPATH") == self.path and process.pid != os.getpid():
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def fleet(program: Any, toy_folder: Path, tmp_path: Path) -> Fleet:
    site = tmp_path / "site"
    site.mkdir()
    install(site, "played", ENTRY_POINTS, PLAYED)
    return Fleet(program, tmp_path, f"{site}:{toy_folder}")


def wait_for(what: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_a_node_made_slow_is_named_among_four(fleet: Fleet) -> None:
    """Its steps sleep 5% longer, in real time, on two cores that four nodes share."""
    fleet.plan(ms="[60.0]", blocks=12)
    done = fleet.program("nodes", "run", "naps.toml", "--rounds=5", env=fleet.env("node3=0.05"), timeout=500)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("1 of 4 nodes is slower than the others: node3 by "), done.stdout
    found = json.loads(fleet.show(str(fleet.one), "--json").stdout)
    (named,) = [cell for cell in found["cells"] if cell["verdict"] == "slower"]
    assert named["node"] == "node3"
    assert 0.02 < named["shift"] < 0.08
    assert named["p_adjusted"] <= 0.05
    xml = fleet.folder / "health.xml"
    assert fleet.show(str(fleet.one), f"--junit={xml}", "-o", "page.html").returncode == 1
    suite = ElementTree.parse(xml).getroot()[0]
    assert [case.find("failure") is not None for case in suite] == [False, False, True, False]
    assert all(case.find("error") is None for case in suite)
    assert suite[2].get("name") == "node3"
    page = (fleet.folder / "page.html").read_text()
    assert "heat" in [mark["type"] for figure in figures_in(page) for mark in figure["marks"]]
    assert fleet.program("validate", "results", env={"PYTHONPATH": fleet.path}).returncode == 0


LINKS = """
problem = "team"
framework = "toy"
nodes = 2
ms = 0.0
exchange_ms = 1.0
local = "none"
[measuring]
power = "none"
warmup_steps = 1
blocks = 2
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unwell", "links", "nodes"),
    [
        ("node2+node3=0.1", {"node2–node3"}, set()),
        ("node2+=0.1", {"node1–node2", "node2–node3"}, {"node2"}),
    ],
)
def test_a_slow_link_is_told_from_a_slow_node(fleet: Fleet, unwell: str, links: set[str], nodes: set[str]) -> None:
    """Exchanges take 10% longer, by the toy's own clock, on one link, or on both of a node."""
    (fleet.folder / "links.toml").write_text(LINKS)
    done = fleet.program("nodes", "run", "links.toml", "--rounds=2", "--json", env=fleet.env(unwell), timeout=500)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert {cell["node"] for cell in found["cells"] if cell["verdict"] == "slower"} == links
    assert {node["node"] for node in found["nodes"] if node["slow_links"]} == nodes
    assert "repeating 1 case" in done.stderr
    shown = fleet.show(str(fleet.one), f"--junit={fleet.folder / 'out.xml'}", "-o", "page.html").stdout
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith(("node", "where")))
    suite = ElementTree.parse(fleet.folder / "out.xml").getroot()[0]
    assert {case.get("name") for case in suite if case.find("failure") is not None} == links | nodes
    page = (fleet.folder / "page.html").read_text()
    assert "node2–node3" in page
    assert [mark["type"] for figure in figures_in(page) for mark in figure["marks"]].count("heat") == 1
    assert not fleet.processes()


@pytest.mark.slow
def test_links_have_normal_runs_of_both_nodes_beside_those_of_nodes(fleet: Fleet) -> None:
    """Three nodes have three links, of which no two are measured at the same time."""
    nap = '[[case]]\nproblem = "nap"\nms = 1.0\n'
    (fleet.folder / "both.toml").write_text(f'framework = "toy"\nmeasuring.blocks = 2\n{nap}{nap}nodes = 2\n')
    words = ("nodes", "run", "both.toml", "--rounds=1", "--no-repeat", "--nodes=3")
    done = fleet.program(*words, env=fleet.env(), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "; no outlier: none of 3 links is significantly slower than the others by more than 2%" in done.stdout
    for ends in (["node1", "node2"], ["node2", "node3"], ["node3", "node1"]):
        (file,) = (fleet.one / "+".join(ends)).glob("2*/2*.json")
        record = json.loads(file.read_text())
        assert record["allocation"]["nodes"] == ends
        assert (record["case"]["devices"], record["case"]["nodes"], len(record["machines"])) == (2, 2, 2)
    assert all(fleet.state(f"node{number}")["done"] == 1 for number in (1, 2, 3))
    assert fleet.program("validate", "results", env={"PYTHONPATH": fleet.path}).returncode == 0
    shown = fleet.program("show", "results", "--json", env={"PYTHONPATH": fleet.path})
    assert len(json.loads(shown.stdout)) == 6
    assert not fleet.processes()
    hosts = fleet.show(*(str(path) for path in fleet.one.iterdir() if path.is_dir()))
    assert "not counted: 3 trials over several nodes, which cannot be attributed to one" in hosts.stdout


@pytest.mark.slow
def test_links_that_cannot_be_measured_are_told_and_nodes_are_judged(fleet: Fleet) -> None:
    """A nap on three devices cannot be spread over two nodes."""
    nap = 'problem = "nap"\nms = 1.0\n'
    (fleet.folder / "both.toml").write_text(
        f'framework = "toy"\n[[case]]\n{nap}[[case]]\n{nap}nodes = 2\ndevices = 3\n'
    )
    words = ("nodes", "run", "both.toml", "--rounds=1", "--no-repeat", "--nodes=3")
    done = fleet.program(*words, env=fleet.env(), timeout=300)
    assert done.returncode == 0, done.stderr
    reason = "links are not measured: --nodes=2: --devices=3 cannot be spread evenly over 2 nodes"
    assert reason in done.stderr
    assert f"note: {reason}" in done.stdout


@pytest.mark.slow
def test_an_interrupt_ends_the_processes_of_links(fleet: Fleet) -> None:
    (fleet.folder / "links.toml").write_text(
        LINKS.replace("team", "nap").partition("ms =")[0] + "ms = 200.0\n[measuring]\npower = 'none'\nblocks = 20\n"
    )
    words = [sys.executable, "-m", "benchmarker", "nodes", "run", "links.toml", "--rounds=9"]
    env = {**os.environ, **fleet.env()}
    running = subprocess.Popen(words, cwd=fleet.folder, env=env, stderr=subprocess.PIPE, text=True)
    states = lambda: list(fleet.folder.glob("results/*/node?+node?/node.json"))  # noqa: E731
    wait_for(
        lambda: len(states()) == 4 and any("benchmarker.agent" in process.cmdline() for process in fleet.processes())
    )
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 143
    wait_for(lambda: not fleet.processes())


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_four_equal_nodes_name_none(fleet: Fleet, number: int) -> None:
    """How often a node is named wrongly, the simulated fleets of tests/unit/stats/test_outliers.py show."""
    fleet.plan(ms="[60.0]", blocks=12)
    done = fleet.program("nodes", "run", "naps.toml", env=fleet.env(), timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("no outlier: none of 4 nodes differs significantly"), done.stdout


@pytest.mark.slow
def test_each_node_has_a_normal_run_in_its_own_folder(fleet: Fleet) -> None:
    done = fleet.run("--no-repeat", "--rounds=2", "--nodes=3")
    assert done.returncode == 0, done.stderr
    plans = []
    for node in ("node1", "node2", "node3"):
        (run,) = [path for path in (fleet.one / node).iterdir() if path.is_dir()]
        plan = json.loads((run / "plan.json").read_text())
        records = [json.loads(path.read_text()) for path in run.glob("2*.json")]
        assert len(records) == 4
        assert {record["allocation"]["nodes"][0] for record in records} == {node}
        assert {record["suite"]["name"] for record in records} == {"naps"}
        plans.append(plan["order"])
        assert (fleet.state(node)["done"], fleet.state(node)["planned"], fleet.state(node)["error"]) == (4, 4, "")
    assert plans[0] == plans[1] == plans[2]
    assert not (fleet.one / "node4").exists()
    assert fleet.program("validate", "results", env={"PYTHONPATH": fleet.path}).returncode == 0
    shown = fleet.program("show", "results", "--json", env={"PYTHONPATH": fleet.path})
    assert len(json.loads(shown.stdout)) == 12


@pytest.mark.slow
def test_nodes_that_cannot_take_part_are_named_and_the_others_go_on(fleet: Fleet) -> None:
    other = fleet.folder / "other"
    other.mkdir()
    install(other, "newcomer", {}, {"__init__.py": ""})
    unwell = "node2=absent,node3=other,node4=gone"
    done = fleet.run("--no-repeat", "--rounds=9", unwell=unwell, PLAYED_OTHER=str(other), PLAYED_GONE_S="5")
    assert done.returncode == 1
    assert "node2: did not start\n" in done.stderr
    assert "node3: runs different software than the parent: newcomer none → 1.0\n" in done.stderr
    assert "node4: ended early, after " in done.stderr
    assert fleet.state("node1")["done"] == 18
    assert "; node2, node3, node4 failed, in whole or in part" in done.stdout.splitlines()[0]
    assert "fewer than 3 nodes: no outlier can be identified" in done.stdout
    shown = fleet.show(str(fleet.one), "--json")
    assert shown.returncode == 1
    found = json.loads(shown.stdout)
    assert [bool(node["trouble"]) for node in found["nodes"]] == [False, True, True, True]


@pytest.mark.slow
def test_a_trial_that_fails_everywhere_is_told_once(fleet: Fleet) -> None:
    plan = fleet.folder / "naps.toml"
    plan.write_text(PLAN.format(ms="[1.0]", blocks=2).replace("trials = 1", 'trials = 1\nfault = "raise"'))
    done = fleet.program("nodes", "run", "naps.toml", "--rounds=1", "--nodes=3", env=fleet.env())
    assert done.returncode == 1
    assert "node1, node2, node3: 1 of 1 trial failed in " in done.stdout
    assert "told to fail" in done.stdout


@pytest.mark.slow
def test_an_interrupt_ends_all_nodes_and_keeps_what_is_measured(fleet: Fleet) -> None:
    words = [sys.executable, "-m", "benchmarker", "nodes", "run", fleet.plan("[200.0]", 5), "--rounds=50"]
    env = {**os.environ, **fleet.env()}
    running = subprocess.Popen(words, cwd=fleet.folder, env=env, stderr=subprocess.PIPE, text=True)
    states = lambda: list(fleet.folder.glob("results/*/node?/node.json"))  # noqa: E731
    wait_for(lambda: len(states()) == 4 and all(json.loads(path.read_text())["done"] for path in states()))
    assert len(fleet.processes()) > 4
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 143
    assert "interrupted: what the nodes have measured is in results/" in told
    wait_for(lambda: not fleet.processes())
    shown = fleet.show(str(fleet.one))
    assert shown.returncode == 1
    assert "the fleet's run is not complete" in shown.stdout


@pytest.mark.slow
def test_when_the_parent_is_killed_all_nodes_end(fleet: Fleet) -> None:
    words = [sys.executable, "-m", "benchmarker", "nodes", "run", fleet.plan("[200.0]", 5), "--rounds=50"]
    running = subprocess.Popen(words, cwd=fleet.folder, env={**os.environ, **fleet.env()}, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list(fleet.folder.glob("results/*/node?/*/2*.json"))) >= 4)
    running.kill()
    running.wait()
    wait_for(lambda: not fleet.processes())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["naps.toml", "--suite=node-health"], "exclude each other"),
        (["absent.toml"], "absent.toml: No such file"),
        (["--suite=no-such"], "no suite is named 'no-such'"),
        (["naps.toml", "--nodes=5"], "--nodes=5: the allocation has 4 nodes"),
        (["naps.toml", "--nodes=node1,node9"], "node9 is not in the allocation, which has node1, node2, node3, node4"),
        (["naps.toml", "--nodes=,"], "names no node"),
        (["naps.toml", "--framework=,"], "a name is missing"),
        (["duet.toml"], "is a duet"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    fleet: Fleet, cli: Any, monkeypatch: pytest.MonkeyPatch, options: list[str], complaint: str
) -> None:
    monkeypatch.syspath_prepend(fleet.folder / "site")
    fleet.plan()
    (fleet.folder / "duet.toml").write_text('design = "duet"\n' + PLAN.format(ms="[1.0, 2.0]", blocks=2))
    done = cli("nodes", "run", *options, env=fleet.env())
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (fleet.folder / "results").exists()


@pytest.mark.slow
def test_this_machine_alone_is_no_fleet(fleet: Fleet) -> None:
    done = fleet.program("nodes", "run", env={"PYTHONPATH": fleet.path})
    assert done.returncode == 2
    assert "this machine is a single node: start this in a job of several nodes" in done.stderr
    done = fleet.run(nodes="node1")
    assert done.returncode == 2
    assert "job 7 has a single node, node1: start this in a job of several nodes" in done.stderr


def test_a_launcher_that_starts_nothing_on_nodes_says_so(fleet: Fleet) -> None:
    done = fleet.run(PLAYED_IDLE="1")
    assert done.returncode == 2
    assert "starts nothing on other nodes" in done.stderr


@pytest.mark.slow
def test_devices_have_rows_of_their_own(fleet: Fleet) -> None:
    """Two cards a node, each by itself; the second card of the third node sleeps 5% longer, by the toy's own clock."""
    (fleet.folder / "teams.toml").write_text("""
problem = "team"
framework = "toy"
device = "cuda"
devices = 2
independent = true
slower = 0.05
trials = 1
[measuring]
power = "none"
warmup_steps = 1
blocks = 4
""")
    done = fleet.program(
        *("nodes", "run", "teams.toml", "--rounds=10", "--no-repeat", "--nodes=4", "--json"),
        env=fleet.env("node3=rank", TOY_CARD="GPU-a,GPU-b"),
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert {(cell["node"], cell["device"], cell["part"]) for cell in found["cells"] if cell["verdict"] == "slower"} == {
        ("node3", 1, "alone"),
        ("node3", 1, "together"),
    }
    assert len(found["cells"]) == 4 * 2 * 2
