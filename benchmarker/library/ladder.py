"""`ladder`: from a problem to the rungs that its step stands on."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import FUNCTION, IsExchange, Piece, Problem
from benchmarker.display.ladder import ladder_output
from benchmarker.display.result import Part, Result, Text
from benchmarker.hooks import parameters, registry
from benchmarker.hooks.cases import Cases, Configuration
from benchmarker.hooks.metrics import load_metrics
from benchmarker.hooks.names import title
from benchmarker.library.frames import frame_of
from benchmarker.library.measuring import Measured, measured
from benchmarker.library.progress import Progress, listener_of
from benchmarker.machine import gpus
from benchmarker.planning import build
from benchmarker.planning.capabilities import on_one_platform
from benchmarker.planning.cases import refuse_emulated
from benchmarker.planning.factors import Description
from benchmarker.records import ceilings
from benchmarker.records.factors import varying, work
from benchmarker.records.plan import Plan
from benchmarker.records.record import Record
from benchmarker.roofline.ladder import Ladder, MeasuredPiece
from benchmarker.roofline.ladder import ladder as climb
from benchmarker.roofline.two_roofs import Predictions, predictions
from benchmarker.running.context import Listener
from benchmarker.stats.shift import fewest

TRIALS = fewest(0.05, is_paired=True)
"""The fewest trials with which a share has an interval."""
_OF_FRAMEWORK = ("framework", "execution")
"""Factors in which the cases of a rung differ."""
_OF_STEP = ("problem", "compile", "profile", "profile_steps", "separable")
"""Settings of the step that its pieces alone do not have."""


@dataclass(frozen=True, repr=False)
class MeasuredLadder(Result):
    """The ladder of some records, and the run that they were measured in, unless they were read."""

    records: Sequence[Record]
    run: Measured | None = None

    @cached_property
    def ladder(self) -> Ladder:
        """The rungs under the ceilings that are known now; raises `UserError` if records are of several ladders."""
        return climb(*self._measured, ceilings.known())

    @property
    def predictions(self) -> Predictions:
        """The predictions of the steps under the machine's roof and under each framework's own.

        Raises `UserError` if records are of several ladders, or of no step with pieces.
        """
        name, pieces, steps = self._measured
        if not any(one.ok for one in steps):
            raise UserError(
                "these records have no step that was measured beside its pieces; `benchmarker ladder` measures one"
            )
        return predictions(name, pieces, steps, ceilings.known())

    @cached_property
    def _measured(self) -> tuple[str, list[MeasuredPiece], list[Configuration]]:
        """The name of the ladder, what was measured of its pieces, and its steps."""
        cases = Cases.of(self.records)
        steps = [one for one in cases if _pieces_of(one)]
        _refuse_several(steps)
        first = (steps or cases)[0]
        case = first.records[0].case
        if steps:
            of_case = _distinct(_pieces_of(first), case.device)
            pieces = [(piece, [one for one in cases if _is_of(one, piece)]) for piece in of_case]
        else:
            _refuse_several(cases, of_any_work=True)
            pieces = _alone(cases)
        for _, alone in pieces:
            _refuse_several(alone)
        measured = [
            MeasuredPiece(piece, title(alone[0].factors), alone[0].ok[0].cost, alone, _unroofed(alone[0]))
            for piece, alone in pieces
            if alone and alone[0].ok
        ]
        name = f"{title(first.factors)} {case.precision} on {case.device}" if len(measured) == 1 or steps else ""
        return name, measured, steps

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
        if self.run is None:
            return []
        return [*(Text(f"left out: {reason}", "  ") for reason in self.run.plan.left_out), *self.run.notes]

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each trial, as `load` does."""
        return frame_of(self.records, load_metrics())


def ladder(
    *,
    problem: str,
    framework: str | Sequence[str] | None = None,
    trials: int = TRIALS,
    results: str | PathLike[str] = "results",
    resume: bool = False,
    progress: Progress = None,
    **options: Any,
) -> MeasuredLadder:
    """Measure the pieces of a step alone in each framework, and the step with its profile, in rounds.

    Without frameworks, all that implement any of it are measured that have it on the device that one of them prefers
    to the CPU, or on the CPU if there is none. A problem that has no pieces, such as `gemm`, is measured by itself. The
    `options` are those of `run`, one value each. Raises `UserError` as `run` does.
    """
    plan = build.from_description(described({"problem": problem, **options}, framework, trials))
    return climbed(plan, Path(results), resume, listener_of(progress))


