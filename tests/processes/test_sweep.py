"""Sweeps and plan files, run in real processes."""

import json
import os
import shlex
import subprocess
import sys
import time

import psutil
import pytest

from benchmarker import Case, Measuring
from benchmarker.planning import estimate
from benchmarker.records import store
from benchmarker.records.plan import make_plan
from benchmarker.running.run import execute

SWEEP = ("sweep", "--framework=toy", "--problem=nap", "--power=none", "--blocks=2", "--warmup-steps=1")


def records(done):
    return json.loads(done.stdout)


def plan_of(tmp_path):
    (file,) = (tmp_path / "results").glob("*/plan.json")
    return json.loads(file.read_text())


def test_axes_zips_and_cases_make_the_cases_and_every_round_holds_each_once(cli, tmp_path):
    (tmp_path / "plan.toml").write_text("""
problem = "nap"
framework = "toy"
trials = 2
order_seed = 5
[measuring]
power = "none"
blocks = 2
warmup_steps = 1
[axes]
ms = [1, 2]
[[zip]]
after = [1, 2]
seed = [3, 4]
[[case]]
precision = "fp32"
[[case]]
precision = "fp64"
""")
    done = cli("plan", "run", "plan.toml", "--json")
    assert done.returncode == 0, done.stderr
    seen = []
    for record in records(done):
        case, params = record["case"], record["case"]["params"]
        seen.append((params["ms"], params["after"], case["seed"], case["precision"], record["trial"]))
    wanted = {
        (ms, after, after + 2, precision, trial)
        for ms in (1.0, 2.0)
        for after in (1, 2)
        for precision in ("fp32", "fp64")
        for trial in range(2)
    }
    assert len(seen) == 16
    assert set(seen) == wanted
    plan = plan_of(tmp_path)
    assert plan["seed"] == 5
    for trial in range(2):
        assert sorted(plan["order"][8 * trial : 8 * trial + 8]) == [[index, trial] for index in range(8)]
    begun = sorted(records(done), key=lambda record: record["trial_id"])
    assert [record["trial"] for record in begun] == [0] * 8 + [1] * 8


def test_what_is_not_done_is_left_out_and_said_and_kept(cli, tmp_path):
    done = cli(*SWEEP, "--axis=precision=fp32,bf16", "--trials=2")
    reason = "framework=toy precision=bf16: nap in toy does not support inference in bf16; it supports: fp64, fp32"
    assert done.returncode == 0
    assert f"left out: {reason}" in done.stderr
    assert f"left out: {reason}" in done.stdout
    assert plan_of(tmp_path)["left_out"] == [reason]
    quiet = cli(*SWEEP, "--axis=precision=fp32,bf16", "--trials=1", "--results=again", "-q")
    assert (quiet.stdout + quiet.stderr).count(f"left out: {reason}") == 1
    assert done.stdout.splitlines()[2].endswith(" 2")
    assert cli("validate", "results").stdout == "2 valid, 0 faulty\n"


@pytest.mark.slow
def test_a_failing_case_does_not_stop_the_others(cli):
    done = cli(*SWEEP, "--axis=fault=none,raise,exit", "--trials=2")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[1].split()[-2:] == ["trials", "failed"]
    rows = {line.split()[1]: line.split()[-2:] for line in lines if line.startswith("nap")}
    assert rows == {"fault=none": ["2", "0"], "fault=raise": ["0", "2"], "fault=exit": ["0", "2"]}
    assert "FAILED nap fault=raise, 2 of 2: exception: ValueError: told to fail" in lines


@pytest.mark.slow
def test_where_memory_ran_out_larger_ones_are_skipped_and_smaller_ones_run(cli, tmp_path):
    seed = next(  # ms=2 first, then ms=3, then ms=1
        seed for seed in range(100) if [index for index, _ in make_plan([None] * 3, 1, seed=seed).order] == [1, 2, 0]
    )
    (tmp_path / "plan.toml").write_text(f"""
problem = "nap"
framework = "toy"
fault = "memory"
trials = 1
order_seed = {seed}
measuring = {{ power = "none", blocks = 2, warmup_steps = 1 }}
axes = {{ ms = [1, 2, 3] }}
""")
    done = cli("plan", "run", "plan.toml", "--json")
    assert done.returncode == 1
    kinds = {record["case"]["params"]["ms"]: record["error"]["kind"] for record in records(done)}
    assert kinds == {1.0: "out_of_memory", 2.0: "out_of_memory", 3.0: "skipped"}
    assert "SKIPPED: memory ran out at ms=2.0" in done.stderr
    done = cli("plan", "run", "plan.toml")
    assert "SKIPPED nap ms=3.0, 1 of 1: skipped: memory ran out at ms=2.0" in done.stdout


