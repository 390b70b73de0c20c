"""Previews a plan: what it would run and how long it should take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarker.cli.display.cases import case_columns
from benchmarker.cli.display.output import Output, Part, Text
from benchmarker.cli.display.progress import Progress
from benchmarker.formatting import count, duration_text
from benchmarker.planning import estimate
from benchmarker.records import store
from benchmarker.records.factors import factors_of
from benchmarker.running.run import probe_cases
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    from benchmarker.planning.estimate import Forecast
    from benchmarker.records.plan import Plan


def preview(plan: Plan, results: Path, with_probes: bool) -> Output:
    """Return what a plan would run, without running it.

    With probes, each case whose time no earlier record tells gets a short trial, which is not stored. The exit status
    is 1 if a probe failed.
    """
    earlier = store.read([results])[0]
    probes = {}
    if with_probes:
        with Progress() as progress:
            probes = probe_cases(plan, estimate.unmeasured(plan, earlier), progress)
    forecast = estimate.forecast(
        plan, earlier, {index: record for index, record in probes.items() if record.error is None}
    )
    data = {
        "cases": plan.cases,
        "trials": plan.trials,
        "design": plan.design,
        "processes": len(plan.processes()),
        "sessions": plan.sessions,
        "pauses_s": plan.pauses_s(0),
        "left_out": plan.left_out,
        "time": msgspec.to_builtins(forecast),
    }
    return Output(_parts(plan, forecast), data, int(any(record.error for record in probes.values())))


def _parts(plan: Plan, forecast: Forecast) -> Iterator[Part]:
    cases = case_columns([factors_of(case) for case in plan.cases], wide=False)
    yield from cases.shared
    if cases.columns:
        yield Table.of_columns(cases.columns)
    yield (
        f"\n{count(len(plan.cases), 'case')}, {count(plan.trials, 'trial')} of each ({plan.design}): "
        f"{count(len(plan.processes()), 'process', 'processes')}"
    )
    yield from left_out_output(plan)
    for line in _time(plan, forecast):
        yield Text(line, "  ")


def left_out_output(plan: Plan) -> Iterator[Part]:
    """Yield a line for each requested item that is not run, with the reason."""
    for reason in plan.left_out:
        yield Text(f"left out: {reason}", "  ")


def duration(plan: Plan, results: Path) -> list[str]:
    """Return how long a plan should take, from the records in the results, as lines of text."""
    return _time(plan, estimate.forecast(plan, store.read([results])[0], {}))


def _time(plan: Plan, forecast: Forecast) -> list[str]:
    """Return the estimated duration, and what it is based on, as lines of text."""
    lines = []
    pauses_s = plan.pauses_s(0)
    if plan.sessions > 1:
        *first, last = map(str, plan.rounds_of_sessions())
        rounds = f"{', '.join(first)} and {last} rounds"
        lines.append(f"{plan.sessions} runs of {rounds}, with pauses of {duration_text(pauses_s)} in all")
    profiles = any(case.measuring.profiling != "no" for case in plan.cases)
    around = "start-up, check, compilation and profile" if profiles else "start-up, check and compilation"
    if forecast.seconds is not None:
        known = count(forecast.known, "case") if forecast.unknown else "all"
        sources = [count(forecast.records, "earlier record")] if forecast.records else []
        sources += [count(forecast.probes, "probe")] if forecast.probes else []
        lines.append(
            f"time: about {duration_text(forecast.seconds + pauses_s)} for {known}, from {' and '.join(sources)}"
        )
        lines.append(f"  {around}{' and pauses' if pauses_s else ''} included")
        pauses_s = 0.0
        if forecast.preheat_more_s:
            lines.append(f"  and up to {duration_text(forecast.preheat_more_s)} more for preheats")
    if forecast.unknown:
        cases = f"{count(forecast.unknown, 'case')} without an earlier record"
        most_s = forecast.at_most_s + forecast.overhead_s + pauses_s
        lines.append(f"time: at most {duration_text(most_s)} for {cases}{', pauses included' if pauses_s else ''}")
        lines.append(f"  {duration_text(forecast.at_most_s)} for preheat and timing, by their own limits")
        lines.append(f"  {duration_text(forecast.overhead_s)} for {around}:")
        if forecast.overhead_records:
            lines.append(
                f"    from {count(forecast.overhead_records, 'record')} of the same problem, framework and mode"
            )
        if forecast.assumed:
            lines.append(f"    assumed for {count(forecast.assumed, 'case')}: {estimate.ASSUMED}")
    return lines
