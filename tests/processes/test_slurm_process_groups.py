"""Process groups over several nodes of a real Slurm: the ranks make one record, and nothing is left at any end."""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import nvml
from support.cards import Card, Constant, write
from support.slurm import Slurm, running
from support.toy import ENTRY_POINTS, TOY, install

pytestmark = pytest.mark.slow

PLAN = """
problem = "{problem}"
framework = "{framework}"
device = "cpu"
trials = 1
devices = 4
{settings}
[measuring]
power = "none"
blocks = {blocks}
seconds = 300
"""
GPT2 = 'mode = "training"\nprecision = "fp64"\nn_layer = 1\nd_model = 32\nn_head = 4\nvocab_size = 53\nseq_len = 8\n'
GPT2 += "batch_size = 8\nnodes = 2\n"
POWER = """
problem = "nap"
framework = "toy"
device = "cuda"
trials = 1
devices = 2
nodes = 2
[measuring]
power = "nvml"
power_idle = 1
power_min = 3
"""
LINES = """
import json, sys
from pathlib import Path
from benchmarker import Case
from benchmarker.agent.remote import Agents
from benchmarker.hooks.launchers import allocation, load_launcher
from benchmarker.machine.description import installed
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import Described, Task

folder = Path(sys.argv[1])
case = Case(problem="nap", framework="toy", device="cpu", params={}, devices=4, nodes=2, ranks=4)
agents = Agents(load_launcher("slurm"), allocation(), installed())
lengths = []


def on_event(rank, event):
    lengths.append(len(event.info.name) if isinstance(event, Described) else 0)


for number in range(5):
    with agents.on(allocation().nodes) as found:
        for at, node in enumerate(found):
            ranks = (2 * at, 2 * at + 1)
            tasks = [Task(kind="describe", framework="toy", cases=(case,), rank=rank) for rank in ranks]
            node.start(tasks, [folder / f"{number}.{rank}.log" for rank in ranks], on_event)
        listen(found, float("inf"), lambda: all(node.has_ended for node in found))
    print([(rank.status, rank.fault) for node in found for rank in node.ranks.values()], flush=True)
agents.close()
(folder / "lengths.json").write_text(json.dumps(sorted(lengths)))
"""
"""Four ranks on two nodes tell something long at the same time, five times."""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with running(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture
def none_left(slurm: Slurm) -> Iterator[Callable[[], None]]:
    """Waits until no process of a job is left, nor what waits for its end; so does the end of each test."""

    def wait() -> None:
        deadline = time.monotonic() + 60  # an agent of a node that Slurm has lost ends after 45 s
        while left := slurm.left():
            assert time.monotonic() < deadline, left
            time.sleep(0.2)

    yield wait
    slurm.run("scancel", f"--user={getpass.getuser()}")
    wait()


@pytest.fixture
def submit(slurm: Slurm, program: Any, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Submits a plan to two nodes; what it told, with the folder as a path."""

    def call(
        *options: str, problem: str = "nap", framework: str = "toy", settings: str = "", blocks: int = 10
    ) -> dict[str, Any]:
        text = PLAN.format(problem=problem, framework=framework, settings=settings, blocks=blocks)
        (tmp_path / "plan.toml").write_text(text)
        words = [word for option in options for word in ("-o", option)]
        done = program("submit", "plan.toml", "--launcher=slurm", "--nodes=2", *words, "--json", env=slurm.env)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return {**told, "folder": tmp_path / told["folder"]}

    return call


def records(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(job["folder"].glob("2*.json"))]


def begun(job: dict[str, Any]) -> list[str]:
    """The nodes of a job, whose ranks have had time to come to their timed part."""
    deadline = time.monotonic() + 60
    while len(list(job["folder"].glob("*.rank3.log"))) < 1:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(3)
    found: list[str] = json.loads((job["folder"] / "attempt-0.json").read_text())["allocation"]["nodes"]
    return found


def told(program: Any, slurm: Slurm, job: dict[str, Any]) -> dict[str, Any]:
    """What `jobs` says about the run."""
    (found,) = json.loads(program("jobs", str(job["folder"]), "--json", env=slurm.env).stdout)
    return found


@pytest.mark.parametrize(
    ("problem", "framework", "settings"), [("nap", "toy", "nodes = 2"), ("gpt2", "torch", GPT2), ("gpt2", "jax", GPT2)]
)
def test_two_nodes_with_two_devices_each_make_one_record(
    slurm, submit, program, none_left, problem, framework, settings
) -> None:
    if framework != "toy":
        pytest.importorskip(framework)
    job = submit("time=5", problem=problem, framework=framework, settings=settings)
    state = slurm.wait(job["job"], "COMPLETED", "FAILED", limit_s=280)["JobState"]
    assert state == "COMPLETED", (job["folder"] / "job.log").read_text()
    (record,) = records(job)
    nodes = record["allocation"]["nodes"]
    assert len(nodes) == 2
    assert [rank["node"] for rank in record["ranks"]] == ([0, 1] if framework == "jax" else [0, 0, 1, 1])
    assert sorted(device for rank in record["ranks"] for device in rank["devices"]) == [0, 1, 2, 3]
    assert len(record["machines"]) == 2
    if framework != "toy":
        assert record["check"]["error"] <= 1e-12
    path = next(job["folder"].glob("2*.json"))
    shown = program("show", str(path)).stdout
    assert f"on {nodes[0]}" in shown
    assert f"on {nodes[1]}" in shown
    assert program("validate", str(job["folder"])).returncode == 0
    none_left()


def test_the_energy_of_two_nodes_is_the_sum_of_what_their_own_agents_read(slurm, program, tmp_path, none_left) -> None:
    """Each node has a card of 100 W; the agents find it, as they run in the job's environment."""
    write(tmp_path / "cards", [Card(uuid="GPU-a", curve=Constant(100.0), counter_update_s=0.001)])
    played = nvml.environment(tmp_path / "cards")
    played["LD_LIBRARY_PATH"] += f":{slurm.env.get('LD_LIBRARY_PATH', '')}"  # none if Slurm is installed
    env = {**slurm.env, **played, "TOY_CARD": "GPU-a"}
    (tmp_path / "plan.toml").write_text(POWER)
    words = ("submit", "plan.toml", "--launcher=slurm", "--nodes=2", "-o", "time=5", "--json")
    done = program(*words, env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    job = {**told, "folder": tmp_path / told["folder"]}
    state = slurm.wait(job["job"], "COMPLETED", "FAILED", limit_s=280)["JobState"]
    assert state == "COMPLETED", (job["folder"] / "job.log").read_text()
    (record,) = records(job)
    energy = record["energy"]
    measured = [each for each in energy["sensors"] if each["measured"]]
    assert [each["node"] for each in measured] == [0, 1]
    windows_s = [(each["end_ns"] - each["begin_ns"]) / 1e9 for each in measured]
    assert min(windows_s) >= sum(record["blocks"]["duration_ns"]) / 1e9
    assert energy["energy_J"] == pytest.approx(100 * sum(windows_s), rel=1e-3)
    assert energy["idle_W"] == pytest.approx(200, abs=1)
    assert program("validate", str(job["folder"])).returncode == 0
    none_left()


def test_each_of_several_jobs_has_the_cases_of_as_many_nodes(slurm, program, none_left, tmp_path) -> None:
    zips = "[[zip]]\nnodes = [1, 2]\ndevices = [2, 4]\n"
    text = PLAN.replace("devices = 4\n", "").format(problem="nap", framework="toy", settings="", blocks=10) + zips
    (tmp_path / "plan.toml").write_text(text)
    done = program("submit", "plan.toml", "--launcher=slurm", "--nodes=2,1", "-o", "time=5", "--json", env=slurm.env)
    assert done.returncode == 0, done.stderr
    jobs = json.loads(done.stdout)
    for job, nodes in zip(jobs, (2, 1), strict=True):
        slurm.wait(job["job"], "COMPLETED", limit_s=280)
        folder = tmp_path / job["folder"]
        found = [json.loads(path.read_text()) for path in folder.glob("2*.json")]
        assert [(each["case"]["nodes"], each["case"]["devices"]) for each in found] == [(nodes, 2 * nodes)]
        assert len(found[0]["allocation"]["nodes"]) == nodes
        assert program("validate", str(folder)).returncode == 0
    assert [run["state"] for run in json.loads(program("jobs", "--json", env=slurm.env).stdout)] == ["done", "done"]
    none_left()


def test_a_run_in_an_allocation_of_two_nodes_takes_the_first_where_that_is_enough(slurm, submit, none_left) -> None:
    """As many devices as there are cores, which each node has."""
    cores = len(os.sched_getaffinity(0))
    job = submit("time=5", settings="[axes]\nms = [1.0]\n")
    slurm.wait(job["job"], "COMPLETED", "FAILED")
    (record,) = records(job)
    assert record["case"]["nodes"] == (1 if cores >= 4 else 2)


def test_long_lines_of_four_ranks_arrive_whole(slurm, tmp_path, none_left) -> None:
    (tmp_path / "lines.py").write_text(LINES)
    toy = tmp_path / "site"
    framework = TOY["framework.py"].replace('"toy", "1.0"', '"t" * 100_000, "1.0"')
    assert framework != TOY["framework.py"]
    install(toy, "toy", ENTRY_POINTS, TOY | {"framework.py": framework})
    words = f"PYTHONPATH={toy} {sys.executable} {tmp_path / 'lines.py'} {tmp_path}"
    output = f"--output={tmp_path / 'out'}"
    job = slurm.run("sbatch", "--parsable", "--nodes=2", "--ntasks=2", output, f"--wrap={words}")
    slurm.wait(job, "COMPLETED", "FAILED", limit_s=280)
    said = (tmp_path / "out").read_text()
    assert (tmp_path / "lengths.json").exists(), said
    lengths = json.loads((tmp_path / "lengths.json").read_text())
    assert [length for length in lengths if length] == [100_000] * 20
    assert said.splitlines() == [str([(0, "")] * 4)] * 5


def test_a_killed_agent_is_a_lost_node_and_the_job_goes_on(slurm, submit, program, none_left) -> None:
    job = submit("time=5", settings="nodes = 2", blocks=100_000)
    nodes = begun(job)
    agents = [each for each in slurm.left() if "benchmarker.agent" in each.cmdline() and each.name() != "srun"]
    (of_second,) = [each for each in agents if each.environ().get("SLURMD_NODENAME") == nodes[1]]
    of_second.kill()
    slurm.wait(job["job"], "COMPLETED", "FAILED")
    (record,) = records(job)
    error = record["error"]
    assert (error["kind"], error["node"], error["rank"]) == ("node", nodes[1], 2)
    assert error["message"].startswith(f"node {nodes[1]} was lost: its agent ended with status 137")
    assert told(program, slurm, job)["state"] == "stopped"
    none_left()


def test_a_rank_that_lost_its_peer_is_not_blamed_for_a_lost_node(slurm, submit, none_left) -> None:
    """Rank 0 loses its connections to the second node at once; Slurm says nothing of it for minutes."""
    job = submit("time=5", settings="nodes = 2", blocks=100_000)
    nodes = begun(job)
    agents = [each for each in slurm.left() if "benchmarker.agent" in each.cmdline() and each.name() != "srun"]
    (of_second,) = [each for each in agents if each.environ().get("SLURMD_NODENAME") == nodes[1]]
    of_second.parent().kill()  # the daemon of the step, with which the link is gone
    slurm.wait(job["job"], "COMPLETED", "FAILED", limit_s=90)
    (record,) = records(job)
    error = record["error"]
    assert (error["kind"], error["node"], error["rank"], error["stage"]) == ("node", nodes[1], 2, "timed")
    assert error["message"].startswith(f"node {nodes[1]} was lost: its agent ")
    none_left()


@pytest.mark.parametrize("requeue", [False, True])
def test_a_lost_node_is_named_and_its_trial_is_repeated_elsewhere(slurm, submit, program, none_left, requeue) -> None:
    """Slurm notices after some time that the daemon of a node is gone, and ends the job, or starts it again."""
    job = submit("time=5", *(() if requeue else ("no-requeue",)), settings="nodes = 2", blocks=100_000)
    nodes = begun(job)
    slurm.process(nodes[1]).kill()
    try:
        deadline = time.monotonic() + 90
        while not (failed := records(job)):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert (failed[0]["error"]["kind"], failed[0]["error"]["node"]) == ("node", nodes[1])
        assert failed[0]["error"]["rank"] == 2
        assert failed[0]["error"]["message"].startswith(f"node {nodes[1]} was lost, and with it slurm job {job['job']}")
        if requeue:
            while len(told(program, slurm, job)["attempts"]) < 2 or len(records(job)) > 0:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            again = told(program, slurm, job)
            assert set(again["attempts"][1]["allocation"]["nodes"]).isdisjoint({nodes[1]})
            slurm.run("scancel", job["job"])
        else:
            slurm.wait(job["job"], "NODE_FAIL")
            stopped = told(program, slurm, job)
            assert (stopped["state"], stopped["detail"], stopped["done"]) == ("stopped", "node failure", 0)
            assert [each["node"] for each in stopped["failures"]] == [nodes[1]]
        none_left()
    finally:
        slurm.start(nodes[1])


def test_a_cancelled_process_group_leaves_nothing_on_any_node(slurm, submit, none_left) -> None:
    job = submit("time=5", settings="nodes = 2", blocks=100_000)
    begun(job)
    workers = [each for each in psutil.process_iter() if _is_worker(each, slurm)]
    assert len(workers) >= 4
    slurm.run("scancel", job["job"])
    slurm.wait(job["job"], "CANCELLED")
    none_left()
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in workers)
    assert records(job) == []


def _is_worker(process: psutil.Process, slurm: Slurm) -> bool:
    try:
        return "benchmarker.worker" in process.cmdline() and process in slurm.left()
    except psutil.Error:
        return False
