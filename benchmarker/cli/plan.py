"""`benchmarker plan`."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from benchmarker import estimate, gpus, store
from benchmarker.cli.output import json_option, print_json, print_table
from benchmarker.cli.progress import Progress
from benchmarker.cli.run_plan import planned, print_left_out
from benchmarker.cli.tables import print_shared
from benchmarker.configurations import facts, text
from benchmarker.estimate import duration_text
from benchmarker.execute import make_process
from benchmarker.plan import make_plan
from benchmarker.trial import run_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.estimate import Forecast
    from benchmarker.plan import Plan
    from benchmarker.record import Record


@click.command("plan", short_help="Show what a plan file would run.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Folder with earlier records, which tell how long a trial takes.",
)
@click.option("--probe", is_flag=True, help="Run a short trial of each case without earlier records, to tell the time.")
@json_option
def command(file: Path, results: Path, probe: bool, as_json: bool) -> int:
    """Show what a plan file would run: its cases, what is left out and why, and how long it would take.

    The exit status is 1 where a probe failed.
    """
    return preview(planned(file), results, probe, as_json)


def preview(plan: Plan, results: Path, probe: bool, as_json: bool) -> int:
    """Print what a plan would do, without doing it; a probe runs each case for a short time, and stores nothing.

    Returns 1 where a probe failed, else 0.
    """
    earlier = estimate.of_plan(plan, store.read([results])[0])
    probes = _probe(plan, earlier) if probe else {}
    forecast = estimate.forecast(
        plan, earlier, {index: record for index, record in probes.items() if record.error is None}
    )
    status = int(any(record.error for record in probes.values()))
    processes = len(plan.processes())
    if as_json:
        print_json(
            {
                "cases": plan.cases,
                "trials": plan.trials,
                "design": plan.design,
                "processes": processes,
                "left_out": plan.left_out,
                "time": msgspec.to_builtins(forecast),
            }
        )
        return status
    cases = [facts(case) for case in plan.cases]
    differing = print_shared(cases)
    print_table(differing, [[text(case.get(name)) for name in differing] for case in cases])
    click.echo(
        f"\n{_count(len(cases), 'case')}, {_count(plan.trials, 'trial')} of each ({plan.design}): "
        f"{_count(processes, 'process', 'processes')}"
    )
    print_left_out(plan)
    for line in _time(forecast):
        click.echo(line)
    return status


def _time(forecast: Forecast) -> list[str]:
    """How long it would take, in sentences."""
    lines = []
    if forecast.seconds is not None:
        sources = [_count(forecast.records, "earlier record")] if forecast.records else []
        sources += [_count(forecast.probes, "probe")] if forecast.probes else []
        known = _count(forecast.known, "case") if forecast.unknown else "all"
        more = (
            f", and up to {duration_text(forecast.preheat_more_s)} more for preheats" if forecast.preheat_more_s else ""
        )
        lines.append(f"time: about {duration_text(forecast.seconds)} for {known}, from {' and '.join(sources)}{more}")
    if forecast.unknown:
        lines.append(
            f"time: at most {duration_text(forecast.at_most_s)} beside start-up and compilation for "
            f"{_count(forecast.unknown, 'case')} of which there is no earlier record"
        )
    return lines


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _probe(plan: Plan, earlier: Sequence[Record]) -> dict[int, Record]:
    """A short trial of each case without an earlier record, by the case's index."""
    known = {msgspec.json.encode(record.case) for record in earlier}
    unknown = [index for index, case in enumerate(plan.cases) if msgspec.json.encode(case) not in known]
    probes = make_plan([estimate.probe(plan.cases[index]) for index in unknown], 1)
    environment = cache(lambda gpu: gpus.environment(gpu, os.environ))
    found = {}
    with tempfile.TemporaryDirectory(prefix="benchmarker-") as folder, Progress() as progress:
        for number, (index, case) in enumerate(zip(unknown, probes.cases, strict=True)):
            progress.begin(f"[{number + 1}/{len(unknown)}] probe of {case.framework} {case.problem}", case, None)
            process = make_process(probes, [(number, 0)], slot=number)
            outcome = run_process(process, environment(case.gpu), {}, Path(folder) / "log", progress.hear)
            (record,) = outcome.records
            progress.end([record])
            found[index] = record
    return found
