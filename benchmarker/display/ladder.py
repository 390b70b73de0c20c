"""A ladder as tables: what a step loses where, and the rungs of each of its pieces."""

from collections.abc import Iterator, Sequence

from benchmarker.comparing.scaling_results import shown
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, rounded, si
from benchmarker.roofline.ladder import Ladder, Losses, PieceRungs, Rung
from benchmarker.tables.table import NOTHING, Cell, Column, Filled, Shown, Table, interval, number


def _percent(share: float) -> str:
    return f"{rounded(100 * share, 2)}%"


_OF_LOSSES = (
    Column("framework"),
    number("step_s", "s", "step"),
    number("roof_s", "s", "at roof"),
    number("fastest_s", "s", "+ fastest"),
    number("framework_s", "s", "+ framework"),
    number("in_step_s", "s", "+ in step"),
    number("rest_s", "s", "+ rest"),
)


def ladder_output(found: Ladder) -> Iterator[Part]:
    """Yield the rungs of each piece and of the step, what the step loses where, and what should make one doubt it."""
    trials = [rung.trials for piece in found.pieces for rung in piece.rungs] + [step.trials for step in found.steps]
    name = f"{found.name}, " if found.name else ""
    yield Text(f"{name}{count(max(trials, default=0), 'trial')} of each rung", "  ")
    if found.roof:
        yield Text(f"  roof: {found.roof}", "    ")
    for piece in found.pieces:
        yield ""
        yield Text(_heading(piece), "  ")
        yield _rungs(piece.rungs)
    if found.steps:
        yield ""
        yield "the whole step"
        yield _rungs(found.steps)
    if found.losses:
        yield ""
        yield Text(
            "where the time of a step goes: its pieces at the roof, and what is added by the fastest framework alone, "
            "by this framework alone, by running them in the step, and by the rest of the step",
            "  ",
        )
        rows = [[getattr(each, column.name) for column in _OF_LOSSES] for each in found.losses]
        yield Table.of(_OF_LOSSES, rows)
        for each in found.losses:
            yield Text(f"  {_sentence(each)}", "    ")
    for note in found.notes:
        yield Text(f"note: {note}", "  ")


def _heading(piece: PieceRungs) -> str:
    scopes = " + ".join(piece.scopes)
    count = f", {piece.count} in a step" if scopes else ""
    roof = "" if piece.roof_s is None else f": {si(piece.roof_s, 's')} at the roof"
    return f"{scopes}: {piece.title}{count}{roof}" if scopes else f"{piece.title}{roof}"


def _rungs(rungs: Sequence[Rung]) -> Table:
    ratios = [each.of_below for each in rungs]
    shares: list[Cell] = [
        NOTHING if ratio is None else Shown(ratio.value, f"{shown(ratio)} of {rung.below}")
        for rung, ratio in zip(rungs, ratios, strict=True)
    ]
    filled: list[Filled] = [
        (Column("rung", only="print"), [f"{each.framework} {each.place}" for each in rungs]),
        (Column("framework", only="data"), [each.framework for each in rungs]),
        (Column("place", only="data"), [each.place for each in rungs]),
        (number("trials", only="data"), [each.trials for each in rungs]),
        (number("time_s", "s", "time"), [each.time_s for each in rungs]),
        (number("flop_per_s", "FLOP/s", "FLOP/s"), [each.flop_per_s for each in rungs]),
        (number("of_roof", form=_percent), [each.of_roof for each in rungs]),
        (Column("of_below", levels=("of the rung below",)), shares),
        *interval("of_below", [(ratio.low, ratio.high) if ratio else None for ratio in ratios]),
        (Column("below", only="data"), [each.below for each in rungs]),
    ]
    return Table.of_columns(filled, drop=["flop_per_s"])


def _sentence(losses: Losses) -> str:
    rungs = {
        "the fastest alone is not at the roof": losses.fastest_s,
        "its pieces are slower alone than in the fastest": losses.framework_s,
        "pieces are slower in the step than alone": losses.in_step_s,
        "the rest of the step": losses.rest_s,
    }
    largest = max(rungs, key=lambda name: rungs[name])
    share = _percent(rungs[largest] / losses.step_s)
    return (
        f"{losses.framework} loses most on one rung: {largest}, {si(rungs[largest], 's')} ({share} of a step); of the "
        f"pieces, {losses.most} loses most, {si(losses.most_s, 's')}"
    )
