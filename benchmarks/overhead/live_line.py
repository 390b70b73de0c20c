"""Measure how much the live line of a terminal slows what is measured on all cores.

In each round `run` measures the same matrix products three times, in random order: with progress in a terminal, with
progress in a pipe, and again in a pipe, whose difference is the noise of the machine. A round's value is the logarithm
of the ratio of two median step times.
"""

from __future__ import annotations

import math
import os
import pty
import random
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click
import numpy as np
from duet import ratio

from benchmarker.records import store
from benchmarker.records.step_times import step_times

WAYS = ("pipe", "terminal", "pipe again")


@click.command()
@click.option("--rounds", type=click.IntRange(min=6), default=20, show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="Length of the timed part.")
def main(rounds: int, seconds: float) -> None:
    """Print the step time with progress in a terminal, and in a pipe again, divided by that in a pipe."""
    rng = random.Random(0)
    logs: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for way in rng.sample(WAYS, len(WAYS)):
                logs[way].append(math.log(step_s(Path(folder, f"{number}-{way}"), seconds, way == "terminal")))
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, {rounds} rounds")
    for way in WAYS[1:]:
        differences = [one - other for one, other in zip(logs[way], logs["pipe"], strict=True)]
        print(f"{way:10} / pipe {ratio(differences)}")


def step_s(results: Path, seconds: float, in_terminal: bool) -> float:
    """Measure once, and return the median step time, s."""
    words = ["run", "--framework=numpy", "--problem=gemm", "--m=1024", "--n=1024", "--k=1024", "--power=none"]
    words += ["--preheat", "--preheat-max=3", f"--seconds={seconds}", "--blocks=1000000", f"--results={results}"]
    parent, child = pty.openpty() if in_terminal else os.pipe()
    command = [sys.executable, "-m", "benchmarker", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=child, env={**os.environ, "TERM": "xterm"}):
        os.close(child)
        with suppress(OSError):  # the terminal is gone with the process
            while os.read(parent, 4096):
                pass
    os.close(parent)
    ((record,), _) = store.read([results])
    return float(np.median(step_times(record)))


if __name__ == "__main__":
    main()
