"""`bisect` over a repository with a real slow-down, in real processes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CASE = """import time

import numpy as np

from package import SECONDS


def inputs(n=64):
    return np.ones(n)


def doubled(x):
    time.sleep(SECONDS)
    return 2 * x
"""


@pytest.mark.slow
def test_the_commit_is_found_and_a_resumed_search_measures_nothing_again(command, tmp_path):
    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main", ".")
    (tmp_path / "source").mkdir()
    for number in range(9):
        seconds = 0.01 if number < 6 else 0.02
        (tmp_path / "source/package.py").write_text(f"SECONDS = {seconds}  # {number}\n")
        git("add", "source")
        git("commit", "-qm", f"change {number}")
    (tmp_path / "case.py").write_text(CASE)  # no commit has it
    # What a build installs is found: here it links its package into the environment of the commit.
    build = "cp source/package.py $(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
    words = ("bisect", "--good=HEAD~8", f"--build={build}", "--json", "--resume", "--", "run", "case.py:doubled")
    options = ("--framework=numpy", "--blocks=3", "--seconds=0.05", "--power=none")
    done = command(*words, *options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["outcome"], found["commit"]["subject"]) == ("commit", "change 6")
    assert found["comparison"]["verdict"] == "slower"
    assert 1.7 < found["comparison"]["ratio"] < 2.2
    assert found["skipped"] == {}
    records = sorted((tmp_path / "results").glob("*-*/*/*.json"))
    assert json.loads(command(*words, *options).stdout)["commit"] == found["commit"]
    assert sorted((tmp_path / "results").glob("*-*/*/*.json")) == records
    assert (tmp_path / "source/package.py").read_text() == "SECONDS = 0.02  # 8\n"


@pytest.mark.slow
def test_a_search_that_was_ended_goes_on_and_leaves_the_checkout_as_it_was(tmp_path):
    """By SIGKILL in a build, by Ctrl-C in a trial, and by SIGKILL in a later one."""

    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True, text=True)
        return done.stdout

    def until(there):
        deadline = time.monotonic() + 60
        while not there():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def records():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "results").glob("*-*/*/2*.json")}

    git("init", "-q", "-b", "main", ".")
    (tmp_path / ".gitignore").write_text("results\nbuilding\n")
    for number, seconds in enumerate((0.01, 0.03)):
        (tmp_path / "case.py").write_text(CASE.replace("from package import SECONDS", f"SECONDS = {seconds}"))
        git("add", "-A")
        git("commit", "-qm", f"change {number}")
    (tmp_path / "case.py").write_text("# changed and not committed\n")
    (tmp_path / "own.txt").touch()
    before = git("status", "--porcelain", "--branch"), git("rev-parse", "HEAD")
    build = f"test -e {tmp_path}/building || {{ echo $$ > {tmp_path}/building; sleep 600; }}"
    words = ("bisect", "--good=HEAD~1", f"--build={build}", "--json", "--resume", "--", "run", "case.py:doubled")
    search = [sys.executable, "-m", "benchmarker", *words, "--framework=numpy", "--blocks=3", "--power=none"]

    def ended_by(number, ready):
        process = subprocess.Popen(search, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            until(ready)
            time.sleep(0.2)
            process.send_signal(number)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
        assert (git("status", "--porcelain", "--branch"), git("rev-parse", "HEAD")) == before
        return said

    building = tmp_path / "building"
    ended_by(signal.SIGKILL, lambda: building.exists() and building.read_text().endswith("\n"))
    until(lambda: not Path("/proc", building.read_text().strip()).exists())
    assert "--resume" in ended_by(signal.SIGINT, lambda: len(records()) >= 3)
    first = records()
    ended_by(signal.SIGKILL, lambda: len(records()) >= len(first) + 2)
    second = records()
    done = subprocess.run(search, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["outcome"], found["commit"]["subject"]) == ("commit", "change 1")
    assert first.items() <= second.items() <= records().items()
    assert len(records()) == sum(found["comparison"]["trials"])
    assert git("worktree", "list").count("results/.builds") == 2
    assert (git("status", "--porcelain", "--branch"), git("rev-parse", "HEAD")) == before
