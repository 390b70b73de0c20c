"""`benchmarker sweep`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options
from benchmarker.cli.execution import execute_plan, made
from benchmarker.cli.options import completion
from benchmarker.cli.options.case import case_options, dry_run_option, store_options
from benchmarker.cli.options.problem import ProblemCommand
from benchmarker.cli.options.types import Choice, Integer
from benchmarker.hooks import parameters
from benchmarker.planning.factors import Description
from benchmarker.records.factors import setting
from benchmarker.records.record import DesignKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@click.command(
    "sweep",
    cls=ProblemCommand,
    example="sweep --framework=jax,torch --problem=gemm --axis m=256,512",
)
@click.option(
    "--framework",
    metavar="NAME[,NAME...]",
    shell_complete=completion.several("framework"),
    help="Frameworks to measure.",
)
@click.option(
    "--axis", "axes", multiple=True, metavar="NAME=VALUE[,VALUE...]", help="Vary one parameter over these values."
)
@click.option(
    "--zip",
    "zips",
    multiple=True,
    metavar="'NAME=VALUES NAME=VALUES...'",
    help="Vary several parameters in step: all first values, all second values, ...",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="'NAME=VALUE NAME=VALUE...'",
    help="One case of a list; repeat the option for each.",
)
@case_options()
@click.option(
    "--trials",
    type=Integer(min=1),
    default=10,
    show_default=True,
    help="Trials of each case, each in a fresh process.",
)
@click.option(
    "--design",
    type=Choice(get_args(DesignKind)),
    default="rounds",
    show_default=True,
    help="rounds: each round runs every case in a fresh process; duet: two cases alternate in one process.",
)
@click.option("--order-seed", type=Integer(min=0), metavar="N", help="Seed of the random trial order.")
@store_options
@dry_run_option
@progress_options
@output_options(form=False)
def command(
    framework: str | None,
    axes: Sequence[str],
    zips: Sequence[str],
    cases: Sequence[str],
    trials: int,
    design: DesignKind,
    order_seed: int | None,
    results: Path,
    resume: bool,
    dry_run: bool,
    **options: Any,
) -> Output:
    """Measure every combination of parameter values.

    Each --axis and each --zip is one factor; all --case options together are another. The sweep measures the product of
    all factors. NAME is an option without the leading dashes, VALUE a value of that option. Cases that a framework or a
    device does not support are left out and reported. A plan file (`plan run`) can describe the same sweep, and can
    also vary the problem.

      benchmarker sweep --framework=jax,torch --problem=gemm --axis m=256,512

    The exit status is 1 if a trial failed.
    """
    base = {name: options[name] for name in options if _is_given(name)}
    description = Description(
        base=base,
        axes=_lists("--axis", [*([] if framework is None else [f"framework={framework}"]), *axes]),
        zips=[_lists("--zip", text.split()) for text in zips],
        cases=[_assignments("--case", text.split()) for text in cases],
        trials=trials,
        design=design,
        order_seed=order_seed,
    )
    for name in {name for part in (description.axes, *description.zips, *description.cases) for name in part}:
        if name == "problem":
            raise UserError("a sweep measures one problem; a plan file (`plan run`) can vary it")
        if name in base:
            raise UserError(f"{name} is both given as an option and varied; leave one out")
    return execute_plan(made(description), results, resume, dry_run)


def _is_given(name: str) -> bool:
    """Return whether an option was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _lists(option: str, words: Sequence[str]) -> dict[str, list[str]]:
    """Return lists of values by parameter, from words such as `m=256,512`."""
    return {
        name: parameters.values_of(f"{option} {name}", text) if text else []
        for name, text in _assignments(option, words).items()
    }


def _assignments(option: str, words: Sequence[str]) -> dict[str, str]:
    """Return values by parameter, from words such as `precision=fp64`."""
    values: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not (name and sign):
            raise UserError(f"{option} {word!r}: write NAME=VALUE")
        if setting(name) in values:
            raise UserError(f"{option} gives {name} twice; leave one out")
        values[setting(name)] = value
    return values
