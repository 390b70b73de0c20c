"""Time series of power and temperature, thinned without losing extremes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.page.page_model import Axis, Figure, Points, Section
from benchmarker.tables.table import Column, Table

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from benchmarker.page.study import Study

    Line = tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]
    Drawn = tuple[str, int, npt.NDArray[np.float64], npt.NDArray[np.float64]]

MOST_TRIALS = 6
MOST_LINES = 8
MOST_POINTS = 600
"""Largest number of points of a line; of each interval, the least and the largest value are kept."""
POWERS = ("power_instant_W", "power_average_W")
SENSOR = ["node", "meter", "id", "domain"]


def time_series(study: Study) -> tuple[Section | None, list[str]]:
    """Return power and temperature of the first trial of each configuration, and the unreadable time series."""
    sensed = [
        (group, record, study.telemetry[record.trial_id])
        for group in study.groups
        if (record := next((each for each in group.records if each.trial_id in study.telemetry), None))
    ]
    if not sensed:
        return None, []
    powers: list[Drawn] = []
    temperatures: list[Drawn] = []
    faults = []
    for group, record, path in sensed[:MOST_TRIALS]:
        try:
            one, two = _lines(path)
        except UserError as error:
            faults.append(str(error))
            continue
        name = f"{group.label}, trial {record.trial}"
        powers += [(f"{name}, {sensor}", group.series, x, y) for sensor, x, y in one]
        temperatures += [(f"{name}, {sensor}", group.series, x, y) for sensor, x, y in two]
    left = f"Only the first {MOST_TRIALS} of {len(sensed)} configurations are shown. " * (len(sensed) > MOST_TRIALS)
    several = len(study.sides) > 1
    figures = (
        _figure("power", "Power over time", "power", "W", powers, left, several),
        _figure("temperature", "Temperature over time", "temperature", "°C", temperatures, left, several),
    )
    found = tuple(each for each in figures if each)
    return (Section("time_series", "Power and temperature", (), found) if found else None), faults


def _figure(
    key: str, title: str, quantity: str, unit: str, lines: list[Drawn], left: str, several: bool
) -> Figure | None:
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
    rows = tuple((mark.name, x, y) for mark in marks for x, y in zip(mark.x, mark.y, strict=True))
    return Figure(
        key,
        title,
        "The first trial of each configuration with sensor readings. Time 0 is the start of the timed part. Long lines "
        "are thinned: the least and the largest value of each short interval are kept.",
        Axis("time since the start of the timed part", "s"),
        marks,
        Table(
            (
                Column("sensor"),
                Column("time_s", "s", numeric=True),
                Column(f"{quantity}_{unit.lstrip('°')}", unit, numeric=True),
            ),
            rows,
        ),
        y=Axis(quantity, unit, limit=(0.0,) if unit == "W" else ()),
        left_out=left.strip(),
    )


def _lines(path: Path) -> tuple[list[Line], list[Line]]:
    """Return power and temperature of each sensor in a time series. Raises `UserError` if it cannot be read."""
    from benchmarker.power import telemetry

    line = telemetry.read(path)
    table = line.readings.assign(time_s=line.seconds())
    table = table[np.isfinite(table["value"])]
    wraps = {
        (node, meter, each.id, each.domain): each.wraps_at
        for node, channels in enumerate(line.channels)
        for meter, of in channels.items()
        for each in of
        if each.quantity == "energy_J"
    }
    powers: list[Line] = []
    temperatures: list[Line] = []
    for sensor, of in table.groupby(SENSOR, sort=False):
        node, *words = map(str, sensor)
        name = " ".join([f"node {node}", *words] if len(line.channels) > 1 else words)
        quantities = {str(quantity): readings for quantity, readings in of.groupby("quantity", sort=False)}
        direct = next((quantities[each] for each in POWERS if each in quantities), None)
        if direct is not None:
            powers.append((name, *_thinned(*_arrays(direct))))
        elif len(quantities.get("energy_J", ())) > 1:
            powers.append((name, *_thinned(*_risen(quantities["energy_J"], wraps.get(sensor)))))
        if "temperature_C" in quantities:
            temperatures.append((name, *_thinned(*_arrays(quantities["temperature_C"]))))
    return powers, temperatures


def _arrays(readings: pd.DataFrame) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    return readings["time_s"].to_numpy(float), readings["value"].to_numpy(float)


def _risen(readings: pd.DataFrame, wraps_at: float | None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the mean power, W, between successive readings of an energy counter."""
    from benchmarker.power.series import without_wraps

    time_s, energy = _arrays(readings)
    seconds = np.diff(time_s)
    later = seconds > 0
    seconds, rises = seconds[later], np.diff(energy)[later]
    power = without_wraps(rises, seconds, wraps_at) / seconds
    known = ~np.isnan(power)
    return time_s[1:][later][known], power[known]


def _thinned(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return at most `MOST_POINTS` points: the least and the largest value of each interval, and both ends."""
    if len(x) <= MOST_POINTS:
        return x, y
    kept = {0, len(x) - 1}
    for part in np.array_split(np.arange(len(x)), MOST_POINTS // 2 - 1):
        kept |= {int(part[np.argmin(y[part])]), int(part[np.argmax(y[part])])}
    at = sorted(kept)
    return x[at], y[at]
