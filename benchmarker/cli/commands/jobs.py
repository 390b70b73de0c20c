"""`benchmarker submit` and `benchmarker jobs`: a plan as a job of a cluster, and what became of it."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, View, output_options, print_output
from benchmarker.cli.options.types import Integer, Several, complete_plan_file, complete_plugin, results_option
from benchmarker.display.result import Part, Text
from benchmarker.formatting import clean, count
from benchmarker.hooks.launchers import load_launcher
from benchmarker.records import store
from benchmarker.records.job import LOG, SCRIPT, Job, job_of
from benchmarker.records.record import Record
from benchmarker.running import submission
from benchmarker.running.jobs import SubmittedRun, submitted
from benchmarker.running.site import read_site
from benchmarker.tables.table import NOTHING, Shown, Table, number


@click.command("submit")
@click.argument("plan", shell_complete=complete_plan_file, type=click.Path(path_type=Path))
@click.option(
    "--launcher",
    "name",
    metavar="NAME",
    shell_complete=complete_plugin("launcher"),
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
@results_option()
@click.option("--dry-run", is_flag=True, help="Submit nothing; print the script that would be submitted.")
@output_options(tables=False)
def submit_command(
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
    given = known | dict(map(_launcher_option, options))
    nodes = nodes or (earlier.nodes if earlier else 1,)
    launch = submission.LaunchSpec(name, given, load_launcher(name, given), site)
    parts = nodes if len(nodes) > 1 else ()
    if parts and plan.is_dir():
        raise UserError(f"{plan} is one run, with one job; give one number of --nodes, or none")
    if dry_run:
        if not plan.is_dir():
            submission.check(plan, plan.stem, parts)
        folders = [plan if plan.is_dir() else results / store.new_id() for _ in nodes]
        scripts = [submission.script(launch, *job) for job in zip(folders, nodes, strict=True)]
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
    return Output([*lines, Text(hint, err=True)], _one_or_all([_plain_job(path, job) for path, job in submitted]))


def _one_or_all(jobs: Sequence[dict[str, str | None]]) -> Any:
    """Return what one job is, or a list of several."""
    return jobs if len(jobs) > 1 else jobs[0]


def _plain_job(path: Path, job: Job) -> dict[str, str | None]:
    return {
        "launcher": job.launcher,
        "job": job.number,
        "run_id": path.name,
        "folder": str(path),
        "script": str(path / SCRIPT),
        "log": str(path / LOG),
    }


def _launcher_option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.replace("_", "-"), value


WATCH_S = 10.0
"""Time between two looks at the jobs: a scheduler is shared with others."""


@click.command("jobs")
@click.argument("results", metavar="[RESULT]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Update every 10 s until no job is pending or running.")
@output_options()
def jobs_command(results: tuple[Path, ...], watch: bool, view: View) -> Output:
    """Show the status of submitted runs: the job's state, trials done and planned, and failures with their node.

    RESULT is a folder of runs, or the folder of one run; the default is results. `stopped` means that the job ended
    before its run was complete; `submit RUN` continues it.
    """
    if watch and not view.is_text:
        raise UserError("--watch prints tables; leave --watch or --json out")
    if lacking := next((result for result in results if not result.exists()), None):
        raise UserError(clean(f"{lacking}: no such file or folder"))
    results = results or (Path("results"),)
    runs, shown = submitted(results), None
    if not runs:
        return Output([Text(f"no run below {', '.join(map(str, results))} was submitted")], [])
    while watch and any(run.state in ("pending", "running") for run in runs):
        if shown != runs:
            print_output(Output([*([""] if shown else []), *_runs_output(runs)]), view)
        shown = runs
        time.sleep(WATCH_S)
        runs = submitted(results)
    return Output(chain([""] if shown else [], _runs_output(runs)), [_plain_run(run) for run in runs])


def _runs_output(runs: Sequence[SubmittedRun]) -> Iterator[Part]:
    yield Table.of(
        ["run", "job", "state", "trials", number("planned", only="data"), number("failed"), "node", number("starts")],
        [
            (
                run.folder.name,
                (run.job and run.job.number) or NOTHING,
                run.state,
                Shown(run.done, f"{run.done}/{'?' if run.planned is None else run.planned}"),
                run.planned,
                len(run.failures),
                run.nodes or NOTHING,
                len(run.attempts),
            )
            for run in runs
        ],
        drop=["starts", "node"],
    )
    for run in runs:
        if run.state not in ("running", "done"):
            yield Text(f"{run.folder.name}: {run.state}: {run.detail}", "  ")
        for at, attempt in run.lost:
            lost = f"start {at} on {attempt.where} ended without warning: the node failed, or it was killed"
            yield Text(f"{run.folder.name}: {lost}", "  ")
        for text, records in _by_failure(run.failures).items():
            yield Text(f"{run.folder.name}: {count(len(records), 'trial')} failed {text}", "  ")


def _by_failure(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Group records of failed trials by where they failed and why, in words."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        assert record.error is not None
        nodes = record.allocation.nodes if record.allocation else [record.machine.host]
        where = record.error.node or ", ".join(nodes)
        rank = "" if record.error.rank is None else f", rank {record.error.rank}"
        text = f"on {where}{rank} in {record.error.stage} ({record.error.kind}): {record.error.message}"
        groups.setdefault(text, []).append(record)
    return groups


def _plain_run(run: SubmittedRun) -> dict[str, Any]:
    return {
        "folder": str(run.folder),
        "run_id": run.folder.name,
        "launcher": run.job and run.job.launcher,
        "job": run.job and run.job.number,
        "state": run.state,
        "detail": run.detail,
        "nodes": run.nodes,
        "planned": run.planned,
        "done": run.done,
        "attempts": msgspec.to_builtins(run.attempts),
        "failures": [
            {
                "trial_id": record.trial_id,
                "case_number": record.design.case_number,
                "trial": record.trial,
                "host": record.machine.host,
                "nodes": record.allocation.nodes if record.allocation else [],
                **msgspec.to_builtins(record.error),
            }
            for record in run.failures
        ],
    }
