"""Series along time as text: a table with a row for each case, and its changes in sentences."""

from collections.abc import Iterator, Sequence

from benchmarker.comparing.history import Series, Suspicion
from benchmarker.display.cases import CaseColumns, case_columns
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, part
from benchmarker.stats.changes import LEAST
from benchmarker.tables.table import Column, Shown, Table, interval, number

COLOURS = {"worse": "red", "better": "green"}


def history_output(several: Sequence[Series], by: str, in_checkouts: int, *, wide: bool) -> Iterator[Part]:
    """Yield the table of all series, and below it each change with what else changed there and how to confirm it.

    `in_checkouts` cases were left out, which `bisect` or `history --confirm` measured.
    """
    columns = _columns(several, wide)
    yield from columns.shared
    newest = [series.points[-1] for series in several]
    last = [series.changes[-1] if series.changes else None for series in several]
    filled = [
        *columns.columns,
        (number("points"), [len(series.points) for series in several]),
        (number(several[0].metric, several[0].unit, "newest"), [point.value for point in newest]),
        (number("changes"), [len(series.changes) for series in several]),
        (Column("last change"), [_last(series) for series in several]),
        *interval("last change", [(each.low, each.high) if each else None for each in last]),
        (Column("before"), [each.before if each else "" for each in last]),
        (Column("after"), [each.after if each else "" for each in last]),
    ]
    yield Table.of_columns(filled, drop=["before", "points"], ordered=True)
    for words, series in zip(columns.words, several, strict=True):
        for change in series.changes:
            yield from _change_output(words, series, change, by)
    yield from _notes(several)
    if in_checkouts:
        yield Text(
            f"left out: {count(in_checkouts, 'case')} that `bisect` or `history --confirm` measured in checkouts; "
            "name their run alone to see them",
            "  ",
        )


def _columns(several: Sequence[Series], wide: bool) -> CaseColumns:
    """Return the columns that name the cases; those of other tools have names of their own."""
    if not any(series.name for series in several):
        return case_columns([series.case for series in several], wide=wide)
    named = [series.name for series in several]
    return CaseColumns([(Column("case"), named)], named, [])


def _last(series: Series) -> Shown:
    """Return the size of the newest change."""
    if not series.changes:
        return Shown(None, "too few points" if series.is_short else "none")
    change = series.changes[-1]
    return Shown(change.ratio, f"{change.direction} {change.ratio - 1:+.1%}", COLOURS[change.direction])


def share(change: Suspicion) -> str:
    """Return a change with its interval in percent: `+5.1% [4.2, 6.0]`."""
    return f"{change.ratio - 1:+.1%} [{100 * (change.low - 1):+.1f}, {100 * (change.high - 1):+.1f}]"


def _change_output(words: str, series: Series, change: Suspicion, by: str) -> Iterator[Part]:
    name = f"{words}: " if words else ""
    where = f"between {by} {change.before} and {change.after} (suspected from {change.seen} on)"
    if change.before == change.after:
        one, two = (series.points[at].started_at for at in (change.at - 1, change.at))
        where = f"between {one} and {two}, {by} {change.after} on both sides"
    yield Text(f"{name}{change.direction}, {share(change)}, {where}", "  ", COLOURS[change.direction])
    if change.last > change.first:
        yield Text(
            f"  it may lie anywhere between {series.points[change.first - 1].label} and "
            f"{series.points[change.last].label}",
            "    ",
        )
    also = "; ".join(change.environment)
    yield Text(f"  also changed there: {also}" if also else "  nothing else that is recorded changed there", "    ")
    if change.confirmation:
        yield Text(f"  {change.confirmation.words}", "    ")
        if change.confirmation.records:
            yield Text(f"  records: {change.confirmation.records}", "    ")
    elif change.confirm:
        yield Text("  to confirm it, in the repository:", "    ")
        yield from (Text(f"    {command}", "      ") for command in change.confirm)
    else:
        yield Text(f"  not confirmed: {change.unconfirmed}", "    ")


def _notes(several: Sequence[Series]) -> Iterator[Part]:
    for lacks in dict.fromkeys(series.lacks for series in several if series.lacks):
        yield Text(f"note: {lacks}", "  ")
    if any(not change.confirmation for series in several for change in series.changes):
        yield Text("note: a change is a suspicion until `ab` has measured both sides in turns", "  ")
    if short := sum(series.is_short for series in several):
        yield Text(
            f"note: {part(short, len(several), 'case', 'has', 'have')} fewer than {LEAST} points, too few to find a "
            "change",
            "  ",
        )
    if left_out := sum(series.left_out for series in several):
        yield Text(f"left out: {count(left_out, 'run')} of a case without a value of the metric", "  ")
    if any(series.trial_deviation is None and not series.lacks for series in several):
        yield Text("note: with a single trial a run, points have no interval; --trials=3 or more give them", "  ")
