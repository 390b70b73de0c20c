"""Scaling as tables."""

from collections.abc import Iterator, Sequence

from benchmarker.comparing.scaling_results import Devices, Scalings, Series, sentence, shared_notes, shown
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, rounded
from benchmarker.records.step_times import longer
from benchmarker.tables.table import NOTHING, Column, Filled, Shown, Table, interval, number


def scalings_output(found: Scalings) -> Iterator[Part]:
    """Yield each series as a sentence, a table by number of devices, and what should make one doubt it."""
    shared = shared_notes(found.series) if found.series else []
    for series in found.series:
        yield from _output(series, [note for note in series.notes if note not in shared])
        yield ""
    for note in shared:
        yield Text(f"note (all): {note}", "  ")
    yield from devices_output(found.devices)
    for note in found.notes:
        yield Text(f"note: {note}", "  ")
    for text in found.left_out:
        yield Text(f"left out: {text}", "  ")


def _percent(share: float) -> str:
    return f"{rounded(100 * share, 3)}%"


_FACTORS = ("size", "contention", "imbalance", "communication", "product")
_OF_DEVICES = (
    number("device"),
    number("alone_s", "s"),
    number("together_s", "s", "all at once"),
    number("contention", form=_percent),
    number("score", form=".2f"),
)


def devices_output(found: Sequence[Devices]) -> Iterator[Part]:
    """Yield a table of the devices of each case of independent devices, and which of them is the slowest."""
    for case in found:
        yield Text(f"{case.name} ({count(case.trials, 'trial')})", "  ")
        rows = [
            (each.device, each.alone_s, each.together_s, each.alone_s / each.together_s, each.score)
            for each in case.devices
        ]
        yield Table.of(_OF_DEVICES, rows)
        yield Text(f"  slowest: {case.slowest}", "    ")
        for note in case.notes:
            yield Text(f"  note: {note}", "    ")
        yield ""


def _output(series: Series, notes: Sequence[str]) -> Iterator[Part]:
    yield Text(series.name, "  ")
    yield Text(f"  {sentence(series)}", "    ")
    points = series.points
    ratios = {"speed-up": [point.speedup for point in points], "efficiency": [point.efficiency for point in points]}
    filled: list[Filled] = [
        (number("devices"), [point.devices for point in points]),
        (number("trials"), [point.trials for point in points]),
        (number("samples"), [point.samples for point in points]),
        (number("step_time_s", "s"), [point.step_s for point in points]),
        (number("samples_per_s_per_device", "1/s"), [point.samples_per_s_per_device for point in points]),
    ]
    for name, of in ratios.items():
        texts = [shown(ratio, percent=name == "efficiency") for ratio in of]
        filled.append((Column(name), [Shown(ratio.value, text) for ratio, text in zip(of, texts, strict=True)]))
        filled += interval(name, [(ratio.low, ratio.high) for ratio in of])
    yield Table.of_columns(filled, drop=["trials", "samples"])
    split = [(point.devices, point.split) for point in series.points if point.split]
    if split:
        yield Text("  efficiency = size x contention x imbalance x communication", "    ")
        factors = [number(name, form=_percent) for name in _FACTORS]
        rows = [
            (
                devices,
                *(getattr(each, column.name) for column in factors),
                NOTHING if each.score is None else Shown(each.slowest, f"{each.slowest}, {longer(each.score)}"),
                each.score,
            )
            for devices, each in split
        ]
        columns: list[str | Column] = [number("devices"), *factors, "slowest", number("score", form=".2f")]
        yield Table.of(columns, rows, drop=["product"])
    for note in notes:
        yield Text(f"  note: {note}", "    ")
