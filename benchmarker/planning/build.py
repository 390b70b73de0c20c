"""Turn tables of settings into the cases of a plan; the frameworks are asked what they support here."""

import dataclasses
import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, get_args

import msgspec

from benchmarker.api.case import Case, CaseRequest, Measuring, Scaling
from benchmarker.api.errors import UserError
from benchmarker.api.problem import FUNCTION, NO_WEAK_SCALING, Divides, Problem
from benchmarker.api.program import is_program, usually
from benchmarker.files.toml import assigned
from benchmarker.formatting import nearest
from benchmarker.hooks import parameters, registry
from benchmarker.machine import gpus, perf_events
from benchmarker.machine.description import usable_cores
from benchmarker.planning import factors
from benchmarker.planning.capabilities import abilities
from benchmarker.planning.cases import Ability, choose_device, duet_trouble, make_case, same_device
from benchmarker.planning.factors import Description, Settings
from benchmarker.power import samplers
from benchmarker.records import suite
from benchmarker.records.factors import factors_of, label, varying
from benchmarker.records.plan import Plan, make_plan
from benchmarker.records.suite import PlannedSuite, SuiteCase

ALL = "all"
"""A number of devices: as many as the framework sees, or as the processor has cores."""
_BESIDE = ("framework", "devices", "scaling")
"""Settings that are not those of a `CaseRequest`, or may have a value that it cannot have."""
_Asks = tuple[str, str, int | None, int | None]
"""What a framework is asked about: problem, framework, GPU, number of devices, None for all."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Wanted:
    """A valid request to one framework, and the settings that it was made from."""

    settings: Settings
    framework: str
    asked: CaseRequest
    all_devices: bool
    scaling: Scaling

    @property
    def asks(self) -> _Asks:
        """What its framework is asked about."""
        devices = None if self.all_devices else self.asked.devices
        return self.asked.problem, self.framework, self.asked.gpu, devices

    def of(self, kind: type[Problem], ability: Ability) -> CaseRequest:
        """The request with its number of devices, and with weak scaling as much work for each as is asked of one."""
        asked = self.asked
        device = choose_device(self.framework, ability.info, asked.device)
        if self.all_devices:
            count = usable_cores() if device.count is None else device.count
            asked = msgspec.structs.replace(asked, devices=(asked.nodes or 1) * count)
        if self.scaling == "strong" or asked.devices == 1:
            return asked
        if asked.independent:
            raise UserError("--independent gives each device the same work already; omit --scaling=weak")
        problem = parameters.convert(kind, parameters.resolve(kind, asked.params, device.platform))
        if not isinstance(problem, Divides):
            raise UserError(NO_WEAK_SCALING)
        return msgspec.structs.replace(asked, params=parameters.values(problem.on(asked.devices).grown()))

    @property
    def of_suite(self) -> dict[str, Any]:
        """The settings by which a suite is known."""
        of_case = msgspec.structs.asdict(self.asked)
        params, measuring = of_case.pop("params"), msgspec.structs.asdict(of_case.pop("measuring"))
        of_case |= {"devices": ALL} if self.all_devices else {}
        of_case |= {"scaling": self.scaling} if self.scaling == "weak" else {}
        return suite.of_case({**params, **measuring, **of_case, "framework": self.framework})


def from_description(description: Description) -> Plan:
    """The plan of a description. Raises `UserError` if the description is invalid."""
    names, tables = _named(description)
    wanted, decided, left_out = _decide(tables)
    cases = _distinct(decided)
    for power in {case.measuring.power for case in cases}:
        samplers.meters(power)
    for counters in {case.measuring.counters for case in cases}:
        perf_events.chosen(counters)
    if len({msgspec.json.encode(factors_of(case)) for case in cases}) < len(cases):
        raise UserError(
            "some cases differ only in how they are profiled or their power is read, or in what is counted; run them "
            "separately"
        )
    if description.design == "duet" and (trouble := duet_trouble(cases)):
        raise UserError(f"{trouble}; use the design rounds, which takes any cases")
    return make_plan(
        cases,
        description.trials,
        design=description.design,
        left_out=left_out,
        seed=description.order_seed,
        suite=_suite(description, names, wanted, decided) if description.name is not None else None,
    )


def of_nodes(description: Description, number: int) -> Plan:
    """The plan of the cases of a plan file that state so many nodes, or none for 1; its suite has all cases.

    Raises `UserError` if there is none, or if the description is invalid.
    """
    cases = [settings for settings in factors.expand(description) if _converted(settings).get("nodes", 1) == number]
    plan = from_description(dataclasses.replace(description, base={}, axes={}, zips=(), cases=cases))
    assert plan.suite is not None
    numbers = {msgspec.json.encode(case.settings): case.case_numbers for case in plan.suite.cases}
    whole = suite_of(description)
    all_cases = [
        msgspec.structs.replace(case, case_numbers=numbers.get(msgspec.json.encode(case.settings), []))
        for case in whole.cases
    ]
    return msgspec.structs.replace(plan, suite=msgspec.structs.replace(whole, cases=all_cases))


def suite_of(description: Description) -> PlannedSuite:
    """The suite that the description of a plan file is; no framework is started, so its cases have no numbers.

    Raises `UserError` if the description is invalid.
    """
    names, tables = _named(description)
    wanted = _all_wanted(tables)
    return _suite(description, names, wanted, [None] * len(wanted))


def _named(description: Description) -> tuple[list[str | None], list[dict[str, Any]]]:
    """The name and the settings of each requested case."""
    tables = expanded(description)
    return [table.pop(factors.CASE_NAME, None) for table in tables], tables


def expanded(description: Description) -> list[dict[str, Any]]:
    """The settings of everything to measure, of a user's file each function, in each framework that it is for."""
    return [each for table in factors.expand(description) for each in _of_user(table)]


