"""A page about series along time: the newest changes, all cases at once, and a figure for each with its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from benchmarker.comparing.formatting import measure
from benchmarker.comparing.history import Point, Series, Suspicion
from benchmarker.formatting import count, sentence, si, within
from benchmarker.hooks.names import names
from benchmarker.page.page_model import (
    Axis,
    Card,
    Doubt,
    Figure,
    Heat,
    Page,
    Points,
    Section,
    drawn,
    searchable,
    table_of,
)
from benchmarker.stats.changes import LEAST
from benchmarker.tables.table import RATIO, Column, number

MOST_CARDS = 6
MOST_FIGURES = 24
MOST_ROWS = 300
LEVELS = 7
"""The series of lines that are no measurement: grey."""
FULL = 0.1
"""Change at which the colours of the heat map are full."""
METHOD = (
    "A point is the median over the trials of a case in one run. Its interval covers the variation between trials, not "
    "that from day to day.",
    "Changes are found by a scan that is repeated with each new run. In fewer than 5% of series of 40 points that did "
    "not change it finds one, even if neighbouring points are correlated (autocorrelation up to 0.6).",
)
SUSPECTED = (
    "The two sides of a change were measured at different times. It is a suspicion until `ab` has measured both in "
    "turns."
)
UNDOUBTED = "Every run has a value of each of its cases, and every case has enough points."
Named = tuple[str, "Series"]


def page(several: Sequence[Series], by: str) -> Page:
    """Return the page of series whose points are named by `by`; those with the newest changes come first."""
    words, shared = _words(several)
    named = sorted(zip(words, several, strict=True), key=_newest_last, reverse=True)
    suspected = [(name, series, change) for name, series in named for change in reversed(series.changes)]
    suspected.sort(key=lambda each: each[1].points[each[2].at].started_at, reverse=True)
    what = measure(several[0].metric)
    newest, *others = _figures(named, by)
    sections = [_changes(suspected, by), _overview(named), _cases(others, len(named))]
    sections.append(Section("method", "Method", METHOD))
    changed = sum(bool(series.changes) for series in several)
    return Page(
        f"{what[0].upper()}{what[1:]} by {by}",
        f"{shared}{count(len(several), 'case')}, {changed or 'none'} with a change",
        tuple(_card(*each, by) for each in suspected[:MOST_CARDS]) or (_steady(several),),
        tuple(_doubts(several)),
        tuple(each for each in sections if each),
        UNDOUBTED,
        newest,
    )


def _words(several: Sequence[Series]) -> tuple[Sequence[str], str]:
    """Return the name of each case, and what all of them share; cases of other tools have names of their own."""
    if any(series.name for series in several):
        return [series.name for series in several], ""
    made = names([series.case for series in several])
    return (made.each if all(made.each) else made.whole), f"{made.shared}: "


def _newest_last(named: Named) -> str:
    """Return when the newest change of a series is; empty without one."""
    _, series = named
    return max((series.points[change.at].started_at for change in series.changes), default="")


def _card(name: str, series: Series, change: Suspicion, by: str) -> Card:
    number = series.changes.index(change)
    before, after = (si(level, series.unit) for *_, level in _levels(series)[number : number + 2])
    also = "; ".join(change.environment)
    told = (
        f"From {before} to {after}; 95% interval of the change {change.low - 1:+.1%} to {change.high - 1:+.1%}.",
        f"The change may lie anywhere between {series.points[change.first - 1].label} and "
        f"{series.points[change.last].label}."
        if change.last > change.first
        else f"The {by} before is {change.before}."
        if change.before != change.after
        else "",
        f"Also changed there: {also}." if also else "Nothing else that is recorded changed there.",
        sentence(change.confirmation.words) if change.confirmation else "",
    )
    return Card(
        change.direction,
        f"{change.direction}, {change.confirmation.outcome if change.confirmation else 'suspected'}",
        f"{name}: {change.direction} {_since(series, change, by)}.",
        f"{change.ratio - 1:+.1%}",
        " ".join(filter(None, told)),
    )


def _since(series: Series, change: Suspicion, by: str) -> str:
    """Return the first point after a change: its name, and its time to the second if the point before has that name."""
    if change.before != change.after:
        return f"since {by} {change.after}"
    time = series.points[change.at].started_at[:19].replace("T", " ")
    return f"since {time}" + ("" if time.startswith(change.after) else f", with the same {by} {change.after} before")


def _levels(series: Series) -> list[tuple[int, int, float]]:
    """Return the first point and the end of each stretch without a change, and the median of its points."""
    places = [0, *(change.at for change in series.changes), len(series.points)]
    return [(start, end, median(point.value for point in series.points[start:end])) for start, end in pairwise(places)]


def _steady(several: Sequence[Series]) -> Card:
    points = max(len(series.points) for series in several)
    return Card("none", "no change found", "No case has a change point.", str(points), "points at most")


def _doubts(several: Sequence[Series]) -> list[Doubt]:
    short = sum(series.is_short for series in several)
    left_out = sum(series.left_out for series in several)
    alone = any(series.trial_deviation is None and not series.lacks for series in several)
    lacking = dict.fromkeys(series.lacks for series in several if series.lacks)
    unconfirmed = any(not change.confirmation for series in several for change in series.changes)
    told = (
        *((True, f"{lacks}.") for lacks in lacking),
        (short, f"{count(short, 'case has', 'cases have')} fewer than {LEAST} points, too few to find a change."),
        (left_out, f"{count(left_out, 'run')} of a case without a value of the metric left out."),
        (alone, "Points of cases with a single trial a run have no interval."),
    )
    return [Doubt(SUSPECTED, "changes")] * unconfirmed + [Doubt(text, "method") for applies, text in told if applies]


def _changes(suspected: Sequence[tuple[str, Series, Suspicion]], by: str) -> Section | None:
    """Return all changes, the newest first, with what else changed there, and the commands that confirm them."""
    if not suspected:
        return None
    told = any(map(_confirmed, (change for *_, change in suspected)))
    unsure = any(change.last > change.first for *_, change in suspected)
    table = table_of(
        suspected,
        (Column("case"), lambda each: each[0]),
        (Column("change"), lambda each: each[2].direction),
        (number("ratio", RATIO), lambda each: each[2].ratio),
        (number("ratio_from", RATIO), lambda each: each[2].low),
        (number("ratio_to", RATIO), lambda each: each[2].high),
        (Column(f"{by} before"), lambda each: each[2].before),
        (Column(f"{by} after"), lambda each: each[2].after),
        *(
            (Column("earliest"), lambda each: each[1].points[each[2].first].label),
            (Column("latest"), lambda each: each[1].points[each[2].last].label),
        )
        if unsure
        else (),
        (Column("also changed there", prose=True), lambda each: "; ".join(each[2].environment) or "nothing recorded"),
        *(((Column("confirmation", prose=True), lambda each: _confirmed(each[2])),) if told else ()),
    )
    commands = tuple(
        " && ".join(change.confirm) for *_, change in suspected if change.confirm and not change.confirmation
    )
    captions = (
        "Ratios are after over before, with 95% intervals.",
        "A change may begin with any point from earliest to latest." if unsure else "",
        "The commands below measure both sides of a change in turns; run them in the repository." if commands else "",
    )
    caption = " ".join(filter(None, captions))
    return Section("changes", "Changes", (), (searchable("Suspected changes", table, caption),), (), commands)


def _confirmed(change: Suspicion) -> str:
    """Return what an `ab` of both sides found, or why none can be made."""
    return change.confirmation.words if change.confirmation else change.unconfirmed


def _overview(named: Sequence[Named]) -> Section | None:
    """Return the heat map of all cases and runs; None if there is one case."""
    if len(named) == 1:
        return None
    shown, left = drawn(named, MOST_ROWS, "cases")
    runs = sorted({(point.started_at, point.run) for _, series in named for point in series.points})
    cells = [_relative(name, series) for name, series in shown]
    heat = Heat(
        "change",
        tuple(started_at[:10] for started_at, _ in runs),
        tuple(tuple(of[run][0] if run in of else None for _, run in runs) for of in cells),
        tuple(tuple(of[run][1] if run in of else "" for _, run in runs) for of in cells),
        FULL,
    )
    figure = Figure(
        "all-cases",
        "All cases along time",
        "Each point over the level before the first change of its case, less 1. Orange is worse, blue is better; "
        f"colours are full at {FULL:.0%}.",
        Axis(""),
        (heat,),
        table_of(
            [(name, series, change) for name, series in named for change in series.changes],
            (Column("case"), lambda each: each[0]),
            (Column("change"), lambda each: each[2].direction),
            (number("ratio", RATIO), lambda each: each[2].ratio),
            (Column("before"), lambda each: each[2].before),
            (Column("after"), lambda each: each[2].after),
        ),
        rows=tuple(name for name, _ in shown),
        left_out=left,
    )
    return Section("all", "All cases", (), (figure,))


def _relative(name: str, series: Series) -> dict[str, tuple[float, str]]:
    """Return each run's point over the first level, less 1, above 0 if it is worse, and its text."""
    first = median(point.value for point in series.points[: series.changes[0].at if series.changes else None])
    sign = 1 if series.better == "lower" else -1
    return {
        point.run: (
            sign * (point.value / first - 1),
            f"{name}, {point.label}: {si(point.value, series.unit)}, {point.value / first - 1:+.1%}",
        )
        for point in series.points
    }


