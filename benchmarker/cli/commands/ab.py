"""`benchmarker ab`."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarker.api.case import Case, Measuring
from benchmarker.api.errors import UserError
from benchmarker.cli.display.comparisons import print_family
from benchmarker.cli.display.output import json_option, print_json
from benchmarker.cli.display.progress import Progress, working
from benchmarker.cli.options.case import ProblemCommand, ask, measuring_options, names_of, store_options, what_options
from benchmarker.cli.options.judging import judging_options, known_metric, rules_of, status_of, verdicts_of
from benchmarker.cli.options.types import Design, Duration, Share, renamed
from benchmarker.comparing import matching
from benchmarker.comparing.judge import compare
from benchmarker.comparing.stopping import Referee
from benchmarker.hooks.metrics import load_metrics
from benchmarker.machine import gpus
from benchmarker.planning.capabilities import usable
from benchmarker.planning.cases import duet_trouble, make_case, same_device
from benchmarker.power import samplers
from benchmarker.records import store
from benchmarker.records.plan import make_plan
from benchmarker.running.run import execute
from benchmarker.running.trial import not_begun
from benchmarker.stats.sequential import LOOKS, looks


@click.command("ab", cls=ProblemCommand, add_help_option=False)
@click.option("--framework", required=True)
@what_options
@measuring_options
def _side(**options: Any) -> dict[str, Any]:
    """One side: the options of `run` that say what is measured and how."""
    return options


@click.command(
    "ab",
    short_help="Find out which of two configurations is faster.",
    context_settings={"ignore_unknown_options": True},
)
@click.option("--a", metavar="OPTIONS", default="", help="Options of the baseline.")
@click.option("--b", metavar="OPTIONS", default="", help="Options of the contender.")
@click.argument("common", metavar="[OPTIONS OF RUN]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--design",
    type=Design(["auto", "rounds", "duet"]),
    default="auto",
    show_default=True,
    help="A process for each trial, or both in turns in one; auto is a duet where they can share a process.",
)
@click.option("--target", type=Share(), metavar="SHARE", help="Go on until the ratio is known to ± this share.")
@click.option("--budget", type=Duration(), metavar="TIME", help="Longest time for all trials: 90s, 10m, 1.5h.")
@click.option("--max-rounds", type=click.IntRange(min=2), default=LOOKS[-1], show_default=True, help="Most rounds.")
@click.option("--max-blocks", type=click.IntRange(min=2), hidden=True)
@click.option("--order-seed", type=click.IntRange(min=0), metavar="N", help="Of the order; else drawn anew.")
@judging_options
@store_options
@json_option
def command(
    a: str,
    b: str,
    common: tuple[str, ...],
    design: str,
    target: float | None,
    budget: float | None,
    max_rounds: int,
    max_blocks: int | None,
    order_seed: int | None,
    fail_on: str | None,
    results: Path,
    resume: bool,
    as_json: bool,
    **judging: Any,
) -> int:
    """Run two configurations in interleaved rounds until it is plain which is faster, or that they are the same.

    What is measured and how is said by options of `run`: those of one side in --a or --b, those of both beside them.

      benchmarker ab --framework=jax --problem=attention --a='--impl=einsum' --b='--impl=matmul'

    The verdict is looked at after 8, 11, 15, 20 and 30 rounds, so strictly that looking again does not make it wrong
    the oftener. Without a verdict by then, or within --budget, it is undecided. The exit status is 1 where no trial of
    a side came through, or where the verdict is one of --fail-on.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if max_blocks is not None:
        max_rounds = renamed("--max-blocks", "--max-rounds", max_blocks)
    rules, unwanted = rules_of(**judging), verdicts_of(fail_on)
    derive = load_metrics()
    sides = [_case(name, common, words) for name, words in (("--a", a), ("--b", b))]
    cases = [case for case, _ in sides]
    if all(device == "auto" for _, device in sides):
        same_device(cases)
    known_metric(rules, derive(not_begun(cases[0])))
    trouble = duet_trouble(cases)
    if rules.metric.endswith(("_J", "_W")):
        trouble = trouble or f"a duet shares one power, and has no {rules.metric}"
        if any(case.measuring.power == samplers.NONE for case in cases):
            raise UserError(f"--power=none reads no meter, and gives no {rules.metric}")
    if design == "duet" and trouble:
        raise UserError(f"{trouble}; leave --design=duet out")
    wanted = make_plan(
        cases,
        max_rounds,
        design="rounds" if design == "rounds" or trouble else "duet",
        looks=looks(max_rounds),
        seed=order_seed,
    )
    opened = store.unfinished_run(results, wanted) if resume else store.new_run(results, wanted)
    with opened as folder, Progress() as progress:
        referee = Referee(rules, derive, looks(max_rounds), target, budget, progress.say)
        if cases[0] == cases[1]:
            progress.say("A and B are the same configuration: the run shows what this machine makes of no difference")
        records = execute(folder, progress, referee)
    family = compare(matching.within(records).matches, rules, derive)
    if as_json:
        print_json({"family": family, "ended": referee.ended, "records": str(folder.path)})
    else:
        print_family(family)
        click.echo(f"  {referee.ended}")
        click.echo(f"\nrecords: {folder.path}", err=True)
    (comparison,) = family.comparisons
    return 1 if 0 in comparison.trials else status_of([comparison], unwanted)


def _case(side: str, common: Sequence[str], own: str) -> tuple[Case, str]:
    """The case that the words of both sides and a side's own ask for, and the device as it was asked for.

    Raises `UserError` that names the side.
    """
    try:
        try:
            words = [*common, *shlex.split(own)]
        except ValueError as error:
            raise UserError(f"{error} in {own!r}") from error
        context = _side.make_context("ab", words, parent=click.get_current_context())
        options = dict(context.params)
        measuring = Measuring(**{name: options.pop(name) for name in Measuring.__struct_fields__})
        framework = options.pop("framework")
        question = ask(options, measuring=measuring)
        asked = question.asked
        names = names_of(framework, asked.problem)
        if len(names) > 1:
            raise UserError(f"--framework={framework}: a side is one framework")
        with working(f"asking {framework} what it does here"):
            able = usable(asked.problem, names, gpus.environment(asked.gpu, os.environ))
        return make_case(asked, question.problem, names[0], able[names[0]]), asked.device
    except click.ClickException as error:
        raise UserError(f"{side}: {error.format_message()}") from error
    except UserError as error:
        raise UserError(f"{side}: {error}") from error
