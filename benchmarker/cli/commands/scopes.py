"""`benchmarker scopes`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarker.cli.display.output import (
    csv_option,
    json_option,
    print_json,
    print_table,
    print_text,
    wide_option,
)
from benchmarker.cli.display.profiles import cell, headline, phase_option, plain, print_csv, top_option, warn
from benchmarker.cli.display.progress import working
from benchmarker.comparing.profiled_parts import OUTSIDE
from benchmarker.formatting import clean

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Scope, Trace
    from benchmarker.traces.profile_files import Profile

DROPPED = ("pure", "any", "expected", "ran", "each", "purity", "phase")
"""Columns that a narrow terminal does not show, the least important first."""
_KNOWN = 30
"""Number of scope names that are listed if none matches the request."""


@click.command("scopes", short_help="Show the time of each scope in profiles.")
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--scope", help="Show only this scope.")
@phase_option
@top_option
@wide_option
@json_option
@csv_option
def command(
    results: tuple[Path, ...],
    scope: str | None,
    phase: str | None,
    top: int,
    wide: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show the time of each scope in a profile; for several profiles, the times per step side by side.

    A compiler may fuse instructions of several scopes into one kernel. ROOT attributes such a kernel to the scope of
    its root instruction, so these times add up. ANY is the time of all kernels that contain an instruction of the
    scope, PURE the time of those that contain nothing else. RAN is how often the scope ran, EXPECTED how often it
    should have.

    RESULT is a record of a profiled trial, an event table, a profiler's trace file, or a folder of records.
    """
    import pandas as pd

    with working("reading"):
        from benchmarker.traces.profile_files import names, profiles

        found = profiles(results)
    warn([each.ingested.trace for each in found], names(found), aside=as_json or as_csv)
    table = pd.DataFrame(
        [
            {"result": name, **_row(of, profile.ingested.trace)}
            for name, profile in zip(names(found), found, strict=True)
            for of in profile.ingested.scopes
            if scope in (None, of.scope or OUTSIDE) and phase in (None, of.phase)
        ]
    )
    if as_json:
        print_json(plain(table))
    elif as_csv:
        print_csv(table)
    elif not len(table):
        click.echo(f"no scope matches; there are: {', '.join(_known(found))}")
    elif len(found) == 1:
        headline(found[0].ingested.trace)
        _print(table.drop(columns="result"), found[0].ingested.trace, top, wide=wide)
    else:
        _print_side_by_side(table, top, wide=wide)


def _row(scope: Scope, trace: Trace) -> dict[str, Any]:
    return {
        "scope": scope.scope or OUTSIDE,
        "phase": scope.phase or "-",
        "ran": scope.occurrences,
        "expected": scope.expected,
        "root_ns": scope.root_ns,
        "share": scope.root_ns / max(1, trace.busy_ns),
        "each_ns": scope.root_ns / scope.occurrences if scope.occurrences else None,
        "step_ns": scope.root_ns / trace.steps if trace.steps else None,
        "any_ns": scope.any_ns,
        "pure_ns": scope.pure_ns,
        "purity": scope.purity,
    }


def _known(found: Sequence[Profile]) -> list[str]:
    """Return the first names of scopes in the profiles."""
    names = list(dict.fromkeys(of.scope or OUTSIDE for profile in found for of in profile.ingested.scopes))
    return [clean(name) for name in names[:_KNOWN]] + ["…"] * (len(names) > _KNOWN)


def _print(table: pd.DataFrame, trace: Trace, top: int, *, wide: bool) -> None:
    rows = [[cell(name, value) for name, value in row.items()] for row in table.astype(object).to_dict("records")]
    _print_top([name.removesuffix("_ns") for name in table.columns], rows, top, drop=DROPPED, wide=wide)
    if (fused := table[(table["pure_ns"] == 0) & (table["any_ns"] > 0)])["scope"].any():
        remedy = "" if trace.separable else "; --separable keeps some of them apart"
        print_text(f"fused, not separable: {', '.join(dict.fromkeys(fused['scope']))}{remedy}", "  ")


def _print_top(
    headings: Sequence[str], rows: Sequence[Sequence[str]], top: int, *, drop: Sequence[str], wide: bool
) -> None:
    """Print the first lines of a table and the number of lines left out."""
    print_table(headings, rows[: top or None], drop=drop, cut=["scope"], wide=wide)
    if top and len(rows) > top:
        click.echo(f"and {len(rows) - top} more; --top=0 shows all")


def _print_side_by_side(table: pd.DataFrame, top: int, *, wide: bool) -> None:
    """Print each result's time per step and its share of that result's busy time."""
    results = sorted(dict.fromkeys(table["result"]))
    cells = {(row["scope"], row["phase"], row["result"]): row for row in table.astype(object).to_dict("records")}
    click.echo("time per step (ROOT), and share of the busy time")
    lines = list(dict.fromkeys(zip(table["scope"], table["phase"], strict=True)))
    rows = []
    for scope, phase in lines:
        of = [cells.get((scope, phase, result)) for result in results]
        texts = ["-" if row is None else f"{cell('_ns', row['step_ns'])} {row['share']:.1%}" for row in of]
        rows.append([scope, phase, *texts])
    _print_top(["scope", "phase", *results], rows, top, drop=results[:0:-1], wide=wide)
