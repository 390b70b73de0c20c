"""Step time over the run: the blocks of every trial of a case, one trial after the other, and what the meters read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarker.comparing.disturbances import disturbances
from benchmarker.formatting import count, si, some
from benchmarker.page.page_model import Axis, Band, Dot, Figure, Look, Mark, Points, Ridge, Section, digits
from benchmarker.page.power import UNITS, Floats, Line, Reader, Sensed, apart, thinned
from benchmarker.page.study import Group, Study
from benchmarker.records.record import Record
from benchmarker.records.step_times import step_times
from benchmarker.stats.steady import change
from benchmarker.tables.table import Column, Table, number

MOST_CASES = 6
MOST_TRIALS = 60
MOST_POINTS = 900
FEWEST = 12
"""Largest number of points of a figure; each trial, or line of a trial, may have FEWEST however many there are."""
MOST_ROWS = 8
MOST_NAMED = 4
DIGITS = 5
NO_SIDE = 7
"""Colour of what is of no side."""


@dataclass(frozen=True)
class Trial:
    """A trial, and where it stands on the axis of measured time, s.

    Its preheat windows, if it has any, are from `start` to `timed`, and its blocks from there to `end`. `begin_s` are
    the times at which the blocks begin. `doubts` are the reasons not to rely on it.
    """

    group: Group
    record: Record
    start: float
    timed: float
    end: float
    begin_s: Floats
    doubts: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its side and its number."""
        return f"{self.group.side} trial {self.record.trial}".strip()

    @cached_property
    def step_s(self) -> Floats:
        """The step time of each block, s."""
        return step_times(self.record)

    @property
    def windows(self) -> tuple[Floats, Floats]:
        """The ends of its preheat windows, s, and their step times, s."""
        rates = np.array(self.record.preheat.window_steps_per_s if self.record.preheat else [])
        return np.linspace(self.start, self.timed, len(rates) + 1)[1:], 1 / rates

    def within(self, line: Line) -> Line:
        """Return what a sensor read during the trial, on the axis of measured time."""
        seconds = line.seconds + self.timed
        inside = (seconds >= self.start) & (seconds <= self.end)
        return replace(line, seconds=seconds[inside], values=line.values[inside])

    @property
    def median(self) -> Dot:
        """Its median step time, s, in the middle of its blocks."""
        median = float(np.median(self.step_s))
        blocks = f"{self.name}: median {si(median, 's')} of {count(len(self.step_s), 'block')}"
        x, y = digits(((self.timed + self.end) / 2, median), DIGITS)
        return x, y, None, None, "; ".join([blocks, *self.doubts])

    @cached_property
    def change(self) -> Dot | None:
        """Where the level of its blocks changes, and the median step time, s, from there on; None if it is steady."""
        assert self.record.blocks
        found = change(np.array(self.record.blocks.duration_ns))
        if found is None:
            return None
        what = "still warming up until" if found.warmup else "the level changes after"
        x, y = digits((self.begin_s[found.after], float(np.median(self.step_s[found.after :]))), DIGITS)
        return x, y, None, None, f"{self.name}: {what} block {found.after} ({found.share:+.1%})"


def over_time(study: Study, read: Reader) -> tuple[Section | None, list[str]]:
    """Return the figures of each case, and what is said of trials that are not steady."""
    cases = {case: of for case, of in study.cases.items() if any(one.blocks for group in of for one in group.ok)}
    if not cases:
        return None, []
    parts: list[Figure] = []
    doubted: list[str] = []
    unsteady: list[str] = []
    for at, case in enumerate(list(cases)[:MOST_CASES]):
        every = placed(cases[case])
        trials = every[:MOST_TRIALS]
        of = f": {case}" if len(cases) > 1 else ""
        where = f"{case}, " if len(cases) > 1 else ""
        doubted += [f"{where}{each.name} ({'; '.join(each.doubts)})" for each in every if each.doubts]
        if changed := [each.change[4] for each in trials if each.change]:
            unsteady.append(f"Not steady{f', {case}' * (len(cases) > 1)}: {some(changed, MOST_NAMED, '; ')}.")
        left = f"Only the first {MOST_TRIALS} of {len(every)} trials are drawn." * (len(every) > MOST_TRIALS)
        parts.append(_blocks(f"over-time-{at}", f"Blocks of each trial{of}", trials, left))
        parts += _meters(read, f"meters-{at}", f"What meters read meanwhile{of}", trials)
    if len(unsteady) > MOST_NAMED:
        unsteady[MOST_NAMED:] = [f"Not steady in {count(len(unsteady) - MOST_NAMED, 'more case')}."]
    lead = [f"Doubted: {some(doubted, MOST_NAMED, '; ')}."] if doubted else []
    lead += unsteady
    if len(cases) > MOST_CASES:
        lead.append(
            f"Only the first {MOST_CASES} of {len(cases)} cases are drawn; `show RECORD --json` prints every block."
        )
    return Section("over_time", "Step time over the run", tuple(lead), tuple(parts)), unsteady