def start(toy_folder, tmp_path, *args):
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarker", *SWEEP, *args],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(toy_folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on_with_every_trial_once(cli, toy_folder, tmp_path):
    slow = ("--axis=ms=10,20", "--axis=seed=0,1", "--trials=2", "--blocks=20", "--json")
    with start(toy_folder, tmp_path, *slow) as run:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "results").glob("*/*.json"))) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)  # the plan, and three records
        workers = psutil.Process(run.pid).children(recursive=True)
        run.kill()
        run.communicate(timeout=30)
    psutil.wait_procs(workers, timeout=10)
    before = {path.name: path.read_bytes() for path in (tmp_path / "results").glob("*/2*.json")}
    assert 3 <= len(before) < 8
    again = cli(*SWEEP, *slow, "--resume")
    assert again.returncode == 0, again.stderr
    assert f"{len(before)} of 8 trials have a record" in again.stderr
    after = {path.name: path.read_bytes() for path in (tmp_path / "results").glob("*/2*.json")}
    assert len(after) == 8
    assert {name: after[name] for name in before} == before
    places = [(r["case"]["params"]["ms"], r["case"]["seed"], r["trial"]) for r in records(again)]
    assert len(set(places)) == len(places) == 8
    assert len(list((tmp_path / "results").iterdir())) == 1
    assert "no unfinished run of this plan" in cli(*SWEEP, *slow, "--resume").stderr


@pytest.mark.slow
def test_two_sweeps_into_one_folder_do_not_mix(cli, toy_folder, tmp_path):
    args = ("--axis=ms=1,2", "--trials=2", "--json")
    with start(toy_folder, tmp_path, *args) as one, start(toy_folder, tmp_path, *args) as two:
        outs = [json.loads(run.communicate(timeout=120)[0]) for run in (one, two)]
    ids = [{record["run_id"] for record in out} for out in outs]
    assert [len(run) for run in ids] == [1, 1]
    assert ids[0] != ids[1]
    assert [len(out) for out in outs] == [4, 4]
    assert cli("validate", "results").stdout == "8 valid, 0 faulty\n"


def test_a_duet_shares_its_processes(cli):
    done = cli(*SWEEP, "--axis=ms=1,2", "--trials=2", "--design=duet", "--json")
    assert done.returncode == 0, done.stderr
    ids = {record["trial_id"]: record["design"]["partner"] for record in records(done)}
    assert len(ids) == 4
    assert all(ids[partner] == trial for trial, partner in ids.items())


def test_a_dry_run_runs_nothing(cli, tmp_path):
    done = cli(*SWEEP, "--axis=ms=1,2,3", "--axis=precision=fp32,bf16", "--trials=4", "--seconds=5", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "fault=none after=0 fp32 in toy on cpu, warmup_steps=1, blocks=2, seconds=5.0",
        *("case", "nap ms=1.0", "nap ms=2.0", "nap ms=3.0"),
    ]
    assert "3 cases, 4 trials of each (rounds): 12 processes" in lines
    assert "left out: framework=toy precision=bf16 (3 cases): nap in toy" in done.stdout
    assert lines[-4:] == [
        "time: at most 3 min for 3 cases without an earlier record",
        "  60 s for preheat and timing, by their own limits",
        "  2 min for start-up, check and compilation:",
        "    assumed for 3 cases: 10 s a trial, as of GPT-2 small on two CPU cores",
    ]
    assert not (tmp_path / "results").exists()


PLAN = """
problem = "nap"
framework = "toy"
trials = 3
[measuring]
blocks = 5
warmup-steps = 1
[axes]
ms = [1, 30]
"""


