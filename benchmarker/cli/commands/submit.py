"""`benchmarker submit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, Text, output_options
from benchmarker.cli.options import completion
from benchmarker.cli.options.types import Folder, Integer, Several
from benchmarker.formatting import clean
from benchmarker.hooks.launchers import load_launcher
from benchmarker.records import store
from benchmarker.records.job import LOG, SCRIPT, job_of
from benchmarker.running import submission
from benchmarker.running.site import read_site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.records.job import Job


@click.command("submit")
@click.argument("plan", shell_complete=completion.plan_files, type=click.Path(path_type=Path))
@click.option(
    "--launcher",
    "name",
    metavar="NAME",
    shell_complete=completion.plugins("launcher"),
    help="Launcher: slurm, local, or one from a plugin.",
)
@click.option(
    "-o",
    "options",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="Launcher option, such as partition=gpu; can be repeated.",
)
@click.option(
    "--nodes",
    type=Several(Integer(min=1)),
    metavar="N[,N...]",
    help="Nodes of the job; several numbers: one job per number. [default: those of the last job, or 1]",
)
@click.option("--results", type=Folder(), default=Path("results"), show_default=True, help="Folder for the records.")
@click.option("--dry-run", is_flag=True, help="Submit nothing; print the script that would be submitted.")
@output_options(tables=False)
def command(
    plan: Path,
    name: str | None,
    options: tuple[str, ...],
    nodes: tuple[int, ...] | None,
    results: Path,
    dry_run: bool,
) -> Output:
    """Submit a PLAN file as a job, which runs it as `plan run` does.

    The job's script, its output and the records are stored in a new folder below --results. A restarted job continues
    its run. PLAN may also be the folder of a submitted run whose job ended before the run was complete. The launcher
    and its options default to those of the last job, or to the site's settings (docs/clusters.md).

    Several --nodes submit one job per number of nodes; each case runs in the job of its size, so that no node idles.
    """
    site = read_site()
    earlier = job_of(plan)
    name = name or (earlier.launcher if earlier else site.launcher)
    if not name:
        raise UserError("no launcher is given; name one with --launcher, such as --launcher=slurm")
    known = earlier.options if earlier and earlier.launcher == name else site.options_of(name)
    given = known | dict(map(_option, options))
    nodes = nodes or (earlier.nodes if earlier else 1,)
    launch = submission.LaunchSpec(name, given, load_launcher(name, given), site)
    parts = nodes if len(nodes) > 1 else ()
    if parts and plan.is_dir():
        raise UserError(f"{plan} is one run, with one job; give one number of --nodes, or none")
    if dry_run:
        if not plan.is_dir():
            submission.check(plan, plan.stem, parts)
        folders = [plan if plan.is_dir() else results / store.new_id() for _ in nodes]
        scripts = [submission.script(launch, *each) for each in zip(folders, nodes, strict=True)]
        return Output(
            ["\n".join(scripts).removesuffix("\n")],
            _one_or_all([{"launcher": name, "script": script} for script in scripts]),
        )
    if parts:
        submitted = submission.submit_parts(plan, results, launch, parts)
    else:
        submitted = [submission.submit(plan, results, launch, nodes[0])]
    lines = [clean(f"{name} job {job.number}: {path}") for path, job in submitted]
    hint = f"`benchmarker jobs {results}` shows the state, {LOG} in the folder of a run what it prints"
    return Output([*lines, Text(hint, err=True)], _one_or_all([_plain(path, job) for path, job in submitted]))


def _one_or_all(jobs: Sequence[dict[str, str | None]]) -> Any:
    """Return what one job is, or a list of several."""
    return jobs if len(jobs) > 1 else jobs[0]


def _plain(path: Path, job: Job) -> dict[str, str | None]:
    return {
        "launcher": job.launcher,
        "job": job.number,
        "run_id": path.name,
        "folder": str(path),
        "script": str(path / SCRIPT),
        "log": str(path / LOG),
    }


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.replace("_", "-"), value
