"""Options that define what is compared and how it is judged."""

from collections.abc import Collection, Sequence
from typing import get_args

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.options.types import Choice, Share, all_of
from benchmarker.comparing.results import DELTAS, Comparison, GeometricMean, Verdict
from benchmarker.formatting import names_in

STATISTICS = ("median", "mean", "p10", "min")
VERDICTS = get_args(Verdict)

PROVISIONAL = 3
"""Exit status of --strict if a verdict is provisional and nothing else is wrong."""

strict_option = click.option(
    "--strict",
    is_flag=True,
    help=f"Exit with status {PROVISIONAL} if a verdict is provisional: most trials of a side were disturbed.",
)
delta_option = click.option(
    "--delta",
    type=Share(),
    metavar="SHARE",
    help=f"δ: the largest difference that still counts as the same. [default: {DELTAS['trial']:.0%}]",
)
alpha_option = click.option(
    "--alpha",
    type=Share(),
    default="5%",
    metavar="SHARE",
    help="Significance level: the accepted probability of a false verdict.",
)
judging_options = all_of(
    click.option(
        "--metric",
        metavar="NAME",
        help="Metric to compare, any that `show` prints, such as samples_per_s. [default: the step time]",
    ),
    click.option(
        "--statistic",
        type=Choice(STATISTICS),
        help="Statistic of a trial's step times; choose it before you see results. [default: median]",
    ),
    delta_option,
    alpha_option,
    click.option(
        "--fail-on",
        metavar="VERDICT[,VERDICT...]",
        help="Exit with status 1 on any of these verdicts: slower (or worse), faster (or better), same, undecided.",
    ),
    strict_option,
)
"""The options that `rules_of` of the library and `verdicts_of` take."""


def verdicts_of(fail_on: str | None) -> set[str]:
    """Return the verdicts that `--fail-on` names; raises `UserError` if it names none or an unknown one.

    The metric decides whether a verdict reads slower or worse, so either stands for both; likewise faster and better.
    """
    if fail_on is None:
        return set()
    names = set(names_in(fail_on))
    if not names:
        raise UserError(f"--fail-on names no verdict; there are: {', '.join(VERDICTS)}")
    if unknown := names.difference(VERDICTS):
        raise UserError(f"--fail-on={','.join(sorted(unknown))}: the verdicts are {', '.join(VERDICTS)}")
    return names.union(*(pair for pair in ({"slower", "worse"}, {"faster", "better"}) if pair & names))


def status_of(judged: Sequence[Comparison | GeometricMean], unwanted: Collection[str], strict: bool) -> int:
    """Return 1 if a verdict is unwanted; otherwise, with `strict`, `PROVISIONAL` if one is provisional; otherwise 0."""
    if any(one.verdict in unwanted for one in judged):
        return 1
    return PROVISIONAL if strict and any(one.provisional for one in judged) else 0
