"""What one node of a fleet measures: the cases that all share, on the devices that this node has."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from benchmarker.api.errors import UserError
from benchmarker.fleet import folder
from benchmarker.hooks import parameters, registry
from benchmarker.machine import gpus
from benchmarker.planning import build, factors, plan_file
from benchmarker.planning.capabilities import abilities
from benchmarker.planning.cases import Ability, choose_device
from benchmarker.records import configurations
from benchmarker.records.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarker.api.problem import Problem
    from benchmarker.fleet.folder import Asked, Stage
    from benchmarker.planning.factors import Description, Settings
    from benchmarker.records.plan import Plan

ALONE = "one device exchanges nothing"


def description_of(file: Path, asked: Asked) -> Description:
    """Return the description that all nodes share; raises `UserError` if the plan file is faulty."""
    found = plan_file.read(file, asked.name)
    if found.design != "rounds":
        raise UserError(f"{asked.name} is a duet; a fleet measures cases in rounds")
    axes = {**found.axes, "framework": asked.frameworks} if asked.frameworks else found.axes
    return replace(found, base={**found.base, **asked.settings}, axes=axes, order_seed=asked.seed)


def plan_of(path: Path, asked: Asked, stage: Stage) -> Plan:
    """Return what this node is to measure in a stage; raises `UserError` if nothing is left of it."""
    found = replace(description_of(path / folder.PLAN_FILE, asked), trials=stage.rounds)
    cases, left_out = _on_all_devices(found)
    if not cases:
        raise UserError(f"nothing is left to run: {left_out[0]}")
    plan = build.from_description(replace(found, base={}, axes={}, zips=(), cases=cases))
    if not stage.cases:
        return structs.replace(plan, left_out=[*plan.left_out, *left_out])
    chosen = [number for number, case in enumerate(plan.cases) if configurations.factors(case) in stage.cases]
    if not chosen:
        raise UserError("has none of the cases that are to be repeated")
    suite = plan.suite
    if suite:
        of_suite = [
            structs.replace(each, case_numbers=[chosen.index(at) for at in each.case_numbers if at in chosen])
            for each in suite.cases
        ]
        suite = structs.replace(suite, cases=of_suite)
    return make_plan([plan.cases[at] for at in chosen], stage.rounds, seed=asked.seed + 1, suite=suite)


def _on_all_devices(description: Description) -> tuple[list[Settings], list[str]]:
    """Return the settings of each case, on all devices of this node unless it states how many, and what is left out.

    Each device works by itself, but in an exchange between them. One device exchanges nothing.
    """
    counts: dict[tuple[str, str, str], int] = {}
    found: list[Settings] = []
    left_out: dict[str, None] = {}
    for table in factors.expand(description):
        if {"devices", "gpu"} & table.keys():
            found.append(table)
            continue
        problem: Problem = registry.load([f"problem.{table['problem']}"]).hook.make_problem()
        key = (str(table["problem"]), str(table["framework"]), str(table.get("device", "auto")))
        if key not in counts:
            counts[key] = _devices(*key)
        exchanges = _exchanges(problem, table)
        if counts[key] > 1:
            found.append({**table, "devices": counts[key], "each": not exchanges})
        elif exchanges:
            left_out[f"problem={table['problem']}: {ALONE}"] = None
        else:
            found.append(table)
    return found, list(left_out)


def _devices(problem: str, framework: str, device: str) -> int:
    """Return how many devices a framework sees; 1 if it cannot be used here, which is told when the plan is made."""
    ability = abilities(problem, [framework], gpus.environment(None, os.environ, None))[framework]
    if isinstance(ability, Ability):
        with suppress(UserError):
            return choose_device(framework, ability.info, device).count or 1
    return 1


def _exchanges(problem: Problem, table: Mapping[str, Any]) -> bool:
    """Return whether a case is an exchange between devices that do not divide any work."""
    own = {field.name for field in fields(problem.params)}
    values = parameters.resolve(problem, {name: value for name, value in table.items() if name in own}, "cpu")
    mode, precision = table.get("mode", "inference"), table.get("precision", "fp32")
    return bool(problem.collectives(problem.params(**values), mode, precision, "none", 2))
