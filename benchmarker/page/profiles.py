"""Profiles: the time of kernels by category, communication, and a table of ops."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarker.comparing.formatting import explained, short
from benchmarker.formatting import count
from benchmarker.page.page_model import Axis, Bars, Figure, Listing, Section, drawn, searchable
from benchmarker.page.study import MOST_DRAWN, Group, Study, named
from benchmarker.records.profile import Trace
from benchmarker.records.record import Record
from benchmarker.tables.table import RATIO, Cell, Column, Table, number

if TYPE_CHECKING:
    import pandas as pd

UNLISTED = "(not listed)"
NO_CATEGORY = "(none)"
MOST_CATEGORIES = 8
MOST_OPS = 200
MOST_EXPLAINED = 4


def categories(study: Study) -> list[str]:
    """Return the categories of all profiled trials, the largest share of the busy time first."""
    total: Counter[str] = Counter()
    for _, of in _profiled(study):
        total.update(_shares(of))
    return sorted((name for name in total if name != UNLISTED), key=lambda name: (-total[name], name))


def _profiled(study: Study) -> list[tuple[Group, list[Record]]]:
    return [(group, of) for group in study.groups if (of := [record for record in group.ok if record.trace])]


def kernels(study: Study, icicles: Sequence[Figure]) -> Section | None:
    """Return shares of the busy time by category, one bar for each profiled configuration, and the icicles."""
    profiled = _profiled(study)
    if not profiled:
        return None
    shares = {group.label: _shares(of) for group, of in profiled}
    names = categories(study)
    kept, small = names[: MOST_CATEGORIES - 1], names[MOST_CATEGORIES - 1 :]
    stacks = [(name, [name]) for name in kept]
    stacks += [("others", small)] if small else []
    stacks.append((UNLISTED, [UNLISTED]))
    shown, left = drawn([group for group, _ in profiled], MOST_DRAWN, "configurations")
    marks = tuple(
        Bars(
            name,
            MOST_CATEGORIES if name == UNLISTED else index,
            tuple(range(len(shown))),
            tuple(sum(shares[group.label].get(one, 0.0) for one in of) for group in shown),
            stacked=True,
        )
        for index, (name, of) in enumerate(stacks)
    )
    every = [*names, UNLISTED]
    rows: list[tuple[Cell, ...]] = [(label, *(each.get(name, 0.0) for name in every)) for label, each in shares.items()]
    figure = Figure(
        "categories",
        "Kernels by category, share of the busy time",
        "The mean over profiled trials. Records list the kernels that take at least 0.2% of the busy time. The rest "
        f"is shown as {UNLISTED}.",
        Axis("share of the busy time", "%", limit=(0.0, 1.0)),
        marks,
        Table((Column("configuration"), *(Column(name, "%", numeric=True) for name in every)), tuple(rows)),
        rows=tuple(group.label for group in shown),
        left_out=left,
    )
    incomplete = [
        f"{group.label}, trial {record.trial}: the profile is incomplete: {record.trace.missing[0]}"
        for group, of in profiled
        for record in of
        if record.trace and record.trace.missing
    ]
    parts: tuple[Figure | Listing, ...] = (figure, *icicles, *_communication(study, profiled))
    return Section("kernels", "Where the time goes", tuple(_explained(study)), parts, tuple(incomplete[:5]))


def _explained(study: Study) -> Iterator[str]:
    """Yield what accounts for the difference of each compared case, of the first ones if there are many."""
    compared = zip(study.matches, study.family.comparisons, strict=True) if study.family else ()
    told = [(study.case_of(match), each) for match, each in compared if each.explanation]
    for case, each in told[:MOST_EXPLAINED]:
        yield f"{case}, {short(each.contender)}: {each.explanation}." if len(told) > 1 else explained(each)
    if len(told) > MOST_EXPLAINED:
        yield f"`compare --verbose` says the same of {count(len(told) - MOST_EXPLAINED, 'more comparison')}."


_SHARES = ("communication_share", "hidden_share")
_AMOUNTS = ("expected_count", "expected_bytes", "count", "bytes")


def _communication(study: Study, profiled: Sequence[tuple[Group, Sequence[Record]]]) -> list[Listing]:
    """Return a table of what several devices exchange: the means over trials, and the device that is waited for."""
    exchanging = [
        (group, traces)
        for group, records in profiled
        if (traces := [record.trace for record in records if record.trace and record.case.devices > 1])
    ]
    caption = (
        "Shares of the wall time of all devices, the means over profiled trials: in all, communication is waiting for "
        "another device to begin, and transferring; some of it is hidden behind other work. The critical rank is the "
        "device for which the others waited longest, in the given share of the steps."
    )
    if not exchanging:
        return _exchanges(study, profiled)
    columns = (
        *(number(name, "%") for name in ("communication", "hidden", "waiting", "transferring")),
        *(number("critical_rank"), number("of_steps", "%"), number("trials")),
    )
    cells = zip(*(_communicated(traces) for _, traces in exchanging), strict=True)
    names = named(study, [group for group, _ in exchanging])
    table = Table.of_columns([*names, *zip(columns, cells, strict=True)])
    return [Listing("Communication", table, caption), *_exchanges(study, profiled)]


def _communicated(traces: Sequence[Trace]) -> tuple[Cell, ...]:
    """Return the shares of communication, hidden, waiting, transferring; the last rank and its share; the trials."""
    waits = [each.waiting_share for each in traces if each.waiting_share is not None]
    communication, hidden = (fmean(getattr(each, name) for each in traces) for name in _SHARES)
    waiting = fmean(waits) if len(waits) == len(traces) else None
    critical = Counter(rank for each in traces for rank in each.critical_ranks)
    last, steps = critical.most_common(1)[0] if critical else (None, 0)
    transferring = None if waiting is None else communication - waiting
    share = steps / critical.total() if critical else None
    return communication, hidden, waiting, transferring, last, share, len(traces)


def _exchanges(study: Study, profiled: Sequence[tuple[Group, Sequence[Record]]]) -> list[Listing]:
    """Return a table of the collectives of a step, by formula and in the first profile of each configuration."""
    exchanges = [
        (group, each) for group, (record, *_) in profiled for each in (record.trace.exchanges if record.trace else ())
    ]
    caption = (
        "What the devices exchange in a step: the number of collectives of each kind and their bytes in all, as NCCL "
        "Tests define them, by the problem's formula and in the profile."
    )
    columns = (
        (Column("collective"), "op"),
        *((number(name, "B" if name.endswith("bytes") else ""), name) for name in _AMOUNTS),
        (Column("difference"), "difference"),
    )
    table = Table.of_columns(
        [
            *named(study, [group for group, _ in exchanges]),
            *((column, [getattr(each, name) for _, each in exchanges]) for column, name in columns),
        ]
    )
    return [searchable("Collectives", table, caption)] if exchanges else []


def _shares(records: Sequence[Record]) -> dict[str, float]:
    """Return the share of the busy time of each category, the mean over trials; the shares add up to 1."""
    found: dict[str, list[float]] = {}
    for index, record in enumerate(records):
        assert record.trace is not None
        busy = max(1, record.trace.busy_ns)
        mine: Counter[str] = Counter()
        for kernel in record.kernels:
            mine[kernel.category or NO_CATEGORY] += kernel.busy_ns
        mine[UNLISTED] = max(0, busy - mine.total())
        for name, time in mine.items():
            found.setdefault(name, [0.0] * len(records))[index] = time / busy
    return {name: fmean(values) for name, values in found.items()}


_UNITS = {"flop_per_s": "FLOP/s", "bytes_per_s": "B/s", "flops": "FLOP", "bytes": "B", "ratio": RATIO}
_HEADINGS = {"flops_share": ("FLOPs known",), "bytes_share": ("bytes known",)}
"""The part of the time for which they are known."""
_LEFT_OUT = ("total_ns", "self_ns", "mean_ns", "p5_ns", "min_ns", "max_ns", "std_ns", "flops", "bytes")


def listing(name: str, table: pd.DataFrame, most: int | None = None, what: tuple[str, str] = ("op", "ops")) -> Listing:
    """Return the table of the longest lines, at most `most`, with the others summed up in the last row.

    `what` is the name of one line, and that of several.
    """
    most = MOST_OPS if most is None else min(most, MOST_OPS)
    table = table.drop(columns=[each for each in _LEFT_OUT if each in table]).dropna(axis=1, how="all")
    program = ""
    if "program" in table and table["program"].nunique() == 1:
        program = f", all of the program {table['program'].iloc[0]}"
        table = table.drop(columns="program")
    columns = tuple(_column(str(each), table[each].dtype.kind in "iuf") for each in table.columns)
    rows = tuple(tuple(map(_cell, columns, row)) for row in table.head(most).itertuples(index=False, name=None))
    left = table.iloc[most:]
    rest: tuple[Cell, ...] | None = None
    if len(left):
        sums = {each: _sum(left[each]) for each in ("count", "busy_ns", "device_ns", "share") if each in left}
        first = str(table.columns[0])
        rest = tuple(
            f"and {len(left)} more" if each == first else _cell(column, sums.get(each))
            for each, column in zip(table.columns, columns, strict=True)
        )
    caption = f"{count(len(table), *what)}{program}" + (
        f"; the {most} with the most time are listed" if len(left) else ""
    )
    return searchable(name, Table(columns, rows, rest), caption)


def _sum(values: pd.Series) -> float:
    return float(values.sum())


def _column(name: str, numeric: bool) -> Column:
    if name.endswith("_ns"):
        return Column(f"{name.removesuffix('_ns')}_s", "s", numeric=True)
    return Column(
        name, "%" if name.endswith("share") else _UNITS.get(name, ""), numeric, levels=_HEADINGS.get(name, ())
    )


def _cell(column: Column, value: Any) -> Cell:
    """Return a value in the unit of its column, or None if it is unknown."""
    if not column.numeric:
        return "" if value is None else str(value)
    if value is None or not math.isfinite(value):
        return None
    return float(value) / 1e9 if column.unit == "s" else int(value) if column.name == "count" else float(value)
