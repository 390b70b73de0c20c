"""Fleets in jobs of a real Slurm with four nodes."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.slurm import Slurm, running

pytestmark = pytest.mark.slow

PLAN = """
problem = "nap"
framework = "toy"
trials = 1
ms = 20.0
[measuring]
power = "none"
warmup_steps = 1
blocks = {blocks}
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running(tmp_path_factory.mktemp("slurm")) as made:
        yield made


BOTH = """
framework = "toy"
[measuring]
power = "none"
warmup_steps = 1
blocks = 4
[[case]]
problem = "team"
device = "cuda"
[[case]]
problem = "nap"
device = "cpu"
nodes = 2
"""


class Job:
    """A job of four nodes that measures a fleet."""

    def __init__(
        self, slurm: Slurm, folder: Path, toy: Path, *options: str, blocks: int = 10, plan: str = PLAN, cards: str = ""
    ) -> None:
        self.slurm, self.folder = slurm, folder
        (folder / "naps.toml").write_text(plan.format(blocks=blocks))
        words = [sys.executable, "-m", "benchmarker", "nodes", "run", "naps.toml", *options]
        script = folder / "job.sh"
        script.write_text(f"#!/bin/bash\nexport PYTHONPATH={shlex.quote(str(toy))}{cards}\nexec {shlex.join(words)}\n")
        sbatch = ["sbatch", "--parsable", "--nodes=4", "--ntasks-per-node=1", "--exclusive", "--no-requeue"]
        self.number = slurm.run(*sbatch, f"--chdir={folder}", f"--output={folder}/log", str(script))

    def state(self, node: str) -> dict[str, Any]:
        found = list(self.folder.glob(f"results/*/{node}/node.json"))
        return json.loads(found[0].read_text()) if found else {"done": 0}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def none_left(self) -> None:
        deadline = time.monotonic() + 30
        while left := self.slurm.left():
            assert time.monotonic() < deadline, left
            time.sleep(0.2)


def test_all_nodes_of_a_job_are_measured_at_once(slurm: Slurm, toy_folder: Path, tmp_path: Path) -> None:
    job = Job(slurm, tmp_path, toy_folder, "--rounds=2", "--no-repeat", "--json")
    slurm.wait(job.number, "COMPLETED", "FAILED", limit_s=120)
    states = [job.state(f"node{number}") for number in (1, 2, 3, 4)]
    assert [(state["done"], state["error"]) for state in states] == [(2, "")] * 4, job.log
    records = [json.loads(path.read_text()) for path in tmp_path.glob("results/*/node?/*/2*.json")]
    assert len(records) == 8
    for record in records:
        assert record["allocation"]["job"] == job.number
        assert len(record["allocation"]["nodes"]) == 1
    latest_start = max(state["started_at"] for state in states)
    assert all(state["ended_at"] >= latest_start for state in states)
    job.none_left()


def test_all_devices_and_all_links_of_a_job_are_measured(slurm: Slurm, toy_folder: Path, tmp_path: Path) -> None:
    """Each node has two cards, each by itself; links are between the processors of neighbours."""
    options = ("--rounds=1", "--no-repeat", "--json")
    job = Job(slurm, tmp_path, toy_folder, *options, plan=BOTH, cards=" TOY_CARD=GPU-a,GPU-b")
    slurm.wait(job.number, "COMPLETED", "FAILED", limit_s=180)
    for number in (1, 2, 3, 4):
        (file,) = tmp_path.glob(f"results/*/node{number}/*/2*.json")
        case = json.loads(file.read_text())["case"]
        assert (case["problem"], case["devices"], case["independent"], case["nodes"]) == ("team", 2, True, 1)
        ends = [f"node{number}", f"node{number % 4 + 1}"]
        (file,) = tmp_path.glob(f"results/*/{'+'.join(ends)}/*/2*.json")
        record = json.loads(file.read_text())
        assert (record["status"], record["case"]["problem"], record["case"]["nodes"]) == ("ok", "nap", 2), job.log
        assert (record["allocation"]["job"], record["allocation"]["nodes"]) == (job.number, ends)
    job.none_left()


def wait_for_trials(job: Job, number: int, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while min(job.state(f"node{each}")["done"] for each in (1, 2, 3, 4)) < number:
        assert time.monotonic() < deadline, job.log
        time.sleep(0.2)


def test_a_node_that_ends_early_is_named_and_the_others_go_on(slurm: Slurm, toy_folder: Path, tmp_path: Path) -> None:
    """The processes of one node are killed after its first trial."""
    job = Job(slurm, tmp_path, toy_folder, "--rounds=6", "--no-repeat", blocks=50)
    wait_for_trials(job, 1)
    members = [
        process
        for process in slurm.left()
        if "benchmarker.fleet" in process.cmdline() and process.environ().get("SLURMD_NODENAME") == "node2"
    ]
    assert members
    for process in members:
        process.kill()
    assert slurm.wait(job.number, "COMPLETED", "FAILED", limit_s=120)["JobState"] == "FAILED"
    assert "node2: ended early, after " in job.log
    assert "node2 failed, in whole or in part" in job.log
    assert [job.state(f"node{number}")["done"] for number in (1, 3, 4)] == [6] * 3
    job.none_left()


def test_a_cancelled_job_leaves_no_process(slurm: Slurm, toy_folder: Path, tmp_path: Path) -> None:
    job = Job(slurm, tmp_path, toy_folder, "--rounds=30", "--no-repeat", blocks=50)
    wait_for_trials(job, 1)
    slurm.run("scancel", job.number)
    job.none_left()
    assert all(job.state(f"node{number}")["done"] < 30 for number in (1, 2, 3, 4))
