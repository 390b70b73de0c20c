"""Predictions of a step under two roofs as tables: beside what was measured, and where the rest of the time is."""

from collections.abc import Iterator

from benchmarker.comparing.scaling_results import Ratio, shown
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, rounded, si
from benchmarker.roofline.two_roofs import Predictions, StepPart, TwoRoofs
from benchmarker.tables.table import NOTHING, Cell, Column, Shown, Table, interval, number

LEAST = 0.02
"""Share of a step from which on a part is printed without --verbose."""


def two_roofs_output(found: Predictions, *, verbose: bool) -> Iterator[Part]:
    """Yield the predictions beside what was measured, the parts of the steps, and what should make one doubt it."""
    yield Text(f"{found.name}, {count(max(each.trials for each in found.steps), 'trial')}", "  ")
    if found.roof:
        yield Text(f"  the machine's roof: {found.roof}", "    ")
    yield Text("  its own roof: its pieces as long as alone in the framework, the rest at the machine's roof", "    ")
    yield ""
    yield _predicted(found.steps)
    parts = [(each, part) for each in found.steps for part in each.parts if verbose or _matters(part, each.measured_s)]
    if parts:
        yield ""
        yield "where a step takes longer, or shorter, than its own roof says"
        rows = [(each.framework, part.name, part.own_s, part.in_step_s, part.beyond_s) for each, part in parts]
        yield Table.of(_OF_PARTS, rows)
    for each in found.steps:
        if sentence := _sentence(each):
            yield Text(f"  {sentence}", "    ")
    for note in found.notes:
        yield Text(f"note: {note}", "  ")


_OF_PARTS = (
    Column("framework"),
    Column("part"),
    number("own_s", "s", "own roof"),
    number("in_step_s", "s", "in step"),
    number("beyond_s", "s", "beyond"),
)


def _predicted(steps: list[TwoRoofs]) -> Table:
    lines = [
        (each, roof, predicted_s, ratio)
        for each in steps
        for roof, predicted_s, ratio in (
            ("the machine's", each.machine_s, each.of_machine),
            ("its own", each.own_s, each.of_own),
        )
    ]
    ratios = [ratio for _, _, _, ratio in lines]
    return Table.of_columns(
        [
            (Column("framework"), [each.framework for each, *_ in lines]),
            (Column("roof"), [roof for _, roof, *_ in lines]),
            (number("predicted_s", "s", "predicted"), [predicted_s for _, _, predicted_s, _ in lines]),
            (number("measured_s", "s", "measured"), [each.measured_s for each, *_ in lines]),
            (Column("of_measured", levels=("predicted / measured",)), [_cell(ratio) for ratio in ratios]),
            *interval("of_measured", [(ratio.low, ratio.high) if ratio else None for ratio in ratios]),
        ]
    )


def _cell(ratio: Ratio | None) -> Cell:
    return NOTHING if ratio is None else Shown(ratio.value, shown(ratio))


def _matters(part: StepPart, step_s: float) -> bool:
    return part.beyond_s is not None and abs(part.beyond_s) >= LEAST * step_s


def _sentence(step: TwoRoofs) -> str:
    """Return how much of a step its own roof explains, and which part is furthest from it on that side."""
    if step.of_own is None or not step.parts:
        return ""
    is_faster = step.of_own.value > 1
    predicted = [part for part in step.parts if part.kind != "other" or not is_faster]
    sign = -1 if is_faster else 1
    most = max(predicted, key=lambda part: sign * (part.beyond_s or 0.0))
    beyond_s = sign * (most.beyond_s or 0.0)
    share = rounded(100 * beyond_s / step.measured_s, 2)
    explained = f"{step.framework}: its own roof is {rounded(100 * step.of_own.value, 3)}% of a step"
    side = "below" if is_faster else "above"
    return f"{explained}; {most.name} is furthest {side} it, {si(beyond_s, 's')} ({share}% of a step)"
