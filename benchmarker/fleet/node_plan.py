"""What a node of a fleet measures, and what a link: the cases that all share, on the devices that this node has."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from msgspec import structs

from benchmarker.api.errors import UserError
from benchmarker.api.problem import IsExchange
from benchmarker.fleet import folder
from benchmarker.fleet.folder import FleetSpec, LinkStage, Stage
from benchmarker.hooks import registry
from benchmarker.machine import gpus
from benchmarker.planning import build, factors, plan_file
from benchmarker.planning.capabilities import abilities
from benchmarker.planning.cases import Ability, choose_device
from benchmarker.planning.factors import Description, Settings
from benchmarker.records.factors import factors_of
from benchmarker.records.plan import Plan, make_plan

LINK_NODES = 2
"""Nodes of a case that is measured between pairs of nodes."""
ALONE = "one device exchanges nothing"


def description_of(file: Path, spec: FleetSpec) -> Description:
    """Return the description that all nodes share; raises `UserError` if the plan file is faulty."""
    written = plan_file.read(file, spec.name)
    if written.design != "rounds":
        raise UserError(f"{spec.name} is a duet; a fleet measures cases in rounds")
    axes = {**written.axes, "framework": spec.frameworks} if spec.frameworks else written.axes
    return replace(written, base={**written.base, **spec.settings}, axes=axes, order_seed=spec.seed)


def measures(description: Description) -> tuple[Literal["nodes", "links"], ...]:
    """Return whether cases are for nodes, for links, or both; raises `UserError` if one is for more than two nodes."""
    tables = factors.expand(description)
    if many := {int(table["nodes"]) for table in tables if int(table.get("nodes", 1)) > LINK_NODES}:
        raise UserError(
            f"nodes = {min(many)}: a fleet measures single nodes, and links between two; write nodes = {LINK_NODES}"
        )
    if not any(map(_is_of_link, tables)):
        return ("nodes",)
    return ("links",) if all(map(_is_of_link, tables)) else ("nodes", "links")


def plan_of(path: Path, spec: FleetSpec, stage: Stage) -> Plan:
    """Return what this node is to measure in a stage; raises `UserError` if nothing is left of it."""
    description = description_of(path / folder.PLAN_FILE, spec)
    return _plan(description, spec, stage, *_on_all_devices(description))


def link_plan_of(path: Path, spec: FleetSpec, stage: LinkStage) -> Plan:
    """Return what every link is to measure in a stage, on all devices of its nodes, as many as this one has.

    A case that states its devices is left as it is. Raises `UserError` if nothing is left of it.
    """
    description = description_of(path / folder.PLAN_FILE, spec)
    tables = [table for table in factors.expand(description) if _is_of_link(table)]
    counts = {_kind(table): _devices(*_kind(table)) for table in tables if "devices" not in table}
    cases = [{"devices": LINK_NODES * counts.get(_kind(table), 1), **table} for table in tables]
    return _plan(description, spec, stage, cases, [])


def _plan(
    description: Description,
    spec: FleetSpec,
    stage: Stage | LinkStage,
    cases: Sequence[Settings],
    left_out: Sequence[str],
) -> Plan:
    """Return the plan of a stage that measures these cases, or those of them that the stage chooses."""
    if not cases:
        raise UserError(f"nothing is left to run: {left_out[0]}")
    plan = build.from_description(replace(description, trials=stage.rounds, base={}, axes={}, zips=(), cases=cases))
    if not stage.cases:
        return structs.replace(plan, left_out=[*plan.left_out, *left_out])
    chosen = [number for number, case in enumerate(plan.cases) if factors_of(case) in stage.cases]
    if not chosen:
        raise UserError("has none of the cases that are to be repeated")
    suite = plan.suite
    if suite:
        of_suite = [
            structs.replace(case, case_numbers=[chosen.index(at) for at in case.case_numbers if at in chosen])
            for case in suite.cases
        ]
        suite = structs.replace(suite, cases=of_suite)
    return make_plan([plan.cases[at] for at in chosen], stage.rounds, seed=spec.seed + 1, suite=suite)


def _on_all_devices(description: Description) -> tuple[list[Settings], list[str]]:
    """Return the settings of each case, on all devices of this node unless it states how many, and what is left out.

    The devices compute independently, but in an exchange between them. One device exchanges nothing.
    """
    counts: dict[tuple[str, str, str], int] = {}
    cases: list[Settings] = []
    left_out: dict[str, None] = {}
    for of_any in factors.expand(description):
        if _is_of_link(of_any):
            continue
        table = {**of_any, "nodes": 1}
        if {"devices", "gpu"} & table.keys():
            cases.append(table)
            continue
        problem = registry.problem(table["problem"])
        key = _kind(table)
        if key not in counts:
            counts[key] = _devices(*key)
        exchanges = issubclass(problem, IsExchange)
        if counts[key] > 1:
            cases.append({**table, "devices": counts[key], "independent": not exchanges})
        elif exchanges:
            left_out[f"problem={table['problem']}: {ALONE}"] = None
        else:
            cases.append(table)
    return cases, list(left_out)


def _is_of_link(table: Settings) -> bool:
    """Return whether a case is for two nodes."""
    return int(table.get("nodes", 1)) == LINK_NODES


def _kind(table: Settings) -> tuple[str, str, str]:
    """Return what determines how many devices a case can have: problem, framework and device."""
    return str(table["problem"]), str(table["framework"]), str(table.get("device", "auto"))


def _devices(problem: str, framework: str, device: str) -> int:
    """Return how many devices a framework sees; 1 if it cannot be used here, which is told when the plan is made."""
    ability = abilities(problem, [framework], gpus.environment(None, os.environ, None))[framework]
    if isinstance(ability, Ability):
        with suppress(UserError):
            return choose_device(framework, ability.info, device).count or 1
    return 1
