"""Records as tables."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from benchmarker.api.metric import Metric
from benchmarker.comparing.diagnosis import conditions, emulated, short_energies, skewed, unchecked
from benchmarker.comparing.disturbances import disturbances, suspicions
from benchmarker.display.cases import CaseColumns, case_columns
from benchmarker.display.counters import counter_rows
from benchmarker.display.drawings import WIDEST, Marks, histogram, strips
from benchmarker.display.energy import sensed_rows
from benchmarker.display.machine import machine_rows
from benchmarker.display.result import Part, Text, in_notebook
from benchmarker.formatting import clean, count, si
from benchmarker.hooks.cases import Cases, Configuration
from benchmarker.hooks.launchers import named
from benchmarker.hooks.metrics import Derive, load_metrics, refuse_unknown
from benchmarker.hooks.names import name as name_of
from benchmarker.machine import description
from benchmarker.records.factors import factors_of, label
from benchmarker.records.profile import Trace
from benchmarker.records.record import EMULATED, Record
from benchmarker.records.sides import SIDE
from benchmarker.records.step_times import STEP_TIME, device_step_s, host_share, local_times, slowest_text, step_times
from benchmarker.tables import results, terminal
from benchmarker.tables.table import NOTHING, Column, Filled, Shown, Table, number

_PLAIN = ("value", "unit", "better", "reason", "headline")
"""What JSON has of a metric."""


def as_plain(record: Record, metrics: Mapping[str, Metric], side: str = "") -> dict[str, Any]:
    """Return a record and its metrics as values that JSON can hold, with the name of its side if it has one."""
    named = {SIDE: side} if side else {}
    plain = {name: {field: getattr(metric, field) for field in _PLAIN} for name, metric in metrics.items()}
    return {**named, **msgspec.structs.asdict(record), "metrics": plain}


def cases_output(
    groups: Sequence[Configuration],
    derive: Derive,
    chosen: Sequence[str] = (),
    *,
    wide: bool = False,
    remedy: str = "--wide shows",
) -> Iterator[Part]:
    """Yield a line for each case and side: medians over its successful trials with their spread, and how many went how.

    The metrics are those `chosen`, or else the headline metrics, of which only the step time has a spread. Below the
    table stands what failed, whether numbers of threads differ and, unless metrics are chosen, what profiled process
    groups exchange. Raises `UserError` if a chosen metric is unknown.
    """
    records = [record for group in groups for record in group.records]
    skew = [] if chosen else skewed(records)
    refuse_unknown(chosen, records, derive)
    cases = case_columns([group.factors for group in groups], wide=wide)
    yield from cases.shared
    measured = results.metrics(
        [group.ok for group in groups], derive, chosen, skew, lambda name: bool(chosen) or wide or name == STEP_TIME
    )
    spreads = [column.heading for column, _ in measured if column.only == "print"]
    medians = [column.heading for column, _ in measured if not column.only]
    drop = [*spreads[:0:-1], *medians[:0:-1], "disturbed"]
    yield Table.of_columns([*cases.columns, *measured, *results.counts(groups)], drop=drop, remedy=remedy, ordered=True)
    errors = "" if chosen else "; `show --metric=error` shows it"
    for note in (*skew, *unchecked(records), *(f"{note}{errors}" for note in emulated(records))):
        yield Text(f"  note: {note}", "    ")
    for group, words in zip(groups, cases.words, strict=True):
        for line in _failures(group, words or group.name):
            yield Text(line, "  ")
        for text in suspicions(group.records):
            yield Text(f"SUSPECT {words or group.name}: {text}", "  ")
    energies = [] if chosen else [short_energies(records)]
    for note in filter(None, [*conditions([group.records for group in groups]), *energies]):
        yield Text(note, "  ")
    if not chosen:
        yield from _exchanges_output(groups, cases)


def _exchanges_output(groups: Sequence[Configuration], cases: CaseColumns) -> Iterator[Part]:
    """Yield the collectives of a step of each case, by formula and in its first profile, if it has any."""
    exchanges = [
        (at, each)
        for at, group in enumerate(groups)
        if (trace := next((record.trace for record in group.records if record.trace), None))
        for each in trace.exchanges
    ]
    if exchanges:
        several = [each for _, each in exchanges]
        yield ""
        yield Text("collectives of a step: their number and bytes, by formula and in the profile")
        formula = [(each.expected_count, each.expected_bytes) for each in several]
        profile = [(each.count, each.bytes) for each in several]
        filled: list[Filled] = [
            *((column, [cells[at] for at, _ in exchanges]) for column, cells in cases.columns),
            (Column("collective"), [each.op for each in several]),
            *_amounts("formula", formula),
            *_amounts("profile", profile),
            (Column("difference"), [each.difference for each in several]),
        ]
        yield Table.of_columns(filled, drop=["formula"])


def _amounts(name: str, amounts: Sequence[tuple[float | None, float | None]]) -> list[Filled]:
    """Return the columns of numbers of collectives and their bytes, which stand together in print."""
    return [
        (Column(name, only="print"), [Shown(None, _amount(*each)) for each in amounts]),
        (number(f"{name} count", only="data"), [count for count, _ in amounts]),
        (number(f"{name} bytes", only="data"), [size for _, size in amounts]),
    ]


def _amount(number: float | None, size: float | None) -> str:
    """Return how many collectives there are, and their bytes in all."""
    return "-" if number is None else f"{number:.3g}: {'?' if size is None else si(size, 'B')}"


def trials_output(
    groups: Sequence[Configuration],
    derive: Derive,
    chosen: Sequence[str] = (),
    *,
    wide: bool = False,
    marks: Marks | None = None,
) -> Iterator[Part]:
    """Yield a line for each trial, by case: its number, the metrics, and whether it succeeded.

    With `marks`, and unless metrics are chosen, its timed blocks are drawn on a scale that all lines share.
    """
    records = [record for group in groups for record in group.records]
    skew = [] if chosen else skewed(records)
    refuse_unknown(chosen, records, derive)
    cases = case_columns([group.factors for group in groups], wide=wide)
    yield from cases.shared
    case_of = {record.trial_id: at for at, group in enumerate(groups) for record in group.records}
    measured = results.metrics([[record] for record in records], derive, chosen, skew)
    drop = [column.heading for column, _ in measured[:0:-1]]
    scale, drawn = strips(records, marks) if marks and not chosen else ("", [])
    if scale:
        measured.insert(1, (Column(scale, only="print"), [each or NOTHING for each in drawn]))
        drop.append(scale)
    filled: list[Filled] = [
        *((column, [cells[case_of[record.trial_id]] for record in records]) for column, cells in cases.columns),
        (number("trial"), [record.trial for record in records]),
        *measured,
        (Column("status"), [record.error.kind if record.error else "ok" for record in records]),
    ]
    yield Table.of_columns(filled, drop=drop, ordered=True)
    for note in skew:
        yield Text(f"  note: {note}", "    ")


def _failures(group: Configuration, name: str) -> list[str]:
    """Return a line for each kind of failure of a case, with the message of the first."""
    failed: dict[str, list[Record]] = {}
    for record in group.records:
        if record.error:
            failed.setdefault(record.error.kind, []).append(record)
    return [
        f"{'SKIPPED' if kind == 'skipped' else 'FAILED'} {name}, "
        f"{len(records)} of {len(group.records)}: {kind}: {records[0].error.message}"
        for kind, records in failed.items()
        if records[0].error
    ]


def record_output(record: Record, metrics: Mapping[str, Metric], marks: Marks | None = None) -> Iterator[Part]:
    """Yield one record in full; with `marks`, and a histogram of its timed blocks as wide as the terminal has room."""
    case = record.case
    yield Text(name_of(factors_of(case)))
    yield f"trial {record.trial} of run {clean(record.run_id)}, {clean(record.started_at)}"
    if record.error:
        yield clean(f"FAILED in stage {record.error.stage} ({record.error.kind}): {record.error.message}")
    yield ""
    if marks and record.blocks and len(record.blocks.duration_ns) > 1:
        yield "\n".join(histogram(step_times(record), terminal.width() or WIDEST, marks))
        yield ""
    known_first = sorted(metrics.items(), key=lambda each: each[1].value is None)
    yield Table.of(
        ["metric", "value", "note"],
        [
            (name, Shown(metric.value, si(metric.value, metric.unit)), _note(record, metric))
            for name, metric in known_first
        ],
    )
    yield ""
    rows = [["parameters", label(case.params, list(case.params))], *_how(record)]
    rows += machine_rows(record.machine)
    if record.allocation:
        rows.append(["allocation", named(record.allocation)])
    if record.machines:
        rows.append(["machines", ", ".join(machine.host for machine in record.machines)])
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
    noise = [*disturbances([record])[0].values(), *description.noise(record.machine)]
    rows += [["noise", sentence] for sentence in noise]
    yield Table.facts(rows)


def _in_notebook(record: Record) -> str:
    """Return one record in full as HTML for a notebook, with its step times."""
    from benchmarker.page.assemble import main_figures, over_time_figures
    from benchmarker.page.study import Study

    derive = load_metrics()
    study = Study([("", [record])], (), None, derive)
    return in_notebook(record_output(record, derive(record)), [*main_figures(study), *over_time_figures(study)])


Record._repr_html_ = _in_notebook


class Records(tuple[Record, ...]):
    """Records, which a notebook shows as a table of their cases."""

    def _repr_html_(self) -> str:
        return in_notebook(cases_output(Cases.of(self), load_metrics(), remedy="`show --wide` shows"), ())


def _note(record: Record, metric: Metric) -> str:
    """Return the note on a metric; why meters read nothing is printed only once, below."""
    if metric.reason and metric.reason == record.reasons.get("energy") != EMULATED:
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
    if inputs := record.inputs:
        sets = f"{inputs.cache or 'in turns'}: {count(inputs.sets, 'set')} of {si(inputs.set_bytes, 'B')}"
        limited = f", limited by {inputs.limited_by.replace('_', ' ')}" if inputs.limited_by else ""
        cache = f", last-level cache {si(record.device.cache_bytes, 'B')}" if record.device else ""
        rows.append(["inputs", f"{sets}{limited}{cache}"])
    if record.check:
        verdict = "ok" if record.check.ok else "WRONG"
        rows.append(
            [
                "check",
                f"{verdict}: error {record.check.error:.2g} ({record.check.output}), bound {record.check.bound:.2g}, "
                f"against {record.check.against}",
            ]
        )
        if of := record.check.componentwise:
            rows.append(["", f"by element: error {of.error:.2g} of |A|·|B| ({of.output}), bound {of.bound:.2g}"])
    elif record.error is None:
        rows.append(["check", record.reasons["check"]])
    if record.preheat:
        heat = record.preheat
        rows.append(["preheat", f"{heat.outcome} after {count(heat.steps, 'step')}, {heat.duration_s:.1f} s"])
    if record.blocks:
        blocks = record.blocks
        rows.append(
            [
                "timed",
                f"{count(len(blocks.duration_ns), 'block')} of {count(blocks.steps_per_block, 'step')}, "
                f"{sum(blocks.duration_ns) / 1e9:.1f} s, stopped by {blocks.stopped_by}",
            ]
        )
    if (device_s := device_step_s(record)) is not None:
        share = f"; {share:.0%} of the step time is the host's" if (share := host_share(record)) else ""
        rows.append(["device time", f"{si(device_s, 's')} a step, by the clock of the device{share}"])
    if record.ranks and record.blocks:
        steps = record.blocks.steps_per_block
        names = record.node_names
        medians = [
            si(median(rank.duration_ns) / steps / 1e9, "s") + (f" on {names[rank.node]}" if names else "")
            for rank in record.ranks
        ]
        rows.append(["ranks", f"median step time of each: {', '.join(medians)}; the slowest of each block counts"])
    if times := local_times(record):
        medians = [si(each, "s") for each in times.together_s]
        rows.append(["local", f"step without communication: {', '.join(medians)}; slowest: {slowest_text(times)}"])
    if record.token_times:
        requests = max(len(record.token_times.first_ns), len(record.token_times.gap_ns))
        gaps = sum(map(len, record.token_times.gap_ns))
        rows.append(["tokens", f"{count(requests, 'request')}, {count(gaps, 'gap')}, each token waited for"])
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
    rows += counter_rows(record)
    if record.cost:
        cost = record.cost
        again = f" plus {si(cost.recomputed_flops, 'FLOP')} recomputed" if cost.recomputed_flops else ""
        by = f" as {cost.source} counts" if cost.source in ("tensorflow", "torch", "xla", "program") else ""
        rows.append(
            [
                "cost of a step",
                ", ".join(
                    (
                        "FLOPs not known" if cost.flops is None else f"{si(cost.flops, 'FLOP')}{again}{by}",
                        "bytes not known" if cost.bytes is None else f"{si(cost.bytes, 'B')} at least",
                        count(cost.samples, "sample"),
                    )
                ),
            ]
        )
    rows += [*sensed_rows(record), *_profile(record)]
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in record.harness.stages_s.items())
    rows.append(["time, s", f"{record.harness.wall_s:.1f} in all: {stages}"])
    return rows


def _communication(trace: Trace) -> list[list[str]]:
    """Return how much of the time of several devices is communication, what it consists of, and who is waited for."""
    devices = sum(not each.track for each in trace.devices)
    if devices < 2:
        return []
    share = trace.communication_share
    parts = [f"{share:.0%} of the time of {devices} devices", f"{trace.hidden_share:.0%} hidden"]
    if (waiting := trace.waiting_share) is not None:
        parts += [f"{waiting:.0%} waiting for another", f"{share - waiting:.0%} transferring"]
    critical = Counter(trace.critical_ranks).most_common()
    texts = [f"{rank} ({times} of {count(trace.steps, 'step')})" for rank, times in critical]
    exchanged = [
        f"{each.op} {_amount(each.count, each.bytes)}"
        + (f" (formula {_amount(each.expected_count, each.expected_bytes)})" if each.difference else "")
        for each in trace.exchanges
    ]
    rows = [["communication", ", ".join(parts)]]
    rows += [["critical rank", ", ".join(texts)]] if texts else []
    return [*rows, *([["collectives", f"of a step: {', '.join(exchanged)}"]] if exchanged else [])]


def _profile(record: Record) -> list[list[str]]:
    """Return a summary of the profile, or why there is none although it was requested."""
    trace = record.trace
    if trace is None:
        return [] if record.case.measuring.profiling == "no" else [["profile", f"none: {record.reasons['trace']}"]]
    busy = max(1, trace.busy_ns)
    steps = f"{count(trace.steps, 'step')} of {si(median(trace.step_ns) / 1e9, 's')}" if trace.step_ns else "no steps"
    largest = sorted(record.scopes, key=lambda each: -each.root_ns)[:5]
    names = (f"{each.scope or 'outside any scope'} {each.phase} {each.root_ns / busy:.0%}" for each in largest)
    return [
        ["profile", f"{steps}{', separable' if trace.separable else ''}, busy {trace.busy_share:.0%}"],
        ["most time in", ", ".join(names)],
        *_communication(trace),
        *(["INCOMPLETE", text] for text in trace.missing),
    ]