def functions_of(problem: str) -> tuple[str, ...]:
    """The functions of a user's file; none if the problem is no file."""
    if registry.source_file(problem) is None:
        return ()
    return next(field.choices for field in parameters.fields(registry.problem(problem)) if field.name == FUNCTION)


def _of_user(table: dict[str, Any]) -> list[dict[str, Any]]:
    """A table for each framework and function of what a user wrote that a table names, unless it names them itself."""
    problem = table.get("problem")
    if isinstance(problem, str) and is_program(problem):
        return [{"framework": name, **table} for name in registry.implementing(problem)]
    functions = functions_of(problem) if isinstance(problem, str) else ()
    if not functions:
        return [table]
    frameworks = [table["framework"]] if "framework" in table else registry.problem(str(problem)).frameworks or ()
    measured = [table[FUNCTION]] if FUNCTION in table else functions
    return [{**table, "framework": name, FUNCTION: function} for name in frameworks for function in measured]


def _suite(
    description: Description, names: Sequence[str | None], wanted: Sequence[_Wanted], decided: Sequence[Case | None]
) -> PlannedSuite:
    """The distinct cases of a description with a name, each with its own name and its numbers in the plan."""
    assert description.name is not None
    numbers = {msgspec.json.encode(case): number for number, case in enumerate(_distinct(decided))}
    suite_cases: dict[bytes, SuiteCase] = {}
    for name, request, case in zip(names, wanted, decided, strict=True):
        settings = request.of_suite
        new = SuiteCase(name=name, settings=settings, case_numbers=[])
        known = suite_cases.setdefault(msgspec.json.encode(settings), new)
        if case and (number := numbers[msgspec.json.encode(case)]) not in known.case_numbers:
            known.case_numbers.append(number)
    return suite.make_suite(
        description.name, description.version, list(suite_cases.values()), description.trials, description.design
    )


def make_cases(tables: Sequence[Settings]) -> tuple[list[Case], list[str]]:
    """The cases, each once, and a description of what is left out because a framework or a device does not support it.

    Raises `UserError` if a setting is invalid, or if no case is left.
    """
    _, decided, left_out = _decide(tables)
    return _distinct(decided), left_out


def case_here(table: Settings, kind: type[Problem], ability: Ability) -> Case:
    """The case of a problem that this process has itself. Raises `UserError` if a setting is invalid."""
    wanted = _want(table, registry.find, lambda _: kind)
    return make_case(wanted.of(kind, ability), kind, wanted.framework, ability)


def _distinct(decided: Sequence[Case | None]) -> list[Case]:
    return list({msgspec.json.encode(case): case for case in decided if case}.values())


