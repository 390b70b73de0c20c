"""`benchmarker ab`."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import click

from benchmarker.api.errors import UserError
from benchmarker.api.program import is_program
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options, verbose, working
from benchmarker.cli.display.rounds import Rounds
from benchmarker.cli.options.case import store_options
from benchmarker.cli.options.judging import judging_options, status_of, verdicts_of
from benchmarker.cli.options.problem import named, no_options
from benchmarker.cli.options.side import settings_of, words_of
from benchmarker.cli.options.target import expanded, targets, without
from benchmarker.cli.options.types import Choice, Duration, Integer, Share
from benchmarker.display.comparisons import family_output
from benchmarker.display.result import Text
from benchmarker.hooks import parameters, registry
from benchmarker.library.judging import Design, judged, pairs_of, rules_of
from benchmarker.stats.verdict import LOOKS


@click.command("ab", context_settings={"ignore_unknown_options": True})
@click.option("--a", metavar="OPTIONS", default="", show_default=False, help="Options of the baseline (A) only.")
@click.option("--b", metavar="OPTIONS", default="", show_default=False, help="Options of the contender (B) only.")
@click.argument("common", metavar="[OPTIONS OF RUN]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--design",
    type=Choice(get_args(Design)),
    default="auto",
    help="rounds: a fresh process for each trial; duet: both sides alternate in one process; auto: duet if possible.",
)
@click.option(
    "--target", type=Share(), metavar="SHARE", help="Continue until the ratio is known to within ± this share."
)
@click.option("--budget", type=Duration(min=0, min_open=True), help="Maximum time for all trials: 90s, 10m, 1.5h.")
@click.option(
    "--max-rounds",
    type=Integer(min=2),
    default=LOOKS[-1],
    help="Maximum number of rounds; a round is one trial of A and one of B.",
)
@click.option("--order-seed", type=Integer(min=0), metavar="N", help="Seed of the random trial order.")
@judging_options
@store_options
@partial(progress_options, verbose_help="Print each stage and how long it took, and the tests behind the verdict.")
@output_options(tables=False)
def command(
    a: str,
    b: str,
    common: tuple[str, ...],
    design: Design,
    target: float | None,
    budget: float | None,
    max_rounds: int,
    order_seed: int | None,
    fail_on: str | None,
    strict: bool,
    results: Path,
    resume: bool,
    **judging: Any,
) -> Output:
    """Compare two configurations in rounds (a trial of A and one of B) until one is faster or both are within δ.

    Options of `run` define what is measured and how. Options for one side go into --a or --b, in quotes if there are
    several; options given directly apply to both sides.

      benchmarker ab --problem=gemm --a=--framework=jax --b=--framework=torch

    Two functions of your own files are compared by their names, A first; without names, each function that both
    files have:

      benchmarker ab softmax.py:naive softmax.py:fused --n=4096

      benchmarker ab old/softmax.py softmax.py

    Or two programs, at each value of what stands in braces:

      benchmarker ab --a='./old {n}' --b='./new {n}' --n=1000,2000

    By default the verdict is tested after 8, 11, 15, 20 and 30 rounds; --alpha is divided among these tests, so that
    repeated testing does not raise the rate of false verdicts. If there is no verdict by then, or within --budget, it
    is undecided.

    The exit status is 1 if every trial of a side failed, or if a verdict is one of --fail-on. With --strict it is 3
    if a verdict is provisional.
    """
    sides: list[tuple[str, Sequence[str], str]] = [("--a", common, a), ("--b", common, b)]
    if len(files := targets(common)) == 2:
        others = [word for word in common if word not in files]
        sides = [(target, [target, *others], own) for target, (_, _, own) in zip(files, sides, strict=True)]
    if not (common or a or b):
        raise no_options("ab --problem=gemm --a=--framework=jax --b=--framework=torch")
    rules, unwanted = rules_of(**judging), verdicts_of(fail_on)
    given = [settings_of(*side) for side in _without_the_others_places(sides)]
    with working("querying the frameworks' capabilities"):
        pairs = pairs_of(*((side, settings) for (side, _, _), settings in zip(sides, given, strict=True)))
    with Rounds(len(pairs[0]) // 2, rules.delta) as progress:
        verdicts = judged(
            *pairs,
            rules,
            results,
            resume,
            progress,
            both_auto=all(settings["device"] == "auto" for settings in given),
            design=design,
            target=target,
            budget_s=budget,
            max_rounds=max_rounds,
            order_seed=order_seed,
            after_round=progress.after_round,
        )
    comparisons = verdicts.family.comparisons
    status = 1 if any(0 in each.trials for each in comparisons) else status_of(comparisons, unwanted, strict)
    parts = chain(family_output(verdicts.family, verbose=verbose()), [Text(f"  {verdicts.ended}", "    ")])
    return Output(parts, verdicts.data, status, stored=f"records: {verdicts.path}")


_Side = tuple[str, Sequence[str], str]


def _without_the_others_places(sides: Sequence[_Side]) -> list[_Side]:
    """Return the sides without the common options for places that only the program of the other side has."""
    try:
        problems = [named(expanded([*common, *words_of(own)])) or "" for _, common, own in sides]
        if not all(map(is_program, problems)):
            return [*sides]
        places = [{*parameters.names(registry.problem(problem))} for problem in problems]
    except (UserError, ValueError):  # told when the side is read
        return [*sides]
    return [
        (side, without(common, {parameters.option(name) for name in other - mine}), own)
        for (side, common, own), mine, other in zip(sides, places, places[::-1], strict=True)
    ]
