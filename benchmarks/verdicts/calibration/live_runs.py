"""Run real pairs of sides, one side after the other beside a neighbour that comes and goes, with a known true ratio.

The contender repeats the same real work 10% more often in each step. Each side is a run that is spread over sessions,
as `suite run --runs` does it. The neighbour keeps one core busy for a random time and then rests for one. Everything is
computed from the records, so `--analyse` prints the table of earlier pairs again.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec
from experiment import Quiet, install, two_cases
from scipy import stats

NEIGHBOUR = """
import random, sys, time
while True:
    end = time.monotonic() + random.expovariate(1 / float(sys.argv[1]))
    while time.monotonic() < end:
        pass
    time.sleep(random.expovariate(1 / float(sys.argv[1])))
"""
PERCENT = 10


@click.command("live-runs")
@click.option("--pairs", default=20, show_default=True)
@click.option("--runs", default=3, show_default=True, help="Runs of a side.")
@click.option("--trials", default=3, show_default=True, help="Trials of a run.")
@click.option("--pause", "pause_s", default=12.0, show_default=True, help="Pause between runs, s.")
@click.option("--neighbour", "mean_s", default=10.0, show_default=True, help="Its mean time busy, and at rest, s.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results/calibration-runs"), show_default=True)
@click.option("--analyse", is_flag=True, help="Run nothing; print the table of the runs in --results.")
def live_runs(pairs: int, runs: int, trials: int, pause_s: float, mean_s: float, results: Path, analyse: bool) -> None:
    """Run pairs of sides with a known true ratio beside a neighbour, and print how often intervals contain it."""
    if not analyse:
        neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(mean_s)])
        try:
            with tempfile.TemporaryDirectory() as folder:
                install(Path(folder))
                measure(pairs, runs, trials, pause_s, results)
        finally:
            neighbour.kill()
            neighbour.wait()
    report(results)


def measure(pairs: int, runs: int, trials: int, pause_s: float, results: Path) -> None:
    """Measure the sides of pairs, one after the other, into a folder of each pair."""
    from benchmarker.planning.capabilities import usable
    from benchmarker.records import store
    from benchmarker.records.plan import make_plan
    from benchmarker.running.run import execute

    cases = two_cases(usable("repeated", {"numpy": None}, {})["numpy"], "gemm", PERCENT, 100, 1)
    for _ in range(pairs):
        pair = results / f"pair-{len(list(results.glob('pair-*')))}"
        for case in cases:
            plan = msgspec.structs.replace(make_plan([case], runs * trials), sessions=runs, pause_s=pause_s)
            with store.new_run(pair, plan) as folder:
                execute(folder, Quiet())
            time.sleep(pause_s)
        print(".", end="", flush=True)
    print()


def report(results: Path) -> None:
    """Print, for each number of runs a side, how many intervals contain the true ratio, and their median half width."""
    from benchmarker.comparing.judge import compare
    from benchmarker.comparing.matching import Match, Side
    from benchmarker.comparing.results import Rules
    from benchmarker.hooks.metrics import load_metrics
    from benchmarker.records import store

    derive, truth = load_metrics(), 1 + PERCENT / 100
    pairs = [sides for sides in (store.read([path])[0] for path in sorted(results.glob("pair-*"))) if sides]
    most = 1 + max(record.design.session for records in pairs for record in records)
    for runs in range(1, most + 1):
        widths, covered, wrong = [], 0, 0
        for records in pairs:
            repeats = sorted({record.case.params["repeats"] for record in records})
            if len(repeats) < 2:
                continue
            baseline, contender = (
                Side(name, tuple(r for r in records if r.case.params["repeats"] == n and r.design.session < runs))
                for name, n in zip("AB", repeats, strict=True)
            )
            (found,) = compare([Match({}, baseline, contender)], Rules(), derive).comparisons
            low, high = found.low or 0.0, found.high or math.inf
            widths.append(math.sqrt(high / low) - 1 if low else math.inf)
            covered += low <= truth <= high
            wrong += found.verdict == "faster"
        ends = stats.binomtest(covered, len(widths)).proportion_ci(0.95, method="exact")
        print(
            f"{runs} run(s) a side, {found.method}: the interval contains {truth:.2f} in {covered} of {len(widths)} "
            f"({covered / len(widths):.0%} [{ends.low:.0%}, {ends.high:.0%}]), median half width "
            f"{sorted(widths)[len(widths) // 2]:.0%}, called faster {wrong}"
        )