def climbed(plan: Plan, results: Path, resume: bool, listener: Listener) -> MeasuredLadder:
    """Run the plan of a ladder."""
    run = measured(plan, results, resume, listener)
    return MeasuredLadder(run.records, run)


def described(settings: Mapping[str, Any], framework: str | Sequence[str] | None, trials: int) -> Description:
    """Return the description of a ladder's run.

    Raises `UserError` if a setting is invalid, or if no framework that is named computes the step.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    named = [framework] if isinstance(framework, str) else framework
    platform, able = _of(named, given["problem"], given)
    if platform:
        given["device"] = platform
    steps = [{**given, "profile": True, "framework": name} for name in able]
    case = build.make_cases(steps)[0][0]
    refuse_emulated([case])
    pieces = _distinct(_problem_of(case).pieces(), case.device)
    if not pieces:
        return Description(base=given, axes={"framework": able}, trials=trials)
    of_step = {*parameters.names(registry.problem(case.problem)), *_OF_STEP}
    alone = {name: value for name, value in given.items() if name not in of_step} | {
        "mode": "inference" if case.mode == "inference" else "forward_backward",
        "precision": PRECISIONS[case.precision].compute,
        "device": case.device,
    }
    cases = [
        {**alone, "problem": piece.problem, **piece.options, "framework": name}
        for piece in pieces
        for name in _of(named, piece.problem, alone)[1]
    ]
    return Description(base={}, cases=[*steps, *cases], trials=trials)


def _of(named: Sequence[str] | None, problem: str, given: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    """Return the frameworks of a problem: those that are named, or all that have it on one platform, with that.

    With none of the named, it is all named, which are then refused, with the reason.
    """
    if named is None:
        environment = gpus.environment(given.get("gpu"), os.environ)
        return on_one_platform(problem, registry.available(problem), given.get("device", "auto"), environment)
    known = registry.implementing(problem)
    return None, [name for name in named if name in known] or [*named]


def _distinct(pieces: Sequence[Piece], platform: str) -> list[Piece]:
    """Return the pieces with all of their options; those that are alike are one."""
    united: dict[str, Piece] = {}
    for piece in pieces:
        kind = registry.problem(piece.problem)
        full = replace(piece, options=parameters.resolve(kind, piece.options, platform))
        key = f"{full.problem} {full.options}"
        known = united.get(key, replace(full, scopes=(), count=0))
        united[key] = replace(
            full, scopes=(*dict.fromkeys((*known.scopes, *full.scopes)),), count=known.count + full.count
        )
    return [*united.values()]


def _problem_of(case: Case) -> Problem:
    return parameters.convert(registry.problem(case.problem), case.params)


def _pieces_of(one: Configuration) -> Sequence[Piece]:
    """Return the pieces of a case; none if its problem is a file that is gone."""
    with suppress(UserError):
        return _problem_of(one.records[0].case).pieces()
    return ()


def _unroofed(one: Configuration) -> str:
    """Return why the roof says nothing of a case; empty if it does."""
    with suppress(UserError):
        if issubclass(registry.problem(one.records[0].case.problem), IsExchange):
            return "its bytes move between devices, and the roof is of a device's own memory"
    return ""


def _alone(cases: Cases) -> list[tuple[Piece, list[Configuration]]]:
    """Return the cases that do the same work, each such work as a piece that is in no step."""
    by_work: dict[bytes, list[Configuration]] = {}
    for one in cases:
        by_work.setdefault(msgspec.json.encode(work(one.records[0].case)), []).append(one)
    of_first = ((group[0].records[0].case, group) for group in by_work.values())
    return [(Piece((), case.problem, case.params), group) for case, group in of_first]


def _refuse_several(cases: Sequence[Configuration], *, of_any_work: bool = False) -> None:
    """Raise `UserError` if cases differ in more than the framework, or what they compute if they are `of_any_work`."""
    of_work = {*cases[0].records[0].case.params, "problem", FUNCTION} if cases and of_any_work else set()
    if differ := [
        name for name in varying([one.factors for one in cases]) if name not in _OF_FRAMEWORK and name not in of_work
    ]:
        raise UserError(f"these are several ladders, which differ in {', '.join(differ)}; name the run of one")


def _is_of(one: Configuration, piece: Piece) -> bool:
    """Whether a case is that of a piece; records of an earlier version may lack options."""
    case = one.records[0].case
    return case.problem == piece.problem and case.params.items() <= piece.options.items()