def _figures(named: Sequence[Named], by: str) -> list[Figure]:
    """Return a figure for each case, those with the newest changes first."""
    return [_figure(at, name, series, by) for at, (name, series) in enumerate(named[:MOST_FIGURES])]


def _cases(figures: Sequence[Figure], cases: int) -> Section | None:
    """Return the figures of all cases but the one at the top; None if there is no other."""
    left = ""
    if cases > MOST_FIGURES:
        left = f"The {MOST_FIGURES} of {cases} cases with the newest changes are drawn; `--where` chooses others."
    return Section("cases", "Case by case", tuple(filter(None, [left])), tuple(figures)) if figures else None


def _figure(at: int, name: str, series: Series, by: str) -> Figure:
    changed = {change.at for change in series.changes}
    dots = Points.of(
        "median over trials",
        0,
        [
            (float(number), point.value, point.low, point.high, _text(point, series))
            for number, point in enumerate(series.points, 1)
        ],
        "dots",
    )
    labels = tuple(point.label if number in changed else "" for number, point in enumerate(series.points))
    marks = [replace(dots, labels=labels)]
    for start, end, level in _levels(series):
        marks.append(Points("level", LEVELS, (start + 0.6, end + 0.4), (level, level), look="line", listed=False))
    return Figure(
        f"series-{at}",
        name,
        f"{count(len(series.points), 'point')} in the order of {by}, from {series.points[0].label} to "
        f"{series.points[-1].label}, with 95% intervals over trials. {_sentence(series, by)}",
        Axis(f"number of the point, in the order of {by}"),
        tuple(marks),
        table_of(
            series.points,
            (Column(by), lambda point: point.label),
            (Column("run"), lambda point: point.run),
            (number(series.metric, series.unit), lambda point: point.value),
            (number("low", series.unit), lambda point: point.low),
            (number("high", series.unit), lambda point: point.high),
            (number("trials"), lambda point: point.trials),
        ),
        y=Axis(measure(series.metric), series.unit),
        lines=tuple(change.at + 0.5 for change in series.changes),
    )


def _text(point: Point, series: Series) -> str:
    value = within(point.value, (point.low, point.high), series.unit)
    return f"{point.label}: {value}, {count(point.trials, 'trial')}"


def _sentence(series: Series, by: str) -> str:
    if not series.changes:
        return "No change was found."
    found = [f"{each.ratio - 1:+.1%} {_since(series, each, by)} ({each.direction})" for each in series.changes]
    return f"{'; '.join(found)}. Vertical lines mark changes, horizontal ones the medians of the points between them."
