"""`benchmarker ab`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import Progress, progress_options, verbose, working
from benchmarker.cli.options.case import case_options, store_options, take_measuring
from benchmarker.cli.options.judging import judging_options, known_metric, rules_of, status_of, verdicts_of
from benchmarker.cli.options.problem import ProblemCommand, ask, names_of, no_options
from benchmarker.cli.options.target import targets
from benchmarker.cli.options.types import Choice, Duration, Integer, Share, complete_plugin
from benchmarker.comparing import matching
from benchmarker.comparing.judge import Referee, compare
from benchmarker.display.comparisons import family_output
from benchmarker.display.result import Text
from benchmarker.hooks import launchers
from benchmarker.hooks.metrics import load_metrics
from benchmarker.machine import gpus
from benchmarker.planning.capabilities import usable
from benchmarker.planning.cases import duet_trouble, make_case, same_device
from benchmarker.power import samplers
from benchmarker.records import store
from benchmarker.records.plan import make_plan
from benchmarker.running.run import execute
from benchmarker.running.trial import not_begun
from benchmarker.stats.verdict import LOOKS, looks


@click.command("side", cls=ProblemCommand, add_help_option=False)
@click.option("--framework", required=True, shell_complete=complete_plugin("framework"))
@case_options()
def _side(**options: Any) -> dict[str, Any]:
    """Parse one side: the options of `run` that define what is measured and how."""
    return options


@click.command("ab", context_settings={"ignore_unknown_options": True})
@click.option("--a", metavar="OPTIONS", default="", help="Options of the baseline (A) only.")
@click.option("--b", metavar="OPTIONS", default="", help="Options of the contender (B) only.")
@click.argument("common", metavar="[OPTIONS OF RUN]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--design",
    type=Choice(["auto", "rounds", "duet"]),
    default="auto",
    show_default=True,
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
    show_default=True,
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
    design: str,
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

    Two functions of your own files are compared by their names, A first:

      benchmarker ab softmax.py:naive softmax.py:fused --n=4096

    By default the verdict is tested after 8, 11, 15, 20 and 30 rounds; --alpha is divided among these tests, so that
    repeated testing does not raise the rate of false verdicts. If there is no verdict by then, or within --budget, it
    is undecided.

    The exit status is 1 if every trial of a side failed, or if the verdict is one of --fail-on. With --strict it is 3
    if a verdict is provisional.
    """
    sides: list[tuple[str, Sequence[str], str]] = [("--a", common, a), ("--b", common, b)]
    if len(named := targets(common)) == 2:
        others = [word for word in common if word not in named]
        sides = [(target, [target, *others], own) for target, (_, _, own) in zip(named, sides, strict=True)]
    if not (common or a or b):
        raise no_options("ab --problem=gemm --a=--framework=jax --b=--framework=torch")
    rules, unwanted = rules_of(**judging), verdicts_of(fail_on)
    derive = load_metrics()
    decided = [_case(*side) for side in sides]
    cases = [case for case, _ in decided]
    if all(device == "auto" for _, device in decided):
        same_device(cases)
    known_metric(rules, derive(not_begun(cases[0])))
    trouble = duet_trouble(cases)
    if rules.metric.endswith(("_J", "_W")):
        trouble = trouble or f"power readings cannot separate the two sides of a duet, so there is no {rules.metric}"
        if any(case.measuring.power == samplers.NONE for case in cases):
            raise UserError(f"--power=none reads no meter, so there is no {rules.metric}; leave --power=none out")
    if design == "duet" and trouble:
        raise UserError(f"{trouble}; leave --design=duet out")
    wanted = make_plan(
        cases,
        max_rounds,
        design="rounds" if design == "rounds" or trouble else "duet",
        looks=looks(max_rounds),
        seed=order_seed,
    )
    allocation = launchers.allocation()
    opened = store.unfinished_run(results, wanted) if resume else store.new_run(results, wanted)
    with opened as folder, Progress() as progress:
        referee = Referee(rules, derive, looks(max_rounds), target, budget, progress.say)
        if cases[0] == cases[1]:
            progress.say("A and B are the same configuration: this A/A test shows the machine's noise floor")
        records = execute(folder, progress, allocation, referee)
    made = matching.within(records)
    family = compare(made.matches, rules, derive, shared=made.shared)
    (comparison,) = family.comparisons
    status = 1 if 0 in comparison.trials else status_of([comparison], unwanted, strict)
    end = [Text(f"  {referee.ended}", "    ")]
    data = {"family": family, "ended": referee.ended, "records": str(folder.path)}
    return Output(chain(family_output(family, verbose=verbose()), end), data, status, stored=f"records: {folder.path}")


def _case(side: str, common: Sequence[str], own: str) -> tuple[Case, str]:
    """Return the case of one side, from the common options and its own, and the device as requested.

    Raises `UserError`, naming the side, if the options are invalid.
    """
    try:
        try:
            words = [*common, *shlex.split(own)]
        except ValueError as error:
            raise UserError(f"{error} in {own!r}") from error
        context = _side.make_context("ab", words, parent=click.get_current_context())
        options = dict(context.params)
        measuring = take_measuring(options)
        framework = options.pop("framework")
        question = ask(options, measuring=measuring)
        asked = question.asked
        names = names_of(framework, asked.problem)
        if len(names) > 1:
            raise UserError(f"--framework={framework}: name one framework for each side")
        with working(f"querying the capabilities of {framework}"):
            supported = usable(asked.problem, names, gpus.environment(asked.gpu, os.environ, asked.devices))
        return make_case(asked, question.problem, names[0], supported[names[0]]), asked.device
    except click.ClickException as error:
        raise UserError(f"{side}: {error.format_message()}") from error
    except UserError as error:
        raise UserError(f"{side}: {error}") from error
