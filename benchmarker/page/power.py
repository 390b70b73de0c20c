"""Power, temperature and clocks over time, as meters read them, thinned without losing extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from benchmarker.api.errors import UserError
from benchmarker.api.meter import SLOWDOWNS, Channel
from benchmarker.page.page_model import Axis, Figure, Points, Section, table_of
from benchmarker.page.study import Group, Study, panels
from benchmarker.tables.table import Column, number

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.power.telemetry import TimeSeries

Floats = npt.NDArray[np.float64]
Drawn = tuple[str, int, Floats, Floats]

Sensed = Literal["power", "temperature", "clock"]
MOST_TRIALS = 6
MOST_LINES = 8
MOST_POINTS = 600
"""Largest number of points of a line; of each interval, the least and the largest value are kept."""
UNITS: dict[Sensed, str] = {"power": "W", "temperature": "°C", "clock": "MHz"}
_DIRECT: dict[Sensed, tuple[str, ...]] = {
    "power": ("power_instant_W", "power_average_W"),
    "temperature": ("temperature_C",),
    "clock": ("sm_clock_MHz",),
}
"""The quantities that meters read, the best first; without any, power is the slope of an energy counter."""
SENSOR = ["node", "meter", "id", "domain"]


@dataclass(frozen=True, slots=True)
class Line:
    """What a sensor read: `values`, in the unit of `UNITS`, at `seconds` since the timed part began."""

    quantity: Sensed
    sensor: str
    seconds: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class Slowed:
    """The device reduced its clock for a reason from `start` to `end`, s since the timed part began."""

    start: float
    end: float
    reason: str


def apart(sensors: Iterable[str]) -> dict[str, str]:
    """Return short names of sensors, without the words that all have in common."""
    words = {sensor: sensor.split() for sensor in sensors}
    shared = set.intersection(*map(set, words.values())) if words else set()
    return {sensor: " ".join(word for word in of if word not in shared) for sensor, of in words.items()}


Reader = Callable[[str], tuple[list[Line], list[Slowed]]]
"""What gives the readings of the sensors during a trial, and when they slowed down."""


def reader(study: Study, unread: list[str]) -> Reader:
    """Return what reads each time series once; adds those to `unread` that cannot be read, and gives none of them."""

    @cache
    def read(trial_id: str) -> tuple[list[Line], list[Slowed]]:
        try:
            return readings(study.telemetry[trial_id]) if trial_id in study.telemetry else ([], [])
        except UserError as error:
            unread.append(str(error))
            return [], []

    return read


def time_series(study: Study, read: Reader) -> Section | None:
    """Return power and temperature of the first trial of each configuration, in a figure for each problem."""
    figures = [figure for panel in panels(study) for figure in _panel(study, read, *panel)]
    return Section("time_series", "Power and temperature", (), tuple(figures)) if figures else None


def _panel(study: Study, read: Reader, key: str, of: str, groups: Sequence[Group]) -> Iterator[Figure]:
    """Yield the figures of a problem; the cards of two configurations share their names."""
    sensed = [
        (group, record)
        for group in groups
        if (record := next((each for each in group.records if each.trial_id in study.telemetry), None))
    ]
    drawn: dict[Sensed, list[Drawn]] = {"power": [], "temperature": []}
    is_one = len({group.case for group in groups}) == 1
    for group, record in sensed[:MOST_TRIALS]:
        lines = [line for line in read(record.trial_id)[0] if line.quantity in drawn]
        names = apart({line.sensor for line in lines})
        label = group.side if is_one else group.label
        for line in lines:
            name = ", ".join(filter(None, [label, f"trial {record.trial}", names[line.sensor]]))
            drawn[line.quantity].append((name, group.series, *thinned(line.seconds, line.values, MOST_POINTS)))
    left = f"Only the first {MOST_TRIALS} of {len(sensed)} configurations are shown. " * (len(sensed) > MOST_TRIALS)
    for quantity, several in drawn.items():
        if figure := _figure(quantity, several, left, len(study.sides) > 1):
            yield replace(figure, key=f"{quantity}{key}", title=f"{figure.title}{of}")


def _figure(quantity: Sensed, lines: list[Drawn], left: str, several: bool) -> Figure | None:
    lines = [line for line in lines if len(line[2])]
    if not lines:
        return None
    shown = lines[:MOST_LINES]
    if len(shown) < len(lines):
        left += f"{len(shown)} of {len(lines)} sensors are drawn; `benchmarker telemetry` shows the others."
    marks = tuple(
        Points(name, series if several else index, tuple(x.tolist()), tuple(y.tolist()), look="line", symbol=index)
        for index, (name, series, x, y) in enumerate(shown)
    )
    unit = UNITS[quantity]
    table = table_of(
        [(mark.name, *point) for mark in marks for point in zip(mark.x, mark.y, strict=True)],
        (Column("sensor"), lambda row: row[0]),
        (number("time_s", "s"), lambda row: row[1]),
        (number(f"{quantity}_{unit.lstrip('°')}", unit), lambda row: row[2]),
    )
    return Figure(
        quantity,
        f"{quantity.capitalize()} over time",
        "The first trial of each configuration with sensor readings. Time 0 is the start of the timed part. Long lines "
        "are thinned: the least and the largest value of each short interval are kept.",
        Axis("time since the start of the timed part", "s"),
        marks,
        table,
        y=Axis(quantity, unit, limit=(0.0,) if unit == "W" else ()),
        left_out=left.strip(),
    )


def readings(path: Path) -> tuple[list[Line], list[Slowed]]:
    """Return what each sensor read in a time series, and when it slowed down. Raises `UserError` if it is none."""
    from benchmarker.power import telemetry

    series = telemetry.read(path)
    table = series.readings.assign(time_s=series.seconds())
    table = table[np.isfinite(table["value"])]
    channels = _channels(series)
    lines, slowed = [], []
    for sensor, of in table.groupby(SENSOR, sort=False):
        node, *words = map(str, sensor)
        name = " ".join([f"node {node}", *words] if len(series.channels) > 1 else words)
        quantities = {str(quantity): several for quantity, several in of.groupby("quantity", sort=False)}
        for quantity, sources in _DIRECT.items():
            if source := next((each for each in sources if each in quantities), None):
                lines.append(Line(quantity, name, *_arrays(quantities[source])))
            elif quantity == "power" and len(quantities.get("energy_J", ())) > 1:
                wraps_at = channels[(*sensor, "energy_J", "")].wraps_at
                lines.append(Line(quantity, name, *_risen(quantities["energy_J"], wraps_at)))
        found: dict[str, list[Slowed]] = {}
        for (quantity, what), several in of.groupby(["quantity", "what"], sort=False):
            if quantity in ("throttle_mask", "throttle_time_s"):
                for reason, on in _reasons(channels[(*sensor, quantity, what)], several["value"].to_numpy(float)):
                    if intervals := _intervals(several["time_s"].to_numpy(float), on, reason):
                        found.setdefault(reason, intervals)
        slowed += [each for several in found.values() for each in several]
    return lines, slowed


def _channels(series: TimeSeries) -> Mapping[tuple[object, ...], Channel]:
    """Return the channels by node, meter, component, domain, quantity and word."""
    return {
        (node, meter, each.id, each.domain, each.quantity, each.what): each
        for node, channels in enumerate(series.channels)
        for meter, of in channels.items()
        for each in of
    }


def _reasons(channel: Channel, values: Floats) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield each slowdown that a channel tells of, and whether it applied from each reading to the next."""
    if channel.quantity == "throttle_time_s":
        if channel.what in SLOWDOWNS:
            yield channel.what, np.diff(values) > 0
        return
    for reason in SLOWDOWNS:
        if bits := sum(bit for bit, word in channel.bits.items() if word == reason):
            yield reason, values[:-1].astype(np.uint64) & np.uint64(bits) != 0


