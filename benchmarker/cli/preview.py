"""Previews a plan: what it would run and how long it should take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from benchmarker.cli.display.cases import case_columns
from benchmarker.cli.display.output import print_json, print_table, print_text
from benchmarker.cli.display.progress import Progress
from benchmarker.cli.execution import print_left_out
from benchmarker.formatting import duration_text
from benchmarker.planning import estimate
from benchmarker.records import store
from benchmarker.records.configurations import factors
from benchmarker.running.probes import probe

if TYPE_CHECKING:
    from benchmarker.planning.estimate import Forecast
    from benchmarker.records.plan import Plan


def preview(plan: Plan, results: Path, with_probes: bool, as_json: bool) -> int:
    """Print what a plan would run, without running it.

    With probes, each case without an earlier record gets a short trial, which is not stored. Returns 1 if a probe
    failed, otherwise 0.
    """
    earlier = estimate.of_plan(plan, store.read([results])[0])
    probes = {}
    if with_probes:
        with Progress() as progress:
            probes = probe(plan, earlier, progress)
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
    cases = case_columns([factors(case) for case in plan.cases], wide=False)
    if cases.headings:
        print_table(cases.headings, cases.cells)
    click.echo(
        f"\n{_count(len(plan.cases), 'case')}, {_count(plan.trials, 'trial')} of each ({plan.design}): "
        f"{_count(processes, 'process', 'processes')}"
    )
    print_left_out(plan)
    for line in _time(forecast):
        print_text(line, "  ")
    return status


def _time(forecast: Forecast) -> list[str]:
    """Return the estimated duration as lines of text."""
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
            f"time: at most {duration_text(forecast.at_most_s)}, plus start-up and compilation, for "
            f"{_count(forecast.unknown, 'case')} without an earlier record"
        )
    return lines


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
