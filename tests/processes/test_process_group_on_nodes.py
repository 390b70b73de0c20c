"""Process groups over several nodes, which are all this machine: an agent on each starts its ranks."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from support.rack import install_rack, left_of, none_left
from support.records import EXCHANGED
from support.toy import install

TOY = ("run", "--framework=toy", "--problem=nap", "--power=none", "--devices=4", "--nodes=2")
EXCHANGE = (
    "run",
    "--framework=jax",
    "--problem=collective",
    "--device=cpu",
    "--power=none",
    "--devices=4",
    "--nodes=2",
)
NAP_IN_JAX = """
    import os, signal, sys, time
    import jax, numpy as np
    from jax.sharding import PartitionSpec
    from benchmarker import Support, Workload, hookimpl
    from benchmarker_plugins.frameworks.jax import AXIS

    @hookimpl
    def describe_workload():
        return Support({"inference": ("fp32",)}, parallel=("none",))

    @hookimpl
    def build_workload(framework, problem, data):
        numbers = framework.divided(np.arange(4.0), PartitionSpec(AXIS))
        total = jax.jit(lambda x: x.sum())
        is_faulty = jax.process_index() == int(os.environ["TOY_RANK"])
        small, taken = len(data.batches) == 3, 0

        def step():
            nonlocal taken
            taken += 1
            if is_faulty and not small and taken > problem.after:
                if problem.fault == "raise": raise ValueError("told to fail")
                if problem.fault == "exit":
                    print("last words", file=sys.stderr, flush=True)
                    os._exit(3)
                if problem.fault == "kill": os.kill(os.getpid(), signal.SIGKILL)
                if problem.fault == "stop": os.kill(os.getpid(), signal.SIGSTOP)
                if problem.fault == "hang": time.sleep(600)
            return total(numbers)

        def outputs(result):
            error = float(result) - 6 + (problem.fault == "wrong" and is_faulty)
            return {f"x{number or ''}": data.batches[0]["x"] + number + error for number in framework.own}

        return Workload(step, outputs)
