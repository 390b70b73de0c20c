"""`benchmarker check`."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from benchmarker import gpus, plan, registry
from benchmarker.abilities import abilities
from benchmarker.api import MODES, Measuring, Mode
from benchmarker.cli.asking import ProblemCommand, ask, names_of, what_options
from benchmarker.cli.output import json_option, print_json, print_table
from benchmarker.conversation import converse, ending_text
from benchmarker.errors import UserError
from benchmarker.precision import PRECISIONS
from benchmarker.protocol import Request
from benchmarker.record import Check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarker.api import Case
    from benchmarker.conversation import Environment, Event

TIMEOUT_S = 600.0
FALL = 0.75
"""A loss has fallen when its last fifth lies, on average, below this share of its first value."""
AGREEMENT = 1e-3
"""Largest relative difference of two frameworks' losses at any step, in fp32 and fp64."""


@click.command("check", cls=ProblemCommand, short_help="Check a problem's implementations.")
@click.option("--framework", metavar="NAME[,NAME...]", help="Frameworks to check; else all that can be used here.")
@what_options
@click.option(
    "--steps", type=click.IntRange(min=10), metavar="N", default=40, show_default=True, help="Training steps."
)
@json_option
def command(framework: str | None, steps: int, as_json: bool, **options: Any) -> int:
    """Hold every implementation of a problem, at a small size, against its float64 reference.

    Where the problem can be trained, each framework trains it from the same weights on the same data; the losses
    must fall and agree. The exit status is 1 where anything is wrong.
    """
    question = ask(options, mode="inference", measuring=Measuring())
    asked = question.asked
    environment = gpus.environment(asked.gpu, os.environ)
    names = names_of(framework, asked.problem) if framework else registry.implementing(asked.problem)
    findings: list[Finding] = []
    losses: dict[str, list[float]] = {}
    for name, ability in abilities(asked.problem, names, environment).items():
        try:
            if isinstance(ability, UserError):
                raise ability
            case = plan.make_case(asked, question.problem, name, ability)
        except UserError as error:
            if framework:
                raise
            findings.append(Finding(name, "-", None, None, str(error)))
            continue
        modes = [mode for mode in MODES if asked.precision in ability.support.precisions.get(mode, ())]
        findings += _check(case, modes, steps, environment, losses)
    curves = _curves(losses, asked.precision)
    wrong = any(finding.ok is False for finding in findings) or not all(curve.ok for curve in curves)
    if as_json:
        print_json({"ok": not wrong, "checks": findings, "losses": losses, "curves": curves})
    else:
        _print(findings, losses, curves)
    return 1 if wrong else 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check of one mode found; `ok` is None where nothing could be checked."""

    framework: str
    mode: str
    check: Check | None
    ok: bool | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """A framework's training loss: its ends, whether it falls, and how far it is from the first framework's."""

    framework: str
    first: float
    last: float
    falls: bool
    apart: float
    bound: float

    @property
    def ok(self) -> bool:
        """Whether the loss falls and agrees."""
        return self.falls and self.apart <= self.bound


def _check(
    case: Case, modes: Sequence[Mode], steps: int, environment: Environment, losses: dict[str, list[float]]
) -> list[Finding]:
    """Check one framework's modes in one worker; a mode that did not come through is a finding as well."""
    heard: list[Event] = []
    request = Request(task="check", framework=case.framework, case=case, modes=tuple(modes), steps=steps)
    with tempfile.TemporaryDirectory(prefix="benchmarker-") as folder:
        log = Path(folder) / "log"
        ending = converse(request, environment, TIMEOUT_S, log, heard.append)
        trouble = next((event["refused"] for event in heard if "refused" in event), ending_text(ending, log))
    found: dict[str, Check] = {}
    for event in heard:
        if "check" in event:
            found[event["mode"]] = msgspec.convert(event["check"], Check)
        if "losses" in event:
            losses[case.framework] = event["losses"]
    return [
        Finding(case.framework, mode, found[mode], found[mode].ok)
        if mode in found
        else Finding(case.framework, mode, None, False, trouble)
        for mode in modes
    ]


def _curves(losses: Mapping[str, Sequence[float]], precision: str) -> list[Curve]:
    bound = max(AGREEMENT, PRECISIONS[precision].bound)
    curves = []
    for name, values in losses.items():
        others = next(iter(losses.values()))
        tail = values[-max(1, len(values) // 5) :]
        curves.append(
            Curve(
                framework=name,
                first=values[0],
                last=values[-1],
                falls=sum(tail) / len(tail) < FALL * values[0],
                apart=max(abs(a - b) / abs(b) for a, b in zip(values, others, strict=True)),
                bound=bound,
            )
        )
    return curves


def _print(findings: Sequence[Finding], losses: Mapping[str, Sequence[float]], curves: Sequence[Curve]) -> None:
    rows = []
    for finding in findings:
        found = finding.check
        cells = [f"{found.error:.2g}", f"{found.bound:.2g}", found.output] if found else ["-", "-", "-"]
        verdict = {True: "ok", False: "WRONG", None: "not checked:"}[finding.ok]
        rows.append([finding.framework, finding.mode, *cells, f"{verdict} {finding.note}".strip()])
    print_table(["framework", "mode", "error", "bound", "worst output", "verdict"], rows)
    if not curves:
        return
    count = len(next(iter(losses.values())))
    shown = sorted({*range(0, count, max(1, count // 8)), count - 1})
    click.echo("\nTraining loss from the same weights on the same data:")
    print_table(
        ["step", *losses],
        [[str(step), *(f"{values[step]:.5f}" for values in losses.values())] for step in shown],
    )
    click.echo()
    for curve in curves:
        click.echo(
            f"{curve.framework}: the loss {'falls' if curve.falls else 'DOES NOT FALL'} "
            f"from {curve.first:.4f} to {curve.last:.4f} "
            f"and {'agrees' if curve.apart <= curve.bound else 'DISAGREES'} with that of {curves[0].framework} "
            f"(largest difference {curve.apart:.1e}, bound {curve.bound:.1e})"
        )
