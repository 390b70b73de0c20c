"""`benchmarker telemetry`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.results import result_argument
from benchmarker.cli.options.types import Integer
from benchmarker.display.energy import why_nothing
from benchmarker.display.machine import HEADINGS, amount
from benchmarker.display.profiles import frame_table, plain
from benchmarker.display.result import Part
from benchmarker.formatting import clean, count
from benchmarker.power.live import label
from benchmarker.records import archive, store
from benchmarker.records.record import Record
from benchmarker.tables.table import Column, Filled, Table, number

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.api.meter import Channel

_NAMED = 8
"""Maximum number of files that are named if one must be chosen."""
_WIDTHS = (1, 1.5, 2, 3, 4, 5, 6, 8)
"""Widths of the bins, times a power of ten, s."""
_WIDE = ("memory_temperature_C", "memory_clock_MHz", "memory_used_bytes", "power_limit_W")
"""Quantities that the table shows only with --wide."""
_POWERS = ("energy_J", "power_average_W", "power_instant_W")
_LONG = 16
"""Sensors with a longer name appear as a number in the headings."""


@click.command("telemetry")
@result_argument
@click.option("--rows", type=Integer(min=1), metavar="N", default=40, help="Maximum number of table rows.")
@output_options(wide="Show all quantities, including memory and power limit.")
def command(result: Path, rows: int, wide: bool) -> Output:
    """Show the time series of everything the meters read during a trial.

    RESULT is a record, the folder of a run with one time series, or the time series itself. Times are in seconds since
    the timed part began, on several nodes by the clock of each. Each row of the table covers the interval that begins
    at its time and shows the mean of each quantity. For an energy counter it shows the mean power, for throttling the
    reasons in words, and for throttle time its increase. --csv and --json contain every reading.
    """
    path = _find(result)
    with working(f"reading {path}"):
        from benchmarker.power import telemetry  # Arrow takes longer to import than everything else

        line = telemetry.read(path)
    table = line.readings
    if not len(table):
        raise UserError(f"{path}: the time series contains no readings")
    table.insert(0, "time_s", line.seconds())
    parts = _parts(table, line.channels, rows, wide=wide)
    return Output(parts, lambda: plain(table), csv=lambda: frame_table(table, wide=True))


def _parts(
    table: pd.DataFrame, channels: Sequence[Mapping[str, Sequence[Channel]]], rows: int, *, wide: bool
) -> Iterator[Part]:
    untimed = {*table["node"]} - {*table.loc[table["mark"] == "begin", "node"]}
    if untimed == {*table["node"]}:
        yield "nothing was timed: times are since the first reading"
    else:
        for node in sorted(untimed):
            yield f"node {node} was not timed: its times are since its first reading"
    yield from _series_output(table, channels, rows, wide)


def _find(result: Path) -> Path:
    """Return the time series of a result; raises `UserError` if there is none, or more than one."""
    if not result.is_dir():
        if not result.exists():
            raise UserError(clean(f"{result}: no such file or folder"))
        return result if result.suffix != ".json" else _beside(result)
    archive.refuse(result, "time series")
    series = sorted(result.rglob(f"*{store.TELEMETRY}"))
    if len(series) == 1:
        return series[0]
    if series:
        names = ", ".join(str(path) for path in series[:_NAMED]) + ", …" * (len(series) > _NAMED)
        raise UserError(f"{clean(str(result))} contains {len(series)} time series; name one: {clean(names)}")
    records, _ = store.read([result])
    raise UserError(f"{clean(str(result))} contains no time series" + (f": {_reason(records[0])}" if records else ""))


def _beside(path: Path) -> Path:
    """Return the time series next to a record; raises `UserError` if there is none."""
    record = store.read_record(path)
    if not isinstance(record, Record):
        raise UserError(clean(str(record)))
    series = path.with_name(path.stem + store.TELEMETRY)
    if not series.exists():
        raise UserError(f"{clean(str(path))} has no time series: {_reason(record)}")
    return series


def _reason(record: Record) -> str:
    """Return why a trial has no time series."""
    if any(report.channels for report in record.meters):
        return f"it should be next to the record, as {record.trial_id}{store.TELEMETRY}"
    return clean(f"nothing was measured: {why_nothing(record)}")


def _series_output(
    table: pd.DataFrame, channels: Sequence[Mapping[str, Sequence[Channel]]], rows: int, wide: bool
) -> Iterator[Part]:
    """Yield a row for each time interval and a column for each quantity of each sensor."""
    import pandas as pd

    times = table["time_s"].drop_duplicates()
    width = _width(times, rows)
    table["bin"] = (table["time_s"] / width).map(math.floor)
    bins = range(table["bin"].min(), table["bin"].max() + 1)
    time = number("time_s", heading="s", form=f".{_digits(width)}f")
    filled: list[Filled] = [(time, [at * width for at in bins])]
    marks = table[table["mark"] != ""].drop_duplicates(["node", "time_s", "mark"])
    marks = marks[marks["node"] == marks["node"].min()]
    marked = ["-"] * len(bins)
    for at, of in marks.groupby("bin"):
        counted = of["mark"].value_counts(sort=False)
        marked[int(at) - bins.start] = ", ".join(
            mark if count == 1 else f"{count} {mark}s" for mark, count in counted.items()
        )
    filled.append((Column("mark"), marked))
    labels = _labels(table)
    known: dict[tuple[str | int, ...], Channel] = {
        (node, meter, channel.id, channel.domain, channel.quantity): channel
        for node, meters in enumerate(channels)
        for meter, of in meters.items()
        for channel in of
    }
    for name, quantity, readings in _series(table, wide):
        channel = known[*name, quantity]
        by_bin = _by_bin(readings, channel)
        if not wide and quantity.startswith("throttle_") and not any(by_bin.values()):
            continue
        cells = (by_bin.get(at) for at in bins)
        heading = clean(f"{labels[name][0]} {_word(quantity, readings['what'], wide=wide)}")
        values = [None if value is None or pd.isna(value) else value for value in cells]
        filled.append((number(heading, heading=heading, form=partial(_cell, channel)), values))
    for short, full in labels.values():
        if short != full:
            yield clean(f"{short}: {full}")
    yield Table.of_columns(filled, drop=[column.heading for column, _ in filled[:0:-1]])
    missing = table[table["reason"] != ""]
    for (reason, *sensor), of in missing.groupby(["reason", *_SENSOR], sort=False):
        yield clean(f"{labels[tuple(sensor)][1]}: {count(len(of), 'reading is', 'readings are')} missing ({reason})")


_Name = tuple[int, str, str, str]
_SENSOR = ["node", "meter", "id", "domain"]


def _labels(table: pd.DataFrame) -> dict[_Name, tuple[str, str]]:
    """Return the name of each sensor in headings (a number if its name is too long) and in full."""
    names: list[_Name] = list(table[_SENSOR].drop_duplicates().itertuples(index=False, name=None))
    several = len({node for node, *_ in names}) > 1
    full = [f"node {node} " * several + label(*name) for node, *name in names]
    return {
        name: (text if len(text) <= _LONG else str(at), text)
        for at, (name, text) in enumerate(zip(names, full, strict=True), 1)
    }


def _series(table: pd.DataFrame, wide: bool) -> Iterator[tuple[_Name, str, pd.DataFrame]]:
    """Yield what is shown: a sensor, the quantity, and the numeric readings in order of time.

    Unless `wide`, each sensor has one column for energy and power, and no quantity of `_WIDE`.
    """
    for name, of in table.groupby(_SENSOR, sort=False):
        power = next((quantity for quantity in _POWERS if (of["quantity"] == quantity).any()), "")
        for (quantity, _), readings in of.groupby(["quantity", "what"], sort=False):
            if wide or (quantity not in _WIDE and (quantity not in _POWERS or quantity == power)):
                yield name, str(quantity), readings.dropna(subset=["value"])


def _word(quantity: str, what: pd.Series, *, wide: bool) -> str:
    """Return the heading of a quantity."""
    if quantity == "throttle_time_s":
        return f"{what.iloc[0] if len(what) else ''} throttle".strip()
    if quantity in _POWERS:
        return "power" if not wide else "power by counter" if quantity == "energy_J" else quantity.removesuffix("_W")
    return HEADINGS.get(quantity, quantity)


def _by_bin(readings: pd.DataFrame, channel: Channel) -> dict[int, float]:
    """Return the value of each bin: a counter's mean power, a time's increase, the bits that were set, or a mean."""
    quantity = channel.quantity
    if quantity == "throttle_mask":
        bits: dict[int, float] = {}
        for at, value in zip(readings["bin"], readings["value"], strict=True):
            bits[at] = int(bits.get(at, 0)) | int(value)
        return bits
    if quantity in ("energy_J", "throttle_time_s"):
        rises = readings.assign(rise=readings["value"].diff(), seconds=readings["time_s"].diff())
        rises.loc[rises["rise"] < 0, "rise"] += channel.wraps_at or 0.0
        rises = rises[rises["rise"] >= 0]  # a counter that decreases without wrapping is broken
        sums = rises.groupby("bin")[["rise", "seconds"]].sum()
        if quantity == "energy_J":
            enough = sums["seconds"] > rises["seconds"].median() / 2  # an edge may be read close to a tick
            return dict((sums["rise"] / sums["seconds"])[enough].items())
        return dict(sums["rise"].items())
    return dict(readings.groupby("bin")["value"].mean().items())


def _cell(channel: Channel, value: float) -> str:
    quantity = channel.quantity
    if quantity == "throttle_mask":
        return ", ".join(dict.fromkeys(word for bit, word in channel.bits.items() if int(value) & bit)) or "-"
    return amount("power_W" if quantity == "energy_J" else quantity, value)


def _width(times: pd.Series, rows: int) -> float:
    """Return the smallest round bin width, s, that gives at most `rows` bins with a reading or two in each."""
    first, last = float(times.min()), float(times.max())
    least = max((last - first) / rows, 2 * float(times.diff().median()) if len(times) > 1 else 0.0, 1e-3)
    power = 10.0 ** math.floor(math.log10(least))
    for factor in (*_WIDTHS, *(10 * width for width in _WIDTHS)):
        width = factor * power
        if width >= least and math.floor(last / width) - math.floor(first / width) < rows:
            return width
    return last - first + least


def _digits(width: float) -> int:
    """Return the number of decimals needed to distinguish the bins."""
    digits = 0
    while digits < 6 and abs(width * 10**digits - round(width * 10**digits)) > 1e-9:
        digits += 1
    return digits
