"""Plan files: `benchmarker new`, `benchmarker plan show` and `benchmarker plan run`."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from benchmarker.api.errors import UserError
from benchmarker.api.program import PROGRAM
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options
from benchmarker.cli.execution import continue_run, execute_plan, planned, preview, spread
from benchmarker.cli.options.case import dry_run_option, spread_options, store_options
from benchmarker.cli.options.types import complete_plan_file, complete_plugin, results_option
from benchmarker.formatting import clean
from benchmarker.hooks import registry


@click.command("show")
@click.argument("file", shell_complete=complete_plan_file, type=click.Path(path_type=Path))
@results_option("Folder with earlier records, from which the time of a trial is estimated.")
@click.option(
    "--probe", is_flag=True, help="Run a short trial of each case without earlier records, to estimate its time."
)
@progress_options
@output_options()
def show_command(file: Path, results: Path, probe: bool) -> Output:
    """Show what a plan file would run: its cases, what is left out and why, and how long it would take.

    The exit status is 1 if a probe failed.
    """
    return preview(planned(file), results, probe)


PLAN = """\
# An experiment plan: every combination of the values in [axes] is a case.
#   benchmarker plan show {name}    what would run, and how long it would take
#   benchmarker plan run {name}     run it; --resume continues an interrupted run
problem = "gemm"                  # `benchmarker list problems`; `benchmarker describe gemm` lists its options
n = 512                           # options of the problem
k = 512
trials = 10                       # fresh processes for each case; a verdict needs at least 6

[measuring]
preheat = true                    # warm up until the rate is steady
preheat_max_s = 5                 # but no longer than this
seconds = 2                       # the timed part of each trial

[axes]
framework = {frameworks}
m = [256, 512]
"""
"""A plan for GEMM in the frameworks that are available here."""


@click.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--framework",
    metavar="NAME",
    shell_complete=complete_plugin("framework"),
    help="Framework of a Python file. [default: one that is available here]",
)
@output_options(tables=False)
def new_command(file: Path, framework: str | None) -> Output:
    """Write a short, commented file to start from: functions to measure, `new softmax.py`, or a plan, `new plan.toml`.

    The plan measures a matrix product in the frameworks that are available here. An existing file is never replaced.
    """
    frameworks = registry.available("gemm")
    if file.suffix == ".toml":
        if framework:
            raise UserError(f"{file}: a plan names its frameworks itself; leave --framework out")
        content = PLAN.format(name=clean(str(file)), frameworks=json.dumps(frameworks))
        use = f"`benchmarker plan show {file}` says what it would run"
    else:
        content = _functions(file, [framework] if framework else frameworks)
        use = f"`benchmarker run {file}` measures what it defines"
    try:
        with file.open("x", encoding="utf-8") as created:
            created.write(content)
    except FileExistsError:
        raise UserError(f"{file} exists already; name another file") from None
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return Output([clean(f"wrote {file}: {use}")], {"path": str(file)})


def _functions(file: Path, frameworks: Sequence[str]) -> str:
    """Return a file of functions in the first of the frameworks that have an example; raises `UserError`."""
    sources = [name for plugin in registry.registered("source").values() if f"{(name := plugin.name)}:" != PROGRAM]
    if file.suffix[1:] not in sources:
        endings = ", ".join(f".{name}" for name in sources)
        raise UserError(f"{file}: end it with {endings} for functions to measure, or .toml for a plan")
    hook = registry.load([f"source{file.suffix}"]).hook
    examples = (hook.write_example(name=file.name, framework=name) for name in frameworks)
    example: str | None = next(filter(None, examples), None)
    if example is None:
        raise UserError(f"there is no example in {', '.join(frameworks)}")
    return example


@click.command("run")
@click.argument("file", shell_complete=complete_plan_file, type=click.Path(path_type=Path))
@store_options
@spread_options
@dry_run_option
@progress_options
@output_options()
def run_command(file: Path, results: Path, resume: bool, runs: int, pause_s: float | None, dry_run: bool) -> Output:
    """Run a plan FILE in rounds: each round is one trial of every case, in random order.

    Records are stored in a new folder below --results. If a trial fails, its record contains the reason and the run
    continues; the exit status is then 1. FILE may also be the folder of a run, which is then continued.
    """
    if file.is_dir():
        chosen = click.get_current_context().get_parameter_source("results") is not ParameterSource.DEFAULT
        if resume or dry_run or chosen or runs > 1 or pause_s is not None:
            raise UserError(
                f"{file} is a run, which continues as it began; leave --resume, --dry-run, --results, --runs and "
                "--pause out"
            )
        return continue_run(file)
    return execute_plan(spread(planned(file), runs, pause_s), results, resume, dry_run)
