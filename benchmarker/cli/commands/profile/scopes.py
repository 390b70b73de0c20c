"""`benchmarker profile scopes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import TOP, Output, output_options
from benchmarker.cli.display.profile_difference import difference_output
from benchmarker.cli.display.profile_filters import UNKNOWN, filter_options
from benchmarker.cli.display.profiles import cell, frame_table, headline, notes_on, plain
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.results import pool_option, results_argument
from benchmarker.cli.options.types import Choice
from benchmarker.comparing.profiled_parts import OUTSIDE
from benchmarker.display.result import Part, Text
from benchmarker.formatting import clean
from benchmarker.records.profile import Scope
from benchmarker.tables import terminal
from benchmarker.tables.shortening import factored
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.cli.display.profile_filters import Filters
    from benchmarker.records.profile import Trace
    from benchmarker.traces.ingest import Ingested
    from benchmarker.traces.profile_files import Profile

_SORTS = ("root", "inclusive", "scope")
DROPPED = ("pure", "any", "expected", "ran", "each", "purity", "phase")
"""Columns that a narrow terminal does not show, the least important first."""
_KNOWN = 30
"""Number of scope names that are listed if none matches the request."""


@click.command("scopes")
@results_argument
@filter_options
@click.option("--sort", type=Choice(_SORTS), help="Column to sort by. [default: root]")
@pool_option
@output_options(top=TOP)
def command(
    results: tuple[Path, ...],
    filters: Filters,
    sort: str | None,
    top: int,
    pool: bool,
    wide: bool,
) -> Output:
    """Show the time of each scope in a profile; for several, the times per step side by side.

    Of several profiles, each configuration has a column, with medians over its trials. Of several folders, each is a
    side, with columns of its own.

    With two RESULTs that are not folders, the table shows which scopes were added, are gone, or take more or less time
    in the second, and their part of the whole difference, per step if both have steps.

    INCLUSIVE is the busy time of all work beneath the scope, also in scopes within it. ROOT is that of the work in the
    scope itself; SHARE, EACH and STEP are of ROOT. RAN is how often the scope ran, EXPECTED how often it should have.

    A compiler may fuse instructions of several scopes into one kernel. ROOT attributes such a kernel to the scope of
    its root instruction, so these times add up. ANY is the time of all kernels that contain an instruction of the
    scope, PURE the time of those that contain nothing else.

    RESULT is a record of a profiled trial, an event table, a profiler's trace file, or a folder of records.
    """
    import pandas as pd

    if len(results) == 2 and not any(result.is_dir() for result in results):
        by = ["leaf", "phase"]
        return difference_output(results, by, filters, sort=sort, top=top, wide=wide)
    sort = sort or _SORTS[0]
    with working("reading"):
        from benchmarker.traces.profile_files import configurations, names, profiles

        opened = profiles(results, pool=pool)
    _, short = factored(names(opened))
    table = pd.DataFrame(
        [
            {"result": name, **row}
            for name, profile in zip(names(opened), opened, strict=True)
            for row in _rows(profile.ingested, filters)
        ]
    )
    parts: Iterable[Part] = [f"no scope matches; there are: {', '.join(_known(opened))}"]
    if len(table):
        column = sort if sort in table else f"{sort}_ns"
        table = table.sort_values(column, ascending=sort == "scope", kind="stable", ignore_index=True)
        if len(opened) == 1:
            parts = _output(table.drop(columns="result"), opened[0].ingested.trace)
        else:
            configuration = dict(zip(names(opened), configurations(opened), strict=True))
            parts = _side_by_side(table, configuration, top, wide=wide)
    whole = frame_table(table)
    return Output(parts, plain(table), csv=whole, notes=notes_on([profile.ingested.trace for profile in opened], short))


def _rows(ingested: Ingested, filters: Filters) -> list[dict[str, Any]]:
    """Return a line for each scope and phase; those with work only in scopes within them come last."""
    from benchmarker.traces.summary import inclusive, scopes

    lines = replace(filters, scope=None, phase=None)
    events = lines.events(ingested.events)
    whole = events is ingested.events
    of = ingested.scopes if whole else scopes(events, ingested.trace.steps, {}) if len(events) else []
    within = inclusive(events)
    beneath = {(row["scope"], row["phase"]): row["inclusive_ns"] for row in within.to_dict("records")}
    own = {(scope.scope, scope.phase): scope for scope in of}
    none = {key: Scope(*key, 0, None, None, 0, 0, 0, 0.0, []) for key in beneath if key not in own}
    rows = [_row(scope, beneath.get(key, 0), ingested.trace) for key, scope in {**own, **none}.items()]
    phase = "" if filters.phase == UNKNOWN else filters.phase
    return [row for row in rows if filters.scope in (None, row["scope"]) and phase in (None, row["phase"])]


def _row(scope: Scope, inclusive_ns: int, trace: Trace) -> dict[str, Any]:
    return {
        "scope": scope.scope or OUTSIDE,
        "phase": scope.phase,
        "ran": scope.occurrences,
        "expected": scope.expected,
        "inclusive_ns": inclusive_ns,
        "root_ns": scope.root_ns,
        "share": scope.root_ns / max(1, trace.busy_ns),
        "each_ns": scope.root_ns / scope.occurrences if scope.occurrences else None,
        "step_ns": scope.root_ns / trace.steps if trace.steps else None,
        "any_ns": scope.any_ns,
        "pure_ns": scope.pure_ns,
        "purity": scope.purity,
    }


def _known(opened: Sequence[Profile]) -> list[str]:
    """Return the first names of scopes in the profiles."""
    names = list(dict.fromkeys(of.scope or OUTSIDE for profile in opened for of in profile.ingested.scopes))
    return [clean(name) for name in names[:_KNOWN]] + ["…"] * (len(names) > _KNOWN)


def _output(table: pd.DataFrame, trace: Trace) -> Iterator[Part]:
    yield from headline(trace)
    alike = (table["any_ns"] == table["root_ns"]) & (table["pure_ns"] == table["root_ns"])
    shown = table.dropna(axis=1, how="all").drop(columns=["any_ns", "pure_ns", "purity"] if alike.all() else [])
    yield frame_table(table, printed=list(shown), drop=DROPPED, cut=["scope"])
    if (fused := table[(table["pure_ns"] == 0) & (table["any_ns"] > 0)])["scope"].any():
        remedy = "" if trace.separable else "; --separable avoids some of this fusion"
        yield Text(f"fused, not separable: {', '.join(dict.fromkeys(fused['scope']))}{remedy}", "  ")


def _side_by_side(table: pd.DataFrame, configuration: Mapping[str, str], top: int, *, wide: bool) -> Iterator[Part]:
    """Yield each configuration's time per step and share of the busy time, medians over its trials.

    What the configurations share stands above. Those that find no room beside the others follow in a further table.
    """
    trials = Counter(configuration.values())
    shared, short = factored(list(trials))
    headings = {
        name: f"{own} (median of {number})" if number > 1 else own
        for own, (name, number) in zip(short, trials.items(), strict=True)
    }
    if shared:
        yield Text(shared)
    yield Text("time per step (ROOT), share of the busy time, and purity where the scope is fused with others", "  ")
    table = table.assign(configuration=table["result"].map(configuration))
    lines = list(dict.fromkeys(zip(table["scope"], table["phase"], strict=True)))
    cells = {key: _side(of) for key, of in table.groupby(["scope", "phase", "configuration"])}
    lines = [line for line in lines if any(cells.get((*line, name), "-") != "-" for name in headings)]
    named = {
        "scope": [scope for scope, _ in lines[: top or None]],
        "phase": [cell("phase", phase) for _, phase in lines[: top or None]],
    }
    columns = {
        heading: [cells.get((*line, name), "-") for line in lines[: top or None]] for name, heading in headings.items()
    }
    while columns:
        shown = {**named, **columns}
        made = Table.of(shown, zip(*shown.values(), strict=True), drop=list(columns)[:0:-1], cut=["scope"])
        left_out = [] if wide else terminal.lines(made, terminal.width()).left_out
        kept = [name for name in shown if name not in left_out]
        yield Table.of(kept, list(zip(*(shown[name] for name in kept), strict=True)), cut=["scope"])
        columns = {name: columns[name] for name in left_out}
        if columns:
            yield ""
    if len(lines) > len(named["scope"]):
        yield f"and {len(lines) - len(named['scope'])} more; --top=0 shows all"


def _side(of: pd.DataFrame) -> str:
    """Return the medians of one scope and phase over the trials of a configuration, `-` without work of its own."""
    step, share, purity = (of[name].median() for name in ("step_ns", "share", "purity"))
    if step != step or not (step or of["any_ns"].any()):
        return "-"
    time = cell("_ns", step)
    if (of["pure_ns"] == 0).all() and (of["any_ns"] > 0).any():
        return f"{time} {share:.1%} fused"
    return f"{time} {share:.1%}" + (f" {purity:.0%} pure" if purity < 1 else "")
