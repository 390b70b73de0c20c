"""`ladder`: from a problem to the rungs that its step stands on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarker.api.cost import Work
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import Piece
from benchmarker.display.ladder import ladder_output
from benchmarker.display.result import Part, Result, Text
from benchmarker.hooks import parameters, registry
from benchmarker.hooks.cases import Cases
from benchmarker.library.measuring import Measured, measured
from benchmarker.library.progress import listener_of
from benchmarker.planning import build
from benchmarker.planning.factors import Description
from benchmarker.records import ceilings
from benchmarker.roofline.ladder import Ladder, MeasuredPiece
from benchmarker.roofline.ladder import ladder as climb
from benchmarker.stats.shift import fewest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    import pandas as pd

    from benchmarker.hooks.cases import Configuration
    from benchmarker.library.progress import Progress
    from benchmarker.records.record import Record

TRIALS = fewest(0.05, is_paired=True)
"""The fewest trials with which a share has an interval."""
_OF_STEP = ("problem", "compile", "profile", "profile_steps", "separable")
"""Settings of the step that its pieces alone do not have."""


@dataclass(frozen=True, repr=False)
class Climbed(Result):
    """A ladder, and the run that it was measured in."""

    run: Measured
    wanted: Sequence[Piece]
    """The pieces that were measured alone."""

    @property
    def records(self) -> Sequence[Record]:
        """The records of all trials."""
        return self.run.records

    @cached_property
    def ladder(self) -> Ladder:
        """The rungs, under the ceilings that are known now."""
        cases = Cases.of(self.records)
        steps = [one for one in cases if not any(_is_of(one, piece) for piece in self.wanted)]
        of_all = (_measured(piece, [one for one in cases if _is_of(one, piece)]) for piece in self.wanted)
        pieces = [piece for piece in of_all if piece]
        case = (steps or cases)[0].records[0].case
        title = parameters.convert(registry.problem(case.problem), case.params).title(case.mode)
        return climb(f"{title} {case.precision} on {case.device}", pieces, steps, ceilings.known())

    @property
    def data(self) -> Ladder:
        """The rungs."""
        return self.ladder

    def parts(self) -> Iterator[Part]:
        """Yield what a step loses where, and the rungs of each piece."""
        yield from ladder_output(self.ladder)

    @property
    def notes(self) -> Sequence[Text]:
        """What was left out, and how many trials were disturbed."""
        return [*(Text(f"left out: {reason}", "  ") for reason in self.run.plan.left_out), *self.run.notes]

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each trial, as `load` does."""
        return self.run.to_pandas()


def ladder(
    *,
    problem: str,
    framework: str | Sequence[str] | None = None,
    trials: int = TRIALS,
    results: str | PathLike[str] = "results",
    resume: bool = False,
    progress: Progress = None,
    **options: Any,
) -> Climbed:
    """Measure the pieces of a step alone in each framework, and the step with its profile, in rounds.

    Without frameworks, those that implement any of it are measured. A problem that has no pieces, such as `gemm`, is
    measured by itself. The `options` are those of `run`, one value each. Raises `UserError` as `run` does.
    """
    description, pieces = described({"problem": problem, **options}, framework, trials)
    run = measured(build.from_description(description), Path(results), resume, listener_of(progress))
    return Climbed(run, pieces)


def described(
    settings: Mapping[str, Any], framework: str | Sequence[str] | None, trials: int
) -> tuple[Description, list[Piece]]:
    """Return the description of a ladder's run, and the pieces that it measures alone, with all of their options.

    Raises `UserError` if a setting is invalid, or if no framework that is named computes the step.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    named = [framework] if isinstance(framework, str) else framework
    steps = [{**given, "profile": True, "framework": name} for name in _of(named, given["problem"])]
    case = build.make_cases(steps)[0][0]
    kind = registry.problem(case.problem)
    pieces = _distinct(parameters.convert(kind, case.params).pieces(), case.device)
    of_step = {*parameters.names(kind), *_OF_STEP}
    alone = {name: value for name, value in given.items() if name not in of_step}
    if pieces:
        alone |= {
            "mode": "inference" if case.mode == "inference" else "forward_backward",
            "precision": PRECISIONS[case.precision].compute,
            "device": case.device,
        }
    else:
        steps, pieces = [], [Piece((), case.problem, case.params)]
    cases = [
        {**alone, "problem": piece.problem, **piece.options, "framework": name}
        for piece in pieces
        for name in _of(named, piece.problem)
    ]
    return Description(base={}, cases=[*steps, *cases], trials=trials), pieces


def _of(named: Sequence[str] | None, problem: str) -> list[str]:
    """Return the frameworks that implement a problem, those that are named or all; with none of the named, all named.

    The latter are then refused, with the reason.
    """
    if named is None:
        return registry.available(problem)
    known = registry.implementing(problem)
    return [name for name in named if name in known] or [*named]


def _distinct(pieces: Sequence[Piece], platform: str) -> list[Piece]:
    """Return the pieces with all of their options; those that are alike are one."""
    united: dict[str, Piece] = {}
    for piece in pieces:
        kind = registry.problem(piece.problem)
        full = replace(piece, options=parameters.resolve(kind, piece.options, platform))
        key = f"{full.problem} {full.options}"
        known = united.get(key, replace(full, scopes=(), count=0))
        united[key] = replace(full, scopes=(*known.scopes, *full.scopes), count=known.count + full.count)
    return [*united.values()]


def _is_of(one: Configuration, piece: Piece) -> bool:
    case = one.records[0].case
    return case.problem == piece.problem and case.params == piece.options


def _measured(piece: Piece, alone: Sequence[Configuration]) -> MeasuredPiece | None:
    """Return a piece with its trials; None if no framework measures it alone."""
    if not alone:
        return None
    case = alone[0].records[0].case
    problem = parameters.convert(registry.problem(piece.problem), piece.options)
    cost = problem.cost(case.mode, case.precision)
    return MeasuredPiece(piece, problem.title(case.mode), Work(cost.flops, cost.bytes), alone)
