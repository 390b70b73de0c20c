"""Runs that are killed or get a signal at a random time, and are resumed.

Lost is a trial whose record is missing, doubled or not valid.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from tally import LONGEST_S, Tally

from benchmarker.records import store

TRIALS = 3
RUN = (
    *("run", "--framework=numpy", "--problem=gemm", "--m=64", "--n=64", "--k=64"),
    *("--blocks=3", "--power=none", "--results=r", f"--trials={TRIALS}"),
)


def kills(count: int, rng: random.Random) -> Tally:
    """Kill runs at random times, from their first moment until they have ended."""
    return strikes(count, (signal.SIGKILL,), rng)


def signals(count: int, rng: random.Random) -> Tally:
    """Do the same with signals that a run hears."""
    return strikes(count, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), rng)


def strikes(count: int, numbers: tuple[int, ...], rng: random.Random) -> Tally:
    """Strike runs at random times."""
    tally = Tally()
    for _ in range(count):
        with tempfile.TemporaryDirectory() as name:
            strike(Path(name), rng.choice(numbers), rng.uniform(0.05, 4.0), tally)
    return tally


def strike(folder: Path, number: int, after_s: float, tally: Tally) -> None:
    """Send a signal to a run after some time; then nothing may be left running, and the run can be resumed."""
    tally.attacks += 1
    command = [sys.executable, "-m", "benchmarker"]
    with subprocess.Popen(
        [*command, *RUN], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        time.sleep(after_s)
        started = []
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(number)
        try:
            _, said = run.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            run.kill()
            tally.bad("hang", f"signal {number} after {after_s:.3f} s")
            return
    where = f"signal {number} after {after_s:.3f} s"
    if "Traceback" in said:
        tally.bad("traceback", f"{where}: {said.strip().splitlines()[-1]}")
    _, alive = psutil.wait_procs(started, timeout=5)
    for each in alive:
        tally.bad("orphan", f"{where}: {each}")
        each.kill()
    if [*folder.glob("r/*/plan.json")]:
        again = subprocess.run(
            [*command, *RUN, "--resume"], cwd=folder, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        if again.returncode and "no unfinished run" not in again.stderr:
            tally.bad("lost", f"{where}: resume ended with {again.returncode}: {again.stderr.strip()[-300:]}")
        records, faults = store.read([folder / "r"])
        if faults or sorted(record.trial for record in records) != list(range(TRIALS)):
            tally.bad("lost", f"{where}: {[record.trial for record in records]} {faults}")
        if left := list(folder.glob("r/*/.*")):
            tally.bad("left lying", f"{where}: {left}")