def _decide(tables: Sequence[Settings]) -> tuple[list[_Wanted], list[Case | None], list[str]]:
    """What each table requests, its case (None if it is left out), and the reasons why some are left out."""
    problem = cache(registry.problem)
    wanted = _all_wanted(tables)
    supported = _ask(wanted)
    cases: list[Case | None] = []
    chosen: dict[tuple[str, str], Case] = {}
    refused: dict[str, list[Settings]] = defaultdict(list)
    for request in wanted:
        asked = request.asked
        try:
            ability = supported[request.asks]
            if isinstance(ability, UserError):
                raise ability
            made = problem(asked.problem)
            case = make_case(request.of(made, ability), made, request.framework, ability)
        except UserError as error:
            refused[str(error)].append(request.settings)
            cases.append(None)
            continue
        cases.append(case)
        if asked.device == "auto":
            chosen.setdefault((case.framework, case.device), case)
    reasons = left_out(refused, tables)
    if not any(cases):
        raise UserError(f"nothing is left to run: {'; '.join(reasons)}" if len(tables) > 1 else next(iter(refused)))
    same_device(list(chosen.values()))
    return wanted, cases, reasons


def left_out(refused: Mapping[str, Sequence[Settings]], tables: Sequence[Settings]) -> list[str]:
    """Describe what was left out of tables of settings, by reason."""
    names = list(dict.fromkeys(["framework", *varying(tables)]))
    return [
        f"{_common(group, names)}{f' ({len(group)} cases)' if len(group) > 1 else ''}: {reason}"
        for reason, group in refused.items()
    ]


def _common(group: Sequence[Settings], names: Sequence[str]) -> str:
    """What several settings have in common among the given names, as a label."""
    differing = varying(group)
    return label(group[0], [name for name in names if name not in differing])


def _all_wanted(tables: Sequence[Settings]) -> list[_Wanted]:
    find, problem = cache(registry.find), cache(registry.problem)
    return [_want(table, find, problem) for table in tables]


def _want(table: Settings, find: Callable[[str], Any], problem: Callable[[str], type[Problem]]) -> _Wanted:
    """Convert and check a table of settings. Raises `UserError` if a setting is invalid."""
    for name in ("problem", "framework"):
        if name not in table:
            raise UserError(f"no {name} is given; give one for all cases, or vary it")
    all_devices = table.get("devices") == ALL
    given = _converted({name: value for name, value in table.items() if not (all_devices and name == "devices")})
    framework = str(table["framework"])
    scaling = table.get("scaling", "strong")
    if scaling not in get_args(Scaling):
        raise UserError(f"{assigned('scaling', scaling)}: not one of {', '.join(get_args(Scaling))}")
    find(f"framework.{framework}")
    made = problem(given["problem"])
    of_problem = {name: value for name, value in table.items() if name not in (*given, *_BESIDE)}
    for name in of_problem:
        settings = (*parameters.names(made), *_BESIDE, *parameters.settings(), "trials", "design", "order_seed")
        known = dict.fromkeys(settings)  # each once
        if name not in known:
            raise UserError(f"no setting of {given['problem']} is named {name!r}; {nearest(name, known, 2)}")
    values = parameters.resolve(made, of_problem, "cpu", spelt=str)
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{name}={value}: not a finite number")
    params = {name: values[name] for name in of_problem}
    usual = usually(params) if is_program(given["problem"]) else {}
    measuring = Measuring(
        **{**usual} | {name: given.pop(name) for name in Measuring.__struct_fields__ if name in given}
    )
    return _Wanted(table, framework, CaseRequest(**given, params=params, measuring=measuring), all_devices, scaling)


def _converted(table: Settings) -> dict[str, Any]:
    """The settings of every case among those of a table, converted."""
    values = {}
    for name, setting in parameters.settings().items():
        if name in table:
            try:
                values[name] = setting.converted(table[name])
            except ValueError as error:
                raise UserError(f"{assigned(name, table[name])}: {error}") from error
    return values


def _ask(wanted: Sequence[_Wanted]) -> dict[_Asks, Ability | UserError]:
    """What each framework supports of each problem on each GPU, or on the first ones, or why it cannot be used."""
    frameworks: dict[tuple[str, int | None, int | None], dict[str, None]] = defaultdict(dict)
    for problem, name, gpu, devices in (request.asks for request in wanted):
        frameworks[problem, gpu, devices][name] = None
    supported: dict[_Asks, Ability | UserError] = {}
    for (problem, gpu, devices), names in frameworks.items():
        known = registry.implementing(problem)
        shown = gpus.environment(gpu, os.environ, devices)
        answers = abilities(problem, [name for name in names if name in known], shown)
        for name in names:
            no = UserError(
                f"{name} has no implementation of {problem}; frameworks that have one: {', '.join(known) or 'none'}"
            )
            supported[problem, name, gpu, devices] = answers.get(name, no)
    return supported
