"""`benchmarker describe`."""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from benchmarker.api.case import MODES, CaseRequest, Mode
from benchmarker.api.errors import UserError
from benchmarker.api.problem import Problem, parameter_count_of
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.case import case_options
from benchmarker.cli.options.problem import ProblemCommand, problem_of
from benchmarker.cli.options.types import complete_plugin
from benchmarker.display.result import Part, Text
from benchmarker.formatting import clean, count, si, value_text
from benchmarker.hooks import parameters, registry
from benchmarker.machine import gpus
from benchmarker.planning.capabilities import abilities
from benchmarker.planning.cases import Ability, supported_precisions
from benchmarker.planning.needs import DescribedCase, DeviceMemory, Needs, describe_case
from benchmarker.tables.table import Table, number


@click.command("describe", cls=ProblemCommand, argument=True)
@click.argument("problem", shell_complete=complete_plugin("problem"))
@case_options("mode", "precision", "device")
@output_options(form=False)
def command(mode: Mode, precision: str, device: str, **options: Any) -> Output:
    """Describe a problem: its options, its cost, its scopes, and what each framework supports here.

    With options, as `run` takes them, describe that case: its parameters, the work of a step, and the memory that it
    needs at least beside that of the device. Nothing is measured.
    """
    name = options["problem"]
    made, given = problem_of(options)
    parameters.resolve(made, given, "cpu")
    names = registry.available(name)
    with working(f"querying the capabilities of {', '.join(names)}"):
        supported = abilities(name, names, gpus.environment(None, os.environ))
    rows = [row for framework, ability in supported.items() for row in _ability_rows(framework, ability)]
    case = None
    source = click.get_current_context().get_parameter_source
    if given or any(source(option) is ParameterSource.COMMANDLINE for option in ("mode", "precision", "device")):
        asked = CaseRequest(problem=name, mode=mode, precision=precision, device=device, params=given)
        case = describe_case(made, asked, supported)
        values = case.needs.params
    else:
        done = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
        mode, values = (done or MODES)[-1], parameters.resolve(made, {}, "cpu")
    problem = made(**values)
    scopes, parts = list(problem.scopes(mode)), problem.parts(mode, precision)
    data = {
        "problem": name,
        "summary": made.summary,
        "parameters": [{"option": field.option, **dataclasses.asdict(field)} for field in parameters.fields(made)],
        "scopes": scopes,
        "parts": {name: dataclasses.asdict(work) for name, work in parts.items()},
        "cost": made.cost_formula,
        "published": _published(made),
        "frameworks": rows,
        "case": case,
    }
    of_parts: list[Part] = []
    if parts:
        columns = (number("flops", "FLOP"), number("bytes", "B"), number("flop_per_byte", form=".3g"))
        works = [(name, work.flops, work.bytes, work.flops / work.bytes) for name, work in parts.items()]
        of_parts.append(Table.of(["scope", *columns], works))
    if case:
        return Output(
            [*described_output(case), *(["\ncost of each scope by formula:", *of_parts] if parts else [])], data
        )
    if parts:
        title = f"cost of each scope by formula, with the defaults on a CPU ({mode}, {precision}):"
        of_parts = [Text(title, "  "), *of_parts, ""]
    shown = [
        *_problem_output(name, made, mode, scopes),
        *of_parts,
        *_published_output(_published(made)),
        *_abilities_output(rows),
    ]
    return Output(shown, data)


def _problem_output(name: str, problem: type[Problem], mode: str, scopes: list[str]) -> Iterator[Part]:
    """Yield what a problem is, its options, and the formula of its cost."""
    yield f"{clean(name)}: {clean(problem.summary)}\n"
    yield Table.of(
        ["option", "values", "default on a CPU", "on accelerators", "meaning"],
        [
            [
                field.option,
                ", ".join(field.choices) or f"{field.type} {field.range}".strip(),
                _default(field.default),
                _default(field.accelerator_default),
                field.help,
            ]
            for field in parameters.fields(problem)
        ],
    )
    yield ""
    for line in (*f"cost of a step: {problem.cost_formula}".splitlines(), f"scopes in {mode}: {', '.join(scopes)}"):
        yield Text(line, "  ")
    yield ""


