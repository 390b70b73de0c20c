"""`benchmarker sweep`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.commands.run import described, run_options
from benchmarker.cli.display.output import Output
from benchmarker.cli.execution import execute_plan, made
from benchmarker.cli.options.problem import ProblemCommand
from benchmarker.cli.options.types import Choice
from benchmarker.hooks import parameters
from benchmarker.records.factors import setting
from benchmarker.records.record import DesignKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@click.command(
    "sweep", cls=ProblemCommand, lists=True, example="sweep --framework=jax,torch --problem=gemm --axis m=256,512"
)
@click.option(
    "--axis", "axes", multiple=True, metavar="NAME=VALUE[,VALUE...]", help="Vary one parameter over these values."
)
@click.option(
    "--design",
    type=Choice(get_args(DesignKind)),
    default="rounds",
    show_default=True,
    help="rounds: each round runs every case in a fresh process; duet: two cases alternate in one process.",
)
@run_options(trials=10)
def command(
    axes: Sequence[str],
    design: DesignKind,
    trials: int,
    results: Path,
    resume: bool,
    dry_run: bool,
    **options: Any,
) -> Output:
    """Measure every combination of parameter values: `run` with ten trials of each case, and any option as an axis.

    NAME is an option without the leading dashes, VALUE a value of that option. Cases that a framework or a device does
    not support are left out and reported. A plan file (`plan run`) can describe the same sweep, vary parameters
    together or in a list of cases, and vary the problem.

      benchmarker sweep --framework=jax,torch --problem=gemm --axis m=256,512

    The exit status is 1 if a trial failed.
    """
    plan = made(described(options, _values(axes), trials=trials, design=design))
    return execute_plan(plan, results, resume, dry_run)


def _values(axes: Sequence[str]) -> dict[str, list[Any]]:
    """Return lists of values by parameter, from words such as `m=256,512`."""
    values: dict[str, list[Any]] = {}
    for axis in axes:
        name, sign, text = axis.partition("=")
        key = setting(name)
        if not (name and sign):
            raise UserError(f"--axis {axis!r}: write NAME=VALUE")
        if key in values:
            raise UserError(f"--axis gives {name} twice; leave one out")
        if key == "problem":
            raise UserError("a sweep measures one problem; a plan file (`plan run`) can vary it")
        values[key] = parameters.values_of(f"--axis {name}", text) if text else []
    return values
