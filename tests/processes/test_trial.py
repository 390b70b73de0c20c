"""Trials in real worker processes, with a framework that fails as it is told."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from benchmarker.formatting import duration_s
from benchmarker.machine import counters
from benchmarker.records import store

RUN = ("run", "--framework=toy", "--problem=nap", "--power=none", "--blocks=5", "--json")


def records(done):
    return json.loads(done.stdout)


def test_a_trial_that_works(cli, tmp_path):
    done = cli(*RUN, "--trials=2")
    assert done.returncode == 0, done.stderr
    first, second = records(done)
    assert [first["trial"], second["trial"]] == [0, 1]
    assert first["status"] == "ok"
    assert len(first["blocks"]["duration_ns"]) == 5
    assert 2 <= first["blocks"]["steps_per_block"] <= 10  # a step of 1 ms or more, a block of at least 10 ms
    check = {
        "error": 0.0,
        "output": "x",
        "bound": 32 * 2**-24,
        "ok": True,
        "against": "reference",
        "place": "",
        "componentwise": None,
    }
    assert first["check"] == check
    assert first["software"]["libraries"] == {"toy": "1.0"}
    assert first["reasons"]["cost.tokens"] == "nap has no tokens"
    assert first["suspicions"] == []
    assert first["reasons"]["device_time"] == "toy on cpu has no clock but the host's"
    durations, steps = first["blocks"]["duration_ns"], first["blocks"]["steps_per_block"]
    assert first["metrics"]["step_time_median_s"]["value"] == pytest.approx(sorted(durations)[2] / steps / 1e9)
    assert first["metrics"]["step_time_median_s"]["value"] >= 0.001
    assert first["metrics"]["samples_per_s"]["value"] == pytest.approx(2 * 5 * steps / (sum(durations) / 1e9))
    stages = first["harness"]["stages_s"]
    assert list(stages) == ["python", "open", "check", "build", "compile", "preheat", "timed", "verify"]
    assert sum(stages.values()) < first["harness"]["wall_s"]
    (folder,) = (tmp_path / "results").iterdir()
    assert sorted(path.suffix for path in folder.iterdir()) == [".json"] * 3


def test_blocks_that_are_longer_than_the_process_are_suspect(cli):
    done = cli(*RUN, "--fault=clock", "--trials=2")
    assert done.returncode == 0, done.stderr
    for record in records(done):
        blocks_s, wall_s = sum(record["blocks"]["duration_ns"]) / 1e9, record["harness"]["wall_s"]
        (text,) = record["suspicions"]
        told = re.fullmatch(r"its blocks take (\S+) s, but its process had (\S+ m?s) for them", text)
        assert float(told[1]) == pytest.approx(blocks_s, rel=0.01)
        assert duration_s(told[2]) < wall_s < blocks_s
    shown = cli("show", "results").stdout
    assert re.search(r"^SUSPECT .*: its blocks take ", shown, flags=re.MULTILINE)


def timed_by_the_device(cli, told):
    done = cli(*RUN, "--device=cuda", env={"TOY_CARD": "GPU-a", "TOY_TIMER": told})
    assert done.returncode == 0, done.stderr
    (record,) = records(done)
    assert list(record["harness"]["stages_s"])[-2:] == ["verify", "device"]
    return record


def test_steps_are_timed_by_the_clock_of_the_device_too(cli, tmp_path):
    record = timed_by_the_device(cli, "works")
    times = record["device_time"]
    assert times["steps_per_block"] in (1, 2)  # halved until the queue holds them
    assert {*times["duration_ns"]} == {400_000 * times["steps_per_block"]}
    share = 1 - 0.0004 / record["metrics"]["step_time_median_s"]["value"]
    (path,) = (tmp_path / "results").glob("*/2*.json")
    assert f"400 µs a step, by the clock of the device; {share:.0%} of the step time is the host's" in re.sub(
        r"\s+", " ", cli("show", str(path)).stdout
    )
    assert f"{share:.0%} of the step time is the host's" in cli("show", "results", "--metric=step_time_median_s").stdout
    assert cli("validate", "results").returncode == 0


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("waits", "a step waits for its results, or launches more than the device's queue holds"),
        ("fails", "ValueError: told to fail"),
    ],
)
def test_what_the_device_cannot_time_has_a_reason(cli, told, reason):
    record = timed_by_the_device(cli, told)
    assert (record["status"], record["device_time"], record["reasons"]["device_time"]) == ("ok", None, reason)


def test_devices_that_wait_for_each_other_are_not_timed_by_their_clocks(cli):
    done = cli(*RUN, "--device=cuda", "--devices=2", env={"TOY_CARD": "GPU-a,GPU-b", "TOY_TIMER": "works"})
    (record,) = records(done)
    assert record["reasons"]["device_time"] == "several devices wait for each other"


def test_each_token_of_a_request_has_its_time(cli):
    done = cli("run", "--framework=toy", "--problem=chat", "--power=none", "--blocks=3", "--json")
    (record,) = records(done)
    first_ns, gap_ns = record["token_times"]["first_ns"], record["token_times"]["gap_ns"]
    assert (len(first_ns), [len(gaps) for gaps in gap_ns]) == (3, [3, 3, 3])  # of 4 tokens each
    assert min(first_ns) >= 20e6
    assert min(map(min, gap_ns)) >= 5e6
    assert list(record["harness"]["stages_s"])[-3:] == ["timed", "tokens", "verify"]
    assert record["metrics"]["itl_p50_s"]["value"] >= 0.005
    assert record["metrics"]["input_tokens_per_s"]["value"] > record["metrics"]["output_tokens_per_s"]["value"]


def test_tokens_that_fail_lose_neither_blocks_nor_earlier_requests(cli):
    done = cli("run", "--framework=toy", "--problem=chat", "--power=none", "--blocks=3", "--last-words=2", "--json")
    (record,) = records(done)
    assert (record["error"]["stage"], record["error"]["message"]) == ("tokens", "ValueError: out of words")
    assert len(record["blocks"]["duration_ns"]) == 3
    assert len(record["token_times"]["first_ns"]) == 2


@pytest.mark.parametrize(
    ("fault", "kind", "stage", "message", "exit_status"),
    [
        ("raise", "exception", "timed", "ValueError: told to fail", 0),
        ("memory", "out_of_memory", "timed", "MemoryError: too much", 0),
        ("exit", "exception", "timed", "the worker ended with status 3: last words", 3),
        ("term", "killed", "timed", "the worker was ended by SIGTERM", -15),
        ("kill", "killed", "timed", "the worker was ended by SIGKILL; the system may have run out of memory", -9),
        ("wrong", "check", "check", "wrong result: x is off by 0.5", 0),
        ("shape", "exception", "check", "an output has shape (3,)", 0),
        ("nan", "check", "verify", "contain NaN or infinity", 0),
        ("bad", "check", "verify", "wrong result at full size: told to be bad", 0),
    ],
)
def test_a_trial_that_fails_is_a_record_that_says_how(cli, fault, kind, stage, message, exit_status):
    trials = 2 if fault in ("raise", "memory") else 1
    done = cli(*RUN, f"--fault={fault}", "--after=8", "--ms=20", f"--trials={trials}")
    assert done.returncode == 1
    ran = records(done)
    assert len(ran) == trials  # the rest goes on, but for what would run out of memory again
    assert (ran[-1]["error"]["kind"] == "skipped") == (kind == "out_of_memory")
    for record in ran[: 1 if kind == "out_of_memory" else 2]:
        assert record["status"] == "failed"
        error = record["error"]
        assert (error["kind"], error["stage"], error["exit"]) == (kind, stage, exit_status)
        assert message in error["message"]
        assert "\n" not in error["message"]
        assert message in done.stderr


def test_blocks_that_ended_before_a_failure_are_kept(cli):
    # the first step, 3 to warm up, 2 to size a block, and 2 blocks of one: the third block meets the fault
    done = cli(*RUN, "--fault=raise", "--ms=20", "--after=8")
    (record,) = records(done)
    assert record["error"]["stage"] == "timed"
    assert record["blocks"]["stopped_by"] == "failure"
    assert len(record["blocks"]["duration_ns"]) == 2
    assert record["metrics"]["step_time_median_s"]["value"] >= 0.02


def test_a_hanging_worker_is_ended_and_keeps_its_blocks(cli):
    start = time.monotonic()
    done = cli(*RUN, "--fault=hang", "--ms=20", "--after=8", "--timeout=3")
    assert time.monotonic() - start < 20
    (record,) = records(done)
    assert record["error"]["kind"] == "timeout"
    assert "allow more time with --timeout (timeout_s in Python)" in record["error"]["message"]
    assert record["blocks"]["duration_ns"]
    assert record["reasons"]["memory"] == "the trial failed in stage 'timed'"


def test_a_failed_trial_keeps_the_log_of_its_worker(cli, tmp_path):
    cli(*RUN, "--fault=raise")
    (log,) = (tmp_path / "results").rglob("*.log")
    assert "Traceback" in log.read_text()
    assert "told to" in log.read_text()


def start(toy_folder, tmp_path, *args):
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarker", *RUN, *args],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(toy_folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def worker_of(parent, stage_s=3.0):
    """The worker of a run that has had time to come to its timed part."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for child in psutil.Process(parent.pid).children():
            if time.time() - child.create_time() > stage_s:
                return child
        time.sleep(0.1)
    raise AssertionError("no worker was seen")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupt_ends_the_worker_and_resume_goes_on(cli, toy_folder, tmp_path, number):
    slow = ("--trials=3", "--ms=20", "--seconds=2", "--blocks=1000")
    with start(toy_folder, tmp_path, *slow) as run:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "results").glob("*/*.json"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)  # the plan, and the record of trial 0
        worker = worker_of(run, 0.5)
        run.send_signal(number)
        _, err = run.communicate(timeout=30)
    assert run.returncode == 128 + number
    assert err.endswith("benchmarker: terminated\n" if number == signal.SIGTERM else "benchmarker: interrupted\n")
    assert "interrupted: 1 of 3 trials is stored" in err
    assert "continue with the same command and --resume" in err
    assert "Traceback" not in err
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    again = cli(*RUN, *slow, "--resume")
    assert again.returncode == 0, again.stderr
    assert "1 of 3 trials has a record" in again.stderr
    assert [record["trial"] for record in records(again)] == [0, 1, 2]
    assert len(list((tmp_path / "results").iterdir())) == 1
    nothing_left = cli(*RUN, *slow, "--resume")
    assert nothing_left.returncode == 2
    assert "no unfinished run of this plan" in nothing_left.stderr


