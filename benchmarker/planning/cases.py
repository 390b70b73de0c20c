"""Turn requests into the cases that will run; everything that is not supported is refused here."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarker.api.case import EXECUTIONS, Case, CaseRequest, Mode, Parallel
from benchmarker.api.errors import UserError
from benchmarker.api.framework import Device, FrameworkInfo
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import Problem, Support, divided
from benchmarker.api.program import STEPWISE, is_program
from benchmarker.formatting import value_text
from benchmarker.hooks import launchers, parameters
from benchmarker.machine import gpus, perf_events
from benchmarker.machine.description import usable_cores

GPUS = ("cuda", "rocm", "xpu", "mps")
"""Platforms of which `--device=gpu` takes the first that there is."""
DEVICES_PER_CORE = 4
"""Most devices for each core that a processor is divided into: more share it so that no step says anything."""


@dataclass(frozen=True, slots=True)
class Ability:
    """What one framework reported about itself and about its implementation of the problem."""

    info: FrameworkInfo
    support: Support


def duet_trouble(cases: Sequence[Case]) -> str | None:
    """Why cases cannot take turns in one process; None if they can."""
    if len(cases) != 2:
        return f"a duet measures two cases, not {len(cases)}"
    for name in ("framework", "device", "gpu", "precision", "threads", "measuring"):
        first, second = (getattr(case, name) for case in cases)
        if first != second:
            return f"a duet shares one process, but the cases differ in {name} ({first}, {second})"
    if cases[0].is_emulated:
        return f"{cases[0].precision} is emulated and has no speed"
    if any(is_program(case.problem) for case in cases):
        return "a duet shares one process, but each execution of a program is a process"
    if cases[0].measuring.median_precision is not None:
        return "--median-precision cannot be used with a duet"
    if any(case.devices > 1 for case in cases):
        return "a duet measures on one device"
    if cases[0].measuring.counters != perf_events.NONE:
        return "--counters cannot be used with a duet, as two cases share the threads that are counted"
    if cases[0].measuring.wants_power:
        return "the power of two cases in one process cannot be measured separately"
    return None


def make_case(asked: CaseRequest, kind: type[Problem], framework: str, ability: Ability) -> Case:
    """The fully decided case in one framework. Raises `UserError` if the framework does not support it."""
    device = choose_device(framework, ability.info, asked.device)
    values = parameters.resolve(kind, asked.params, device.platform)
    nodes = _nodes(asked, framework, ability, device)
    _refuse_devices(asked, framework, ability, device, nodes)
    parallel = _parallel(asked, framework, ability.support)
    _refuse_unsupported(asked, framework, device, ability.support, {**values, "parallel": parallel})
    problem = parameters.convert(kind, values)
    divided(problem, 1 if asked.independent else asked.devices, parallel).refuse(asked.mode)
    problem.numerics(asked.mode, asked.precision)
    measuring = asked.measuring
    if measuring.wants_power and measuring.power_min_s >= measuring.timeout_s:
        raise UserError(
            f"--timeout={measuring.timeout_s:g} ends a trial before --power-min={measuring.power_min_s:g} has passed"
        )
    if measuring.counters != perf_events.NONE and values.get(STEPWISE):
        raise UserError("--counters cannot count a program that has started before its steps; omit it, or --stepwise")
    if asked.compile and ability.info.compile == "never":
        raise UserError(f"{framework} does not compile; leave --compile out")
    if asked.gpu is not None and device.platform == "cpu":
        raise UserError(f"--gpus={asked.gpu} is given, but {framework} would run on the CPU: it sees no GPU")
    executions = {"never": EXECUTIONS[:1], "optional": EXECUTIONS, "always": EXECUTIONS[1:]}[ability.info.compile]
    return Case(
        problem=asked.problem,
        framework=framework,
        device=device.platform,
        gpu=asked.gpu,
        precision=asked.precision,
        mode=asked.mode,
        compile=ability.info.compile == "always" or asked.compile,
        executions=list(ability.info.executions or executions),
        params=values,
        source=kind.source.sha256 if kind.source else "",
        seed=asked.seed,
        threads=asked.threads,
        devices=asked.devices,
        parallel=parallel,
        independent=asked.independent,
        nodes=nodes,
        ranks=asked.devices if asked.independent or ability.info.group == "process_per_device" else nodes,
        measuring=asked.measuring,
    )


def choose_device(framework: str, info: FrameworkInfo, asked: str) -> Device:
    """The requested device; `auto` is the one that the framework prefers, `gpu` its first GPU."""
    for device in info.devices:
        if asked in ("auto", device.platform) or (asked == "gpu" and device.platform in GPUS):
            return device
    platforms = ", ".join(device.platform for device in info.devices)
    raise UserError(f"{framework} {info.version} reports no device {asked!r} here; it reports: {platforms}")


def supported_precisions(support: Support, device: Device, mode: Mode) -> tuple[str, ...]:
    """The precisions of a mode that both the implementation and the device support."""
    done = set(support.precisions.get(mode, ())) & set(device.precisions)
    return tuple(name for name in PRECISIONS if name in done)


def _refuse_unsupported(
    asked: CaseRequest, framework: str, device: Device, support: Support, values: Mapping[str, Any]
) -> None:
    who = f"{asked.problem} in {framework}"
    if asked.mode not in support.precisions:
        raise UserError(f"{who} does not support {asked.mode}; its modes are: {', '.join(support.precisions)}")
    if asked.precision not in support.precisions[asked.mode]:
        does = ", ".join(supported_precisions(support, device, asked.mode))
        raise UserError(f"{who} does not support {asked.mode} in {asked.precision}; it supports: {does}")
    if asked.precision not in device.precisions:
        does = ", ".join(supported_precisions(support, device, asked.mode))
        raise UserError(
            f"{device.platform} ({device.name}) does not support {asked.precision} in {framework}; it supports: {does}"
        )
    factors = {**values, "mode": asked.mode, "precision": asked.precision, "device": device.platform}
    for name, choices in support.choices.items():
        if value_text(factors[name]) not in choices:
            does = ", ".join(choices)
            what = parameters.assignment(name, factors[name])
            raise UserError(f"{who} does not support {what}; it supports: {does}")
    for rule in support.exclusions:
        if all(value_text(factors[name]) == value for name, value in rule.items()):
            what = " with ".join(parameters.assignment(name, value) for name, value in rule.items())
            raise UserError(f"{who} does not support {what}")


def _nodes(asked: CaseRequest, framework: str, ability: Ability, device: Device) -> int:
    """The number of nodes: as requested, or as few of the allocation's as have so many devices, evenly spread.

    Raises `UserError` if the framework or the devices cannot be spread over them, or if they are not there.
    """
    if asked.nodes == 1 or (asked.devices == 1 and asked.nodes is None):
        return 1
    is_spread = asked.independent or ability.info.group in ("process_per_device", "process_per_node")
    if asked.nodes is None:
        allocation = launchers.allocation()
        most = len(allocation.nodes) if allocation and is_spread else 1
        here = usable_cores() if device.count is None else device.count
        return next((n for n in range(1, most + 1) if asked.devices % n == 0 and asked.devices <= n * here), 1)
    option = f"--nodes={asked.nodes}"
    if asked.nodes > 1 and not is_spread:
        raise UserError(f"{framework} computes in one process, on one node; omit {option}")
    if asked.devices % asked.nodes:
        raise UserError(
            f"{option}: --devices={asked.devices} cannot be spread evenly over {asked.nodes} nodes; leave {option} out "
            "to use as few as possible"
        )
    launchers.check_nodes(asked.nodes, launchers.allocation())
    return asked.nodes


def _refuse_devices(asked: CaseRequest, framework: str, ability: Ability, device: Device, nodes: int) -> None:
    """Refuse more devices than there are, and what is not measured on several."""
    if asked.devices == 1:
        if asked.independent:
            raise UserError(
                f"--independent compares devices, but {framework} is asked for one; give --devices=2 or more"
            )
        return
    option = f"--devices={asked.devices}"
    if is_program(asked.problem):
        raise UserError(f"a program is executed as it is, and uses what it finds; omit {option}")
    if asked.independent and device.platform not in ("cpu", *gpus.SHOWN_BY):
        raise UserError(f"--independent cannot assign one {device.platform} device to each process; omit it")
    if asked.independent and asked.measuring.profiling != "no":
        raise UserError("--profile cannot be used with --independent; omit one of them")
    if not asked.independent and ability.info.group == "none":
        raise UserError(f"{framework} computes on one device; omit {option}")
    if not asked.independent and not ability.support.parallel:
        raise UserError(f"{asked.problem} in {framework} computes on one device; omit {option}")
    on_each = asked.devices // nodes
    if device.count is None and on_each > (most := DEVICES_PER_CORE * usable_cores()):
        raise UserError(f"{option}: a CPU with {usable_cores()} cores is split into at most {most} virtual devices")
    if device.count is not None and on_each > device.count:
        raise UserError(f"{option}: {framework} sees {device.count} {device.platform} ({device.name}) here")
    if nodes > 1 and asked.measuring.profiling != "no":
        raise UserError(f"--profile cannot be used on {nodes} nodes; omit it, or use --nodes=1")
    for given, name in (
        (asked.gpu is not None, "--gpus"),
        (asked.compile and ability.info.compile == "optional" and not asked.independent, "--compile"),
    ):
        if given:
            raise UserError(f"{name} cannot be used with {option}; omit one of them")


def _parallel(asked: CaseRequest, framework: str, support: Support) -> Parallel:
    """How the devices divide a step: as requested, or as the implementation prefers; one device divides nothing."""
    if asked.independent and asked.parallel:
        raise UserError("--independent does not divide the work; omit --parallel")
    by_itself = asked.devices == 1 or asked.independent
    alone: tuple[Parallel, ...] = ("none",) if by_itself else ()
    if asked.parallel and asked.parallel not in (*support.parallel, *alone):
        does = ", ".join(way for way in support.parallel if way != "none")
        remedy = f"it supports: {does}" if does else "omit it"
        raise UserError(f"{asked.problem} in {framework} does not support --parallel={asked.parallel}; {remedy}")
    return "none" if by_itself else asked.parallel or support.parallel[0]


def same_device(cases: Sequence[Case]) -> None:
    """Refuse cases that would run on different devices: their defaults differ, and their results are not comparable."""
    if len({case.device for case in cases}) > 1:
        where = ", ".join(f"{case.framework} on {case.device}" for case in cases)
        raise UserError(f"the frameworks would run on different devices ({where}); name one with --device")


def refuse_emulated(cases: Iterable[Case]) -> None:
    """Refuse formats that are emulated where speed is what counts: they have none."""
    for case in cases:
        if case.is_emulated:
            raise UserError(
                f"{case.precision} is emulated and has no speed; measure its error with `run`, and compare it with "
                "`pareto --metric=error,effective_bits`"
            )


def command_line(case: Case) -> str:
    """The command line that repeats a case; options of `run` at their defaults are left out."""
    default = Case(problem="", framework="", device="", params={})
    words = [f"--framework={case.framework}", f"--problem={case.problem}", f"--device={case.device}"]
    words += [parameters.assignment(name, value) for name, value in case.params.items()]
    for values, defaults in ((case, default), (case.measuring, default.measuring)):
        words += [
            setting.assignment(getattr(values, name))
            for name, setting in parameters.settings().items()
            if hasattr(values, name)
            and name not in ("problem", "device")
            and getattr(values, name) != getattr(defaults, name)
        ]
    return shlex.join(["python", "-m", "benchmarker", "run", *words])
