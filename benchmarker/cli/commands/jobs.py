"""`benchmarker jobs`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, Part, Text, View, output_options, print_output
from benchmarker.formatting import count
from benchmarker.running.jobs import submitted
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.records.record import Record
    from benchmarker.running.jobs import SubmittedRun

WATCH_S = 10.0
"""Time between two looks at the jobs: a scheduler is shared with others."""


@click.command("jobs")
@click.argument("results", metavar="[RESULT]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Update every 10 s until no job is pending or running.")
@output_options()
def command(results: tuple[Path, ...], watch: bool, view: View) -> Output:
    """Show the status of submitted runs: the job's state, trials done and planned, and failures with their node.

    RESULT is a folder of runs, or the folder of one run; the default is results. `stopped` means that the job ended
    before its run was complete; `submit RUN` continues it.
    """
    if watch and not view.is_text:
        raise UserError("--watch prints tables; leave --watch or --json out")
    results = results or (Path("results"),)
    runs, shown = submitted(results), None
    if not runs:
        return Output([Text(f"no run below {', '.join(map(str, results))} was submitted")], [])
    while watch and any(run.state in ("pending", "running") for run in runs):
        if shown != runs:
            print_output(Output([*([""] if shown else []), *_output(runs)]), view)
        shown = runs
        time.sleep(WATCH_S)
        runs = submitted(results)
    return Output(chain([""] if shown else [], _output(runs)), [_plain(run) for run in runs])


def _output(runs: Sequence[SubmittedRun]) -> Iterator[Part]:
    yield Table.of(
        ["run", "job", "state", "trials", "failed", "node", "starts"],
        [
            [
                run.folder.name,
                (run.job and run.job.number) or "-",
                run.state,
                f"{run.done}/{'?' if run.planned is None else run.planned}",
                str(len(run.failures)),
                run.nodes or "-",
                str(len(run.attempts)),
            ]
            for run in runs
        ],
        drop=["starts", "node"],
    )
    for run in runs:
        if run.state not in ("running", "done"):
            yield Text(f"{run.folder.name}: {run.state}: {run.detail}", "  ")
        for number, attempt in run.lost:
            lost = f"start {number} on {attempt.where} ended without warning: the node failed, or it was killed"
            yield Text(f"{run.folder.name}: {lost}", "  ")
        for text, records in _by_failure(run.failures).items():
            yield Text(f"{run.folder.name}: {count(len(records), 'trial')} failed {text}", "  ")


def _by_failure(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Group records of failed trials by where they failed and why, in words."""
    found: dict[str, list[Record]] = {}
    for record in records:
        assert record.error is not None
        nodes = record.allocation.nodes if record.allocation else [record.machine.host]
        where = record.error.node or ", ".join(nodes)
        rank = "" if record.error.rank is None else f", rank {record.error.rank}"
        text = f"on {where}{rank} in {record.error.stage} ({record.error.kind}): {record.error.message}"
        found.setdefault(text, []).append(record)
    return found


def _plain(run: SubmittedRun) -> dict[str, Any]:
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
