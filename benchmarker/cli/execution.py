"""Runs or previews a plan for a command: folder, progress, records, what was left out, and how long it takes."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, print_text
from benchmarker.cli.display.progress import Progress, quiet, working
from benchmarker.cli.options.case import PAUSE_S
from benchmarker.display.cases import case_columns
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, duration_text
from benchmarker.hooks import launchers
from benchmarker.library.measuring import Measured, finished, left_out_output, measured
from benchmarker.planning import build, estimate, plan_file
from benchmarker.planning.estimate import Forecast
from benchmarker.planning.factors import Description
from benchmarker.records import store
from benchmarker.records.factors import factors_of
from benchmarker.records.job import Job, job_of
from benchmarker.records.plan import Plan
from benchmarker.running import submission
from benchmarker.running.run import probe_cases
from benchmarker.tables.table import Table


def planned(file: Path, job: Job | None = None) -> Plan:
    """Return the plan of a file, or the part of it that a job runs; a `UserError` about its content names the file."""
    description = plan_file.read(file, job.plan if job else None)
    try:
        return made(description, job.part if job else None)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error


def made(description: Description, part: int | None = None) -> Plan:
    """Return the plan of a description, or of its cases of so many nodes; a terminal shows a status line meanwhile."""
    with working("querying the frameworks' capabilities"):
        return build.of_nodes(description, part) if part else build.from_description(description)


def spread(plan: Plan, runs: int, pause_s: float | None) -> Plan:
    """Return a plan whose rounds are spread over runs with pauses between; raises `UserError` if there are too few."""
    if pause_s is not None and runs == 1:
        raise UserError("--pause is the time between several runs; give --runs=3, or leave --pause out")
    if runs > plan.trials:
        raise UserError(
            f"--runs={runs}: each run needs a trial of each case, and the plan has {plan.trials}; give fewer, or "
            "repeat the whole command at other times"
        )
    pause_s = (PAUSE_S if pause_s is None else pause_s) if runs > 1 else 0.0
    return msgspec.structs.replace(plan, sessions=runs, pause_s=pause_s)


def execute_plan(
    wanted: Plan,
    results: Path,
    resume: bool,
    dry_run: bool,
) -> Output:
    """Run or resume a plan; return what was measured, failed, left out and disturbed; or preview it.

    The exit status is 1 if a trial failed. Raises `UserError` if a preview is to resume a run.
    """
    if dry_run and resume:
        raise UserError("--dry-run shows the whole plan; leave --dry-run or --resume out")
    if dry_run:
        return preview(wanted, results, False)
    if wanted.sessions > 1 and not resume:
        for line in duration(wanted, results):
            print_text(line, "  ", err=True)
    with Progress() as progress:
        return _output(measured(wanted, results, resume, progress, told_below=quiet()))


def continue_run(path: Path) -> Output:
    """Go on with the run in a folder, as `execute_plan` does; one that was submitted gets its plan at its first start.

    Raises `UserError` if the folder is that of no run, or of one that only the command which began it can continue.
    """
    allocation = launchers.allocation()
    if job_of(path):
        opened = submission.opened(path, allocation, planned)
    else:
        plan = store.plan_of(path)
        if plan.looks:
            raise UserError(f"{path} is a run of `ab`; go on with the same command and --resume")
        opened = store.continued(store.RunFolder(path, plan))
    with opened as folder, Progress() as progress:
        return _output(finished(folder, progress, allocation, told_below=quiet()))


def _output(run: Measured) -> Output:
    return Output(
        run.parts(),
        run.data,
        1 if any(record.error for record in run.records) else 0,
        notes=run.notes,
        stored=f"records: {run.path}",
    )


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
    return Output(_preview_parts(plan, forecast), data, int(any(record.error for record in probes.values())))


def _preview_parts(plan: Plan, forecast: Forecast) -> Iterator[Part]:
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
