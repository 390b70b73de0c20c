"""`benchmarker describe`."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from benchmarker.api.case import MODES, CaseRequest
from benchmarker.api.errors import UserError
from benchmarker.cli.display.described import print_case
from benchmarker.cli.display.output import json_option, print_json, print_table, print_text
from benchmarker.cli.display.progress import working
from benchmarker.cli.options import completion
from benchmarker.cli.options.case import case_options
from benchmarker.cli.options.problem import ProblemCommand, problem_of
from benchmarker.formatting import clean, si, value_text
from benchmarker.hooks import parameters, registry
from benchmarker.machine import gpus
from benchmarker.planning.capabilities import abilities
from benchmarker.planning.cases import supported_precisions
from benchmarker.planning.needs import describe_case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarker.api.case import Mode
    from benchmarker.api.problem import Problem, Work
    from benchmarker.planning.cases import Ability


@click.command("describe", cls=ProblemCommand, argument=True)
@click.argument("problem", shell_complete=completion.plugins("problem"))
@case_options("mode", "precision", "device")
@json_option
def command(mode: Mode, precision: str, device: str, as_json: bool, **options: Any) -> None:
    """Describe a problem: its options, its cost, its scopes, and what each framework supports here.

    With options, as `run` takes them, describe that case: its parameters, the work of a step, and the memory that it
    needs at least beside that of the device. Nothing is measured.
    """
    name = options["problem"]
    made, given = problem_of(options)
    parameters.resolve(made, given, "cpu")
    names = registry.implementing(name)
    with working(f"querying the capabilities of {', '.join(names)}"):
        supported = abilities(name, names, gpus.environment(None, os.environ))
    rows = [row for framework, ability in supported.items() for row in _ability_rows(framework, ability)]
    case = None
    if given or any(map(_is_given, ("mode", "precision", "device"))):
        asked = CaseRequest(problem=name, mode=mode, precision=precision, device=device, params=given)
        case = describe_case(made, asked, supported)
        values = case.needs.params
    else:
        done = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
        mode, values = (done or MODES)[-1], parameters.resolve(made, {}, "cpu")
    params = made.params(**values)
    scopes, parts = list(made.scopes(params, mode)), made.parts(params, mode, precision)
    if as_json:
        fields = parameters.fields(made)
        print_json(
            {
                "problem": name,
                "summary": made.summary,
                "parameters": [{"option": field.option, **dataclasses.asdict(field)} for field in fields],
                "scopes": scopes,
                "parts": {name: dataclasses.asdict(work) for name, work in parts.items()},
                "cost": made.cost_formula,
                "published": _published(made),
                "frameworks": rows,
                "case": case,
            }
        )
    elif case:
        print_case(case)
        if parts:
            click.echo("\ncost of each scope by formula:")
            _print_parts(parts)
    else:
        _print_problem(name, made, scopes)
        if parts:
            click.echo(f"cost of each scope by formula, with the defaults on a CPU ({mode}, {precision}):")
            _print_parts(parts)
            click.echo()
        if published := _published(made):
            _print_published(published)
        _print_abilities(rows)


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _print_problem(name: str, problem: Problem, scopes: list[str]) -> None:
    """Print what a problem is, its options, and the formula of its cost."""
    click.echo(f"{name}: {problem.summary}\n")
    print_table(
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
    click.echo()
    for line in (*f"cost of a step: {problem.cost_formula}".splitlines(), f"scopes: {', '.join(scopes)}"):
        print_text(line, "  ")
    click.echo()


def _print_parts(parts: Mapping[str, Work]) -> None:
    rows = [_part_row(name, work) for name, work in parts.items()]
    print_table(["scope", "flops", "bytes", "flop/byte"], rows)


def _print_abilities(rows: list[dict[str, Any]]) -> None:
    """Print what each framework supports, by device and mode, and its limits."""
    print_table(
        ["framework", "device", "mode", "precisions"],
        [[row["framework"], row["device"], row["mode"], " ".join(row["precisions"]) or "-"] for row in rows],
    )
    for framework, limits in {row["framework"]: row["limits"] for row in rows}.items():
        for limit in limits:
            click.echo(f"{framework}: {clean(limit)}")


def _part_row(name: str, work: Work) -> list[str]:
    return [name, si(work.flops, "FLOP"), si(work.bytes, "B"), f"{work.flops / work.bytes:.3g}"]


def _published(problem: Problem) -> list[dict[str, Any]]:
    """Return the figures of each published size by formula, beside those that were published."""
    rows = []
    for each in problem.published:
        params = problem.params(**each.options)
        rows.append(
            {
                "options": dict(each.options),
                "parameters": problem.parameter_count(params),
                "published_parameters": each.parameters,
                "flops": problem.cost(params, "inference", "fp32").flops,
                "published_flops": each.flops,
                "source": each.source,
            }
        )
    return rows


def _print_published(rows: list[dict[str, Any]]) -> None:
    def count(value: int | None) -> str:
        return "-" if value is None else f"{value:,}"

    def flops(value: float | None) -> str:
        return "-" if value is None else si(value, "FLOP")

    print_text(
        "published sizes: parameters, and FLOPs of the forward pass of one step, by formula and as published:", ""
    )
    print_table(
        ["options", "parameters", "published", "FLOPs", "published", "source"],
        [
            [
                " ".join(parameters.assignment(name, value) for name, value in row["options"].items()),
                count(row["parameters"]),
                count(row["published_parameters"]),
                flops(row["flops"]),
                flops(row["published_flops"]),
                row["source"],
            ]
            for row in rows
        ],
    )
    click.echo()


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