def test_a_plan_is_shown_probed_and_run(cli, tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    shown = json.loads(cli("plan", "show", "plan.toml", "--json").stdout)
    assert (shown["trials"], shown["processes"], shown["left_out"]) == (3, 6, [])
    assert [case["params"]["ms"] for case in shown["cases"]] == [1.0, 30.0]
    assert (shown["time"]["known"], shown["time"]["unknown"], shown["time"]["seconds"]) == (0, 2, None)
    probed = cli("plan", "show", "plan.toml", "--probe")
    assert "for all, from 2 probes" in probed.stdout
    assert "[2/2] probe of toy nap: done in" in probed.stderr
    assert not (tmp_path / "results").exists()

    done = cli("plan", "run", "plan.toml")
    assert done.returncode == 0, done.stderr
    assert [line.split()[1:2] + line.split()[-1:] for line in done.stdout.splitlines()[2:4]] == [
        ["ms=1.0", "3"],
        ["ms=30.0", "3"],
    ]
    assert done.stderr.splitlines()[-1].startswith("records: results/")

    known = json.loads(cli("plan", "show", "plan.toml", "--probe", "--json").stdout)["time"]
    assert (known["known"], known["unknown"], known["records"], known["probes"]) == (2, 0, 6, 0)
    found, _ = store.read([tmp_path / "results"])
    assert known["seconds"] == pytest.approx(sum(record.harness.wall_s for record in found))
    (tmp_path / "plan.toml").write_text(PLAN.replace("30]", "30, 40]"))
    text = cli("plan", "show", "plan.toml").stdout
    assert "for 2 cases, from 6 earlier records\n  start-up, check and compilation included\n" in text
    assert "for 1 case without an earlier record" in text
    assert "  2 min for preheat and timing, by their own limits\n" in text
    assert "for start-up, check and compilation:\n    from 6 records of the same problem, framework and" in text
    assert cli("plan", "run", "plan.toml", "--dry-run").stdout == text


def test_a_probe_that_fails_leaves_the_time_open(cli, tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN.replace("[measuring]", 'fault = "raise"\n[measuring]'))
    done = cli("plan", "show", "plan.toml", "--probe", "--json")
    assert done.returncode == 1
    assert "FAILED in compile" in done.stderr
    assert (json.loads(done.stdout)["time"]["probes"], json.loads(done.stdout)["time"]["unknown"]) == (0, 2)


def test_a_probe_tells_the_time_of_blocks_and_of_the_shortest_preheat(cli, tmp_path):
    cli("run", "--framework=toy", "--problem=nap", "--ms=30", "--blocks=3", "--warmup-steps=1", "--seconds=5")
    ((record,), _) = store.read([tmp_path / "results"])
    block_s = sorted(record.blocks.duration_ns)[1] / 1e9

    def forecast(**measuring):
        case = Case(problem="nap", framework="toy", device="cpu", params={"ms": 30.0}, measuring=Measuring(**measuring))
        assert estimate.probe(case).measuring == Measuring(warmup_steps=1, blocks=3, seconds=5, power="none")
        return estimate.forecast(make_plan([case], 4), [], {0: record})

    outside_s = record.harness.wall_s - record.harness.stages_s["timed"] - record.harness.stages_s.get("rest", 0)
    assert forecast(blocks=10).seconds == pytest.approx(4 * (outside_s + 10 * block_s))
    assert forecast(blocks=10, seconds=0.1).seconds == pytest.approx(4 * (outside_s + 0.1))
    hot = forecast(blocks=10, preheat=True, preheat_max_s=30)
    assert hot.seconds == pytest.approx(4 * (outside_s + 10 * block_s + 2))
    assert hot.preheat_more_s == 4 * 28


@pytest.mark.slow
def test_run_shows_what_it_would_run(cli, tmp_path):
    words = ("run", "--framework=toy", "--problem=nap", "--power=none", "--blocks=3", "--trials=2")
    done = cli(*words, "--dry-run", "--seconds=20s")
    assert "1 case, 2 trials of each (rounds): 2 processes" in done.stdout
    assert "time: at most 60 s for 1 case without an earlier record" in done.stdout
    assert not (tmp_path / "results").exists()
    done = cli(*words, "--dry-run", "--resume")
    assert done.stderr == "benchmarker: error: --dry-run shows the whole plan; leave --dry-run or --resume out\n"
    assert done.returncode == 2
    assert cli(*words).returncode == 0
    assert "for all, from 2 earlier records" in cli(*words, "--dry-run").stdout
    assert "for all, from 1 earlier record\n" in cli(*words, "--blocks=4", "--dry-run").stdout


def test_several_problems_are_measured_with_the_options_that_they_share(cli):
    done = cli("run", "--framework=numpy", "--problem=gemm,mlp", "--batch-size=3", "--blocks=2", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert [(case["problem"], case["params"]["batch_size"]) for case in cases] == [("gemm", 3), ("mlp", 3)]
    done = cli("run", "--framework=numpy", "--problem=gemm,mlp", "--m=3")
    assert done.returncode == 2
    assert "No such option '--m'" in done.stderr
    assert "no problem is named 'gem'" in cli("run", "--framework=numpy", "--problem=gem,mlp").stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--axis=ms", "--axis 'ms': write NAME=VALUE"),
        ("--axis==1", "--axis '=1': write NAME=VALUE"),
        ("--axis=ms=", "the axis ms has no values"),
        ("--axis=ms=1,,2", "--axis ms=1,,2: a value is missing between two commas"),
        ("--axis=sm=1", "no setting of nap is named 'sm'; there are: ms, fault, after, "),
        ("--axis=afer=1", "no setting of nap is named 'afer'; did you mean after?"),
        ("--axis=ms=-1", "ms=-1: must be at least 0"),
        ("--axis=ms=1 --axis=ms=2", "--axis gives ms twice"),
        ("--axis=ms=1 --ms=2", "ms is both given as an option and varied; leave one out"),
        ("--axis=preheat-max=1,2 --preheat-max=3", "preheat_max_s is both given as an option and varied"),
        ("--axis=framework=toy", "framework is both given as an option and varied"),
        ("--axis=problem=nap", "give several problems as --problem="),
        ("--axis=ms=1,2 --trials=50001", "2 cases with 50001 trials each: a run has at most 100,000 trials"),
        ("--axis=precision=bf16,fp16", "nothing is left to run: framework=toy precision=bf16: "),
        ("--axis=ms=1,2,3 --design=duet", "a duet measures two cases, not 3"),
        ("--axis=ms=1,2 --resume", "no unfinished run of this plan under results"),
    ],
)
def test_a_mistake_in_a_sweep_is_one_line(cli, tmp_path, args, message):
    done = cli(*SWEEP, *shlex.split(args))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["show", "run"])
