"""A process group: one trial of several ranks, each a process; here they are the toy's, which communicate nothing."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from benchmarker.worker import channel
from benchmarker.worker.protocol import Address

RUN = ("run", "--framework=toy", "--problem=nap", "--power=none", "--devices=3")


def children():
    """The processes that this one has started; other tests may have left some, such as a tracker of resources."""
    return set(psutil.Process().children())


def one(done):
    (record,) = json.loads(done.stdout)
    return record


def test_the_slowest_rank_counts_and_every_rank_is_recorded(cli):
    """Rank r of the toy sleeps 1 + r times as long."""
    done = cli(*RUN, "--ms=2", "--blocks=4", "--json")
    assert done.returncode == 0, done.stderr
    record = one(done)
    assert (record["case"]["devices"], record["case"]["ranks"]) == (3, 3)
    assert "--devices=3" in record["command"]
    ranks = record["ranks"]
    assert [(rank["rank"], rank["devices"]) for rank in ranks] == [(0, [0]), (1, [1]), (2, [2])]
    durations = [rank["duration_ns"] for rank in ranks]
    assert record["blocks"]["duration_ns"] == [max(block) for block in zip(*durations, strict=True)]
    steps = record["blocks"]["steps_per_block"]
    for number, each in enumerate(durations):
        assert len(each) == 4
        assert min(each) >= steps * 2e6 * (1 + number)
    memory = [rank["memory"]["host_peak_rss_bytes"] for rank in ranks]
    assert record["memory"]["host_peak_rss_bytes"] == sum(memory)
    assert min(memory) > 10e6
    assert record["energy"] is None
    assert record["reasons"]["energy"] == "no meter was read (--power=none)"


@pytest.mark.slow
def test_a_preheat_and_a_precision_are_decided_by_one_rank(cli):
    done = cli(*RUN, "--ms=30", "--preheat", "--preheat-max=3s", "--median-precision=0.5", "--blocks=60", "--json")
    assert done.returncode == 0, done.stderr
    record = one(done)
    assert record["preheat"]["steps"] > 5
    assert record["blocks"]["stopped_by"] == "median_precision"
    assert {len(rank["duration_ns"]) for rank in record["ranks"]} == {len(record["blocks"]["duration_ns"])}


def test_each_rank_is_shown(cli):
    record = one(cli(*RUN, "--ms=2", "--blocks=3", "--json"))
    shown = cli("show", f"results/{record['run_id']}/{record['trial_id']}.json").stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("ranks")]
    found = [float(value) for value in re.findall(r"([\d.]+) ms", line)]
    assert len(found) == 3
    assert found[0] < found[1] < found[2]
    assert found[0] >= 2


def test_a_number_of_devices_is_an_axis(cli):
    done = cli("sweep", *RUN[1:-1], "--axis=devices=1,2", "--trials=1", "--blocks=2", "--json")
    assert done.returncode == 0, done.stderr
    assert sorted((each["case"]["devices"], len(each["ranks"])) for each in json.loads(done.stdout)) == [(1, 0), (2, 2)]
    shown = cli("show", "results")
    assert "1 device" in shown.stdout
    assert "2 devices" in shown.stdout


def test_one_device_is_no_process_group(cli):
    record = one(cli(*RUN[:-1], "--blocks=2", "--json"))
    assert (record["case"]["devices"], record["case"]["ranks"], record["ranks"]) == (1, 1, [])


@pytest.mark.parametrize(
    ("fault", "kind", "stage", "message"),
    [
        ("raise", "exception", "timed", "rank 1: ValueError: told to fail"),
        ("late", "exception", "timed", "rank 1: ValueError: told to fail late"),
        ("lost", "exception", "timed", "rank 1: RuntimeError: the toy peer is gone"),
        ("memory", "out_of_memory", "timed", "rank 1: MemoryError: too much"),
        ("exit", "exception", "timed", "rank 1: the worker ended with status 3: last words"),
        ("kill", "killed", "timed", "rank 1: the worker was ended by SIGKILL; the system may have run out of memory"),
        ("term", "killed", "timed", "rank 1: the worker was ended by SIGTERM"),
        ("nan", "check", "verify", "rank 1: the outputs in fp32 at full size contain NaN or infinity"),
        ("bad", "check", "verify", "rank 1: wrong result at full size: told to be bad"),
        ("wrong", "check", "check", "wrong result: x1 is off by "),
        ("shape", "exception", "check", "rank 1: RuntimeError: an output has shape (3,), but the reference has (2,)"),
    ],
)
def test_a_failure_of_one_rank_ends_all_and_is_named(cli, fault, kind, stage, message):
    start, before = time.monotonic(), children()
    done = cli(*RUN, f"--fault={fault}", "--after=20", "--blocks=5", "--timeout=60s", "--json", env={"TOY_RANK": "1"})
    assert time.monotonic() - start < 30
    assert done.returncode == 1
    error = one(done)["error"]
    assert (error["kind"], error["stage"]) == (kind, stage)
    assert error["message"].startswith(message)
    assert kind == "check" or error["rank"] == int(message[5])
    assert children() == before


def test_a_rank_with_lines_of_a_megabyte_disturbs_no_other(cli, tmp_path):
    done = cli(*RUN, "--fault=loud", "--blocks=2", "--json", env={"TOY_RANK": "1"})
    assert done.returncode == 0, done.stderr
    assert len(one(done)["ranks"]) == 3
    (log,) = tmp_path.glob("results/*/*.rank1.log")
    assert 1_000_000 < log.stat().st_size < 9 * 2**20
    assert log.read_bytes().endswith(b"more bytes are left out]\n")


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_and_its_stack_is_kept(cli, tmp_path):
    start, before = time.monotonic(), children()
    done = cli(*RUN, "--fault=hang", "--after=20", "--timeout=5s", "--json", env={"TOY_RANK": "2"})
    assert time.monotonic() - start < 30
    assert done.returncode == 1
    error = one(done)["error"]
    assert (error["kind"], error["rank"]) == ("timeout", 2)
    assert error["message"].startswith("not finished after ")
    assert "(rank 2 in step (nap_toy.py:" in error["message"]
    assert "; ranks 0, 1 waiting); allow more time with --timeout" in error["message"]
    (log,) = tmp_path.glob("results/*/*.rank2.log")
    assert "nap_toy.py" in log.read_text()
    assert children() == before


@pytest.mark.slow
def test_a_rank_that_is_stopped_is_named(toy_folder, tmp_path):
    with started(toy_folder, tmp_path, "--timeout=6s", "--json") as run:
        *_, last = sorted(workers(run.pid), key=lambda worker: worker.pid)
        last.suspend()
        try:
            out, _ = run.communicate(timeout=40)
        finally:
            run.kill()
    error = json.loads(out)[0]["error"]
    assert error["kind"] == "timeout"
    assert f"rank {error['rank']} did not answer" in error["message"]
    assert not last.is_running()


def started(toy_folder, tmp_path, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarker", *RUN, "--blocks=100000", "--seconds=100", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(toy_folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers(pid):
    """The three ranks of a run that has had time to come to its timed part; each is the child of a guard."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        guards = [each for each in psutil.Process(pid).children() if time.time() - each.create_time() > 2]
        ranks = [rank for guard in guards for rank in guard.children()]
        if len(ranks) == 3:
            return ranks
        time.sleep(0.1)
    raise AssertionError("no process group was seen")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_process_group_whose_parent_ends(toy_folder, tmp_path, number):
    with started(toy_folder, tmp_path) as run:
        ranks = workers(run.pid)
        run.send_signal(number)
        try:
            run.communicate(timeout=30)
        finally:
            run.kill()
    _, alive = psutil.wait_procs(ranks, timeout=10)
    assert alive == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--framework=toy", "--problem=nap", "--devices=100000"), "is split into at most"),
        (("--framework=toy", "--problem=chat", "--devices=2"), "chat in toy computes on one device; omit --devices=2"),
        (("--framework=numpy", "--problem=gemm", "--devices=2"), "numpy computes on one device; omit --devices=2"),
    ],
)
def test_what_no_process_group_can_do_is_refused_before_anything_runs(cli, tmp_path, words, message):
    done = cli("run", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists()


def profiled(cli, profiler, *words):
    words = ("--blocks=2", "--profile", "--profile-steps=4", *words)
    return cli(*RUN, *words, env={"TOY_PROFILER": profiler} if profiler else None)


@pytest.mark.slow
def test_the_profiles_of_all_ranks_are_one_table_on_one_clock(cli, tmp_path):
    """In a step of 100 us, rank r reduces from 20 + 10 r us until 90: rank 0 waits for 20 us, and rank 1 for 10."""
    done = profiled(cli, "writes", "--json")
    assert done.returncode == 0, done.stderr
    record = one(done)
    trace = record["trace"]
    assert (trace["steps"], trace["step_ns"], trace["world_size"]) == (4, [100_000] * 4, 3)
    assert (trace["wall_ns"], trace["busy_ns"], trace["idle_ns"]) == (400_000, 3 * 4 * 90_000, 3 * 4 * 10_000)
    assert [(each["device"], each["busy_ns"]) for each in trace["devices"] if not each["track"]] == [
        (f"cpu:{rank}", 4 * 90_000) for rank in range(3)
    ]
    assert (trace["communication_ns"], trace["hidden_ns"]) == (4 * (70 + 60 + 50) * 1000, 0)
    assert trace["waiting_ns"] == 4 * (20 + 10) * 1000
    assert trace["critical_ranks"] == [2] * 4
    assert trace["complete"], trace["missing"]
    shares = {name: record["metrics"][name]["value"] for name in ("communication_share", "waiting_share")}
    assert shares == {"communication_share": 720 / 1200, "waiting_share": 120 / 1200}
    (exchange,) = trace["exchanges"]
    assert (exchange["op"], exchange["count"], exchange["bytes"]) == ("all_reduce", 1, 1024)
    assert exchange["expected_count"] is None
    (scope,) = record["scopes"]
    assert (scope["scope"], scope["occurrences"], scope["expected"]) == ("nap", 4, 4)
    assert scope["step_ns"] == [3 * 90_000] * 4
    kernels = {each["name"]: (each["count"], each["total_ns"]) for each in record["kernels"]}
    assert kernels == {"gloo:all_reduce": (12, 720_000), "aten::mm": (12, 4 * (20 + 30 + 40) * 1000)}
    folder = tmp_path / "results" / record["run_id"]
    names = {path.name.removeprefix(record["trial_id"]) for path in folder.glob("*.gz")}
    assert names == {".profile.json.gz", ".rank1.profile.json.gz", ".rank2.profile.json.gz"}
    path = f"results/{record['run_id']}/{record['trial_id']}.json"
    assert cli("validate", path).returncode == 0
    shown = cli("show", path).stdout
    assert "60% of the time of 3 devices, 0% hidden, 10% waiting for another, 50% transferring" in shown
    assert re.search(r"critical rank +2 \(4 of 4 steps\)", shown)
    assert "all_reduce 1: 1 KiB" in shown
    assert re.search(r"all_reduce +- +1: 1 KiB", cli("show", path, path).stdout)
    assert "all_reduce" not in cli("show", path, path, "--metric=waiting_share").stdout
    found = json.loads(cli("profile", "ranks", path, "--json").stdout)
    assert [each["waiting_ns"] for each in found["ranks"]] == [80_000, 40_000, 0]
    assert [(each["step"], each["rank"], each["waiting_ns"]) for each in found["steps"]] == [
        (step, 2, 30_000) for step in range(4)
    ]
    assert found["collectives"][0]["shortest_ns"] == 50_000


@pytest.mark.parametrize(
    ("profiler", "reason"),
    [
        ("", r"toy: rank \d: it has no profiler"),
        ("fails on rank 2", "toy: rank 2: ValueError: told to fail"),
        ("exits on rank 1", "the profiled process failed: rank 1: the worker ended with status 7"),
    ],
)
def test_a_profile_that_fails_names_the_rank_and_leaves_the_trial(cli, profiler, reason):
    record = one(profiled(cli, profiler, "--json"))
    assert record["status"] == "ok"
    assert record["trace"] is None
    assert re.fullmatch(reason, record["reasons"]["trace"])


def test_more_gpus_than_the_framework_sees_are_refused(cli):
    done = cli(*RUN, "--device=cuda", env={"TOY_CARD": "GPU-1"})
    assert done.returncode == 2
    assert "--devices=3: toy sees 1 cuda (toy card) here" in done.stderr


def pair(rank=1):
    """Both ends of a process group of two."""
    published = []
    leader = []
    thread = threading.Thread(
        target=lambda: leader.append(channel.listen_for_ranks(2, lambda *where: published.append(where)))
    )
    thread.start()
    while not published:
        time.sleep(0.01)
    host, port, token = published[0]
    return Address(host, port, token), thread, leader


def test_a_lost_peer_is_an_error_of_its_own():
    address, thread, leader = pair()
    with socket.create_connection((address.host, address.port)) as peer:
        peer.sendall(f"{address.token} 1\n".encode())
        thread.join(10)
    with pytest.raises(channel.LostPeerError, match="rank 1 has closed its connection"):
        leader[0].receive(1)
    leader[0].close()
