"""Submitted runs, with the launcher of this machine; tests/processes/test_slurm.py has those of a Slurm."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarker import Allocation, UserError
from benchmarker.files import atomic
from benchmarker.hooks import launchers
from benchmarker.records import job as jobs
from benchmarker.records import store
from benchmarker.records.record import Failure
from benchmarker.running import site

PLAN = """
problem = "nap"
framework = "toy"
trials = 2
[measuring]
power = "none"
blocks = 2
[axes]
ms = [1.0, 2.0]
"""


@pytest.fixture(autouse=True)
def _no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the machine that the tests run on are none of their business."""
    monkeypatch.setenv(site.VARIABLE, str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text("")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def submitted(cli: Any, *words: str) -> dict[str, Any]:
    done = cli("submit", "plan.toml", "--launcher=local", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def told(cli: Any, *words: str) -> list[dict[str, Any]]:
    return json.loads(cli("jobs", *words, "--json").stdout)


def wait(cli: Any, *states: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (job := told(cli)[0])["state"] not in states:
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    return job


def waiting(plan: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was submitted, but whose job has not started."""
    from benchmarker_plugins.launchers import local

    with monkeypatch.context() as patched:
        patched.setattr(local.Local, "submit", lambda *_: "elsewhere:1:1.00")
        return Path(submitted(cli)["folder"])


def test_a_submitted_plan_runs_and_is_told_of(cli, plan) -> None:
    made = submitted(cli)
    job = wait(cli, "done", "stopped")
    assert (job["state"], job["job"], job["done"], job["planned"]) == ("done", made["job"], 4, 4)
    assert [attempt["ending"] for attempt in job["attempts"]] == ["done"]
    records, faults = store.read([Path(made["folder"])])
    assert (len(records), faults) == (4, [])
    assert {(each.run_id, each.suite.name) for each in records} == {(made["run_id"], "plan")}
    assert {each.reasons["allocation"] for each in records} == {"it ran outside any allocation of a launcher"}
    assert " done " in cli("jobs", "--watch").stdout
    again = cli("submit", made["folder"], "--launcher=local")
    assert again.stderr == f"benchmarker: error: {made['folder']} is complete: every trial has a record\n"
    assert cli("validate", "results").returncode == 0


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ("1,4", "plan.toml has cases with nodes = 1,2; use --nodes=1,2"),
        ("1,2,4", "plan.toml has cases with nodes = 1,2; use --nodes=1,2"),
        ("1,2", "launcher.local has this machine alone; leave --nodes=2 out"),
    ],
)
def test_jobs_that_would_not_run_all_cases_are_refused_and_nothing_is_left(cli, plan, nodes, complaint) -> None:
    plan.write_text(PLAN.replace("ms = [1.0, 2.0]", "nodes = [1, 2]"))
    refused = cli("submit", "plan.toml", "--launcher=local", f"--nodes={nodes}")
    assert refused.returncode == 2
    assert complaint in refused.stderr
    assert told(cli) == []
    assert not list(Path("results").glob("*"))


def test_if_one_of_several_jobs_is_refused_those_before_it_are_cancelled(cli, plan, monkeypatch) -> None:
    from benchmarker_plugins.launchers import local

    plan.write_text(PLAN.replace("ms = [1.0, 2.0]", "nodes = [1, 2, 4]"))
    accepted: list[str] = []
    cancelled: list[str] = []

    def submit(*_: object) -> str:
        if len(accepted) == 2:
            raise UserError("the queue is full")
        accepted.append(f"elsewhere:{len(accepted)}:1.00")
        return accepted[-1]

    monkeypatch.setattr(local.Local, "directives", lambda *_: ())
    monkeypatch.setattr(local.Local, "submit", submit)
    monkeypatch.setattr(local.Local, "cancel", lambda _, job: cancelled.append(job))
    refused = cli("submit", "plan.toml", "--launcher=local", "--nodes=1,2,4")
    assert refused.stderr == "benchmarker: error: the queue is full\n"
    assert sorted(cancelled) == accepted == ["elsewhere:0:1.00", "elsewhere:1:1.00"]
    assert not list(Path("results").glob("*"))


def test_each_of_several_scripts_names_a_run_of_its_own(cli, plan, monkeypatch) -> None:
    from benchmarker_plugins.launchers import local

    plan.write_text(PLAN.replace("ms = [1.0, 2.0]", "nodes = [1, 2]"))
    monkeypatch.setattr(local.Local, "directives", lambda *words: [f"# nodes {words[-1]}"])
    done = cli("submit", "plan.toml", "--launcher=local", "--nodes=1,2", "--dry-run", "--json")
    first, second = (each["script"] for each in json.loads(done.stdout))
    assert ("# nodes 1\n" in first, "# nodes 2\n" in second) == (True, True)
    assert first.splitlines()[-1] != second.splitlines()[-1]
    assert not Path("results").exists()


def test_a_submitted_run_is_not_divided_into_jobs(cli, plan, monkeypatch) -> None:
    folder = waiting(plan, cli, monkeypatch)
    refused = cli("submit", str(folder), "--launcher=local", "--nodes=1,2")
    assert f"{folder} is one run, with one job" in refused.stderr


@pytest.mark.slow
def test_a_cancelled_run_can_be_submitted_again_and_goes_on(cli, plan) -> None:
    plan.write_text(PLAN.replace("trials = 2", "trials = 6"))
    made = submitted(cli)
    deadline = time.monotonic() + 60
    while told(cli)[0]["done"] < 1:
        assert time.monotonic() < deadline
    running = cli("submit", made["folder"], "--launcher=local")
    assert "is not known to have ended (process " in running.stderr
    launchers.load_launcher("local").cancel(made["job"])
    stopped = wait(cli, "stopped")
    assert stopped["detail"] == "cancelled"
    submitted_again = cli("submit", made["folder"], "--json")
    assert json.loads(submitted_again.stdout)["run_id"] == made["run_id"]
    assert wait(cli, "done")["done"] == 12
    records, _ = store.read([Path(made["folder"])])
    assert len({(each.design.case_number, each.trial) for each in records}) == len(records) == 12


@pytest.mark.slow
def test_a_run_goes_on_by_its_folder_whatever_newer_ones_there_are(cli, plan) -> None:
    cli("plan", "run", "plan.toml")
    cli("plan", "run", "plan.toml")
    older, newer = sorted(path.parent for path in Path("results").glob("*/plan.json"))
    for folder in (older, newer):
        next(folder.glob("2*.json")).unlink()
    done = cli("plan", "run", str(older))
    assert done.returncode == 0, done.stderr
    assert [len(list(folder.glob("2*.json"))) for folder in (older, newer)] == [4, 3]
    refused = cli("plan", "run", str(older), "--resume")
    assert "leave --resume, --dry-run, --results, --runs and --pause out" in refused.stderr
    nothing = cli("plan", "run", ".")
    assert (
        nothing.stderr == "benchmarker: error: plan.json: No such file or directory; name the folder of a run, "
        "such as results/RUN\n"
    )


@pytest.mark.slow
def test_a_run_of_ab_does_not_go_on_by_its_folder(cli) -> None:
    cli(
        "ab",
        "--framework=toy",
        "--problem=nap",
        "--a=--ms=1",
        "--b=--ms=2",
        "--power=none",
        "--blocks=1",
        "--max-rounds=5",
    )
    (folder,) = Path("results").iterdir()
    assert "is a run of `ab`; go on with the same command and --resume" in cli("plan", "run", str(folder)).stderr


def change(path: Path, **fields: Any) -> None:
    record = store.read_record(path)
    atomic.write(path, atomic.encode(msgspec.structs.replace(record, **fields)))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["host", "allocation", "preempted"])
def test_an_unfinished_round_that_was_begun_elsewhere_is_repeated_whole(cli, plan, how) -> None:
    cli("plan", "run", "plan.toml")
    (folder,) = Path("results").iterdir()
    paths = sorted(folder.glob("2*.json"))
    there = {
        "host": lambda record: {"machine": msgspec.structs.replace(record.machine, host="elsewhere")},
        "allocation": lambda _: {"allocation": Allocation("slurm", "7", ["node1"], 0)},
        "preempted": lambda _: {"allocation": Allocation("slurm", "7", ["node1"], 0)},
    }[how]
    for path in paths:
        change(path, **there(store.read_record(path)))
        path.with_suffix(".log").touch()
    if how == "preempted":
        change(paths[3], status="failed", error=Failure("preempted", "it was taken away", "timed"))
        assert not store.RunFolder(folder, store.plan_of(folder)).is_complete()
        assert json.loads(cli("validate", "results", "--json").stdout)["missing"] == 1
    else:
        paths[3].unlink()
    done = cli("plan", "run", "plan.toml", "--resume")
    assert done.returncode == 0, done.stderr
    number = 2 if how == "preempted" else 1
    aside = "2 records" if number == 2 else "1 record"
    assert f"round 1 was interrupted on another host or in another job: {aside} set aside" in done.stderr
    new = [store.read_record(path) for path in sorted(folder.glob("2*.json"))]
    assert [each.trial for each in new] == [0, 0, 1, 1]
    assert [path.exists() for path in paths] == [True, True, False, False]
    assert [path.with_suffix(".log").exists() for path in paths] == [True, True, False, False]
    kept = {path.name for path in paths[2 : 2 + number]} | {path.with_suffix(".log").name for path in paths[2:]}
    assert {path.name for path in (folder / store.CUT).iterdir()} >= {path.name for path in paths[2 : 2 + number]}
    assert {path.name for path in (folder / store.CUT).iterdir()} <= kept
    records, faults = store.read([folder.parent])
    assert (len(records), faults) == (4, [])
    packed = json.loads(cli("bundle", "create", str(folder), "--json").stdout)
    assert any(each["path"] == store.CUT for each in packed["manifest"]["left_out"]), packed
    assert all(each.status == "ok" for each in new)
    assert [each.allocation is None and each.machine.host != "elsewhere" for each in new] == [False, False, True, True]


@pytest.mark.slow
def test_a_preempted_trial_is_told_of_until_the_run_goes_on(toy_folder, plan, tmp_path) -> None:
    """A process in an allocation of which `scontrol` says that it goes back to the queue."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho JobId=12 JobState=COMPLETING Restarts=1\n")
    (tmp_path / "scontrol").chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(toy_folder), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env |= {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "node1", "SLURMD_NODENAME": "node1"}
    plan.write_text(PLAN.replace("blocks = 2", "blocks = 1000\nseconds = 1"))
    command = [sys.executable, "-m", "benchmarker", "plan", "run"]
    with subprocess.Popen(
        [*command, "plan.toml", "-v"], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    ) as run:
        seen = []
        while not (seen and "warm-up took" in seen[-1]):
            seen.append(run.stderr.readline())
            assert seen[-1], seen
        run.terminate()
        rest = run.stderr.read()
    assert run.returncode == 143, rest
    assert "preempted: 0 of 4 trials are stored in " in rest
    (folder,) = (tmp_path / "results").iterdir()
    (path,) = folder.glob("2*.json")
    cut = store.read_record(path)
    assert cut.error.kind == "preempted"
    assert cut.error.stage in ("preheat", "timed")
    assert cut.error.message == "the allocation was taken away: slurm job 12 on node1"
    again = {**env, "SLURM_RESTART_COUNT": "1"}
    done = subprocess.run([*command, folder], cwd=tmp_path, env=again, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [record.allocation.restarts for record in store.read([folder])[0]] == [1] * 4
    assert not path.exists()


@pytest.mark.slow
def test_an_unfinished_round_of_this_host_goes_on(cli, plan) -> None:
    cli("plan", "run", "plan.toml")
    (folder,) = Path("results").iterdir()
    paths = sorted(folder.glob("2*.json"))
    paths[3].unlink()
    cli("plan", "run", "plan.toml", "--resume")
    assert [path.exists() for path in paths] == [True, True, True, False]
    assert len(list(folder.glob("2*.json"))) == 4


def test_a_process_that_the_launcher_has_lost_ends_after_its_trial(cli, plan, monkeypatch) -> None:
    folder = waiting(plan, cli, monkeypatch)
    monkeypatch.setattr(launchers, "allocation", lambda: Allocation("local", "elsewhere:1:1.00", ["node1"], 0))
    (folder / "attempt-1.json").write_text("{}")  # the next start, which has not the lock yet
    done = cli("plan", "run", str(folder))
    assert done.returncode == 2
    assert f"the launcher has started {folder} again; the run goes on there" in done.stderr
    assert list(folder.glob("2*.json")) == []
    assert json.loads((folder / "attempt-0.json").read_text())["ending"] == "error"


def test_other_software_than_that_of_the_submission_is_refused(cli, plan, monkeypatch) -> None:
    folder = waiting(plan, cli, monkeypatch)
    job = jobs.job_of(folder)
    old = dict(job.installed.distributions) | {"toy": "0.9", "gone": "1.0"}
    jobs.save_job(
        folder, msgspec.structs.replace(job, installed=jobs.Installed("cpython 3.9", job.installed.commit, old))
    )
    done = cli("plan", "run", str(folder))
    now = job.installed.python
    assert done.returncode == 2
    assert done.stderr == (
        f"benchmarker: error: the software here is not that of the submission: Python cpython 3.9 → {now}, "
        f"toy 0.9 → 1.0, gone 1.0 → none; submit {folder} again\n"
    )
    assert not (folder / "plan.json").exists()


def test_a_dry_run_prints_the_script_and_leaves_nothing(cli, plan, tmp_path) -> None:
    (tmp_path / "site.toml").write_text(
        'launcher = "slurm"\nsetup = ["module load cuda"]\nprefix = ["apptainer", "exec", "my image.sif"]\n'
        '[options.slurm]\npartition = "gpu"\ntime = 60\nexclusive = true\nrequeue = false\n'
    )
    done = cli("submit", "plan.toml", "--dry-run", "-o", "time=5", "-o", "cpus_per_task=8")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "#!/bin/bash"
    assert lines.index("set -e") < lines.index("module load cuda")
    assert {"#SBATCH --partition=gpu", "#SBATCH --time=5", "#SBATCH --exclusive", "#SBATCH --cpus-per-task=8"} <= {
        *lines
    }
    assert lines[-4:-1] == [f"cd {tmp_path}", "module load cuda", ""]
    assert lines[-1].startswith("exec apptainer exec 'my image.sif' ")
    assert f"-m benchmarker plan run {tmp_path}/results/2" in lines[-1]
    assert not (tmp_path / "results").exists()


HOSTILE = "results\ntouch run-by-bash #"
"""What follows the newline would be a command of the script."""


@pytest.mark.parametrize("where", ["results", "run", "working directory"])
@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--launcher=slurm", "--dry-run")])
def test_a_newline_in_the_name_of_a_folder_runs_nothing(cli, plan, tmp_path, monkeypatch, where, words) -> None:
    what, folder, remedy = "plan.toml", tmp_path / HOSTILE, "name another folder with --results"
    if where == "results":
        words = (f"--results={HOSTILE}", *words)
    elif where == "run":
        made = waiting(plan, cli, monkeypatch)
        jobs.save_job(made, msgspec.structs.replace(jobs.job_of(made), number=None))
        made.rename(folder)
        what = str(folder)
    else:
        folder.mkdir()
        monkeypatch.chdir(folder)
        what, words, remedy = str(plan), (f"--results={tmp_path / 'results'}", *words), "submit from another folder"
    done = cli("submit", what, "--launcher=local", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert r"results\ntouch run-by-bash #" in done.stderr
    assert done.stderr.endswith(f" cannot be in the script of a job, because a character is not printable; {remedy}\n")
    assert not [path for name in ("run-by-bash", "job.log") for path in tmp_path.rglob(name)]


@pytest.mark.parametrize(
    ("setup", "complaint"),
    [
        (["module load 'cuda"], "unexpected EOF while looking for matching"),
        (["if true; then"], "unexpected end of file"),
        (["module load cuda &&"], "unexpected end of file"),
        (["cat <<END"], "here-document"),
        (["fi"], "syntax error near unexpected token `fi'"),
    ],
)
def test_a_setup_that_bash_does_not_understand_is_refused(cli, plan, tmp_path, setup, complaint) -> None:
    (tmp_path / "site.toml").write_text(f"setup = {json.dumps(setup)}")
    for more in ((), ("--dry-run",)):
        done = cli("submit", "plan.toml", "--launcher=local", *more)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("benchmarker: error: setup in the settings of the site is not valid for bash: ")
        assert complaint in done.stderr
    assert not [*Path("results").glob("*")]


def test_a_setup_that_fails_ends_the_job_before_the_run_begins(cli, plan, tmp_path) -> None:
    (tmp_path / "site.toml").write_text('setup = ["echo begun", "module-that-is-missing", "touch after"]')
    made = submitted(cli)
    job = wait(cli, "stopped", "done")
    assert (job["state"], job["done"], job["attempts"]) == ("stopped", 0, [])
    assert job["detail"] == "the run never began: the process has ended; see job.log"
    assert "module-that-is-missing" in Path(made["log"]).read_text()
    assert not Path("after").exists()


def test_a_backslash_at_the_end_of_the_setup_takes_in_nothing(cli, plan, tmp_path) -> None:
    (tmp_path / "site.toml").write_text("setup = ['echo begun \\']\nprefix = ['echo', 'ran']")
    script = cli("submit", "plan.toml", "--launcher=local", "--dry-run").stdout
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert (first, second.startswith(f"ran {sys.executable} -m benchmarker plan run ")) == ("begun", True)


def test_a_folder_whose_name_begins_with_a_dash_is_no_option(cli, plan, monkeypatch) -> None:
    from benchmarker_plugins.launchers import local

    paths: list[Path] = []
    monkeypatch.setattr(local.Local, "submit", lambda _, *given: paths.extend(given) or "elsewhere:1:1.00")
    submitted(cli, "--results=--wrap=ls")
    assert [path.is_absolute() for path in paths] == [True, True]


def damage(folder: Path, how: str) -> None:
    """Damage what is known of a job."""
    path = folder / ("attempt-0.json" if how == "start" else "plan.json" if how == "plan" else "job.json")
    content = {
        "cut": path.read_bytes()[:40] if path.exists() else b"",
        "other": b'{"launcher": "local", "number": "7", "surprise": 1}',
        "bytes": b"\xff\x00",
        "start": b"[]",
        "plan": b"{}",
    }
    path.unlink(missing_ok=True)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(content[how])


@pytest.mark.parametrize("how", ["cut", "other", "bytes", "start", "plan", "pipe", "folder", "endless"])
def test_a_damaged_job_is_a_row_with_its_fault_and_all_others_are_shown(cli, plan, monkeypatch, how) -> None:
    sound, damaged = waiting(plan, cli, monkeypatch), waiting(plan, cli, monkeypatch)
    damage(damaged, how)
    first, second = told(cli)
    assert (first["folder"], first["detail"]) == (str(sound), "of another machine")
    assert (second["folder"], second["state"]) == (str(damaged), "unknown")
    assert second["detail"].startswith(f"{damaged}/")
    assert second["job"] == ("elsewhere:1:1.00" if how in ("start", "plan") else None)
    table = cli("jobs")
    assert table.returncode == 0
    assert f"{damaged.name}: unknown: {damaged}/" in table.stdout


@pytest.mark.parametrize(
    ("launcher", "number"),
    [
        *(("local", number) for number in ("", "7", "elsewhere", "HERE:-1:2", f"HERE:{'9' * 5000}:2", "\x1b[2J")),
        ("local", "HERE:4999999:"),  # it ended before anyone could see when it had begun
        ("slurm", "--user=root\n"),
        ("../x\n", "7"),
    ],
)
def test_a_foreign_number_of_a_job_is_a_row(cli, plan, monkeypatch, tmp_path, launcher, number) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'JOBID|STATE|NODELIST|REASON'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    folder = waiting(plan, cli, monkeypatch)
    number = number.replace("HERE", socket.gethostname())
    jobs.save_job(folder, msgspec.structs.replace(jobs.job_of(folder), launcher=launcher, number=number))
    (job,) = told(cli)
    assert job["state"] in ("unknown", "stopped")
    assert job["detail"]
    assert "\x1b" not in cli("jobs").stdout


def test_a_run_is_submitted_again_with_its_last_options(cli, plan, tmp_path, monkeypatch) -> None:
    folder = waiting(plan, cli, monkeypatch)
    job = jobs.job_of(folder)
    jobs.save_job(folder, msgspec.structs.replace(job, launcher="slurm", options={"time": "5", "mem": "1G"}))
    (tmp_path / "site.toml").write_text('launcher = "local"\n[options.slurm]\npartition = "gpu"\n')
    lines = cli("submit", str(folder), "--dry-run", "-o", "time=9").stdout.splitlines()
    assert {"#SBATCH --time=9", "#SBATCH --mem=1G"} <= set(lines)
    assert not any("partition" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "settings", "complaint"),
    [
        ([], "", "no launcher is given; name one with --launcher, such as --launcher=slurm"),
        (["--launcher=slrm"], "", "no launcher is named 'slrm'; did you mean slurm?"),
        (["--launcher=local", "-o", "time=5"], "", "launcher.local has no options; leave -o time out"),
        ([], "launchers = 1", "site.toml: the file has no key launchers; there are: launcher, options, setup, prefix"),
        ([], "launcher = [", "not TOML"),
    ],
)
def test_mistakes_are_one_line_with_the_remedy(cli, plan, tmp_path, words, settings, complaint) -> None:
    (tmp_path / "site.toml").write_text(settings)
    done = cli("submit", "plan.toml", *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_a_faulty_plan_is_refused_before_it_is_submitted(cli, plan) -> None:
    plan.write_text(PLAN.replace("nap", "nop"))
    assert "plan.toml: no problem is named 'nop'" in cli("submit", "plan.toml", "--launcher=local").stderr
    assert not Path("results").exists()


def test_a_job_that_cannot_be_noted_is_cancelled(cli, plan, monkeypatch) -> None:
    from benchmarker_plugins.launchers import local

    cancelled = []
    monkeypatch.setattr(local.Local, "submit", lambda *_: "elsewhere:1:1.00")
    monkeypatch.setattr(local.Local, "cancel", lambda _, job: cancelled.append(job))
    save = jobs.save_job

    def full(path: Path, job: jobs.Job) -> None:
        if job.number:
            raise OSError(28, os.strerror(28))
        save(path, job)

    monkeypatch.setattr(jobs, "save_job", full)
    done = cli("submit", "plan.toml", "--launcher=local")
    assert "No space left on device; job elsewhere:1:1.00 was cancelled" in done.stderr
    assert cancelled == ["elsewhere:1:1.00"]


@pytest.mark.slow
def test_what_failed_is_told_with_the_node(cli, plan) -> None:
    plan.write_text(PLAN.replace("[axes]\nms = [1.0, 2.0]", '[axes]\nfault = ["none", "exit"]'))
    submitted(cli)
    job = wait(cli, "done")
    assert [(each["kind"], each["exit"], each["host"]) for each in job["failures"]] == [
        ("exception", 3, job["nodes"])
    ] * 2
    stage = job["failures"][0]["stage"]
    assert f"2 trials failed on {job['nodes']} in {stage} (exception): " in cli("jobs").stdout


def test_a_start_that_was_lost_with_its_node_is_told(cli, plan, monkeypatch) -> None:
    folder = waiting(plan, cli, monkeypatch)
    for number, node in enumerate(["node1", "node2"]):
        attempt = jobs.Attempt(host=node, allocation=Allocation("local", "7", [node], number), started_at="now")
        atomic.write(store.attempt_path(folder, number), atomic.encode(attempt))
    printed = cli("jobs").stdout
    assert f"{folder.name}: start 0 on node1 ended without warning: the node failed, or it was killed\n" in printed
    assert "start 1" not in printed


def test_what_the_launcher_cannot_tell_is_unknown(cli, plan, monkeypatch) -> None:
    folder = waiting(plan, cli, monkeypatch)
    (job,) = told(cli)
    assert (job["state"], job["detail"], job["planned"]) == ("unknown", "of another machine", None)
    jobs.save_job(folder, msgspec.structs.replace(jobs.job_of(folder), launcher="gone"))
    (job,) = told(cli)
    assert job["state"] == "unknown"
    assert "no launcher is named 'gone'" in job["detail"]
    assert cli("jobs", "--watch", "--json").returncode == 2
    Path("empty").mkdir()
    assert cli("jobs", "empty").stdout == "no run below empty was submitted\n"
    missing = cli("jobs", "nowhere")
    assert (missing.returncode, missing.stderr) == (2, "benchmarker: error: nowhere: no such file or folder\n")
