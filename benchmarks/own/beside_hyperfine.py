"""Compare times of executions by Benchmarker with those by hyperfine, and how often each calls a difference in vain.

Both measure the same two commands by turns, in random order: a few executions each, in as many rounds as are asked for.
Then each compares a command with itself, beside a process that comes and goes. Benchmarker calls a difference by the
verdict of `ab`, hyperfine if 1 is outside of the printed "times faster ± uncertainty" of ten executions of each.
"""

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import stats

import benchmarker

sys.path.insert(0, str(Path(__file__).parents[1] / "verdicts" / "calibration"))

from live_runs import NEIGHBOUR

COMMANDS = ("sha256sum {data}", "gzip -kc {data}")
DATA_BYTES = 4 << 20
EXECUTIONS = 5
"""Executions of a command by each tool in a round."""


def by_trials(command: str, folder: Path) -> list[float]:
    """Return the times of some executions by Benchmarker, s, each in a trial of its own."""
    return by_benchmarker(command, folder, trials=EXECUTIONS)


def by_blocks(command: str, folder: Path) -> list[float]:
    """Return the times of some executions by Benchmarker, s, all in one trial."""
    return by_benchmarker(command, folder, blocks=EXECUTIONS)


def by_benchmarker(command: str, folder: Path, **options: Any) -> list[float]:
    """Return the times of all executions of a run, s."""
    run = benchmarker.run(problem=f"program:{command}", power="none", results=folder / "results", **options)
    return [block / 1e9 for record in run.records if record.blocks for block in record.blocks.duration_ns]


def by_hyperfine(command: str, folder: Path) -> list[float]:
    """Return the times of some executions, s."""
    return times_of([command], EXECUTIONS, folder)[0]


def times_of(commands: list[str], executions: int, folder: Path) -> list[list[float]]:
    """Return the times of executions of each command by hyperfine, s."""
    options = ["-N", "--output=pipe", f"--runs={executions}", f"--export-json={folder / 'out.json'}"]
    subprocess.run(["hyperfine", *options, *commands], check=True, capture_output=True)
    return [each["times"] for each in json.loads((folder / "out.json").read_text())["results"]]


TOOLS = {"trials": by_trials, "blocks": by_blocks, "hyperfine": by_hyperfine}


def measure(rounds: int, folder: Path, commands: list[str]) -> None:
    """Print the median time of each command by each tool, and the interval of their ratio."""
    times: dict[tuple[str, str], list[float]] = {(tool, command): [] for tool in TOOLS for command in commands}
    for turn in range(rounds):
        for tool, command in random.sample(list(times), len(times)):
            times[tool, command] += TOOLS[tool](command, folder)
        print(f"round {turn + 1} of {rounds}", file=sys.stderr)
    print("| command | executions in | median | hyperfine | ratio (95% interval) | quartiles of hyperfine |")
    print("| --- | --- | --- | --- | --- | --- |")
    for command in commands:
        other = np.array(times["hyperfine", command])
        low, high = np.percentile(other, (25, 75)) / np.median(other) - 1
        for tool in ("trials", "blocks"):
            own = np.array(times[tool, command])
            found = stats.bootstrap((own, other), ratio_of_medians, method="percentile").confidence_interval
            medians = [float(np.median(each)) for each in (own, other)]
            cells = [f"`{command.split()[0]}`", tool, *(f"{1e3 * median:.2f} ms" for median in medians)]
            cells.append(f"{medians[0] / medians[1]:.3f} ({found.low:.3f} to {found.high:.3f})")
            print(f"| {' | '.join(cells)} | {low:+.1%} to {high:+.1%} |")


def ratio_of_medians(one: Any, two: Any, axis: int) -> Any:
    """Return the ratio of medians along an axis."""
    return np.median(one, axis=axis) / np.median(two, axis=axis)


def compare(comparisons: int, folder: Path, command: str) -> None:
    """Print how often each tool calls a difference of a command and itself."""
    called = dict.fromkeys(("Benchmarker", "hyperfine"), 0)
    side = {"problem": f"program:{command}", "framework": "program", "power": "none"}
    for number in range(comparisons):
        verdicts = benchmarker.ab(side, side, results=folder / "results", progress=None)
        called["Benchmarker"] += verdicts.family.comparisons[0].verdict in ("faster", "slower")
        one, other = times_of([command, command], 10, folder)
        ratio = statistics.mean(other) / statistics.mean(one)
        uncertain = ratio * math.hypot(*(statistics.stdev(each) / statistics.mean(each) for each in (one, other)))
        called["hyperfine"] += abs(ratio - 1) > uncertain
        print(f"comparison {number + 1} of {comparisons}: {called}", file=sys.stderr)
    for tool, times in called.items():
        print(f"{tool}: called a difference {times} times in {comparisons} comparisons of a command with itself")


@click.command()
@click.option("--rounds", default=10, show_default=True, help=f"Rounds of {EXECUTIONS} executions of each command.")
@click.option("--comparisons", default=50, show_default=True, help="Comparisons of a command with itself.")
@click.option("--neighbour", "mean_s", default=1.0, show_default=True, help="Its mean time busy, and at rest, s.")
def main(rounds: int, comparisons: int, mean_s: float) -> None:
    """Print both as Markdown."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").write_bytes(random.Random(0).randbytes(DATA_BYTES))
        commands = [command.format(data=folder / "data") for command in COMMANDS]
        if rounds:
            measure(rounds, folder, commands)
        if comparisons:
            neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(mean_s)])
            try:
                compare(comparisons, folder, commands[0])
            finally:
                neighbour.kill()
                neighbour.wait()


if __name__ == "__main__":
    main()
