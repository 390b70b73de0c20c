"""`benchmarker run`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options, working
from benchmarker.cli.execution import execute_plan
from benchmarker.cli.options import completion
from benchmarker.cli.options.case import case_options, dry_run_option, store_options, take_measuring
from benchmarker.cli.options.devices import SEVERAL_DEVICES
from benchmarker.cli.options.problem import ProblemCommand, ask_each, names_of
from benchmarker.cli.options.types import Integer
from benchmarker.hooks import parameters
from benchmarker.machine import gpus
from benchmarker.planning.capabilities import usable
from benchmarker.planning.cases import same_device
from benchmarker.planning.scaling import ALL, make_several
from benchmarker.records.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path


@click.command("run", cls=ProblemCommand, lists=True, example="run --framework=jax --problem=gemm")
@click.option(
    "--framework",
    required=True,
    metavar="NAME[,NAME...]",
    shell_complete=completion.several("framework"),
    help="Frameworks to measure.",
)
@case_options(*(name for name in parameters.settings() if name not in ("devices", "parallel")))
@SEVERAL_DEVICES[0]
@SEVERAL_DEVICES[1]
@SEVERAL_DEVICES[2]
@click.option(
    "--trials",
    type=Integer(min=1),
    default=1,
    show_default=True,
    help="Trials of each case, each in a fresh process.",
)
@store_options
@dry_run_option
@progress_options
@output_options(form=False)
def command(framework: str, trials: int, results: Path, resume: bool, dry_run: bool, **options: Any) -> Output:
    """Measure a problem in one or more frameworks; store a record for each trial and print a table.

    Each trial is a fresh process that checks the results against a float64 reference, builds, compiles, preheats or
    warms up, and times steps. Lists of frameworks, devices, strategies, scalings or options of the problem make one
    case per combination; each round runs every case once. Combinations of the problem's options that are not supported
    are left out and reported. Records are stored in a new folder below --results. The exit status is 1 if a trial
    failed.
    """
    measuring = take_measuring(options)
    devices, parallels, scalings = (options.pop(name) for name in ("devices", "parallels", "scalings"))
    if devices == (1,) and "weak" in scalings:
        raise UserError("--scaling=weak needs several numbers of devices; for example --devices=1,2")
    if options["independent"] and "weak" in scalings:
        raise UserError("--independent gives each device the same work already; omit --scaling=weak")
    if options["independent"] and parallels:
        raise UserError("--independent does not divide the work; omit --parallel")
    problem, asked = ask_each(options, measuring=measuring)
    environment = gpus.environment(asked[0].gpu, os.environ, None if ALL in devices else max(devices))
    names = names_of(framework, asked[0].problem)
    with working(f"querying the capabilities of {', '.join(names)}"):
        supported = usable(asked[0].problem, names, environment)
    cases, left_out = make_several(asked, problem, supported, devices, parallels or [None], scalings)
    same_device(cases)
    return execute_plan(make_plan(cases, trials, left_out=left_out), results, resume, dry_run)