def test_a_mistake_in_a_plan_file_is_one_line(cli, tmp_path, name):
    assert "cannot read none.toml: No such file" in cli("plan", name, "none.toml").stderr
    (tmp_path / "plan.toml").write_text("problem =\n")
    done = cli("plan", name, "plan.toml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "plan.toml: not TOML: Invalid value (at line 1, column 10)" in done.stderr


def test_a_setting_left_at_its_default_may_be_varied(cli):
    done = cli(*SWEEP, "--axis=seconds=1,2", "--trials=1", "--json")
    assert [record["case"]["measuring"]["seconds"] for record in records(done)] == [1.0, 2.0]
    assert all(record["case"]["measuring"]["warmup_steps"] == 1 for record in records(done))


@pytest.mark.slow
def test_the_time_left_includes_what_follows_the_plan(cli, tmp_path):
    class Hears:
        left = []

        def begin(self, title, case, left_s):
            self.left.append(left_s)

        def say(self, text): ...
        def on_event(self, event): ...
        def end(self, records): ...

    case = Case(problem="nap", framework="toy", device="cpu", params={"ms": 1.0}, measuring=Measuring(power="none"))
    with store.new_run(tmp_path / "results", make_plan([case], 3)) as folder:
        records = execute(folder, Hears(), then_s=lambda records: 1000.0 * len(list(records)))
    assert Hears.left[0] is None
    first, second, _ = (record.harness.wall_s for record in sorted(records, key=lambda record: record.trial_id))
    assert Hears.left[1:] == pytest.approx([1000 + 2 * first, 2000 + (first + second) / 2])


def test_a_trial_ends_for_the_listener_after_its_profile(cli, tmp_path):
    class Hears:
        ended = []

        def begin(self, title, case, left_s): ...
        def say(self, text): ...
        def on_event(self, event): ...
        def end(self, records):
            self.ended += records

    measuring = Measuring(power="none", profile=True)
    case = Case(problem="nap", framework="toy", device="cpu", params={"ms": 1.0}, measuring=measuring)
    with store.new_run(tmp_path / "results", make_plan([case], 1)) as folder:
        execute(folder, Hears())
    (record,) = Hears.ended
    assert "profile" in record.harness.stages_s
