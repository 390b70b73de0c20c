"""Scaling: speed-up over the number of devices beside the ideal, and what each device of a process group did."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from statistics import median

from benchmarker.comparing.scaling import scalings
from benchmarker.comparing.scaling_results import Scalings, labels, shown
from benchmarker.comparing.scaling_results import sentence as words
from benchmarker.formatting import count, rounded, sentence
from benchmarker.hooks.cases import Cases
from benchmarker.page.page_model import Axis, Card, Figure, Listing, Points, Section, drawn, searchable, table_of
from benchmarker.page.study import Study, named
from benchmarker.records.record import Record
from benchmarker.records.sides import Side
from benchmarker.records.step_times import STRAGGLER, local_times
from benchmarker.tables.table import RATIO, Cell, Column, Table, number

IDEAL = 7
"""The series of the ideal line: grey."""
MOST_SERIES = 7
"""The number of distinct colours and symbols besides that of the ideal line."""
MOST_CARDS = 4
FACTORS = ("size", "contention", "imbalance", "communication")
"""The factors of an efficiency."""


def scaling(study: Study) -> tuple[Section | None, list[Card]]:
    """Return speed-ups of all series in a figure, a table of the devices of process groups, and a card for each series.

    There is no section without several devices.
    """
    if all(record.case.devices == 1 for record in study.records):
        return None, []
    found = scalings(Cases.of_sides([Side(name, tuple(records)) for name, records in study.results]), study.derive)
    names, same = labels(found.series) if found.series else ([], "")
    told = [
        sentence(f"{name}: {words(series)}" if len(names) > 1 else words(series))
        for name, series in zip(names, found.series, strict=True)
    ]
    about: dict[str, list[str]] = {}
    for name, series in zip(names, found.series, strict=True):
        for note in series.notes:
            about.setdefault(note, []).append(name)
    points = [note if len(by) == len(names) else f"{note} ({'; '.join(by)})" for note, by in about.items()]
    points = [*map(sentence, (*points, *found.notes)), *(f"{text}." for text in found.left_out)]
    parts = [speedups_figure(found)] if found.series else []
    lead = (*filter(None, [same and f"{same}."]), *told)
    section = Section("scaling", "Scaling", lead, (*parts, *_devices(study)), tuple(points))
    cards = [
        Card("none", f"{series.scaling} scaling", text, f"{rounded(series.points[-1].speedup.value, 3)}×", same)
        for series, text in zip(found.series[:MOST_CARDS], told, strict=False)
    ]
    return section, cards


def speedups_figure(found: Scalings) -> Figure:
    """Return the speed-ups of all series, of which there is at least one, beside the ideal."""
    names, _ = labels(found.series)
    shown_series, left = drawn(found.series, MOST_SERIES, "series")
    devices = sorted({point.devices for series in shown_series for point in series.points})
    marks = [
        Points.of(
            name,
            at,
            [
                (
                    *(point.devices, point.speedup.value, point.speedup.low, point.speedup.high),
                    f"{name}, {count(point.devices, 'device')}: speed-up {shown(point.speedup)}, "
                    f"efficiency {shown(point.efficiency, percent=True)}",
                )
                for point in series.points
            ],
        )
        for at, (name, series) in enumerate(zip(names, shown_series, strict=False))
    ]
    ideal = tuple(float(number) for number in devices)
    marks.append(Points("ideal", IDEAL, ideal, ideal, look="line"))
    return Figure(
        "speed-up",
        "Speed-up over devices",
        "Samples in the same time, over those of one device, with 95% intervals; too few trials have none. Efficiency "
        "is the speed-up over the number of devices: on these axes, equal efficiency is a parallel to the ideal line. "
        "The data table splits it into size (a share of the work computes less well), contention, imbalance and "
        "communication.",
        Axis("devices", log="always"),
        tuple(marks),
        _table(found),
        y=Axis("speed-up", log="always"),
        left_out=left,
    )


def _table(found: Scalings) -> Table:
    ratios = [
        (number(f"{heading}{end}", RATIO), lambda row, of=attrgetter(f"{name}.{field}"): of(row[1]))
        for heading, name in (("speed_up", "speedup"), ("efficiency", "efficiency"))
        for end, field in (("", "value"), ("_from", "low"), ("_to", "high"))
    ]
    factors = [
        (number(name, RATIO), lambda row, name=name: getattr(row[1].split, name) if row[1].split else None)
        for name in FACTORS
    ]
    return table_of(
        [(series, point) for series in found.series for point in series.points],
        (Column("case"), lambda row: row[0].name),
        (Column("scaling"), lambda row: row[0].scaling),
        (Column("parallel"), lambda row: row[0].parallel),
        (number("devices"), lambda row: row[1].devices),
        (number("samples_per_step"), lambda row: row[1].samples),
        (number("step_time", "s"), lambda row: row[1].step_s),
        (number("samples_per_s_per_device", "1/s"), lambda row: row[1].samples_per_s_per_device),
        *ratios,
        *factors,
        (number("trials"), lambda row: row[1].trials),
    )


def _devices(study: Study) -> list[Listing]:
    """Return a table of the devices of all process groups, medians over trials."""
    devices = [
        (group, device)
        for group in study.groups
        if group.ok and group.records[0].case.devices > 1
        for device in range(group.records[0].case.devices)
    ]
    if not devices:
        return []
    caption = (
        "Medians over trials. The step time is that of the device's own process, if it has one: an exchange makes all "
        "wait for the slowest, so these are alike whichever of them is slow. Without communication they differ; the "
        f"score is the time of the fastest over that of the device, and below {STRAGGLER} it is a straggler."
    )
    measured = [_device(group.ok, device) for group, device in devices]
    columns = (
        *(number(name, "s") for name in ("step_time", "step_time_without_communication", "step_time_alone")),
        *(number("score", RATIO), number("host_peak_rss", "B"), number("trials")),
    )
    table = Table.of_columns(
        [
            *named(study, [group for group, _ in devices]),
            (number("device"), [device for _, device in devices]),
            *zip(columns, zip(*measured, strict=True), strict=True),
        ]
    )
    return [searchable("Devices", table, caption, folded=True)]


def _device(records: Sequence[Record], device: int) -> tuple[Cell, ...]:
    """Return the step times of a device with and without communication, its score, its memory, and the trials."""
    ranks = [(record, rank) for record in records for rank in record.ranks if rank.devices == [device]]
    local = [times for record in records if (times := local_times(record))]
    step_s = [median(rank.duration_ns) / record.blocks.steps_per_block / 1e9 for record, rank in ranks if record.blocks]
    peaks = [rank.memory.host_peak_rss_bytes for _, rank in ranks if rank.memory]
    known = [peak for peak in peaks if peak is not None]
    return (
        median(step_s) if step_s else None,
        median(times.together_s[device] for times in local) if local else None,
        median(times.alone_s[device] for times in local) if local else None,
        median(times.scores[device] for times in local) if local else None,
        median(known) if known else None,
        len(records),
    )
