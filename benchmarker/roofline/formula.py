"""The work of a case by the formulas of its problem, and the time that a step of it should take under a roof.

Cases are asked for by many records, so what is computed for one is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from benchmarker.api.case import Case, Mode
from benchmarker.api.cost import Cost, Work
from benchmarker.api.problem import phases_of
from benchmarker.formatting import one_line
from benchmarker.hooks import parameters, registry
from benchmarker.hooks.registry import Plugin
from benchmarker.records.record import Record
from benchmarker.roofline.roofs import Roof


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a step, which runs `count` times in it.

    The work is that of one time, as a whole and by scope; `runs` is how often a scope is entered in it.
    """

    count: int
    cost: Cost
    parts: Mapping[str, Work]
    runs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Formula:
    """The work of a step by scope, and how often it `runs`; and its phases by name.

    All are empty if there is no formula, with the reason.
    """

    parts: Mapping[str, Work] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, Phase] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """The time, s, that a step should take, and that of one pass of each of its phases; None with the reason."""

    time_s: float | None
    phases_s: Mapping[str, float]
    reason: str | None = None


def formula(case: Case) -> Formula:
    """Return the work of a step of a case by formula.

    There is none if its problem has no formula for the scopes, is not installed, or rejects the parameters.
    """
    return _formula(*_key(case))


def predicted_step(record: Record, roof: Roof) -> PredictedStep:
    """Return the time that a record's step should take: all its scopes one after the other, each at the roof."""
    return _predicted(roof, *_key(record.case))


def of_part(work: Work, runs: int, roof: Roof) -> float:
    """Return the least time, s, of a part of a step that runs so often; each time has one product with weights."""
    return roof.time_s(work.flops, work.bytes, work.weight_bytes, runs)


_Key = tuple[Plugin | None, str, Mode, str, tuple[tuple[str, Any], ...]]


def _key(case: Case) -> _Key:
    """Return all that the work of a case depends on; the plugin is part of it, as another may take its place."""
    plugin = registry.known(f"problem.{case.problem}")
    return plugin, case.problem, case.mode, case.precision, tuple(case.params.items())


@cache
def _formula(
    plugin: Plugin | None, name: str, mode: Mode, precision: str, params: tuple[tuple[str, Any], ...]
) -> Formula:
    if plugin is None:
        return Formula(reason=f"the problem {name} is not installed")
    try:
        problem = parameters.convert(registry.problem(name), dict(params))
        parts = problem.parts(mode, precision)
        if not parts:
            return Formula(reason=f"{name} has no formula for the work of its scopes")
        phases = {
            phase: Phase(
                count,
                own.cost(mode, precision),
                own.parts(mode, precision),
                own.scopes(mode),
            )
            for phase, (count, own) in phases_of(problem).items()
        }
        runs = problem.scopes(mode)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's mistake costs its predictions alone
        return Formula(reason=f"{name} gives no formula for these parameters: {one_line(str(error))}")
    return Formula(parts, runs, phases)


@cache
def _predicted(roof: Roof, *key: Any) -> PredictedStep:
    step = _formula(*key)
    phases_s = {
        name: sum(of_part(work, phase.runs.get(scope, 0), roof) for scope, work in phase.parts.items())
        for name, phase in step.phases.items()
    }
    time_s = sum(phase.count * phases_s[name] for name, phase in step.phases.items())
    return PredictedStep(time_s=time_s if phases_s else None, phases_s=phases_s, reason=step.reason)
