"""Run real experiments with a known true difference, and measure false positives and power.

Each experiment is a run of two cases; the contender repeats the same real work 0, 1, 2, 5 or 10% more often in each
step. Experiments of all kinds run in random order until the time is up. Everything is computed from the records, so
`--analyse` with `--results=FOLDER` prints the tables of an earlier run again.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from experiment import Quiet, install, two_cases
from scipy import stats

if TYPE_CHECKING:
    from benchmarker.comparing.matching import Match


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="Time for all experiments together.")
@click.option("--experiments", type=int, help="Maximum number of experiments of each kind.")
@click.option("--framework", default="jax,torch", show_default=True)
@click.option("--work", default="gemm,attention", show_default=True)
@click.option("--design", default="rounds,duet", show_default=True)
@click.option(
    "--slower",
    default="0,0,0,1,2,5,10",
    show_default=True,
    help="True slow-downs, %; a repeated value gets more experiments.",
)
@click.option("--rounds", default=10, show_default=True, help="Rounds of an experiment.")
@click.option("--timed", default=20, show_default=True, help="Timed blocks of a trial.")
@click.option("--threads", type=int, help="CPU threads of each trial.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results/calibration"), show_default=True)
@click.option("--analyse", is_flag=True, help="Run nothing; print the tables of the runs in --results.")
def live(
    minutes: float,
    experiments: int | None,
    framework: str,
    work: str,
    design: str,
    slower: str,
    rounds: int,
    timed: int,
    threads: int | None,
    results: Path,
    analyse: bool,
) -> None:
    """Run real experiments with a known true difference, and print how often the verdicts were right."""
    if not analyse:
        with tempfile.TemporaryDirectory() as folder:
            install(Path(folder))
            kinds = list(
                itertools.product(framework.split(","), work.split(","), design.split(","), map(int, slower.split(",")))
            )
            run(kinds, minutes, experiments, rounds, timed, threads, results)
    report(results)


def run(kinds, minutes, experiments, rounds, timed, threads, results) -> None:
    """Run experiments of all kinds repeatedly, in random order."""
    from benchmarker.planning.capabilities import usable
    from benchmarker.records import store
    from benchmarker.records.plan import make_plan
    from benchmarker.running.run import execute

    able = usable("repeated", dict.fromkeys(kind[0] for kind in kinds), {})
    rng, deadline = random.Random(), time.monotonic() + 60 * minutes
    done: dict[Any, int] = defaultdict(int)

    while left := [kind for kind in kinds if experiments is None or done[kind] < experiments * kinds.count(kind)]:
        for kind in rng.sample(left, len(left)):
            if time.monotonic() > deadline:
                return
            framework, work, design, percent = kind
            cases = two_cases(able[framework], work, percent, timed, threads)
            with store.new_run(results, make_plan(cases, rounds, design=design)) as folder:
                execute(folder, Quiet())
            done[kind] += 1
            print(".", end="", flush=True)
    print()


def report(results: Path) -> None:
    """Print the verdicts of all runs."""
    from benchmarker.comparing import matching
    from benchmarker.comparing.judge import compare
    from benchmarker.comparing.results import Rules
    from benchmarker.files.atomic import Fault
    from benchmarker.hooks.metrics import load_metrics
    from benchmarker.records import store

    derive, rules = load_metrics(), Rules()
    found = defaultdict(list)
    for folder in sorted(path.parent for path in results.glob(f"*/{store.PLAN}")):
        records, faults = store.read([folder])
        if faults:
            print(f"left out: {faults[0]}")
            continue
        plan = store.read_plan(folder / store.PLAN)
        if isinstance(plan, Fault):
            print(f"left out: {plan}")
            continue
        if len(records) < len(plan.order):
            print(f"left out because it is incomplete: {folder}")
            continue
        truth = records_truth(plan)
        row: dict[Any, Any] = {"s": sum(r.harness.wall_s / (2 if r.design.partner else 1) for r in records)}
        for rounds in (6, 8, plan.trials):
            (match,) = matching.within([r for r in records if r.trial < rounds]).matches
            (comparison,) = compare([match], rules, derive).comparisons
            row[rounds] = comparison.verdict
        assert comparison.low is not None
        assert comparison.high is not None
        row["covered"] = comparison.low <= 1 <= comparison.high
        row["p10"] = compare([match], Rules(metric="step_time_p10_s"), derive).comparisons[0].verdict
        row["pooled"] = rank_sum_p(match) < 0.05
        (first,) = matching.within([r for r in records if r.trial == 0]).matches
        row["one"] = rank_sum_p(first) < 0.05
        row["width"] = (comparison.high / comparison.low) ** 0.5 - 1
        row["rounds"] = plan.trials
        found[truth].append(row)
    print_tables(found)


def rank_sum_p(match: Match) -> float:
    """Return the p-value of the rank-sum test on all timed blocks of two sides."""
    from benchmarker.comparing.judge import classical

    found = classical(match)
    assert found is not None
    return found.rank_sum.p_value


def records_truth(plan):
    """Return design, framework, work and true slow-down (%) of a run."""
    first, second = plan.cases
    percent = round(100 * (second.params["repeats"] / first.params["repeats"] - 1))
    return plan.design, first.framework, first.params["work"], percent


def print_tables(found) -> None:
    """Print each kind, then the rates over all A/A experiments."""
    print("verdicts with all rounds; `slower` with the first 6 and 8 rounds; median half width of the interval; and")
    print("experiments called different by a rank-sum test on the timed blocks of one process per side, or pooled\n")
    heads = ("true", "n", "slower", "faster", "same", "undec.", "at 6", "at 8", "±", "s each", "one", "pooled")
    print(f"{'design':7} {'in':6} {'work':10}" + "".join(f"{head:>8}" for head in heads))
    for kind, rows in sorted(found.items()):
        last = [row[row["rounds"]] for row in rows]
        width = sorted(row["width"] for row in rows)[len(rows) // 2]
        cells = [f"{kind[3]}%", len(rows), *(last.count(word) for word in ("slower", "faster", "same", "undecided"))]
        cells += [sum(row[n] == "slower" for row in rows) for n in (6, 8)]
        cells += [f"{width:.1%}", f"{sum(row['s'] for row in rows) / len(rows):.0f}"]
        cells += [sum(row["one"] for row in rows), sum(row["pooled"] for row in rows)]
        print(f"{kind[0]:7} {kind[1]:6} {kind[2]:10}" + "".join(f"{cell:>8}" for cell in cells))
    print()
    for designs in (("rounds",), ("duet",), ("rounds", "duet")):
        equal = [row for kind, rows in found.items() for row in rows if kind[0] in designs and kind[3] == 0]
        if not equal:
            continue
        print(f"A/A, {' and '.join(designs)}:")
        for name, hits in (
            ("called different by this tool", sum(row[row["rounds"]] in ("slower", "faster") for row in equal)),
            ("called different by its tenth percentiles", sum(row["p10"] in ("slower", "faster") for row in equal)),
            ("95% interval contains the truth", sum(row["covered"] for row in equal)),
            ("called different by rank-sum on the timed blocks of one process each", sum(row["one"] for row in equal)),
            ("called different by rank-sum on all timed blocks pooled", sum(row["pooled"] for row in equal)),
        ):
            ends = stats.binomtest(hits, len(equal)).proportion_ci(0.95, method="exact")
            print(f"  {name}: {hits} of {len(equal)} ({hits / len(equal):.1%} [{ends.low:.1%}, {ends.high:.1%}])")
    for limit, name in ((2, "`same` at a true difference of 2%, which is δ"), (5, "`same` at 5 or 10%")):
        beyond = [row for kind, rows in found.items() for row in rows if (kind[3] == 2 if limit == 2 else kind[3] > 2)]
        if beyond:
            said = sum(row[row["rounds"]] == "same" for row in beyond)
            print(f"{name}: {said} of {len(beyond)}")
