"""Predictions of a measured step under two roofs: the machine's, and the framework's own.

    the machine's   every scope at the roof of the device, T = Σ max(FLOPs / π, bytes / β), as `predict` has it
    its own         every piece as long as it takes alone in the framework, and what is no piece at the machine's roof

The first divided by the measured time says what the framework loses against the machine; the second what the model
loses in the framework. The share is the Hodges-Lehmann ratio over rounds, with its interval, as in a ladder.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

from msgspec import Struct

from benchmarker.comparing.scaling_results import Ratio
from benchmarker.hooks.cases import Configuration
from benchmarker.records.ceilings import Ceilings
from benchmarker.records.record import Record
from benchmarker.roofline.formula import formula, of_part, predicted_step
from benchmarker.roofline.ladder import (
    MeasuredPiece,
    PieceTimes,
    Times,
    lacking_in_step,
    of_scopes_s,
    pieces_alone,
    shared_scopes,
    times_of_pieces,
    times_of_step,
)
from benchmarker.roofline.roofs import Roof, measured_roof

OUTSIDE, IDLE, UNPROFILED = "outside scopes", "idle", "without the profiler"
"""Parts of a step that no prediction has: work in no scope, time without work, and what the profiler itself changes."""
Kind = Literal["piece", "scope", "other"]


class StepPart(Struct, frozen=True, kw_only=True):
    """A part of a step, s: as its framework's own roof has it, and as it was within the step.

    A `piece` is as it takes alone (those that share scopes are one), a `scope` at the machine's roof, and all `other`
    is not predicted. `in_step_s` is null if the profile has no time of it; otherwise the parts add up to the measured
    step. `beyond_s` is the difference.
    """

    name: str
    kind: Kind
    own_s: float
    in_step_s: float | None
    beyond_s: float | None


class TwoRoofs(Struct, frozen=True, kw_only=True):
    """The predictions of a step in a framework, s, and as shares of the measured time, its median over trials.

    Those of the machine are null without a roof, and its own if a piece was not measured alone. `parts` are the longest
    beyond the own roof first; there are none without a profile.
    """

    framework: str
    trials: int
    measured_s: float
    machine_s: float | None
    of_machine: Ratio | None
    own_s: float | None
    of_own: Ratio | None
    parts: list[StepPart]


class Predictions(Struct, frozen=True, kw_only=True):
    """The predictions of the steps of a ladder; `roof` says by what the machine's was measured, null without one."""

    name: str
    roof: str | None
    steps: list[TwoRoofs]
    notes: list[str]


def predictions(
    name: str, pieces: Sequence[MeasuredPiece], steps: Sequence[Configuration], ceilings: Ceilings
) -> Predictions:
    """Return the predictions of steps, of which pieces were measured alone in the same rounds."""
    whole = [one for one in steps if one.ok]
    first = whole[0].ok[0]
    roof = measured_roof(first, ceilings)
    timed = times_of_pieces(pieces, roof, whole)
    made = [_step(one, timed, roof) for one in whole]
    unmeasured = [
        f"{each.framework}: not all pieces were measured alone, so it has no roof of its own"
        for each in made
        if each.own_s is None
    ]
    unroofed = ["the roof is not known, so its own roof has the pieces alone"] if roof is None else []
    return Predictions(
        name=name,
        roof=f"{roof.name}: {roof.source}" if roof else None,
        steps=made,
        notes=[
            *([ceilings.lacking(first) or ""] if roof is None else []),
            *unroofed,
            *unmeasured,
            *(note for one in whole if (note := lacking_in_step(one, timed))),
        ],
    )


def _step(step: Configuration, pieces: Sequence[PieceTimes], roof: Roof | None) -> TwoRoofs:
    times = times_of_step(step)
    machine_s = predicted_step(step.ok[0], roof).time_s if roof else None
    others = _at_roof(step.ok[0], {scope for piece in pieces for scope in piece.measured.piece.scopes}, roof)
    alone, rest_s = pieces_alone(times.framework, pieces), sum(others.values())
    own = Times(times.framework, {key: time_s + rest_s for key, time_s in alone.by_round.items()}) if alone else None
    machine = Times(times.framework, dict.fromkeys(times.by_round, machine_s)) if machine_s else None
    return TwoRoofs(
        framework=times.framework,
        trials=len(times.by_round),
        measured_s=times.median,
        machine_s=machine_s,
        of_machine=times.of(machine) if machine else None,
        own_s=own.median if own else None,
        of_own=times.of(own) if own else None,
        parts=_parts(step.ok, times, pieces, others) if own else [],
    )


def _at_roof(record: Record, covered: set[str], roof: Roof | None) -> dict[str, float]:
    """Return the time, s, of each scope of a step that is no piece, at the machine's roof; 0 without one."""
    known = formula(record.case)
    return {
        scope: of_part(work, known.runs.get(scope, 0), roof) if roof else 0.0
        for scope, work in known.parts.items()
        if scope not in covered
    }


def _parts(
    records: Sequence[Record], times: Times, pieces: Sequence[PieceTimes], others: dict[str, float]
) -> list[StepPart]:
    """Return the parts of a profiled step, what is longest beyond its own roof first; none without a profile."""
    profiled = [record for record in records if record.trace and record.scopes]
    if not profiled:
        return []
    framework, parts, shared_s = times.framework, [], 0.0
    for piece in pieces:
        own_s, found = piece.count * piece.alone[framework].median, piece.in_step.get(framework)
        if piece.is_shared:
            shared_s += own_s
        else:
            parts.append(_part(piece.name, "piece", own_s, piece.count * found.median if found else None))
    if shared := shared_scopes(pieces):
        parts.append(_part(" + ".join(shared), "piece", shared_s, _median(profiled, shared)))
    parts += [_part(scope, "scope", own_s, _median(profiled, [scope])) for scope, own_s in others.items()]
    covered = {*others, *(scope for piece in pieces for scope in piece.measured.piece.scopes)}
    outside = [of_scopes_s(record, _scopes(record) - covered) for record in profiled]
    idle = [
        max(0.0, median(record.trace.step_ns) / 1e9 - of_scopes_s(record, _scopes(record)))
        for record in profiled
        if record.trace and record.trace.step_ns
    ]
    parts += [
        _part(name, "other", 0.0, median(values) if values else None)
        for name, values in ((OUTSIDE, outside), (IDLE, idle))
    ]
    known_s = sum(part.in_step_s or 0.0 for part in parts)
    parts.append(_part(UNPROFILED, "other", 0.0, times.median - known_s))
    return sorted(parts, key=lambda part: -(part.beyond_s or 0.0))


def _part(name: str, kind: Kind, own_s: float, in_step_s: float | None) -> StepPart:
    beyond_s = None if in_step_s is None else in_step_s - own_s
    return StepPart(name=name, kind=kind, own_s=own_s, in_step_s=in_step_s, beyond_s=beyond_s)


def _scopes(record: Record) -> set[str]:
    """Return the scopes of a profiled step, and an empty name for the work outside."""
    return {each.scope for each in record.scopes}


def _median(records: Iterable[Record], names: Sequence[str]) -> float | None:
    """Return the median time, s, of scopes in a profiled step; None if no profile has any."""
    known = [of_scopes_s(record, names) for record in records if not _scopes(record).isdisjoint(names)]
    return median(known) if known else None