def _intervals(time_s: Floats, on: npt.NDArray[np.bool_], reason: str) -> list[Slowed]:
    """Return the intervals without a break in which something is on; `on` is from each time to the next."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(int)))
    return [
        Slowed(float(time_s[start]), float(time_s[end]), reason)
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def _arrays(readings: pd.DataFrame) -> tuple[Floats, Floats]:
    return readings["time_s"].to_numpy(float), readings["value"].to_numpy(float)


def _risen(readings: pd.DataFrame, wraps_at: float | None) -> tuple[Floats, Floats]:
    """Return the mean power, W, between successive readings of an energy counter."""
    from benchmarker.power.series import without_wraps

    time_s, energy = _arrays(readings)
    seconds = np.diff(time_s)
    later = seconds > 0
    seconds, rises = seconds[later], np.diff(energy)[later]
    power = without_wraps(rises, seconds, wraps_at) / seconds
    known = ~np.isnan(power)
    return time_s[1:][later][known], power[known]


def thinned(x: Floats, y: Floats, most: int) -> tuple[Floats, Floats]:
    """Return at most `most` points: the least and the largest value of each interval, and both ends."""
    if len(x) <= most:
        return x, y
    kept = {0, len(x) - 1}
    for part in np.array_split(np.arange(len(x)), most // 2 - 1):
        kept |= {int(part[np.argmin(y[part])]), int(part[np.argmax(y[part])])}
    at = sorted(kept)
    return x[at], y[at]