def test_the_kernels_own_kill_is_out_of_memory_so_that_larger_sizes_are_skipped(cli, tmp_path, monkeypatch):
    counts = iter(range(100))
    monkeypatch.setattr(counters, "oom_kills", lambda: next(counts))
    assert cli(*RUN, "--fault=kill", "--trials=2").returncode == 1
    records, _ = store.read([tmp_path / "results"])
    assert [each.error.kind for each in records] == ["out_of_memory", "skipped"]
    assert records[0].error.message == "the kernel ended the worker because memory ran out"


def test_a_killed_worker_is_a_record(toy_folder, tmp_path):
    with start(toy_folder, tmp_path, "--ms=20", "--blocks=10000") as run:
        worker_of(run).kill()
        out, _ = run.communicate(timeout=30)
    (record,) = json.loads(out)
    assert run.returncode == 1
    assert (record["error"]["kind"], record["error"]["stage"]) == ("killed", "timed")
    assert record["check"]["ok"]
    assert record["preheat"]["outcome"] == "fixed"


@pytest.mark.slow
def test_a_killed_parent_leaves_no_worker_and_no_damage(cli, toy_folder, tmp_path):
    slow = ("--trials=2", "--ms=20", "--seconds=2", "--blocks=1000")
    with start(toy_folder, tmp_path, *slow) as run:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "results").glob("*/*.json"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        worker = worker_of(run, 0.5)
        run.kill()
        run.communicate(timeout=30)
    psutil.wait_procs([worker], timeout=10)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
    assert cli("validate", "results").stdout == (
        "1 valid, 0 faulty\n"
        "1 planned trial has no record; repeat the run's command with --resume (under pytest, run the tests again)\n"
    )
    again = cli(*RUN, *slow, "--resume")
    assert [record["trial"] for record in records(again)] == [0, 1]


@pytest.mark.slow
def test_the_parent_sleeps_while_its_worker_measures(toy_folder, tmp_path):
    with start(toy_folder, tmp_path, "--ms=5", "--seconds=6", "--blocks=100000") as run:
        worker_of(run, 2.0)
        parent = psutil.Process(run.pid)
        before = parent.cpu_times()
        time.sleep(3)
        after = parent.cpu_times()
        run.communicate(timeout=60)
    assert after.user + after.system - before.user - before.system <= 0.03


@pytest.mark.slow
def test_two_runs_into_one_folder_do_not_mix(toy_folder, tmp_path, cli):
    with start(toy_folder, tmp_path, "--trials=2") as one, start(toy_folder, tmp_path, "--trials=2") as two:
        outs = [run.communicate(timeout=120)[0] for run in (one, two)]
    ids = [{record["run_id"] for record in json.loads(out)} for out in outs]
    assert all(len(run) == 1 for run in ids)
    assert ids[0] != ids[1]
    assert cli("validate", "results").stdout == "4 valid, 0 faulty\n"


def test_threads_that_are_not_as_asked_fail_the_trial(cli):
    (record,) = records(cli(*RUN, "--threads=7"))
    assert record["error"]["message"] == "--threads=7 was set, but toy computes with 1"


def test_peak_memory_is_not_that_of_the_process_that_started_the_worker():
    heavy = np.ones(2**26)  # 512 MiB: the maximum of getrusage(2) would be handed down
    code = "from benchmarker.worker.process_group import _peak_rss_bytes; print(_peak_rss_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 2**20 < int(done.stdout) < heavy.nbytes / 2


def test_a_null_of_a_failed_trial_says_where_it_failed(cli):
    (record,) = records(cli(*RUN, "--threads=7"))
    assert record["reasons"]["software.threads"] == "the trial failed in stage 'open'"
    assert record["reasons"]["device"] == "the trial failed in stage 'open'"
    (record,) = records(cli(*RUN, "--fault=raise"))
    assert record["reasons"]["device.uuid"] == "toy reports none for cpu"
    assert record["reasons"]["cost.tokens"] == "nap has no tokens"
    assert record["reasons"]["memory"] == "the trial failed in stage 'compile'"


def test_a_broken_framework_is_told_before_anything_runs(program, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "toy_broken.py").write_text("raise OSError('libnothing.so: cannot open shared object file')\n")
    info = site / "toy_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy_broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[benchmarker]\nframework.broken = toy_broken\nworkload.gemm.broken = toy_broken\n"
    )
    done = program("run", "--framework=broken", "--problem=gemm", env={"PYTHONPATH": str(site)})
    assert done.returncode == 2
    assert "framework.broken cannot be imported: OSError: libnothing.so: cannot open" in done.stderr
    assert not (tmp_path / "results").exists()


def test_inputs_rotate_or_stay_hot_as_requested_and_tables_say_so(command):
    # 4,096 sets of this size, the most there are, leave a last-level cache of 400 MiB.
    run = ("run", "--framework=numpy", "--problem=gemm", "--m=256", "--n=256", "--k=256", "--power=none", "--blocks=3")
    assert "steps read them from memory" in command(*run).stdout
    done = command(*run, "--cache=hot")
    assert "inputs stay in place: steps read them from the cache" in done.stdout
    assert "cache=hot" in done.stdout
    rotated, hot = sorted(records(command("show", "results", "--json")), key=lambda record: -record["inputs"]["sets"])
    assert (rotated["inputs"]["cache"], rotated["case"]["measuring"]["cache"]) == ("rotate", None)
    assert rotated["inputs"]["sets"] * rotated["inputs"]["set_bytes"] > rotated["device"]["cache_bytes"] > 0
    assert (hot["inputs"]["cache"], hot["inputs"]["sets"]) == ("hot", 1)
    assert "--cache=hot" in hot["command"]
    assert "last-level cache" in command("env").stdout
