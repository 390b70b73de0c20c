"""Count how often tools call a difference where there is none, and how often they find one, beside a busy neighbour.

Two functions of one file repeat the same matrix product 100 and 100 or 103 times. The tools take turns in random order.
Each calls a difference by its own rule:

* Benchmarker: `ab` says faster or slower, with its defaults;
* torch.utils.benchmark: the medians of two `blocked_autorange` differ after rounding to `significant_figures`;
* pytest-benchmark: the medians differ by more than half of the searched difference, as `--benchmark-compare-fail` would
  be set;
* hyperfine: 1 is outside of the printed "times faster ± uncertainty", of 10 processes of each function.

A tool that is not installed is left out. Results are appended to a file, so that another call adds to them.
"""

import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1] / "verdicts" / "calibration"))

from live_runs import NEIGHBOUR

FUNCTIONS = """
import sys
import numpy as np

def inputs(): return np.random.default_rng(0).standard_normal((64, 64))

def repeated(x, times):
    for _ in range(times):
        y = x @ x
    return y

__all__ = ["one", "other"]
def one(x): return repeated(x, 100)
def other(x): return repeated(x, {times})

if __name__ == "__main__":
    x, function = inputs(), globals()[sys.argv[1]]
    for _ in range(300):
        function(x)
"""
TESTS = """
import pytest
import work

@pytest.mark.parametrize("function", [work.one, work.other])
def test_function(benchmark, function):
    benchmark(function, work.inputs())
"""
TIMER = """
import torch, work
from torch.utils.benchmark import Timer
x = work.inputs()
a, b = (Timer("f(x)", globals={"f": f, "x": x}).blocked_autorange(min_run_time=5) for f in (work.one, work.other))
shown = [torch.utils.benchmark.utils.common.trim_sigfig(m.median, m.significant_figures) for m in (a, b)]
print(0 if shown[0] == shown[1] else b.median / a.median)
"""
Called = float | None


def benchmarker(folder: Path, percent: int) -> Called:
    """Return the ratio of the times where a verdict says that they differ; None: it says the same, or is undecided."""
    from benchmarker import ab

    sides = [{"problem": str(folder / "work.py"), "function": name} for name in ("one", "other")]
    result = ab(sides[0], sides[1], threads=1, seconds=0.5, results=folder / "results")
    (comparison,) = result.family.comparisons
    return comparison.ratio if comparison.verdict in ("faster", "slower") else None


def torch(folder: Path, percent: int) -> Called:
    """Return the ratio of medians that differ in their significant figures."""
    return float(run([sys.executable, "-c", TIMER], folder)) or None


def pytest(folder: Path, percent: int) -> Called:
    """Return the ratio of medians that differ by more than half of `percent`, or of 3 where it is 0."""
    (folder / "test_work.py").write_text(TESTS)
    # Of two functions measured for 5 s each.
    options = ["--benchmark-json=out.json", "--benchmark-max-time=5", "-q", "-p", "no:cacheprovider"]
    run([sys.executable, "-m", "pytest", "--rootdir=.", *options, "test_work.py"], folder)
    one, other = (each["stats"]["median"] for each in json.loads((folder / "out.json").read_text())["benchmarks"])
    return other / one if abs(other / one - 1) > (percent or 3) / 200 else None


def hyperfine(folder: Path, percent: int) -> Called:
    """Return the ratio of means that differ by more than its printed uncertainty."""
    commands = [f"{sys.executable} work.py {name}" for name in ("one", "other")]
    run(["hyperfine", "-N", "--runs=10", "--warmup=1", "--export-json=out.json", *commands], folder)
    one, other = json.loads((folder / "out.json").read_text())["results"]
    ratio = other["mean"] / one["mean"]
    # As hyperfine computes what it prints: the relative standard deviations are added as of independent values.
    uncertain = ratio * math.hypot(*(each["stddev"] / each["mean"] for each in (one, other)))
    return ratio if abs(ratio - 1) > uncertain else None


def run(command: list[str], folder: Path) -> str:
    """Return what a command prints that runs with one thread; raises CalledProcessError if it fails."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads}
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


TOOLS: dict[str, Callable[[Path, int], Called]] = {
    "Benchmarker": benchmarker,
    "torch.utils.benchmark": torch,
    "pytest-benchmark": pytest,
    "hyperfine": hyperfine,
}
INSTALLED = {
    "torch.utils.benchmark": find_spec("torch"),
    "pytest-benchmark": find_spec("pytest_benchmark"),
    "hyperfine": shutil.which("hyperfine"),
}


@click.command()
@click.option("--times", default=50, show_default=True, help="Comparisons of each tool without and with a difference.")
@click.option("--percent", default=3, show_default=True, help="True difference, %.")
@click.option("--neighbour", "mean_s", default=1.0, show_default=True, help="Its mean time busy, and at rest, s.")
@click.option("--minutes", default=120.0, show_default=True, help="Start no comparison after this time.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build/beside_others.jsonl"), show_default=True)
def main(times: int, percent: int, mean_s: float, minutes: float, output: Path) -> None:
    """Print how often each tool calls a difference, as a Markdown table."""
    turns = [(name, each) for name in TOOLS if INSTALLED.get(name, True) for each in (0, percent)] * times
    random.shuffle(turns)
    deadline = time.monotonic() + 60 * minutes
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(mean_s)])
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        for name, each in turns:
            if time.monotonic() > deadline:
                break
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "work.py").write_text(FUNCTIONS.format(times=100 + each))
                start = time.monotonic()
                called = TOOLS[name](Path(folder), each)
            row = {"tool": name, "percent": each, "called": called, "seconds": time.monotonic() - start}
            with output.open("a") as file:
                print(json.dumps(row), file=file)
    finally:
        neighbour.kill()
        neighbour.wait()
    report(output)


def report(output: Path) -> None:
    """Print how often differences were called, with which ratios, and how long a comparison took."""
    rows = defaultdict(list)
    for line in output.read_text().splitlines():
        row = json.loads(line)
        rows[row["tool"], row["percent"]].append(row)
    print("| tool | difference | called | wrong way | called ratios | seconds |\n| --- | --- | --- | --- | --- | --- |")
    for (name, percent), made in sorted(rows.items()):
        ratios = [row["called"] for row in made if row["called"]]
        wrong = sum(ratio < 1 for ratio in ratios) if percent else "–"
        span = f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else "–"
        seconds = statistics.median(row["seconds"] for row in made)
        print(f"| {name} | {percent}% | {len(ratios)} of {len(made)} | {wrong} | {span} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
