"""Records as tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import click
import msgspec

from benchmarker.cli.display.energy import sensed_rows
from benchmarker.cli.display.machine import machine_rows
from benchmarker.cli.display.output import print_table
from benchmarker.comparing import disturbances
from benchmarker.formatting import clean, si
from benchmarker.machine import description
from benchmarker.records.configurations import DEFAULTS, configurations, label, text, varying

if TYPE_CHECKING:
    from benchmarker.api.metric import Metric
    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.configurations import Configuration, Factors
    from benchmarker.records.record import Record


_UNIT = re.compile(r"(?<!_per)_(s|J|W|bytes)$")


def as_plain(record: Record, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Return a record and its metrics as plain values."""
    return {
        **msgspec.to_builtins(record),
        "metrics": {name: msgspec.to_builtins(metrics[name]) for name in metrics},
    }


def print_records(records: Sequence[Record], derive: Derive) -> None:
    """Print one line per record: factors that differ and headline metrics; the shared factors are printed above."""
    cases = [_flat(record) for record in records]
    names = list(dict.fromkeys(name for case in cases for name in case))
    differing = [name for name in names if name == "framework" or len({case.get(name) for case in cases}) > 1]
    metrics = [derive(record) for record in records]
    headline = [name for name in dict.fromkeys(name for each in metrics for name in each) if _shown(name, metrics)]
    click.echo(clean(" ".join(f"{name}={value}" for name, value in cases[0].items() if name not in differing)))
    rows = []
    for case, record, derived in zip(cases, records, metrics, strict=True):
        cells = [case.get(name, "-") for name in differing]
        cells += [si(derived[name].value, derived[name].unit) if name in derived else "-" for name in headline]
        rows.append([*cells, record.error.kind if record.error else "ok"])
    print_table([*differing, *map(_heading, headline), "status"], rows)


def print_configurations(records: Sequence[Record], derive: Derive) -> None:
    """Print one line per case: medians of the headline metrics over its successful trials; then failures."""
    groups = configurations(records)
    metrics = [[derive(record) for record in group.records if record.error is None] for group in groups]
    every = [each for several in metrics for each in several]
    headline = [name for name in dict.fromkeys(name for each in every for name in each) if _shown(name, every)]
    differing = print_shared([group.factors for group in groups])
    rows = []
    for group, several in zip(groups, metrics, strict=True):
        cells = [text(group.factors.get(name)) for name in differing]
        cells += [_median([each[name] for each in several if name in each]) for name in headline]
        rows.append([*cells, f"{len(several)} of {len(group.records)}"])
    print_table([*differing, *map(_heading, headline), "ok"], rows)
    for group in groups:
        for line in _failures(group, differing):
            click.echo(clean(line))


def print_shared(cases: Sequence[Factors]) -> list[str]:
    """Print the factors that all cases share, except defaults; returns the names of the others, framework included."""
    differing = list(dict.fromkeys(["framework", *varying(cases)]))
    first = cases[0]
    shared = [name for name, value in first.items() if name not in differing and value != DEFAULTS.get(name)]
    click.echo(clean(label(first, shared)))
    return differing


def _median(metrics: Sequence[Metric]) -> str:
    values = [metric.value for metric in metrics if metric.value is not None]
    return si(median(values), metrics[0].unit) if values else "-"


def _failures(group: Configuration, names: Sequence[str]) -> list[str]:
    """Return a line for each kind of failure of a case, with the message of the first."""
    failed: dict[str, list[Record]] = {}
    for record in group.records:
        if record.error:
            failed.setdefault(record.error.kind, []).append(record)
    return [
        f"{'SKIPPED' if kind == 'skipped' else 'FAILED'} {label(group.factors, names)}, "
        f"{len(records)} of {len(group.records)}: {kind}: {records[0].error.message}"
        for kind, records in failed.items()
        if records[0].error
    ]


def _shown(name: str, metrics: Sequence[Mapping[str, Metric]]) -> bool:
    """Return whether it is a headline metric with a value in any record."""
    return any(name in each and each[name].headline and each[name].value is not None for each in metrics)


def _flat(record: Record) -> dict[str, str]:
    """Return what identifies a trial, as text by name."""
    case = record.case
    values = {name: getattr(case, name) for name in ("problem", "framework", "mode", "precision", "device")}
    values |= {name: value for name in ("gpu", "threads") if (value := getattr(case, name)) is not None}
    values |= case.params
    values |= {"compiled": "yes" if case.compile else "no", "seed": case.seed, "trial": record.trial}
    return {name: str(value) for name, value in values.items()}


def _heading(metric: str) -> str:
    """Return a metric's name as a heading, without the unit, which is in the cells; a rate keeps its unit."""
    return _UNIT.sub("", metric).replace("_per_", "/").replace("_", " ")


