"""`benchmarker check`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import click
import msgspec

from benchmarker.api.case import MODES, Case, Mode
from benchmarker.api.errors import UserError
from benchmarker.api.problem import FUNCTION
from benchmarker.cli.display.output import Output, output_options
from benchmarker.cli.display.progress import progress_options, working
from benchmarker.cli.options.case import WHAT, case_options
from benchmarker.cli.options.problem import ProblemCommand, ask, names_of
from benchmarker.cli.options.types import Integer, frameworks_option
from benchmarker.display.result import Part
from benchmarker.hooks import registry
from benchmarker.machine import gpus
from benchmarker.planning import build
from benchmarker.planning.capabilities import abilities
from benchmarker.planning.cases import make_case
from benchmarker.running.check import Curve, Finding, check_modes, compare_losses
from benchmarker.tables.table import NOTHING, Column, Table, number


@click.command("check", cls=ProblemCommand, example="check --problem=gemm")
@frameworks_option("Frameworks to check. [default: all available here]")
@case_options(*WHAT)
@click.option("--steps", type=Integer(min=40), metavar="N", default=40, help="Training steps.")
@progress_options
@output_options(form=False)
def command(framework: str | None, steps: int, **options: Any) -> Output:
    """Check every implementation of a problem against its float64 reference, at a small size.

    Of your own file, named as in `run`, every function is checked, at the size of its options.

    If the problem can be trained, each framework trains it from the same weights on the same data; the losses must
    fall and agree. The exit status is 1 if any check fails.
    """
    question = ask(options)
    asked = question.asked
    environment = gpus.environment(asked.gpu, os.environ)
    names = names_of(framework, asked.problem) if framework else registry.available(asked.problem)
    findings: list[Finding] = []
    losses: dict[str, list[float]] = {}
    with working(f"querying the capabilities of {', '.join(names)}"):
        supported = abilities(asked.problem, names, environment)
    given = asked.params
    functions = build.functions_of(asked.problem) if FUNCTION not in given else ()
    requests = [msgspec.structs.replace(asked, params={**given, FUNCTION: each}) for each in functions] or [asked]
    for (name, ability), request in product(supported.items(), requests):
        cases: dict[Mode, Case] = {}
        trouble = []
        for mode in MODES:
            try:
                if isinstance(ability, UserError):
                    raise ability
                cases[mode] = make_case(msgspec.structs.replace(request, mode=mode), question.problem, name, ability)
            except UserError as error:
                trouble.append(error)
        if not cases and framework:
            raise trouble[0]
        if not cases:
            findings.append(Finding(name, "-", None, None, str(trouble[0])))
            continue
        modes = list(cases)
        case = cases[modes[0]]
        which = f"{case.params[FUNCTION]} in {name}" if functions else name
        with working(f"checking {which}: {', '.join(modes)}"):
            findings += check_modes(case, modes, steps, environment, losses)
    curves = compare_losses(losses, asked.precision)
    wrong = any(finding.ok is False for finding in findings) or not all(curve.ok for curve in curves)
    data = {"ok": not wrong, "checks": findings, "losses": losses, "curves": curves}
    return Output(_output(findings, losses, curves), data, 1 if wrong else 0)


def _output(
    findings: Sequence[Finding], losses: Mapping[str, Sequence[float]], curves: Sequence[Curve]
) -> Iterator[Part]:
    rows = []
    for finding in findings:
        check = finding.check
        of_element = check.componentwise if check else None
        cells = (
            *((check.error, check.bound) if check else (None, None)),
            *((of_element.error, of_element.bound) if of_element else (None, None)),
            check.output if check else NOTHING,
        )
        verdict = {True: "ok", False: "WRONG", None: "not checked:"}[finding.ok]
        rows.append((finding.function, finding.framework, finding.mode, *cells, f"{verdict} {finding.note}".strip()))
    has_elements = any(finding.check and finding.check.componentwise for finding in findings)
    of_elements = ("componentwise_error", "componentwise_bound")
    columns = (
        *(number(name, form=".2g") for name in ("error", "bound")),
        *(
            number(name, heading=heading, form=".2g", only="" if has_elements else "data")
            for name, heading in zip(of_elements, ("by element", "its bound"), strict=True)
        ),
    )
    function = Column("function", only="" if any(finding.function for finding in findings) else "data")
    yield Table.of([function, "framework", "mode", *columns, "worst output", "verdict"], rows)
    if not curves:
        return
    count = len(next(iter(losses.values())))
    shown = sorted({*range(0, count, max(1, count // 8)), count - 1})
    yield "\nTraining loss from the same weights on the same data:"
    of_frameworks = (number(name, heading=name, form=".5f") for name in losses)
    yield Table.of(
        [number("step"), *of_frameworks], [(step, *(values[step] for values in losses.values())) for step in shown]
    )
    yield ""
    for curve in curves:
        falls = "falls" if curve.falls else "DOES NOT FALL"
        text = f"{curve.framework}: the loss {falls} from {curve.first:.4f} to {curve.last:.4f}"
        if curve is not curves[0]:
            agrees = "agrees" if curve.apart <= curve.bound else "DISAGREES"
            text += f" and {agrees} with that of {curves[0].framework}"
            text += f" (largest relative difference {curve.apart:.1e}, bound {curve.bound:.1e})"
        yield text
