"""Runs as jobs of a real Slurm with four nodes: every trial once, none lost, none doubled, no process left."""

from __future__ import annotations

import getpass
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.slurm import Slurm, running

pytestmark = pytest.mark.slow

PLAN = """
problem = "nap"
framework = "toy"
trials = {trials}
[measuring]
power = "none"
blocks = 10
[axes]
ms = [{ms}, {ms}1]
"""
"""Two cases whose steps sleep for nearly the same time: a trial takes some of these, and the start of a process."""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running(tmp_path_factory.mktemp("slurm")) as made:
        yield made


class Cluster:
    """The command line on a login node of a Slurm."""

    def __init__(self, slurm: Slurm, program: Any, folder: Path) -> None:
        self.slurm, self.program, self.results = slurm, program, folder / "results"
        self.plan = folder / "plan.toml"

    def call(self, *words: str) -> str:
        done = self.program(*words, env=self.slurm.env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, trials: int, *options: str, ms: float = 1.0) -> dict[str, Any]:
        self.plan.write_text(PLAN.format(trials=trials, ms=ms))
        words = [word for option in options for word in ("-o", option)]
        return json.loads(self.call("submit", "plan.toml", "--launcher=slurm", *words, "--json"))

    def job(self) -> dict[str, Any]:
        """What `jobs` says about the one run."""
        (found,) = json.loads(self.call("jobs", "--json"))
        return found

    def records(self) -> list[dict[str, Any]]:
        files = sorted(path for path in self.results.glob("*/*.json") if path.name.startswith("2"))
        return [json.loads(path.read_text()) for path in files]

    def wait_for_records(self, number: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.records()) < number:
            assert time.monotonic() < deadline, [path.read_text() for path in self.results.glob("*/job.log")]
            time.sleep(0.1)

    def wait_for_a_worker(self) -> None:
        """Wait for the log of a trial that has no record yet."""
        deadline = time.monotonic() + 60
        while (
            not {log.stem for log in self.results.glob("*/*.log")} - {"job"} - {r["trial_id"] for r in self.records()}
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def none_left(self) -> None:
        """No process of a job is left, nor what waits for its end."""
        deadline = time.monotonic() + 30
        while left := self.slurm.left():
            assert time.monotonic() < deadline, left
            time.sleep(0.2)


@pytest.fixture
def cluster(slurm: Slurm, program: Any, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(slurm, program, tmp_path)
    yield made
    slurm.run("scancel", f"--user={getpass.getuser()}")
    made.none_left()


def trials_of(records: Sequence[dict[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((record["design"]["case_number"], record["trial"]) for record in records)


def each_once(trials: int) -> Counter[tuple[int, int]]:
    return Counter((case, trial) for case in (0, 1) for trial in range(trials))


def starts_of_rounds(records: Sequence[dict[str, Any]]) -> list[set[tuple[str, str, int]]]:
    """The node of each round, the job, and how often that was restarted."""
    rounds: dict[int, set[tuple[str, str, int]]] = {}
    for record in records:
        allocation = record["allocation"]
        (node,) = allocation["nodes"]
        rounds.setdefault(record["trial"], set()).add((node, allocation["job"], allocation["restarts"]))
    return [rounds[number] for number in sorted(rounds)]


def test_a_plan_runs_as_a_job(cluster: Cluster) -> None:
    submitted = cluster.submit(2, "time=5", "nodelist=node2")
    assert cluster.slurm.wait(submitted["job"], "COMPLETED", "FAILED")["JobState"] == "COMPLETED"
    records = cluster.records()
    assert trials_of(records) == each_once(2)
    assert {record["run_id"] for record in records} == {submitted["run_id"]}
    where = {"launcher": "slurm", "job": submitted["job"], "nodes": ["node2"], "restarts": 0}
    assert [record["allocation"] for record in records] == [where] * 4
    job = cluster.job()
    assert (job["state"], job["done"], job["planned"], job["failures"]) == ("done", 4, 4, [])
    assert [attempt["ending"] for attempt in job["attempts"]] == ["done"]
    cluster.call("validate", "results")
    cluster.none_left()


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("nodelist=node9", "Invalid node name specified"),
        ("mem=1T", "configuration is not available"),
        ("colour=red", "option '--colour=red'"),
    ],
)
def test_what_can_never_start_is_refused_and_nothing_is_left(cluster: Cluster, option: str, complaint: str) -> None:
    cluster.plan.write_text(PLAN.format(trials=1, ms=1.0))
    done = cluster.program("submit", "plan.toml", "--launcher=slurm", "-o", option, env=cluster.slurm.env)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(cluster.results.iterdir()) == []


@pytest.mark.parametrize("partition", ["main", "warned"])
def test_a_preempted_run_goes_on_elsewhere_with_the_cut_round_repeated(cluster: Cluster, partition: str) -> None:
    """Slurm ends the job and puts it back on the queue; or, with a time of grace, it sends the signal alone first.

    It does so within 2 s, in the midst of the fourth trial, of which one takes over 4 s.
    """
    submitted = cluster.submit(2, "exclusive", f"partition={partition}", ms=200.0)
    cluster.wait_for_records(3)
    cluster.wait_for_a_worker()
    (node,) = cluster.records()[0]["allocation"]["nodes"]
    urgent = ["--partition=urgent", "--exclusive", f"--nodelist={node}", "--output=/dev/null", "--wrap=sleep 60"]
    cluster.slurm.run("sbatch", *urgent)
    cluster.slurm.wait(submitted["job"], "PENDING")
    cut = cluster.job()
    assert cut["state"] == "pending"
    assert [attempt["ending"] for attempt in cut["attempts"]] == ["preempted"]
    (failure,) = cut["failures"]
    assert (failure["kind"], failure["nodes"], failure["stage"] != "") == ("preempted", [node], True)
    cluster.slurm.wait(submitted["job"], "COMPLETED", "FAILED")
    records = cluster.records()
    assert trials_of(records) == each_once(2)
    assert {record["status"] for record in records} == {"ok"}
    rounds = starts_of_rounds(records)
    assert [len(places) for places in rounds] == [1] * 2
    assert {restarts for places in rounds for *_, restarts in places} == {0, 1}
    assert {node for places in rounds for node, _, restarts in places if restarts == 1}.isdisjoint({node})
    assert cluster.job()["state"] == "done"
    cluster.call("validate", "results")


def test_before_the_time_limit_what_there_is_is_kept_and_the_run_can_be_submitted_again(cluster: Cluster) -> None:
    """Slurm looks at time limits every 30 s, so that it warns 20 to 50 s after the start; the plan takes longer."""
    submitted = cluster.submit(60, "time=2", "signal=B:TERM@70", ms=100.0)
    cluster.slurm.wait(submitted["job"], "FAILED", "TIMEOUT", limit_s=150)
    kept = cluster.records()
    stopped = cluster.job()
    assert (stopped["state"], stopped["detail"], stopped["done"]) == ("stopped", "time limit", len(kept))
    assert 0 < len(kept) < 120
    cluster.none_left()
    again = json.loads(cluster.call("submit", submitted["folder"], "-o", "time=5", "-o", "signal=B:TERM@60", "--json"))
    assert again["run_id"] == submitted["run_id"]
    cluster.wait_for_records(len(kept) + 3)
    cluster.slurm.run("scancel", again["job"])
    cluster.none_left()
    records = cluster.records()
    assert max(trials_of(records).values()) == 1
    assert {record["allocation"]["job"] for record in records} == {submitted["job"], again["job"]}
    assert {record["trial_id"] for record in kept[: len(kept) // 2 * 2]} <= {record["trial_id"] for record in records}
    assert {len(places) for places in starts_of_rounds(records)} == {1}


def test_a_lost_node_neither_loses_nor_doubles_a_trial(cluster: Cluster) -> None:
    """Slurm starts the job again elsewhere, while what it started before goes on unseen: one of the two yields."""
    submitted = cluster.submit(60, "exclusive", ms=50.0)
    cluster.wait_for_records(2)
    (node,) = cluster.records()[0]["allocation"]["nodes"]
    cluster.slurm.process(node).kill()
    try:
        deadline = time.monotonic() + 90
        while len(cluster.job()["attempts"]) < 2:
            assert time.monotonic() < deadline
            time.sleep(1)
        first, second = (each["allocation"]["nodes"] for each in cluster.job()["attempts"])
        assert first == [node]
        assert second != first
        last = len(cluster.records())
        cluster.wait_for_records(last + 4)
        cluster.slurm.run("scancel", submitted["job"])
        cluster.none_left()
        job, records = cluster.job(), cluster.records()
    finally:
        cluster.slurm.start(node)
    assert [attempt["ending"] for attempt in job["attempts"]] == ["error", "cancelled"]
    assert "has started" in job["attempts"][0]["message"]
    assert max(trials_of(records).values()) == 1
    assert sorted(trials_of(records)) == sorted(set(each_once(60)) & set(trials_of(records)))
    rounds = starts_of_rounds(records)
    assert [len(places) for places in rounds] == [1] * len(rounds)
    assert {restarts for places in rounds for *_, restarts in places} == {0, 1}


def test_a_cancelled_job_leaves_its_records_and_no_process(cluster: Cluster) -> None:
    submitted = cluster.submit(20, ms=50.0)
    cluster.wait_for_records(1)
    cluster.slurm.run("scancel", submitted["job"])
    cluster.slurm.wait(submitted["job"], "CANCELLED")
    cluster.none_left()
    job = cluster.job()
    assert (job["state"], job["detail"], job["failures"]) == ("stopped", "cancelled", [])
    assert job["done"] == len(cluster.records()) > 0


def test_a_run_in_an_allocation_finds_it(cluster: Cluster, toy_folder: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "benchmarker", "run", "--framework=toy", "--problem=nap", "--power=none", "--blocks=2"]
    run.append(f"--results={tmp_path / 'results'}")
    srun = ["env", f"PYTHONPATH={toy_folder}", "srun", "--chdir=/"]
    cluster.slurm.run(*srun, "--nodes=1", "--ntasks=1", "--nodelist=node4", *run, "--devices=2")
    (record,) = cluster.records()
    assert len(record["ranks"]) == 2
    assert (record["allocation"]["launcher"], record["allocation"]["nodes"]) == ("slurm", ["node4"])
    for many in (["--nodes=2"], ["--nodes=1", "--ntasks=2"]):
        with pytest.raises(AssertionError, match="start it once, with srun --ntasks=1"):
            cluster.slurm.run(*srun, *many, *run)
    assert len(cluster.records()) == 1


def test_a_program_may_be_what_srun_starts_on_several_nodes(cluster: Cluster) -> None:
    program = ["srun", "--overlap", "--nodes=2", "--ntasks=3", "sleep", "2"]
    words = [sys.executable, "-m", "benchmarker", "run", "--power=none", f"--results={cluster.results}", "--", *program]
    cluster.slurm.run("sbatch", "--wait", "--nodes=2", "--ntasks=4", "--chdir=/", "--output=/dev/null", wrapped(words))
    (record,) = cluster.records()
    figures = {figure["name"]: figure["values"] for figure in record["figures"]}
    assert (figures["launched_ranks"], figures["launched_nodes"]) == ([3.0], [2.0])


def wrapped(words: Sequence[str]) -> str:
    return f"--wrap={shlex.join(words)}"
