"""Measure how long each design takes to detect a true difference of a few percent.

The contender repeats the same real work a few percent more often in each step. `rounds` and `duet` stop like `ab`, at
the first look that decides. `fixed` runs 20 processes, 10 of each side in random order, and tests once. The experiments
with the different designs run in random order.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent / "calibration"))

from experiment import Quiet, install, two_cases

DESIGNS = ("duet", "rounds", "fixed")


@click.command()
@click.option("--framework", default="jax,torch", show_default=True)
@click.option("--work", default="gemm", show_default=True)
@click.option("--slower", default=2, show_default=True, help="True difference, %.")
@click.option("--repeat", default=3, show_default=True, help="Experiments of each kind.")
@click.option("--minutes", default=30.0, show_default=True, help="Start no experiment after this time.")
@click.option("--timed", default=100, show_default=True, help="Timed blocks of a trial.")
def main(framework: str, work: str, slower: int, repeat: int, minutes: float, timed: int) -> None:
    """Print the seconds and rounds to the verdict."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as results:
        install(Path(folder))
        from benchmarker.planning.capabilities import usable

        able = usable("repeated", framework.split(","), {})
        kinds = [(name, design) for name in able for design in DESIGNS] * repeat
        random.shuffle(kinds)
        deadline = time.monotonic() + 60 * minutes
        found: dict[tuple[str, str], list[tuple[float, int, str]]] = {}
        for name, design in kinds:
            if time.monotonic() > deadline:
                break
            cases = two_cases(able[name], work, slower, timed)
            found.setdefault((name, design), []).append(experiment(cases, design, Path(results)))
    print(f"{work}, {slower}% more work; verdicts at delta 1%\n")
    print(f"{'in':8} {'design':8} {'seconds, median':>16} {'rounds, median':>16}   verdicts")
    for (name, design), rows in sorted(found.items()):
        seconds, rounds = statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows)
        print(f"{name:8} {design:8} {seconds:16.0f} {rounds:16.0f}   {', '.join(row[2] for row in rows)}")


def experiment(cases, design: str, results: Path) -> tuple[float, int, str]:
    """Return seconds, rounds and the verdict of one experiment."""
    from benchmarker.comparing import matching
    from benchmarker.comparing.judge import Referee, compare
    from benchmarker.comparing.results import Rules
    from benchmarker.hooks.metrics import load_metrics
    from benchmarker.records import store
    from benchmarker.records.plan import make_plan
    from benchmarker.running.run import execute, never
    from benchmarker.stats.verdict import LOOKS

    rules, derive = Rules(delta=0.01), load_metrics()
    fixed = design == "fixed"
    made = make_plan(
        cases,
        10 if fixed else LOOKS[-1],
        design="duet" if design == "duet" else "rounds",
        looks=[] if fixed else LOOKS,
    )
    start = time.monotonic()
    with store.new_run(results, made) as folder:
        records = execute(
            folder, Quiet(), enough=never if fixed else Referee(rules, derive, LOOKS, None, None, Quiet().say)
        )
    seconds = time.monotonic() - start
    (comparison,) = compare(matching.within(records).matches, rules, derive).comparisons
    return seconds, comparison.rounds or 0, comparison.verdict


if __name__ == "__main__":
    main()
