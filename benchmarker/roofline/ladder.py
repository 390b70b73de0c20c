"""A ladder: how fast the pieces of a step are alone in each framework, and within the step; what each rung loses.

The rungs of a piece, such as a product of matrices, from the bottom up:

    the roof           its least time on the device, max(FLOPs / π, bytes / β)
    the fastest alone  in the framework that is fastest at it, which may be a bare library
    alone              in each other framework
    in step            its scopes, in the profile of the whole step

and above them the step, which stands on its pieces. The share of the rung below is the ratio of the times, that below
over this one: the Hodges-Lehmann ratio of the pairs of a round, with its interval, as in `compare`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Literal

import numpy as np
from msgspec import Struct

from benchmarker.api.problem import Piece
from benchmarker.comparing.samples import Key, round_of
from benchmarker.comparing.scaling_results import Ratio
from benchmarker.hooks.cases import Configuration
from benchmarker.records.ceilings import Ceilings
from benchmarker.records.record import CostPart, Record
from benchmarker.records.step_times import step_times
from benchmarker.roofline.roofs import Roof, measured_roof
from benchmarker.stats.shift import paired

LEVEL = 0.95
"""Confidence level of the intervals."""
IN_STEP = (
    "times in the step are those of its profile, and those alone are of data that may not be in a cache; what a step "
    "loses is the difference of medians"
)
Place = Literal["alone", "in step", "step"]


class Rung(Struct, frozen=True, kw_only=True):
    """How long one run of a piece, or the step, takes in a framework: the median over trials.

    `of_below` is the time of the rung `below` over this one; both are null if no lower rung was measured in the same
    rounds. `of_roof` is null if the roof is not known.
    """

    place: Place
    framework: str
    trials: int
    time_s: float
    flop_per_s: float | None
    of_roof: float | None
    below: str | None
    of_below: Ratio | None


class PieceRungs(Struct, frozen=True, kw_only=True):
    """The rungs of a piece of a step, which has `count` of it; `title` is that of the problem that measures it alone.

    `roof_s` is the least time of one run, null if the roof is not known; it and `flops` are null if the work is not.
    """

    scopes: list[str]
    title: str
    count: int
    flops: int | None
    roof_s: float | None
    rungs: list[Rung]


class Losses(Struct, frozen=True, kw_only=True):
    """What the time of a step in a framework consists of, s: all pieces at the roof, and what each rung adds to it.

    `fastest_s` is added by the fastest framework alone, `framework_s` by this one, `in_step_s` by running the pieces
    within the step, `rest_s` by all else in the step. `most` names the piece that adds most on all rungs together, with
    the time, `most_s`; of pieces that share scopes, what running in the step adds is known of all together alone.
    """

    framework: str
    step_s: float
    roof_s: float
    fastest_s: float
    framework_s: float
    in_step_s: float
    rest_s: float
    most: str
    most_s: float


class Ladder(Struct, frozen=True, kw_only=True):
    """The pieces of a step, the step itself, and what it loses where; of a step without pieces, the step is the piece.

    `roof` says by what the roof was measured; it is null if it is not known, which `notes` explain.
    """

    name: str
    roof: str | None
    pieces: list[PieceRungs]
    steps: list[Rung]
    losses: list[Losses]
    notes: list[str]


@dataclass(frozen=True)
class Times:
    """The time of something in each round, s."""

    framework: str
    by_round: Mapping[Key, float]

    @cached_property
    def median(self) -> float:
        """The median over rounds."""
        return median(self.by_round.values())

    def of(self, below: Times) -> Ratio | None:
        """The time of another over this one; None if they have no round in common."""
        common = sorted(self.by_round.keys() & below.by_round.keys())
        if not common:
            return None
        shift = paired(np.array([math.log(below.by_round[key] / self.by_round[key]) for key in common]))
        ends = shift.interval(LEVEL) or (None, None)
        return Ratio(math.exp(shift.estimate), *(None if end is None else math.exp(end) for end in ends))


@dataclass(frozen=True)
class MeasuredPiece:
    """A piece, the title and the cost of the case that measures it alone, and the trials of that case.

    `unroofed` is the reason why the roof says nothing of it, if there is one.
    """

    piece: Piece
    title: str
    cost: CostPart | None
    alone: Sequence[Configuration]
    unroofed: str = ""


def ladder(name: str, pieces: Sequence[MeasuredPiece], steps: Sequence[Configuration], ceilings: Ceilings) -> Ladder:
    """Return the rungs of pieces and of the steps that consist of them; without steps, of the pieces alone."""
    records = [record for piece in pieces if not piece.unroofed for one in piece.alone for record in one.ok]
    roof = measured_roof(records[0], ceilings) if records else None
    climbed = times_of_pieces(pieces, roof, steps)
    whole = [one for one in steps if one.ok]
    return Ladder(
        name=name,
        roof=f"{roof.name}: {roof.source}" if roof else None,
        pieces=[piece.rungs() for piece in climbed],
        steps=[_step(one, climbed, roof) for one in whole],
        losses=[found for one in whole if (found := _losses(one, climbed))],
        notes=[
            *([] if roof or not records else [ceilings.lacking(records[0]) or ""]),
            *(f"{piece.title} has no roof: {piece.unroofed}" for piece in pieces if piece.unroofed),
            *([IN_STEP] if any(piece.in_step for piece in climbed) else []),
            *(note for one in whole if (note := lacking_in_step(one, climbed))),
        ],
    )


def times_of_pieces(
    pieces: Sequence[MeasuredPiece], roof: Roof | None, steps: Sequence[Configuration]
) -> list[PieceTimes]:
    """Return the times of pieces alone and in steps, and at a roof."""
    times = Counter(scope for each in pieces for scope in each.piece.scopes)
    shared = {scope for scope, count in times.items() if count > 1}
    return [PieceTimes(each, None if each.unroofed else _least_s(each.cost, roof), steps, shared) for each in pieces]


def lacking_in_step(step: Configuration, pieces: Sequence[PieceTimes]) -> str:
    """Return which pieces have no time in a step, and why; empty if all have one, alone or with others."""
    framework = _framework(step)
    if reason := step.ok[0].reasons.get("trace"):
        return f"{framework}: no time of a piece in the step is known: {reason.removeprefix(f'{framework}: ')}"
    lacking = [piece.name for piece in pieces if not piece.is_shared and framework not in piece.in_step]
    lacking += [name for name in shared_scopes(pieces) if not of_scopes_s(step.ok[0], [name])]
    return f"{framework}: the profile has no time of {', '.join(lacking)}, fused with other scopes" if lacking else ""


class PieceTimes:
    """A piece with the times of its rungs, s, of one run, by framework: `alone`, and `in_step`.

    Of `shared` scopes, which other pieces are in too, the time within a step is not that of this piece.
    """

    def __init__(
        self,
        measured: MeasuredPiece,
        roof_s: float | None,
        steps: Sequence[Configuration],
        shared: Collection[str],
    ) -> None:
        self.measured, self.roof_s, self.count = measured, roof_s, measured.piece.count
        self.is_shared = any(scope in shared for scope in measured.piece.scopes)
        self.name = measured.title if self.is_shared else " + ".join(measured.piece.scopes) or measured.title
        self.flops = measured.cost.flops if measured.cost else None
        self.alone = _times(measured.alone, _step_s)
        self.in_step = {} if self.is_shared else _times(steps, self._in_step_s)
        self.fastest = min(self.alone.values(), key=lambda times: times.median, default=None)

    def _in_step_s(self, record: Record) -> float | None:
        """Return the time of one run within a profiled step; None if the profile has none."""
        return of_scopes_s(record, self.measured.piece.scopes) / self.count or None

    def rungs(self) -> PieceRungs:
        """Return the rungs, the fastest alone first, then as the frameworks were named."""
        rungs = []
        for times in sorted(self.alone.values(), key=lambda times: times is not self.fastest):
            below = None if times is self.fastest else self.fastest
            rungs.append(self._rung("alone", times, below, below.framework if below else None))
        for times in self.in_step.values():
            below = self.alone.get(times.framework, self.fastest)
            is_own = below is not None and below.framework == times.framework
            name = "alone" if is_own else f"{below.framework} alone" if below else None
            rungs.append(self._rung("in step", times, below, name))
        return PieceRungs(
            scopes=[*self.measured.piece.scopes],
            title=self.measured.title,
            count=self.count,
            flops=self.flops,
            roof_s=self.roof_s,
            rungs=rungs,
        )

    def _rung(self, place: Place, times: Times, below: Times | None, name: str | None) -> Rung:
        at_roof = None if self.roof_s is None else self.roof_s / times.median
        return _rung(place, times, self.flops, at_roof, below, name)


def _rung(
    place: Place, times: Times, flops: int | None, of_roof: float | None, below: Times | None, name: str | None
) -> Rung:
    return Rung(
        place=place,
        framework=times.framework,
        trials=len(times.by_round),
        time_s=times.median,
        flop_per_s=flops / times.median if flops else None,
        of_roof=of_roof,
        below=name,
        of_below=times.of(below) if below else None,
    )


def shared_scopes(pieces: Sequence[PieceTimes]) -> list[str]:
    """Return the scopes of pieces that others are in too, in order."""
    return [*dict.fromkeys(scope for piece in pieces if piece.is_shared for scope in piece.measured.piece.scopes)]


def of_scopes_s(record: Record, names: Collection[str]) -> float:
    """Return the time of scopes in the median profiled step, s; 0 if the profile has none."""
    return sum(median(scope.step_ns) for scope in record.scopes if scope.scope in names and scope.step_ns) / 1e9


def _least_s(cost: CostPart | None, roof: Roof | None) -> float | None:
    """Return the least time of some work, s; None if its FLOPs, its bytes or the roof are not known."""
    if roof is None or cost is None or cost.flops is None or cost.bytes is None:
        return None
    return roof.time_s(cost.flops, cost.bytes)


def _step(step: Configuration, pieces: Sequence[PieceTimes], roof: Roof | None) -> Rung:
    """Return the rung of a step; below it are its pieces alone in the same framework, one after the other."""
    times, cost = times_of_step(step), step.ok[0].cost
    least_s = _least_s(cost, roof)
    below = pieces_alone(times.framework, pieces)
    return _rung(
        "step",
        times,
        cost.flops if cost else None,
        None if least_s is None else least_s / times.median,
        below,
        "pieces alone" if below else None,
    )


def pieces_alone(framework: str, pieces: Sequence[PieceTimes]) -> Times | None:
    """Return the time of all pieces of a step alone in a framework; None if one of them was not measured."""
    own = [(piece.count, piece.alone[framework]) for piece in pieces if framework in piece.alone]
    common = set.intersection(*(set(alone.by_round) for _, alone in own)) if len(own) == len(pieces) > 0 else set()
    if not common:
        return None
    return Times(framework, {key: sum(count * alone.by_round[key] for count, alone in own) for key in common})


def _losses(step: Configuration, pieces: Sequence[PieceTimes]) -> Losses | None:
    """Return what a step consists of; None if a rung of a piece is missing."""
    times = times_of_step(step)
    framework = times.framework
    added: dict[str, list[float]] = {}
    for piece in pieces:
        if (
            piece.roof_s is None
            or piece.fastest is None
            or framework not in piece.alone
            or not (piece.is_shared or framework in piece.in_step)
        ):
            return None
        alone_s = piece.alone[framework].median
        in_step_s = alone_s if piece.is_shared else piece.in_step[framework].median
        up = [piece.roof_s, piece.fastest.median, alone_s, in_step_s]
        added[piece.name] = [piece.count * (above - below) for below, above in zip([0.0, *up], up, strict=False)]
    if not added:
        return None
    roof_s, fastest_s, framework_s, in_step_s = (sum(rung) for rung in zip(*added.values(), strict=True))
    shared = [piece for piece in pieces if piece.is_shared]
    if shared:
        names = shared_scopes(pieces)
        if not all(of_scopes_s(record, [name]) for record in step.ok for name in names):
            return None
        in_step = _times([step], lambda record: of_scopes_s(record, names))[framework]
        in_step_s += in_step.median - sum(piece.count * piece.alone[framework].median for piece in shared)
    most = max(added, key=lambda name: sum(added[name][1:]))
    return Losses(
        framework=framework,
        step_s=times.median,
        roof_s=roof_s,
        fastest_s=fastest_s,
        framework_s=framework_s,
        in_step_s=in_step_s,
        rest_s=times.median - (roof_s + fastest_s + framework_s + in_step_s),
        most=most,
        most_s=sum(added[most][1:]),
    )


def times_of_step(step: Configuration) -> Times:
    """Return the median time of a step, s, in each round."""
    return Times(_framework(step), _by_round(step.ok, _step_s))


def _times(configurations: Sequence[Configuration], seconds: Callable[[Record], float | None]) -> dict[str, Times]:
    """Return the times of each framework that has any."""
    times = [Times(_framework(one), _by_round(one.ok, seconds)) for one in configurations]
    return {each.framework: each for each in times if each.by_round}


def _by_round(records: Sequence[Record], seconds: Callable[[Record], float | None]) -> dict[Key, float]:
    return {round_of(record): time_s for record in records if (time_s := seconds(record)) is not None}


def _framework(configuration: Configuration) -> str:
    return configuration.records[0].case.framework


def _step_s(record: Record) -> float:
    return float(np.median(step_times(record)))
