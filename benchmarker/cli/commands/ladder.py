"""`benchmarker ladder`."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from benchmarker.api.errors import UserError
from benchmarker.cli.ceiling_measurement import measure_option, measured_for
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import Progress, progress_options, working
from benchmarker.cli.options.case import case_options, store_options
from benchmarker.cli.options.problem import ProblemCommand, problem_of
from benchmarker.cli.options.results import read_cases
from benchmarker.cli.options.types import Integer, frameworks_option, refuse_given
from benchmarker.formatting import names_in
from benchmarker.hooks import parameters
from benchmarker.library.ladder import TRIALS, MeasuredLadder, described
from benchmarker.library.ladder import climbed as measured_ladder
from benchmarker.planning import build
from benchmarker.records import ceilings

_SETTINGS = (
    *("problem", "mode", "precision", "device", "gpu", "threads", "compile", "seed"),
    *("preheat", "preheat_max_s", "warmup_steps", "blocks", "seconds", "cache", "timeout_s", "profile_steps"),
)
"""Settings of what a ladder measures, on one device; the step is always profiled."""


@click.command("ladder", cls=ProblemCommand, example="ladder --problem=gemm --m=2048")
@click.argument("run", type=click.Path(path_type=Path), required=False)
@frameworks_option("Frameworks to measure. [default: all that compute any of it on the step's device]")
@case_options(*_SETTINGS, optional=True)
@click.option(
    "--trials",
    type=Integer(min=1),
    default=TRIALS,
    help="Rounds; with fewer than the default, shares have no interval.",
)
@measure_option
@store_options
@progress_options
@output_options()
def command(
    run: Path | None, framework: str | None, trials: int, measure: bool, results: Path, resume: bool, **options: Any
) -> Output:
    """Show which level of the stack loses how much: bare library, framework, the step around it.

    The pieces of a step that are problems of their own, products of matrices and attention, are measured alone in every
    framework, and the step with its profile, all in the same rounds. Each rung shows its share of the speed of the rung
    below, with a 95% interval, and of the device's roof, if its ceilings are known.

      benchmarker ladder --problem=gemm --m=2048 --n=2048 --k=2048

      benchmarker ladder --problem=gpt2 --seq-len=128 --framework=blas,numpy,jax,torch --seconds=3

    RUN is the folder of a run of this command, to show it again.

    The exit status is 1 if a trial failed, or if a file cannot be read.
    """
    source = click.get_current_context().get_parameter_source
    given = {name: value for name, value in options.items() if source(name) is ParameterSource.COMMANDLINE}
    if run:
        refuse_given({"framework", "trials", "resume", *given}, "a run that is shown again has its own; leave {} out")
        cases = read_cases((run,), pool=False)
        climbed, faults, stored = MeasuredLadder(cases.records), bool(cases.faults), ""
    elif not options["problem"]:
        raise UserError("name what to measure, --problem=gpt2, or the folder of a run to show it again")
    else:
        problem, params = problem_of(given)
        parameters.resolve(problem, params, "cpu")
        with working("querying the frameworks' capabilities"):
            wanted = described({**given, **params}, names_in(framework) if framework else None, trials)
            plan = build.from_description(wanted)
        with Progress() as progress:
            climbed = measured_ladder(plan, results, resume, progress)
        faults, stored = False, f"records: {climbed.run.path}" if climbed.run else ""
    if measure:
        measured_for(climbed.records, ceilings.known())
    status = 1 if faults or any(record.error for record in climbed.records) else 0
    return Output(climbed.parts(), lambda: climbed.data, status, notes=climbed.notes, stored=stored)