def placed(groups: Sequence[Group]) -> list[Trial]:
    """Return the trials of a case in the order in which they ran, each after the one before; duets share their time."""
    found = {
        record.trial_id: (group, record, (*why.values(), *record.suspicions))
        for group in groups
        for record, why in zip(group.ok, disturbances(group.ok), strict=True)
        if record.blocks
    }
    trials: dict[str, Trial] = {}
    end = 0.0
    for trial_id in sorted(found):
        group, record, doubts = found[trial_id]
        partner = record.design.partner or ""
        begin_s, lasted = _times(record, found[partner][1] if partner in found else None)
        if partner in trials:
            start, timed = trials[partner].start, trials[partner].timed
        else:
            preheat = record.preheat
            start = end
            timed = start + (preheat.duration_s if preheat and preheat.window_steps_per_s else 0.0)
        end = max(end, timed + lasted)
        trials[trial_id] = Trial(group, record, start, timed, timed + lasted, timed + begin_s, doubts)
    return list(trials.values())


def _times(record: Record, partner: Record | None) -> tuple[Floats, float]:
    """Return when each block began, s since the first one, and how long the timed part was.

    The blocks of a duet take turns with those of the `partner`. The time between blocks, of which records have the
    sum, is spread evenly.
    """
    assert record.blocks
    turns = own = np.array(record.blocks.duration_ns) / 1e9
    ahead = np.zeros(len(own))
    first = record.design.partner_first
    if partner and partner.blocks and len(partner.blocks.duration_ns) == len(own) == len(first):
        other = np.array(partner.blocks.duration_ns) / 1e9
        turns, ahead = own + other, other * np.array(first)
    total = float(turns.sum())
    lasted = max(total, record.interference.duration_s) if record.interference else total
    return (np.cumsum(turns) - turns + ahead) * lasted / total, lasted


