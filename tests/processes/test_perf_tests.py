"""The example of perf tests, as a user of pytest measures and compares it, with a real slow-down."""

import json
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "perf-tests"
FAST = """    sums = np.cumsum(np.concatenate([[0.0], x]))
    return (sums[width:] - sums[:-width]) / width
"""
SLOW = """    return np.convolve(x, np.full(width, 1 / width), "valid")
"""
ONE = ("tests/perf", "-k", "test_moving_mean and 1024")


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        speed = folder / "tests/perf/test_speed.py"
        marked = "pytestmark = pytest.mark.benchmarker(seconds=0.2, cache='hot')\n\n\n@pytest.fixture"
        speed.write_text(speed.read_text().replace("@pytest.fixture", marked))
        self.git("init", "-q", "-b", "main", ".")
        (folder / ".gitignore").write_text("results\nbase\nkept\n__pycache__\n")
        self.commit("Mean by cumulative sums")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(["git", "-C", str(self.folder), *who, *words], check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self, message: str) -> None:
        self.git("add", ".")
        self.git("commit", "-qm", message)

    def run(self, *words: str, status: int = 0) -> str:
        words = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words)
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout


@pytest.mark.slow
def test_a_slow_down_fails_the_test_against_an_archive_and_against_a_revision(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    project = Project(tmp_path / "project")
    assert "6 passed" in project.run()
    said = project.run("--benchmarker=run", "--benchmarker-trials=5", "--benchmarker-results=base", *ONE)
    assert "tests/perf/test_speed.py:test_moving_mean width=1024" in said
    records = [json.loads(path.read_text()) for path in (project.folder / "base").glob("*/2*.json")]
    assert [record["status"] for record in records] == ["ok"] * 5
    assert {record["case"]["precision"] for record in records} == {"fp64"}
    assert {record["design"]["in_process"] for record in records} == {False}
    again = "python -m pytest --benchmarker=run 'tests/perf/test_speed.py::test_moving_mean[1024]'"
    assert {record["command"] for record in records} == {again}
    benchmarker = (sys.executable, "-m", "benchmarker", "archive", "add", "base", "--to=kept")
    subprocess.run(benchmarker, cwd=project.folder, check=True, capture_output=True)

    package = project.folder / "src/smoothing/__init__.py"
    package.write_text(package.read_text().replace(FAST, SLOW))
    compare = ("--benchmarker=compare", *ONE)
    said = project.run(*compare, "--benchmarker-baseline=kept", "--benchmarker-trials=5", status=1)
    assert "slower: this checkout takes " in said
    project.commit("Let moving_mean be one line")

    words = (*compare, "--benchmarker-baseline=HEAD~1", "--benchmarker-max-rounds=6", "--junitxml=junit.xml")
    said = project.run("-q", *words, status=1)
    assert "slower: this checkout takes " in said
    assert "x as long as HEAD~1" in said
    (case,) = ET.parse(project.folder / "junit.xml").iter("testcase")
    named = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert named["benchmarker.verdict"] == "slower"
    assert 1 < float(named["benchmarker.low"]) < float(named["benchmarker.ratio"]) < float(named["benchmarker.high"])
    assert case.find("failure") is not None
    (project.folder / "junit.xml").unlink()
    assert project.git("status", "--porcelain") == ""


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_measured_and_a_failure_of_the_baseline_is_told(tmp_path):
    project = Project(tmp_path / "project")
    package = project.folder / "src/smoothing/__init__.py"
    package.write_text(package.read_text().replace("def runs(", "def runs_of(").replace("runs(aab)", "runs_of(aab)"))
    for test in (project.folder / "tests").rglob("*.py"):
        test.write_text(test.read_text().replace("moving_median, runs", "moving_median, runs_of as runs"))
    words = ("--benchmarker=compare", "--benchmarker-baseline=HEAD", "tests/perf", "-k", "test_runs")
    said = project.run(*words)
    assert "test_runs: not compared: at HEAD, the test ended before it called `measure`: " in said
    assert "cannot import name 'runs_of'" in said

    words = (sys.executable, "-m", "pytest", "--benchmarker=run", "--benchmarker-results=cut", "tests/perf")
    with subprocess.Popen(words, cwd=project.folder, stdout=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 120
        while len([*(project.folder / "cut").glob("*/2*.json")]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=60)
    assert running.returncode == pytest.ExitCode.INTERRUPTED
    validate = (sys.executable, "-m", "benchmarker", "validate", "cut", "--json")
    done = subprocess.run(validate, cwd=project.folder, capture_output=True, text=True)
    assert json.loads(done.stdout)["valid"] >= 2
    assert json.loads(done.stdout)["faults"] == []
