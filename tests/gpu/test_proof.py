"""How tests on a GPU run: limits, verdicts, going on, and what is left behind; and some of them, rehearsed on a CPU."""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
TOYS = """
import time
import pytest
from support.gpu import Outcome

@pytest.mark.gpu(limit_s=30)
@pytest.mark.parametrize("framework", ["toy"])
def test_counted(tool, framework):
    '''{framework} holds.'''
    tool.note("once")
    times = (tool.folder / "log.txt").read_text().count("once")
    tool.judge(Outcome(f"{times} times on {tool.device}", values={"times": times}))

@pytest.mark.gpu(limit_s=30)
def test_wrong(tool):
    tool.judge(Outcome("1.07", ["more than 1.01\\x1b[31m\\nin a second line"]))

@pytest.mark.gpu(limit_s=30)
def test_absent(tool):
    pytest.skip("no such card")

@pytest.mark.gpu(limit_s=30)
def test_raising(tool):
    raise RuntimeError("a library broke")

@pytest.mark.gpu(limit_s=2)
def test_hanging(tool):
    tool.execute("timeit", "-n1", "-r1", "import time; time.sleep(60)")
"""


def words(*options: str) -> list[str]:
    pytest_ = [sys.executable, "-m", "pytest", f"--config-file={ROOT}/pyproject.toml", "-p", "no:cacheprovider"]
    return [*pytest_, "-v", "-m", "gpu", *options]


@pytest.fixture
def toys(tmp_path):
    """Runs toy tests with the options of tests on a GPU."""
    (tmp_path / "gpu").mkdir()
    shutil.copy(ROOT / "tests/gpu/conftest.py", tmp_path / "gpu")
    (tmp_path / "gpu/test_toys.py").write_text(TOYS)

    def run(*options: str, device: str = "rocm") -> subprocess.CompletedProcess[str]:
        command = words("--rootdir=.", "gpu", "--output=proof", f"--device={device}", *options)
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.slow
def test_each_test_has_its_verdict_and_reason(toys, tmp_path):
    done = toys()
    assert done.returncode == 1, done.stdout
    summary = json.loads((tmp_path / "proof/summary.json").read_text())
    entries = {entry["name"]: (entry["verdict"], entry["figure"], entry["reason"]) for entry in summary["entries"]}
    assert entries == {
        "counted-toy": ("PASS", "1 times on rocm", ""),
        "wrong": ("FAIL", "1.07", "more than 1.01\\x1b[31m in a second line"),
        "absent": ("not here", "", "no such card"),
        "raising": ("FAIL", "", "RuntimeError: a library broke"),
        "hanging": ("FAIL", "", "not finished after 2 s, its limit"),
    }
    assert summary["left"] == []
    assert summary["entries"][0]["values"] == {"times": 1}
    page = (tmp_path / "proof/summary.md").read_text()
    assert page.count("| FAIL |") == 3
    assert "| toy holds (`counted-toy`) | PASS | 1 times on rocm | " in page
    assert "1 PASS, 3 FAIL, 1 not here; proof/summary.md" in done.stdout
    assert "test_counted[toy] PASS  1 times on rocm" in done.stdout
    assert re.search(r"SKIPPED \[1\] .*test_toys.py:\d+: no such card", done.stdout)


@pytest.mark.slow
def test_it_goes_on_where_it_was_and_repeats_what_is_asked(toys):
    some = ("-k", "counted or absent")
    assert toys(*some).returncode == 0
    assert toys(*some).returncode == 0
    assert "PASS  2 times" in toys(*some, "--again").stdout
    assert toys(*some, "--minutes=0.1").returncode == 0  # what is not here does not count as left
    assert "PASS  3 times on cpu" in toys(*some, device="cpu").stdout  # a verdict on another device says nothing


