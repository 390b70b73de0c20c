"""`benchmarker submit`."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import json_option, print_json
from benchmarker.cli.options.types import Folder
from benchmarker.hooks.launchers import load_launcher
from benchmarker.records import store
from benchmarker.records.job import LOG, SCRIPT, job_of
from benchmarker.running import submission
from benchmarker.running.site import read_site


@click.command("submit")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--launcher", "name", metavar="NAME", help="What starts the job: slurm, local, or a plugin's.")
@click.option(
    "-o",
    "options",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="An option of the launcher, such as partition=gpu; several may be given.",
)
@click.option("--nodes", type=click.IntRange(1), help="Nodes of the job; if not given, those of its last job, or 1.")
@click.option("--results", type=Folder(), default=Path("results"), show_default=True, help="Folder for the records.")
@click.option("--dry-run", is_flag=True, help="Submit nothing; print the script that would be submitted.")
@json_option
def command(
    plan: Path,
    name: str | None,
    options: tuple[str, ...],
    nodes: int | None,
    results: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Submit a PLAN file as a job, which runs it as `plan run` does.

    The job's script, its output and the records are in a new folder below --results. If the job is restarted, it goes
    on with this run. PLAN may also be the folder of a submitted run whose job ended before the run was complete. The
    launcher and the options that are not given are those of its last job, or of the site's settings (docs/clusters.md).
    """
    site = read_site()
    earlier = job_of(plan)
    name = name or (earlier.launcher if earlier else site.launcher)
    if not name:
        raise UserError("no launcher is given; name one with --launcher, such as --launcher=slurm")
    known = earlier.options if earlier and earlier.launcher == name else site.options_of(name)
    given = known | dict(map(_option, options))
    nodes = nodes or (earlier.nodes if earlier else 1)
    launcher = load_launcher(name, given)
    if dry_run:
        if not plan.is_dir():
            submission.check(plan, plan.stem)
        script = submission.script(launcher, plan if plan.is_dir() else results / store.new_id(), site, nodes)
        if as_json:
            print_json({"launcher": name, "script": script})
        else:
            click.echo(script, nl=False)
        return
    path, job = submission.submit(plan, results, name, given, launcher, site, nodes)
    if as_json:
        print_json(
            {
                "launcher": name,
                "job": job.number,
                "run_id": path.name,
                "folder": str(path),
                "script": str(path / SCRIPT),
                "log": str(path / LOG),
            }
        )
    else:
        click.echo(f"{name} job {job.number}: {path}")
        click.echo(f"`benchmarker jobs {results}` shows its state, {path / LOG} what it prints", err=True)


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.replace("_", "-"), value