"""
"""A step in which all devices take part; one process has a fault."""
GPT2 = (
    "run",
    "--problem=gpt2",
    "--device=cpu",
    "--mode=training",
    "--precision=fp64",
    "--n-layer=1",
    "--d-model=32",
    "--n-head=4",
    "--vocab-size=53",
    "--seq-len=8",
    "--batch-size=8",
    "--power=none",
    "--blocks=2",
    "--devices=4",
    "--nodes=2",
)


@pytest.fixture
def rack(tmp_path_factory, monkeypatch, toy_folder):
    """The folder of the launcher; its allocation has the nodes left and right, of which this process is on the left."""
    folder = tmp_path_factory.mktemp("rack")
    install_rack(folder)
    monkeypatch.setenv("RACK_NODES", "left,right")
    monkeypatch.setenv("RACK_HERE", "left")
    return folder


@pytest.fixture
def run(rack, toy_folder, tmp_path, monkeypatch):
    """Runs the command line in a process of its own, in the allocation."""

    def start(*words, env=None):
        path = os.pathsep.join(map(str, (toy_folder, rack)))
        return subprocess.run(
            [sys.executable, "-m", "benchmarker", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return start


def one(done):
    (record,) = json.loads(done.stdout)
    return record


@pytest.mark.slow
def test_the_ranks_of_all_nodes_make_one_record_and_all_trials_take_one_step_a_node(run, rack, tmp_path):
    script = tmp_path / "count"
    script.write_text(f'#!/bin/sh\necho "$RACK_NODE" >>{tmp_path}/steps\nexec "$@"\n')
    script.chmod(0o755)
    counted = {f"RACK_BEFORE_{node}": str(script) for node in ("left", "right")}
    done = run(*TOY, "--ms=2", "--blocks=4", "--trials=2", "--json", env=counted)
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "steps").read_text().split()) == ["left", "right"]
    record, _ = json.loads(done.stdout)
    assert (record["case"]["devices"], record["case"]["nodes"], record["case"]["ranks"]) == (4, 2, 4)
    assert [(rank["rank"], rank["node"]) for rank in record["ranks"]] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    durations = [rank["duration_ns"] for rank in record["ranks"]]
    assert record["blocks"]["duration_ns"] == [max(block) for block in zip(*durations, strict=True)]
    steps = record["blocks"]["steps_per_block"]
    assert all(min(each) >= steps * 2e6 * (1 + number) for number, each in enumerate(durations))
    assert record["allocation"]["nodes"] == ["left", "right"]
    assert [machine["host"] for machine in record["machines"]] == [socket.gethostname()] * 2
    assert record["machine"] == record["machines"][0]
    assert record["reasons"]["energy"] == "no meter was read (--power=none)"
    assert "--devices=4 --nodes=2" in record["command"]
    assert sum(record["harness"]["stages_s"].values()) <= record["harness"]["wall_s"]
    path = f"results/{record['run_id']}/{record['trial_id']}.json"
    assert run("validate", path).returncode == 0
    (line,) = [line for line in run("show", path).stdout.splitlines() if line.startswith("ranks")]
    assert re.findall(r" on (\w+)", line) == ["left", "left", "right", "right"]
    none_left(rack)


@pytest.mark.slow
def test_devices_are_spread_over_as_few_nodes_as_have_them(run):
    """Each node has the cores of this machine."""
    cores = len(os.sched_getaffinity(0))
    for devices, nodes in ((2 * cores, 2), (cores, 1)):
        words = [word for word in TOY if not word.startswith(("--devices", "--nodes"))]
        record = one(run(*words, f"--devices={devices}", "--blocks=2", "--json"))
        assert (record["case"]["devices"], record["case"]["nodes"]) == (devices, nodes)
        assert {rank["node"] for rank in record["ranks"]} == set(range(nodes))
        assert len(record["machines"]) == (nodes if nodes > 1 else 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("raise", "exception", "rank 2 on right: ValueError: told to fail"),
        ("exit", "exception", "rank 2 on right: the worker ended with status 3: last words"),
        ("kill", "killed", "rank 2 on right: the worker was ended by SIGKILL; the system may have run out of memory"),
        ("hang", "timeout", "not finished after 6 s (rank 2 on right in step (nap_toy.py:"),
        ("wrong", "check", "wrong result: x2 is off by "),
    ],
)
def test_a_failure_of_one_rank_ends_all_and_is_named_with_its_node(run, rack, fault, kind, message):
    done = run(*TOY, f"--fault={fault}", "--after=20", "--timeout=6s", "--json", env={"TOY_RANK": "2"})
    assert done.returncode == 1, done.stderr
    error = one(done)["error"]
    assert error["kind"] == kind
    assert error["message"].startswith(message)
    assert (error["rank"], error["node"]) == ((None, None) if kind == "check" else (2, "right"))
    none_left(rack)


@pytest.mark.slow
def test_a_rank_that_sends_what_is_not_valid_is_named_and_no_node_is_lost(run, rack):
    done = run(*TOY, "--devices=2", "--json", env={"TOY_INVALID": "1"})
    error = one(done)["error"]
    assert (error["kind"], error["rank"], error["node"]) == ("exception", 1, "right")
    assert "the worker sent what is not valid: " in error["message"]
    none_left(rack)


def started(rack, toy_folder, tmp_path, *words, case=TOY):
    path = os.pathsep.join(map(str, (toy_folder, rack)))
    default = ("env", "--default-signal=INT")  # which a shell ignores in the background
    return subprocess.Popen(
        [*default, sys.executable, "-m", "benchmarker", *case, "--blocks=100000", "--seconds=100", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_ranks(rack, tmp_path, number=4):
    """Wait until the ranks have had time to come to their timed part; returns the agents by node."""
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("results/*/*.log"))) < number:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2)
    agents = [each for each in left_of(rack) if "benchmarker.agent" in each.cmdline()]
    return {each.environ()["RACK_NODE"]: each for each in agents}


@pytest.mark.slow
def test_a_killed_agent_is_a_lost_node(rack, toy_folder, tmp_path):
    with started(rack, toy_folder, tmp_path, "--json") as process:
        agents = wait_for_ranks(rack, tmp_path)
        assert sorted(agents) == ["left", "right"]
        agents["right"].kill()
        out, _ = process.communicate(timeout=40)
    error = json.loads(out)[0]["error"]
    assert (error["kind"], error["node"], error["rank"], error["exit"]) == ("node", "right", 2, None)
    assert error["message"] == "node right was lost: its agent was ended by SIGKILL"
    none_left(rack)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lost", "messages"),
    [
        ("right", ["node right was lost, and with it rack job 7 on left, right"]),
        (
            "",
            [
                "node right was lost: its agent was ended by SIGKILL",
                "node right was lost: its agent ended with status 5: no such node",
            ],
        ),
    ],
    ids=["known", "refused"],
)
def test_a_run_stops_when_nothing_can_be_started_on_a_lost_node(
    rack, toy_folder, tmp_path, monkeypatch, lost, messages
):
    """Either the launcher knows that it is lost, or it starts nothing there any more."""
    script = tmp_path / "once"
    script.write_text(f'#!/bin/sh\nmkdir {tmp_path}/started && exec "$@"\necho "no such node" >&2\nexit 5\n')
    script.chmod(0o755)
    monkeypatch.setenv("RACK_BEFORE_right", str(script))
    monkeypatch.setenv("RACK_LOST", lost)
    with started(rack, toy_folder, tmp_path, "--trials=3") as process:
        wait_for_ranks(rack, tmp_path)["right"].kill()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    stored = "1 of 3 trials is" if messages[1:] else "0 of 3 trials are"
    assert f"{messages[-1]}: {stored} stored in " in said
    errors = [json.loads(path.read_text())["error"] for path in sorted(tmp_path.glob("results/*/2*.json"))]
    assert [(error["kind"], error["node"], error["rank"]) for error in errors] == [("node", "right", 2)] * len(messages)
    assert [error["message"] for error in errors] == messages
    none_left(rack)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("raise", "exception", "rank {at}: ValueError: told to fail"),
        ("exit", "exception", "rank {at}: the worker ended with status 3: last words"),
        ("kill", "killed", "rank {at}: the worker was ended by SIGKILL; the system may have run out of memory"),
        ("hang", "timeout", r"not finished after \d+ s \(rank {at} in step \(nap.py:"),
        ("stop", "timeout", r"not finished after \d+ s \(rank {at} did not answer; "),
        ("wrong", "check", r"wrong result: x{output} is off by "),
    ],
)
def test_a_failure_of_a_process_of_jax_ends_all_and_is_named_with_its_node(run, rack, fault, kind, message, rank):
    """The others wait in an exchange, lose their connection, or are aborted with the service that rank 0 has."""
    pytest.importorskip("jax")
    install(rack, "jax_nap", {"workload.nap.jax": "jax_nap.nap"}, {"__init__.py": "", "nap.py": NAP_IN_JAX})
    words = ["--framework=jax" if word == "--framework=toy" else word for word in TOY]
    done = run(*words, f"--fault={fault}", "--after=20", "--timeout=18s", "--json", env={"TOY_RANK": str(rank)})
    assert done.returncode == 1, done.stderr
    error, node = one(done)["error"], ("left", "right")[rank]
    assert error["kind"] == kind
    assert re.match(message.format(at=f"{rank} on {node}", output="2?" if rank else "1?"), error["message"])
    assert (error["rank"], error["node"]) == ((None, None) if kind == "check" else (rank, node))
    none_left(rack)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("case", "ranks"), [(TOY, 4), (EXCHANGE, 2)], ids=["toy", "jax"])
def test_nothing_is_left_when_the_parent_ends(rack, toy_folder, tmp_path, number, case, ranks):
    if case is EXCHANGE:
        pytest.importorskip("jax")
    with started(rack, toy_folder, tmp_path, case=case) as process:
        assert len(wait_for_ranks(rack, tmp_path, ranks)) == 2
        process.send_signal(number)
        process.communicate(timeout=40)
    none_left(rack)


def test_a_launcher_that_refuses_to_start_an_agent_stops_the_run_and_no_node_is_lost(run, rack, tmp_path):
    script = tmp_path / "refuse"
    script.write_text('#!/bin/sh\necho "error: step limit reached" >&2\nexit 3\n')
    script.chmod(0o755)
    done = run(*TOY, "--trials=3", env={"RACK_BEFORE_right": str(script)})
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert line.endswith(
        "nothing can be started on node right: its agent ended with status 3: error: step limit reached; "
        "fix this, then continue with --resume"
    )
    assert list(tmp_path.glob("results/*/2*.json")) == []
    none_left(rack)


@pytest.mark.slow
def test_what_a_site_writes_before_a_program_disturbs_nothing(run, rack, tmp_path):
    script = tmp_path / "greet"
    script.write_text('#!/bin/sh\necho "Welcome to this node"\nexec "$@"\n')
    script.chmod(0o755)
    done = run(*TOY, "--blocks=2", "--json", env={"RACK_BEFORE_right": str(script)})
    assert done.returncode == 0, done.stderr


def test_a_probe_leaves_out_what_needs_several_nodes(run, tmp_path):
    (tmp_path / "plan.toml").write_text(
        'problem = "nap"\nframework = "toy"\ndevices = 2\ntrials = 1\n[measuring]\npower = "none"\nblocks = 2\n'
        "[axes]\nnodes = [1, 2]\n"
    )
    done = run("plan", "show", "plan.toml", "--probe", "--json")
    assert done.returncode == 0, done.stderr
    assert [case["nodes"] for case in json.loads(done.stdout)["cases"]] == [1, 2]


@pytest.mark.slow
def test_each_device_of_all_nodes_can_be_measured_by_itself(run):
    words = [word for word in TOY if not word.startswith("--problem")]
    record = one(run(*words, "--problem=nap", "--independent", "--blocks=2", "--json"))
    assert record["status"] == "ok"
    assert [rank["node"] for rank in record["ranks"]] == [0, 0, 1, 1]
    assert sorted(set(record["local"]["alone_device"])) == [0, 1, 2, 3]


def test_software_that_differs_on_a_node_is_refused_in_one_line(run, rack, tmp_path):
    info = tmp_path / "other" / "left_over-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: left-over\nVersion: 2.0\n")
    script = tmp_path / "other" / "run"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{info.parent}" exec "$@"\n')
    script.chmod(0o755)
    done = run(*TOY, env={"RACK_BEFORE_right": str(script)})
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert line.endswith(
        "the software of node right is not that of left: left-over none → 2.0; install the same on both"
    )
    assert list(tmp_path.glob("results/*/2*.json")) == []
    none_left(rack)


@pytest.mark.parametrize(
    ("words", "env", "message"),
    [
        (TOY, {"RACK_NODES": "left"}, "--nodes=2: job 7 has 1 node (left); ask for more"),
        (TOY, {"RACK_NODES": ""}, "--nodes=2: not inside a launcher's allocation; use `submit --nodes=2`"),
        ((*TOY[:-1], "--nodes=3"), {"RACK_NODES": "a,b,c"}, "--devices=4 cannot be spread evenly over 3 nodes"),
        ((*TOY, "--profile"), {}, "--profile cannot be used on 2 nodes; omit it, or use --nodes=1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(run, tmp_path, words, env, message):
    done = run(*words, env=env)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists()


DEVICES = {"torch": [[0], [1], [2], [3]], "jax": [[0, 1], [2, 3]]}
"""Those of each rank of four devices on two nodes."""


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "parallel"), [("torch", "dp"), ("jax", "dp"), ("jax", "fsdp"), ("jax", "tp")])
def test_the_losses_over_nodes_are_those_of_one_device(run, rack, framework, parallel):
    """The check trains three steps, and compares the losses with those of the float64 reference, on one device."""
    pytest.importorskip(framework)
    record = one(run(*GPT2, f"--framework={framework}", f"--parallel={parallel}", "--json"))
    assert (record["error"], record["case"]["parallel"], len(record["machines"])) == (None, parallel, 2)
    assert [rank["devices"] for rank in record["ranks"]] == DEVICES[framework]
    assert [rank["node"] for rank in record["ranks"]] == [rank[0] // 2 for rank in DEVICES[framework]]
    assert record["check"]["ok"]
    assert record["check"]["error"] <= 1e-12
    if parallel == "dp":
        assert {len(each) for each in record["local"]["together_ns"]} == {4}
        assert {len(each) for each in record["local"]["synchronised_ns"]} == {len(record["ranks"])}
    none_left(rack)


@pytest.mark.slow
def test_an_exchange_between_the_devices_of_jax_on_two_nodes_is_right(run, rack):
    """The bound is 0: every element on every device of both nodes must be equal to NumPy's."""
    pytest.importorskip("jax")
    record = one(run(*EXCHANGE, "--op=all_to_all", "--bytes=4096", "--blocks=3", "--json"))
    assert record["check"] == EXCHANGED
    assert [(rank["node"], rank["devices"]) for rank in record["ranks"]] == [(0, [0, 1]), (1, [2, 3])]
    durations = [rank["duration_ns"] for rank in record["ranks"]]
    assert record["blocks"]["duration_ns"] == [max(block) for block in zip(*durations, strict=True)]
    none_left(rack)


@pytest.mark.slow
def test_pytorch_reaches_another_address_than_loopback(run):
    """That of the interface by which this machine reaches others, as nodes do."""
    pytest.importorskip("torch")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        try:
            way.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no other address")
        own = way.getsockname()[0]
    assert not own.startswith("127.")
    record = one(run(*GPT2, "--framework=torch", "--json", env={"RACK_ADDRESS": own}))
    assert record["error"] is None
    names = [name for name, found in psutil.net_if_addrs().items() if any(each.address == own for each in found)]
    assert names
    assert record["check"]["error"] <= 1e-12


@pytest.mark.slow
def test_a_plan_states_the_nodes_and_they_are_an_axis(run, tmp_path):
    (tmp_path / "plan.toml").write_text(
        'problem = "nap"\nframework = "toy"\ndevices = 4\ntrials = 1\n[measuring]\npower = "none"\nblocks = 2\n'
        "[axes]\nnodes = [1, 2]\n"
    )
    done = run("plan", "run", "plan.toml", "--json")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert sorted((each["case"]["nodes"], len(each["machines"])) for each in records) == [(1, 0), (2, 2)]