def print_record(record: Record, metrics: Mapping[str, Metric]) -> None:
    """Print one record in full."""
    case = record.case
    click.echo(clean(f"{case.problem} in {case.framework}: {case.mode}, {case.precision}, on {case.device}"))
    click.echo(f"trial {record.trial} of run {clean(record.run_id)}, {clean(record.started_at)}")
    if record.error:
        click.echo(clean(f"FAILED in stage {record.error.stage} ({record.error.kind}): {record.error.message}"))
    click.echo()
    print_table(
        ["metric", "value", "note"],
        [[name, si(metric.value, metric.unit), _note(record, metric)] for name, metric in metrics.items()],
    )
    click.echo()
    rows = [["parameters", " ".join(f"{name}={value}" for name, value in case.params.items())], *_how(record)]
    rows += machine_rows(record.machine)
    rows += [
        ["Python", record.software.python],
        ["libraries", ", ".join(f"{name} {version}" for name, version in record.software.libraries.items())],
        [
            "variables",
            " ".join(f"{name}={value}" for name, value in record.software.variables.items()) or "none",
        ],
        ["threads", str(record.software.threads or "-")],
        ["repeat with", record.command],
    ]
    noise = [*disturbances.disturbances(record, [record]).values(), *description.noise(record.machine)]
    rows += [["noise", sentence] for sentence in noise]
    print_table(None, rows)


def _note(record: Record, metric: Metric) -> str:
    """Return the note on a metric; why meters read nothing is printed only once, below."""
    if metric.reason and metric.reason == record.reasons.get("energy"):
        return "no energy, reasons below" if record.meters else metric.reason
    return metric.reason or f"{metric.better} is better"


def _how(record: Record) -> list[list[str]]:
    """Return how it was measured, as rows of (name, value)."""
    rows = []
    if record.device:
        rows.append(["device", f"{record.device.platform}: {record.device.name}"])
    if record.types:
        types = record.types
        settings = "".join(f", {name}={value}" for name, value in types.settings.items())
        rows.append(
            [
                "types",
                f"{types.parameter} weights, {types.compute} products, {types.accumulate} sums{settings}",
            ]
        )
    if record.check:
        verdict = "ok" if record.check.ok else "WRONG"
        rows.append(
            [
                "check",
                f"{verdict}: error {record.check.error:.2g} ({record.check.output}), bound {record.check.bound:.2g}",
            ]
        )
    if record.preheat:
        heat = record.preheat
        rows.append(["preheat", f"{heat.outcome} after {heat.steps} steps, {heat.duration_s:.1f} s"])
    if record.blocks:
        blocks = record.blocks
        rows.append(
            [
                "timed",
                f"{len(blocks.duration_ns)} blocks of {blocks.steps_per_block} step(s), "
                f"{sum(blocks.duration_ns) / 1e9:.1f} s, stopped by {blocks.stopped_by}",
            ]
        )
    if record.design.partner:
        rows.append(["duet", f"alternating with trial {record.design.partner} in one process"])
    if record.interference:
        seen = record.interference
        counted = {
            f"{seen.own_busy_cores:.2f} cores busy with the trial": True,
            f"{seen.other_busy_cores or 0:.2f} with other processes": seen.other_busy_cores is not None,
            f"{seen.steal_percent or 0:.1f}% steal time": seen.steal_percent is not None,
            f"pressure {seen.pressure_percent or 0:.0f}%": seen.pressure_percent is not None,
            f"throttled {seen.throttled_s or 0:.2g} s": seen.throttled_s is not None,
            f"{seen.involuntary_switches} involuntary switches": True,
            f"{seen.frequency_MHz or 0:.0f} MHz": seen.frequency_MHz is not None,
            f"{seen.temperature_C or 0:.0f} °C": seen.temperature_C is not None,
        }
        rows.append(["interference", ", ".join(text for text, known in counted.items() if known)])
    if record.cost:
        cost = record.cost
        again = f" plus {si(cost.recomputed_flops, 'FLOP')} recomputed" if cost.recomputed_flops else ""
        rows.append(
            [
                "cost of a step",
                f"{si(cost.flops, 'FLOP')}{again}, {si(cost.bytes, 'B')} at least, {cost.samples} sample(s)",
            ]
        )
    rows += [*sensed_rows(record), *_profile(record)]
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in record.harness.stages_s.items())
    rows.append(["time, s", f"{record.harness.wall_s:.1f} in all: {stages}"])
    return rows


def _profile(record: Record) -> list[list[str]]:
    """Return a summary of the profile, or why there is none although it was requested."""
    trace = record.trace
    if trace is None:
        return [] if record.case.measuring.profiling == "no" else [["profile", f"none: {record.reasons['trace']}"]]
    busy = max(1, trace.busy_ns)
    steps = f"{trace.steps} steps of {si(median(trace.step_ns) / 1e9, 's')}" if trace.step_ns else "no steps"
    largest = sorted(record.scopes, key=lambda each: -each.root_ns)[:5]
    names = (f"{each.scope or 'outside any scope'} {each.phase} {each.root_ns / busy:.0%}" for each in largest)
    return [
        ["profile", f"{steps}{', separable' if trace.separable else ''}, busy {trace.busy_share:.0%}"],
        ["most time in", ", ".join(names)],
        *(["INCOMPLETE", text] for text in trace.missing),
    ]
