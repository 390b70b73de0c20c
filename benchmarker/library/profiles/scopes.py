"""The view `scopes`: the time of each scope, of one profile or of several side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from benchmarker.comparing.profiled_parts import OUTSIDE
from benchmarker.display.profiles import cell, frame_table, headline, notes_on
from benchmarker.display.result import Part, Text
from benchmarker.formatting import clean
from benchmarker.library.profiles.difference import difference
from benchmarker.library.profiles.filters import UNKNOWN, Filters
from benchmarker.library.profiles.view import Profiled
from benchmarker.records.profile import Scope, Trace
from benchmarker.tables import terminal
from benchmarker.tables.shortening import factored
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.traces.ingest import Ingested
    from benchmarker.traces.profile_files import Profile

ScopesSort = Literal["root", "inclusive", "scope"]
_DROPPED = ("pure", "any", "expected", "ran", "each", "purity", "phase")
"""Columns that a narrow terminal does not show, the least important first."""
_KNOWN = 30
"""Number of scope names that are listed if none matches the request."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class TimesOfScopes(Profiled):
    """The scopes of profiles. `configuration` is that of each profile by its name, `known` are names of scopes."""

    traces: Sequence[Trace]
    configuration: Mapping[str, str]
    known: Sequence[str]

    def rows(self, top: int = 0) -> Any:
        """Return all rows."""
        return super().rows()

    def parts(self, *, wide: bool = False, top: int = 0) -> Iterator[Part]:
        """Yield the table of one profile, or each configuration's times beside those of the others."""
        if not len(self.frame):
            yield f"no scope matches; there are: {', '.join(self.known)}"
        elif len(self.traces) == 1:
            yield from _alone(self.frame.drop(columns="result"), self.traces[0])
        else:
            yield from _side_by_side(self.frame, self.configuration, top, wide=wide)

    def table(self, *, wide: bool = False) -> Table:
        """Return the whole table."""
        return frame_table(self.frame)


class Scopes(Filters, frozen=True, kw_only=True):
    """Options of the view `scopes`."""

    sort: ScopesSort | None = None
    pool: bool = False

    def of(self, results: Sequence[Path]) -> Profiled:
        """Return the scopes of all profiles, or what differs between two."""
        import pandas as pd

        from benchmarker.traces.profile_files import configurations, names, profiles

        if len(results) == 2 and not any(result.is_dir() for result in results):
            return difference(results, ["leaf", "phase"], self, sort=self.sort)
        sort = self.sort or "root"
        opened = profiles(results, pool=self.pool)
        named = names(opened)
        frame = pd.DataFrame(
            [
                {"result": name, **row}
                for name, profile in zip(named, opened, strict=True)
                for row in _rows(profile.ingested, self)
            ]
        )
        if len(frame):
            column = sort if sort in frame else f"{sort}_ns"
            frame = frame.sort_values(column, ascending=sort == "scope", kind="stable", ignore_index=True)
        traces = [profile.ingested.trace for profile in opened]
        return TimesOfScopes(
            frame=frame,
            traces=traces,
            configuration=dict(zip(named, configurations(opened), strict=True)),
            known=_known(opened),
            notes=notes_on(traces, factored(named)[1]),
        )


def _rows(ingested: Ingested, filters: Filters) -> list[dict[str, Any]]:
    """Return a line for each scope and phase; those with work only in scopes within them come last."""
    from benchmarker.traces.summary import inclusive, scopes

    lines = structs.replace(filters, scope=None, phase=None)
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


def _alone(table: pd.DataFrame, trace: Trace) -> Iterator[Part]:
    yield from headline(trace)
    alike = (table["any_ns"] == table["root_ns"]) & (table["pure_ns"] == table["root_ns"])
    shown = table.dropna(axis=1, how="all").drop(columns=["any_ns", "pure_ns", "purity"] if alike.all() else [])
    yield frame_table(table, printed=list(shown), drop=_DROPPED, cut=["scope"])
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
