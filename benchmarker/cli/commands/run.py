"""`benchmarker run` and `benchmarker sweep`."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource

from benchmarker.api.case import Scaling
from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options
from benchmarker.cli.execution import execute_plan, made
from benchmarker.cli.options.case import case_options, dry_run_option, store_options
from benchmarker.cli.options.problem import ProblemCommand, problem_of, problems_in
from benchmarker.cli.options.types import Choice, Integer, Several, all_of, complete_plugins
from benchmarker.hooks import parameters, registry
from benchmarker.library.measuring import description_of
from benchmarker.planning.factors import Description
from benchmarker.records.factors import setting
from benchmarker.records.record import DesignKind

_F = TypeVar("_F", bound=Callable[..., Any])


def run_options(trials: int) -> Callable[[_F], _F]:
    """Return a decorator that adds the options of `run` and `sweep`, with a default number of trials."""
    return all_of(
        click.option(
            "--framework",
            required=True,
            type=Several(),
            metavar="NAME[,NAME...]",
            shell_complete=complete_plugins("framework"),
            help="Frameworks to measure.",
        ),
        case_options(lists=("mode", "precision", "devices", "parallel")),
        click.option(
            "--axis",
            "axes",
            multiple=True,
            metavar="NAME=VALUE[,VALUE...]",
            help="Vary one parameter over these values.",
        ),
        click.option(
            "--scaling",
            type=Several(Choice(get_args(Scaling))),
            metavar="KIND[,KIND]",
            default="strong",
            help="strong: the same total work on more devices; weak: the same work per device.",
        ),
        click.option(
            "--trials", type=Integer(min=1), default=trials, help="Trials of each case, each in a fresh process."
        ),
        store_options,
        dry_run_option,
        progress_options,
        output_options(form=False),
    )


@click.command("run", cls=ProblemCommand, lists=True, example="run --framework=jax --problem=gemm")
@run_options(trials=1)
def run_command(axes: Sequence[str], trials: int, results: Path, resume: bool, dry_run: bool, **options: Any) -> Output:
    """Measure a problem in one or more frameworks; store a record for each trial and print a table.

    Instead of a problem, name a Python file, FILE.py or FILE.py:FUNCTION, or a module, PACKAGE.MODULE:NAME: what it
    defines is measured (docs/own-code.md).

    Each trial is a fresh process that checks the results against a float64 reference, builds, compiles, preheats or
    warms up, and times steps. Lists of problems, frameworks, devices, strategies, scalings or options of the problem
    make one case per combination; each round runs every case once. Several problems have the options that all of them
    share. Combinations that a framework or a device does not support are left out and reported. Records are stored in
    a new folder below --results. The exit status is 1 if a trial failed.
    """
    return execute_plan(made(described(options, _axes(axes), trials=trials)), results, resume, dry_run)


def described(options: dict[str, Any], axes: Mapping[str, Sequence[Any]], **plan: Any) -> Description:
    """Return the description of a run: each option with several values is an axis, like those of `axes`.

    Raises `UserError` if a parameter of the problem is invalid, before any framework is started.
    """
    source = click.get_current_context().get_parameter_source
    given = {name: value for name, value in options.items() if source(name) is ParameterSource.COMMANDLINE}
    if twice := sorted(given.keys() & axes.keys()):
        raise UserError(f"{twice[0]} is both given as an option and varied; leave one out")
    problems = problems_in(options["problem"])
    kind, params = problem_of(options | {"problem": problems[0]})
    lists = parameters.listed(kind, params)
    for problem, values in product(map(registry.problem, problems), list(product(*lists.values()))):
        parameters.resolve(problem, dict(zip(lists, values, strict=True)), "cpu")
    return description_of(given | lists | {"problem": problems}, axes, **plan)


@click.command(
    "sweep", cls=ProblemCommand, lists=True, example="sweep --framework=jax,torch --problem=gemm --axis m=256,512"
)
@click.option(
    "--design",
    type=Choice(get_args(DesignKind)),
    default="rounds",
    help="rounds: each round runs every case in a fresh process; duet: two cases alternate in one process.",
)
@run_options(trials=10)
def sweep_command(
    axes: Sequence[str], design: DesignKind, trials: int, results: Path, resume: bool, dry_run: bool, **options: Any
) -> Output:
    """Measure every combination of parameter values: `run` with ten trials of each case, and any option as an axis.

    NAME is an option without the leading dashes, VALUE a value of that option. Cases that a framework or a device does
    not support are left out and reported. A plan file (`plan run`) can describe the same sweep, vary parameters
    together or in a list of cases, and vary the problem.

      benchmarker sweep --framework=jax,torch --problem=gemm --axis m=256,512

    The exit status is 1 if a trial failed.
    """
    plan = made(described(options, _axes(axes), trials=trials, design=design))
    return execute_plan(plan, results, resume, dry_run)


def _axes(axes: Sequence[str]) -> dict[str, list[Any]]:
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
            raise UserError("give several problems as --problem=gemm,attention")
        values[key] = parameters.values_of(f"--axis {name}", text) if text else []
    return values