def _abilities_output(rows: list[dict[str, Any]]) -> Iterator[Part]:
    """Yield what each framework supports, by device and mode, and its limits."""
    yield Table.of(
        ["framework", "device", "mode", "precisions"],
        [[row["framework"], row["device"], row["mode"], " ".join(row["precisions"]) or "-"] for row in rows],
    )
    for framework, limits in {row["framework"]: row["limits"] for row in rows}.items():
        for limit in limits:
            yield f"{framework}: {clean(limit)}"


def _published(kind: type[Problem]) -> list[dict[str, Any]]:
    """Return the figures of each published size by formula, beside those that were published."""
    rows = []
    for size in kind.published:
        problem = parameters.convert(kind, size.options)
        rows.append(
            {
                "options": dict(size.options),
                "parameters": parameter_count_of(problem),
                "published_parameters": size.parameters,
                "flops": problem.cost("inference", "fp32").flops,
                "published_flops": size.flops,
                "source": size.source,
            }
        )
    return rows


def _published_output(rows: list[dict[str, Any]]) -> Iterator[Part]:
    if not rows:
        return
    yield Text(
        "published sizes: parameters, and FLOPs of the forward pass of one step, by formula and as published:", ""
    )
    yield Table.of(
        [
            "options",
            number("parameters", form=","),
            number("published_parameters", heading="published", form=","),
            number("flops", "FLOP", "FLOPs"),
            number("published_flops", "FLOP", "published"),
            "source",
        ],
        [
            (" ".join(parameters.assignment(*option) for option in row["options"].items()), *list(row.values())[1:])
            for row in rows
        ],
    )
    yield ""


def _default(value: Any) -> str:
    return "derived" if value is None else value_text(value)


def _ability_rows(framework: str, ability: Ability | UserError) -> list[dict[str, Any]]:
    """Return a row for each device and mode of a framework, or one row with the reason why there are none."""
    if isinstance(ability, UserError):
        return [{"framework": framework, "device": "-", "mode": "-", "precisions": [], "limits": [str(ability)]}]
    support = ability.support
    limits = [f"{parameters.option(name)}={'|'.join(values)} only" for name, values in support.choices.items()]
    limits += [
        "no " + " with ".join(parameters.assignment(name, value) for name, value in rule.items())
        for rule in support.exclusions
    ]
    return [
        {
            "framework": framework,
            "device": device.platform,
            "mode": mode,
            "precisions": supported_precisions(ability.support, device, mode),
            "limits": limits,
        }
        for device in ability.info.devices
        for mode in ability.support.precisions
    ]


_INDENT = 12


def described_output(case: DescribedCase) -> Iterator[Part]:
    """Yield the parameters, the work and the memory of a case, and who can compute it."""
    needs = case.needs
    yield Text(f"{needs.title} {needs.precision}", "  ")
    if needs.parameters is not None:
        yield _line("parameters", f"{needs.parameters:,}")
    yield _line("a step", _step(needs))
    yield _line("memory", _memory(needs))
    for device in case.devices:
        yield _line(device.platform, f"{device.name}, {_fit(device)}")
    yield _line("frameworks", ", ".join(name for name, reason in case.frameworks.items() if not reason) or "none")
    for name, reason in case.frameworks.items():
        if reason:
            yield _line("", clean(f"not {name}: {reason}"))


def _line(name: str, text: str) -> Text:
    return Text(f"{name:<{_INDENT}}{text}", " " * _INDENT)


def _step(needs: Needs) -> str:
    tokens = "" if needs.tokens is None else f" ({count(needs.tokens, 'token')})"
    intensity = f", {needs.flops / needs.bytes:.4g} FLOP/byte" if needs.bytes else ""
    return (
        f"{si(needs.flops, 'FLOP')}, at least {si(needs.bytes, 'B')} moved{intensity}; "
        f"{count(needs.samples, 'sample')}{tokens}"
    )


def _memory(needs: Needs) -> str:
    if needs.memory_bytes is None:
        return f"no formula; left out: {needs.left_out}"
    parts = ", ".join(f"{name} {si(size, 'B')}" for name, size in needs.memory.items())
    return f"at least {si(needs.memory_bytes, 'B')}: {parts}; left out: {needs.left_out}"


def _fit(device: DeviceMemory) -> str:
    if device.memory_bytes is None:
        return "whose memory is not known"
    fits = {None: "", True: ": it fits, if what is left out does", False: ": it does NOT fit"}[device.fits]
    return f"{si(device.memory_bytes, 'B')}{fits}"
