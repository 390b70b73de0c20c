"""Nothing is left running: not after a trial, and not after the tool itself is killed, whatever a plugin does."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.toy import install

PLUGIN = """
    import ctypes, os, signal
    from pathlib import Path
    from benchmarker import Device, Framework, FrameworkInfo, hookimpl

    HOW = os.environ["HOW"]

    def stay(*, busy):
        with Path("pids").open("a") as file: file.write(f"{os.getpid()}\\n")
        if HOW == "stopped" and busy: os.kill(os.getpid(), signal.SIGSTOP)
        ctypes.PyDLL(None).sleep(600)  # holds the interpreter's lock

    @hookimpl
    def describe_framework():
        return FrameworkInfo("clinging", "1.0", (Device("cpu", "any", ("fp32",)),), "never", {})

    @hookimpl
    def make_framework():
        return Clinging()

    class Clinging(Framework):
        def synchronize(self, result): pass
        def is_finite(self, result): return True
        def threads(self): return 1
        def peak_memory_bytes(self): return None
        def settings(self):
            if HOW == "session" and os.fork() == 0:
                os.setsid()
                if os.fork() == 0: stay(busy=False)
                os._exit(0)
            if HOW in ("busy", "stopped"): stay(busy=True)
            return {}
"""
WORKLOAD = """
    import os, time
    from benchmarker import Support, Workload, hookimpl

    @hookimpl
    def describe_workload():
        return Support({"inference": ("fp32",)})

    @hookimpl
    def build_workload(data):
        def step():
            time.sleep(float(os.environ["STEP_S"]))
            return 1.0
        return Workload(step, lambda result: {"x": data.batches[0]["x"]})
"""
METER = """
    from clinging import stay
    from benchmarker import Channel, Meter, hookimpl

    @hookimpl
    def make_meter():
        return Hanging()

    class Hanging(Meter):
        channels = (Channel(id="id", domain="gpu", quantity="energy_J"),)
        unavailable = ()
        def read(self):
            stay(busy=False)
            return (1.0,)
"""
ENTRIES = {"framework.clinging": "clinging", "workload.nap.clinging": "clinging.nap", "meter.hanging": "clinging.meter"}
FILES = {"__init__.py": PLUGIN, "nap.py": WORKLOAD, "meter.py": METER}


@pytest.fixture
def start(tmp_path, toy_folder):
    """Starts a run of a plugin that clings to life in some way."""
    install(tmp_path / "site", "clinging", ENTRIES, FILES)

    def start(how, step_s, *words):
        command = ["run", "--framework=clinging", "--problem=nap", "--trials=1", "--blocks=2", "--results=r", *words]
        path = f"{toy_folder}:{tmp_path / 'site'}"
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarker", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "HOW": how, "STEP_S": str(step_s)},
            stderr=subprocess.PIPE,
        )

    return start


def lines(path: Path) -> list[int]:
    deadline = time.monotonic() + 120
    while not path.exists() or not path.read_text().endswith("\n"):
        assert time.monotonic() < deadline, "the plugin never began"
        time.sleep(0.05)
    return [int(line) for line in path.read_text().split()]


def alive(pids: list[int]) -> list[int]:
    """Those of the processes that have not ended within some seconds."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)
    left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


@pytest.mark.parametrize(
    ("how", "step_s", "words"),
    [
        ("busy", 0, ["--power=none"]),
        ("stopped", 0, ["--power=none"]),
        ("session", 600, ["--power=none"]),
        ("meter", 600, ["--power=hanging", "--power-idle=0"]),
    ],
)
def test_nothing_survives_the_tool_that_is_killed(start, tmp_path, how, step_s, words):
    with start(how, step_s, *words) as process:
        pids = lines(tmp_path / "pids")
        process.kill()
    assert alive(pids) == []


def test_nothing_that_a_worker_started_survives_its_trial(start, tmp_path):
    with start("session", 0, "--power=none") as process:
        assert process.wait(60) == 0
    assert alive(lines(tmp_path / "pids")) == []
