"""Lists of numbers of devices, of strategies and of scalings, expanded to the cases of a framework."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from benchmarker.hooks import parameters
from benchmarker.machine.cores import usable_cores
from benchmarker.planning.cases import choose_device, make_case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarker.api.case import Case, Parallel
    from benchmarker.api.problem import Problem
    from benchmarker.planning.cases import Ability, Asked

Scaling = Literal["strong", "weak"]
ALL = 0
"""A number of devices: as many as the framework sees, or as the processor has cores."""


def on_several(
    asked: Asked,
    problem: Problem,
    framework: str,
    ability: Ability,
    devices: Sequence[int],
    parallels: Sequence[Parallel | None],
    scalings: Sequence[Scaling],
) -> list[Case]:
    """The cases of a framework for each scaling, strategy and number of devices, each case once.

    With strong scaling the work of a step stays as asked, with weak scaling that of each device does. The case of one
    device belongs to all. Raises `UserError` if the framework does not support one of them.
    """
    device = choose_device(framework, ability.info, asked.device)
    every = usable_cores() if device.count is None else device.count
    found: dict[bytes, Case] = {}
    for scaling, parallel, number in product(scalings, parallels, devices):
        count = every if number == ALL else number
        is_same = scaling == "strong" or asked.each
        params = asked.params if is_same else _grown(asked.params, problem, device.platform, count)
        strategy = parallel if count > 1 else None
        case = make_case(replace(asked, devices=count, parallel=strategy, params=params), problem, framework, ability)
        found.setdefault(msgspec.json.encode(case), case)
    return list(found.values())


def _grown(params: Mapping[str, Any], problem: Problem, platform: str, devices: int) -> Mapping[str, Any]:
    """The parameters with which each of several devices has the work that is asked of one."""
    if devices == 1:
        return params
    values = parameters.resolve(problem, params, platform)
    return asdict(problem.on(devices).grown(problem.params(**values), devices))