@pytest.mark.slow
def test_a_test_begins_only_if_its_limit_fits_into_the_time(toys):
    done = toys("--minutes=0.4")
    assert done.returncode == 1
    assert "FAIL  " not in done.stdout
    assert "0 PASS, 1 FAIL, 0 not here" in done.stdout
    assert "4 left; the same command continues: counted-toy, wrong, absent, raising" in done.stdout
    assert toys("-k", "absent").returncode == 1  # what was skipped alone shows nothing


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_leaves_no_process_and_no_verdict(toys, tmp_path, number):
    command = words("--rootdir=.", "gpu", "--output=proof", "--device=rocm", "-k", "hanging or counted")
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert any("counted" in line for line in process.stdout)
        deadline = time.monotonic() + 10
        while not (started := psutil.Process(process.pid).children()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
    assert started
    assert psutil.wait_procs(started, timeout=10)[1] == []
    entries = json.loads((tmp_path / "proof/summary.json").read_text())["entries"]
    assert [entry["name"] for entry in entries] == ["counted-toy"]


def test_a_machine_without_a_gpu_is_told_in_a_line(tmp_path):
    command = words(str(ROOT / "tests/gpu"), "--output=proof")
    env = {**os.environ, "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Exit: no test can run: there is no nvidia-smi, which NVIDIA's driver brings; "
        "--device=cpu rehearses them at small sizes\n"
    )
    assert not (tmp_path / "proof").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "status", "message"),
    [
        ("--minutes=-1", 4, "argument --minutes: '-1' is not a positive number of minutes"),
        ("--minutes=x", 4, "argument --minutes: 'x' is not a positive number of minutes"),
        ("--device=tpu", 4, "argument --device: invalid choice: 'tpu'"),
        ("--output=/proc/proof", 2, "Exit: cannot write to /proc/proof: No such file or directory"),
    ],
)
def test_options_are_checked(toys, option, status, message):
    done = toys(option)
    assert done.returncode == status
    assert message in done.stderr


def test_each_test_has_a_limit_that_fits_into_a_call_and_stands_in_gpu_md():
    functions = [
        function
        for path in sorted((ROOT / "tests/gpu").glob("test_*.py"))
        for function in vars(importlib.import_module(f"gpu.{path.stem}")).values()
        if any(mark.name == "gpu" for mark in getattr(function, "pytestmark", ()))
    ]
    limits = [mark.kwargs["limit_s"] for function in functions for mark in function.pytestmark if mark.name == "gpu"]
    assert max(limits) <= 540
    names = [function.__name__.removeprefix("test_").replace("_", "-") for function in functions]
    assert len({*names}) == len(names)
    table = (ROOT / "docs/gpu.md").read_text().partition("## The tests")[2].partition("## ")[0]
    patterns = [name for cell in re.findall(r"^\| (`.+`) \|", table, re.M) for name in re.findall("`(.+?)`", cell)]
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in names)
    assert all(any(fnmatch(name, pattern) for name in names) for pattern in patterns)


@pytest.mark.slow
@pytest.mark.parametrize(
    "test",
    [
        "test_speed.py::test_product[torch]",
        "test_speed.py::test_product[jax]",
        "test_speed.py::test_copy[torch]",
        "test_speed.py::test_loop[jax]",
        "test_speed.py::test_quick_ceilings[torch]",
        "test_profiles.py::test_trace[torch]",
        "test_profiles.py::test_trace[jax]",
    ],
)
def test_a_test_can_be_rehearsed_on_a_cpu(test, tmp_path):
    """Every command works, and there is a figure; the verdict of a timing on a busy CPU is chance."""
    command = words("--rootdir", str(ROOT), "--device=cpu", f"--output={tmp_path}/proof", f"{ROOT}/tests/gpu/{test}")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    (entry,) = json.loads((tmp_path / "proof/summary.json").read_text())["entries"]
    assert entry["figure"], done.stdout
    assert entry["verdict"] == "PASS" or "test_speed" in test, entry