def _blocks(key: str, title: str, trials: Sequence[Trial], left: str) -> Figure:
    """Return the figure of the blocks, preheat windows, medians and changes of level of trials."""
    most = max(FEWEST, MOST_POINTS // len(trials))
    windows = [_rounded(each.windows) for each in trials]
    blocks = [_rounded(thinned(each.begin_s, each.step_s, most)) for each in trials]
    changes = [each.change for each in trials]
    marks: list[Mark] = []
    if any(x for x, _ in windows):
        marks.append(Points("preheat windows", NO_SIDE, *_joined(windows), look="small"))
    looks: tuple[tuple[Look, bool], ...] = ("dots", False), ("hollow", True)
    for series in dict.fromkeys(each.group.series for each in trials):
        of = [(each, drawn) for each, drawn in zip(trials, blocks, strict=True) if each.group.series == series]
        side = of[0][0].group.side or "trials"
        xs, ys = _joined([drawn for _, drawn in of])
        marks.append(Points(f"{side}: blocks", series, xs, ys, look="small dots", listed=False))
        for look, is_doubted in looks:
            if medians := [each.median for each, _ in of if bool(each.doubts) == is_doubted]:
                marks.append(Points.of(side + ", doubted" * is_doubted, series, medians, look))
    if found := [each for each in changes if each]:
        marks.append(Points.of("change of level", NO_SIDE, found, "dots", 5))
    caption = (
        "A small dot is a timed block, a large one the median of a trial"
        + ", hollow in a doubted trial, whose time is shaded in yellow" * any(each.doubts for each in trials)
        + ". Trials stand side by side, without the time between them, in which processes start, build and compile."
        + " Circles are windows of the preheat." * any(x for x, _ in windows)
        + " A cross is where the level of the blocks of a trial changes." * bool(found)
        + f" Of more than {most} blocks, the least and the largest of each interval are drawn."
        * any(len(each.step_s) > most for each in trials)
    )
    medians = [each.median for each in trials]
    table = Table.of_columns(
        [
            (Column("trial"), [each.name for each in trials]),
            (Column("trial id"), [each.record.trial_id for each in trials]),
            (number("blocks"), [len(each.step_s) for each in trials]),
            (number("middle_s", "s"), [x for x, *_ in medians]),
            (number("median_s", "s"), [y for _, y, *_ in medians]),
            (Column("doubts", prose=True), ["; ".join(each.doubts) for each in trials]),
            (Column("change of level", prose=True), [each[4] if each else "" for each in changes]),
            (number("change_at_s", "s"), [each and each[0] for each in changes]),
            (number("median_from_there_s", "s"), [each and each[1] for each in changes]),
            *(
                (Column(f"{what}, s"), [" ".join(map(str, each[axis])) for each in several])
                for several, names in (
                    (windows, ("ends of preheat windows", "their step times")),
                    (blocks, ("starts of drawn blocks", "step times of drawn blocks")),
                )
                for axis, what in enumerate(names)
            ),
        ]
    )
    y = Axis("step time", "s", log=True)
    return Figure(key, title, caption, _axis(trials), tuple(marks), table, y, bands=_bands(trials), left_out=left)


def _rounded(line: tuple[Floats, Floats]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    x, y = line
    return digits(x, DIGITS), digits(y, DIGITS)


def _joined(
    lines: Sequence[tuple[tuple[float, ...], tuple[float, ...]]],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(x for xs, _ in lines for x in xs), tuple(y for _, ys in lines for y in ys)


def _axis(trials: Sequence[Trial]) -> Axis:
    return Axis("measured time, trials in the order they ran", "s", limit=(0.0, max(each.end for each in trials)))


def _bands(trials: Sequence[Trial]) -> tuple[Band, ...]:
    """Return a band for each doubted trial, named by the reasons, and one for every second of the others."""
    spans: dict[tuple[float, float], list[str]] = {}
    for each in trials:
        spans.setdefault((each.start, each.end), []).extend(f"{each.name}: {doubt}" for doubt in each.doubts)
    return tuple(
        Band(*span, "; ".join(doubts), "doubt" if doubts else "plain")
        for at, (span, doubts) in enumerate(spans.items())
        if doubts or at % 2
    )


def _meters(read: Reader, key: str, title: str, trials: Sequence[Trial]) -> list[Figure]:
    """Return the figure of what the meters read during trials, if anything; the cards of two sides share their rows."""
    every: list[tuple[Trial, Line]] = []
    bands: list[Band] = []
    for each in trials:
        lines, slowed = read(each.record.trial_id)
        every += [(each, line) for line in map(each.within, lines) if len(line.values) > 1]
        bands += [
            Band(max(each.start, each.timed + of.start), min(each.end, each.timed + of.end), of.reason, "doubt")
            for of in slowed
            if each.start < each.timed + of.end and each.timed + of.start < each.end
        ]
    sides = {each.group.series for each, _ in every}
    sensors = {side: apart({line.sensor for each, line in every if each.group.series == side}) for side in sides}
    found = [(each, line, (line.quantity, sensors[each.group.series][line.sensor])) for each, line in every]
    rows: dict[tuple[Sensed, str], float] = {}
    for _, line, row in found:
        rows[row] = max(rows.get(row, 0.0), float(line.values.max()))
    shown = [row for row, most in rows.items() if most > 0][:MOST_ROWS]
    drawn = [(each, line, row) for each, line, row in found if row in shown]
    if not drawn:
        return []
    most = max(FEWEST, MOST_POINTS // len(drawn))
    points = [_rounded(thinned(line.seconds, line.values, most)) for _, line, _ in drawn]
    marks = []
    for (each, _, row), (x, y) in zip(drawn, points, strict=True):
        heights = digits(np.maximum(0.0, np.array(y) / rows[row]), DIGITS - 1)
        marks.append(Ridge(each.group.side or "trials", each.group.series, shown.index(row), x, heights))
    names = [
        f"{quantity}{f' of {sensor}' if sensor else ''}, 0 to {rows[quantity, sensor]:.4g} {UNITS[quantity]}"
        for quantity, sensor in shown
    ]
    caption = (
        "On the same axis as the figure above. Each curve is as high as the value, from 0 to the largest, which is in "
        "the name of its row."
        + " A shade is the time in which the device reduced its clock, and its reason."
        * bool(bands)
    )
    left = f"Only the first {MOST_ROWS} of {len(rows)} rows are drawn." * (len(rows) > MOST_ROWS)
    table = Table.of_columns(
        [
            (Column("trial"), [each.name for each, _, _ in drawn]),
            (Column("quantity"), [line.quantity for _, line, _ in drawn]),
            (Column("unit"), [UNITS[line.quantity] for _, line, _ in drawn]),
            (Column("sensor"), [line.sensor for _, line, _ in drawn]),
            (number("mean"), [float(line.values.mean()) for _, line, _ in drawn]),
            (Column("at, s"), [" ".join(map(str, x)) for x, _ in points]),
            (Column("values"), [" ".join(map(str, y)) for _, y in points]),
        ]
    )
    figure = Figure(
        key, title, caption, _axis(trials), tuple(marks), table, rows=tuple(names), bands=tuple(bands), left_out=left
    )
    return [figure]
