"""Measure the startup time of commands, and what a trial costs in addition to its preheat and its timed blocks."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import click

MEASURED = ("preheat", "timed")
"""Stages whose length the options define; all others depend on the case and the framework alone."""


@click.command()
@click.option("--trials", default=5, show_default=True)
@click.option("--framework", default="numpy,jax,torch", show_default=True)
@click.option("--problem", default="gemm", show_default=True)
@click.option("--mode", default="inference", show_default=True)
def main(trials: int, framework: str, problem: str, mode: str) -> None:
    """Print the processor time of commands, and the cost of a trial outside preheat and timing by stage (medians)."""
    with tempfile.TemporaryDirectory() as results:
        small = ["run", "--framework=numpy", "--problem=gemm", "--m=8", "--n=8", "--k=8", "--blocks=3", "--power=none"]
        benchmarker([*small, f"--results={results}/one"])
        commands = {
            "--help": ["--help"],
            "list": ["list"],
            "env": ["env"],
            "describe gemm": ["describe", "gemm"],
            "run: a small NumPy case": [*small, f"--results={results}/many"],
            "show: one record": ["show", f"{results}/one"],
        }
        print(f"{'command':24} wall s   cpu s   (median of {trials})")
        for name, words in commands.items():
            walls, cpus = zip(*(spend(words) for _ in range(trials)), strict=True)
            print(f"{name:24} {statistics.median(walls):6.2f}  {statistics.median(cpus):6.2f}")
        words = [
            f"--framework={framework}",
            f"--problem={problem}",
            f"--mode={mode}",
            f"--trials={trials}",
            f"--results={results}/trials",
        ]
        done = benchmarker(["run", *words, "--blocks=3", "--json"])
    records = json.loads(done.stdout)
    print(f"\ncost of a trial of {problem}, {mode}, outside preheat and timing, s (median of {trials})")
    for name in framework.split(","):
        harness = [record["harness"] for record in records if record["case"]["framework"] == name]
        parts = {
            stage: statistics.median(each["stages_s"][stage] for each in harness)
            for stage in harness[0]["stages_s"]
            if stage not in MEASURED
        }
        fixed = statistics.median(
            each["wall_s"] - sum(each["stages_s"][stage] for stage in MEASURED) for each in harness
        )
        parts["end"] = fixed - sum(parts.values())
        print(f"{name:8} {fixed:5.2f}   " + "  ".join(f"{stage} {seconds:.2f}" for stage, seconds in parts.items()))


def spend(words: list[str]) -> tuple[float, float]:
    """Return wall-clock and processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    benchmarker(words)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def benchmarker(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarker", *words], capture_output=True, text=True, check=True)


if __name__ == "__main__":
    main()
