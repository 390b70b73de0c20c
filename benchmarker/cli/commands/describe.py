"""`benchmarker describe`."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import click

from benchmarker.api.case import MODES
from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import json_option, print_json, print_table
from benchmarker.cli.display.progress import working
from benchmarker.cli.options import completion
from benchmarker.formatting import clean, si
from benchmarker.hooks import parameters, registry
from benchmarker.machine import gpus
from benchmarker.planning.capabilities import abilities
from benchmarker.planning.cases import able

if TYPE_CHECKING:
    from benchmarker.api.problem import Problem, Work
    from benchmarker.planning.cases import Ability


@click.command("describe")
@click.argument("problem", shell_complete=completion.plugins("problem"))
@json_option
def command(problem: str, as_json: bool) -> None:
    """Describe a problem: its options, its cost, its scopes, and what each framework supports here."""
    made = registry.load([f"problem.{problem}"]).hook.make_problem()
    fields = parameters.fields(made)
    environment = gpus.environment(None, os.environ)
    names = registry.implementing(problem)
    with working(f"querying the capabilities of {', '.join(names)}"):
        able = abilities(problem, names, environment)
    rows = [row for framework, ability in able.items() for row in _ability_rows(framework, ability)]
    done = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
    scopes = list(made.scopes(made.params(), done[-1])) if done else []
    parts = made.parts(made.params(), done[-1], "fp32") if done else {}
    published = _published(made)
    if as_json:
        print_json(
            {
                "problem": problem,
                "summary": made.summary,
                "parameters": [{"option": field.option, **dataclasses.asdict(field)} for field in fields],
                "scopes": scopes,
                "parts": {name: dataclasses.asdict(work) for name, work in parts.items()},
                "cost": made.cost_formula,
                "published": published,
                "frameworks": rows,
            }
        )
        return
    click.echo(f"{problem}: {made.summary}\n")
    print_table(
        ["option", "values", "default on a CPU", "on accelerators", "meaning"],
        [
            [
                field.option,
                "|".join(field.choices) or f"{field.type} {field.range}".strip(),
                _default(field.default),
                _default(field.accelerator_default),
                field.help,
            ]
            for field in fields
        ],
    )
    click.echo(f"\ncost of a step: {made.cost_formula}\nscopes: {', '.join(scopes)}\n")
    if parts:
        click.echo(f"cost of each scope by formula, with the defaults on a CPU ({done[-1]}, fp32):")
        print_table(["scope", "flops", "bytes", "flop/byte"], [_part_row(name, parts[name]) for name in scopes])
        click.echo()
    if published:
        _print_published(published)
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

    click.echo("published sizes: parameters, and FLOPs of the forward pass of one step, by formula and as published:")
    print_table(
        ["options", "parameters", "published", "FLOPs", "published", "source"],
        [
            [
                " ".join(f"{parameters.option(name)}={value}" for name, value in row["options"].items()),
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
    if value is None:
        return "derived"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ability_rows(framework: str, ability: Ability | UserError) -> list[dict[str, Any]]:
    """Return a row for each device and mode of a framework, or one row with the reason why there are none."""
    if isinstance(ability, UserError):
        return [{"framework": framework, "device": "-", "mode": "-", "precisions": [], "limits": [str(ability)]}]
    support = ability.support
    limits = [f"{parameters.option(name)}={'|'.join(values)} only" for name, values in support.choices.items()]
    limits += [
        "no " + " with ".join(f"{parameters.option(name)}={value}" for name, value in rule.items())
        for rule in support.exclusions
    ]
    return [
        {
            "framework": framework,
            "device": device.platform,
            "mode": mode,
            "precisions": able(ability.support, device, mode),
            "limits": limits,
        }
        for device in ability.info.devices
        for mode in ability.support.precisions
    ]
