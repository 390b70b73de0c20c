"""The options that say what is compared and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, get_args

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.options.types import Share
from benchmarker.comparing.results import DELTAS, PROFILED, Comparison, GeometricMean, Level, Rules, Verdict

_F = TypeVar("_F", bound=Callable[..., Any])

STATISTICS = ("median", "mean", "p10", "min")
VERDICTS = get_args(Verdict)

_OPTIONS = (
    click.option("--metric", metavar="NAME", help="Any metric of `show`, as samples_per_s; else the step time."),
    click.option(
        "--statistic",
        type=click.Choice(STATISTICS),
        help="Of a trial's step times; choose it before you look. [default: median]",
    ),
    click.option(
        "--delta",
        type=Share(),
        metavar="SHARE",
        help=f"The largest change that counts as none. [default: {DELTAS['trial']:.0%}]",
    ),
    click.option(
        "--alpha",
        type=Share(),
        default="5%",
        show_default=True,
        metavar="SHARE",
        help="The chance of a false claim that is allowed.",
    ),
    click.option(
        "--fail-on",
        metavar="VERDICT[,VERDICT...]",
        help="Exit with status 1 on any of these: slower (or worse), faster (or better), same, undecided.",
    ),
)


def judging_options(function: _F) -> _F:
    """The options that `rules_of` and `refuse_unknown_verdicts` take."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def rules_of(
    metric: str | None,
    statistic: str | None,
    delta: float | None,
    alpha: float,
    level: Level = "trial",
    **more: Any,
) -> Rules:
    """The rules that were asked for; raises `UserError` where two options exclude each other."""
    if metric and statistic:
        raise UserError("--statistic is of the step time; leave it out with --metric")
    metric = metric or PROFILED.get(level) or f"step_time_{statistic or 'median'}_s"
    return Rules(metric=metric, delta=delta or DELTAS[level], alpha=alpha, level=level, **more)


def verdicts_of(fail_on: str | None) -> set[str]:
    """The verdicts that `--fail-on` names; raises `UserError` for none, and for one that there is not.

    Which of slower and worse is said goes by the metric: either stands for both, and so do faster and better.
    """
    if fail_on is None:
        return set()
    names = {name.strip() for name in fail_on.split(",") if name.strip()}
    if not names:
        raise UserError(f"--fail-on names no verdict; there are: {', '.join(VERDICTS)}")
    if unknown := names.difference(VERDICTS):
        raise UserError(f"--fail-on={','.join(sorted(unknown))}: the verdicts are {', '.join(VERDICTS)}")
    return names.union(*(pair for pair in ({"slower", "worse"}, {"faster", "better"}) if pair & names))


def known_metric(rules: Rules, known: Iterable[str]) -> None:
    """Raise `UserError` where no metric has the name that was asked for."""
    names = list(known)
    if rules.metric not in names:
        raise UserError(f"no metric is named {rules.metric!r}; there are: {', '.join(names)}")


def status_of(judged: Sequence[Comparison | GeometricMean], unwanted: set[str]) -> int:
    """1 where a verdict is unwanted, else 0."""
    return int(any(each.verdict in unwanted for each in judged))
