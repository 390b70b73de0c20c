"""Lists of numbers of devices, of strategies and of scalings, expanded to the cases of a framework."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.hooks import parameters
from benchmarker.machine.description import usable_cores
from benchmarker.planning.build import left_out
from benchmarker.planning.cases import choose_device, make_case

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarker.api.case import Case, CaseRequest, Parallel
    from benchmarker.api.problem import Problem
    from benchmarker.planning.cases import Ability
    from benchmarker.planning.factors import Settings

Scaling = Literal["strong", "weak"]
ALL = 0
"""A number of devices: as many as the framework sees, or as the processor has cores."""


def make_several(
    asked: Sequence[CaseRequest],
    problem: Problem,
    supported: Mapping[str, Ability],
    devices: Sequence[int],
    parallels: Sequence[Parallel | None],
    scalings: Sequence[Scaling],
) -> tuple[list[Case], list[str]]:
    """The cases of all combinations, each once, and a description of those that a framework does not support.

    With strong scaling the work of a step stays as asked, with weak scaling that of each device does. The case of one
    device belongs to all. Raises `UserError` if no case is left, or if one is not supported though the problem's
    options have one value each.
    """
    found: dict[bytes, Case] = {}
    tables: list[Settings] = []
    refused: dict[str, list[Settings]] = defaultdict(list)
    for (framework, ability), one in product(supported.items(), asked):
        for each in _on_several(one, problem, framework, ability, devices, parallels, scalings):
            how = {"devices": each.devices, "parallel": each.parallel}
            tables.append({"framework": framework, **how, **one.params})
            try:
                case = make_case(each, problem, framework, ability)
            except UserError as error:
                if len(asked) == 1:
                    raise
                refused[str(error)].append(tables[-1])
            else:
                found.setdefault(msgspec.json.encode(case), case)
    reasons = left_out(refused, tables)
    if not found:
        raise UserError(f"nothing is left to run: {'; '.join(reasons)}")
    return list(found.values()), reasons


def _on_several(
    asked: CaseRequest,
    problem: Problem,
    framework: str,
    ability: Ability,
    devices: Sequence[int],
    parallels: Sequence[Parallel | None],
    scalings: Sequence[Scaling],
) -> Iterator[CaseRequest]:
    """Yield what is asked, for each scaling, strategy and number of devices."""
    device = choose_device(framework, ability.info, asked.device)
    every = (asked.nodes or 1) * (usable_cores() if device.count is None else device.count)
    for scaling, parallel, number in product(scalings, parallels, devices):
        count = every if number == ALL else number
        is_same = scaling == "strong" or asked.independent
        params = asked.params if is_same else _grown(asked.params, problem, device.platform, count)
        yield msgspec.structs.replace(asked, devices=count, parallel=parallel if count > 1 else None, params=params)


def _grown(params: Mapping[str, Any], problem: Problem, platform: str, devices: int) -> Mapping[str, Any]:
    """The parameters with which each of several devices has the work that is asked of one."""
    if devices == 1:
        return params
    values = parameters.resolve(problem, params, platform)
    return asdict(problem.on(devices).grown(problem.params(**values), devices))
