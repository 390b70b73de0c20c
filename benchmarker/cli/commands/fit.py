"""`benchmarker fit`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.api.fields import LARGEST
from benchmarker.cli.display.output import ALL, Output, output_options
from benchmarker.cli.options.results import pool_option, read_cases, results_argument
from benchmarker.display.cases import case_columns
from benchmarker.display.result import Part, Text
from benchmarker.formatting import si
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import store
from benchmarker.records.factors import varying
from benchmarker.records.step_times import STEP_TIME
from benchmarker.stats.line import Line, line
from benchmarker.tables.table import Column, Shown, Table, interval, number

if TYPE_CHECKING:
    from benchmarker.hooks.cases import Configuration
    from benchmarker.records.factors import Factors
    from benchmarker.stats.quantile_interval import Estimate

LEAST = 3
"""Sizes through which a line says anything."""


@click.command("fit")
@results_argument
@click.option("--over", metavar="PARAMETER", required=True, help="The size of a step: bytes, kernels, n, ...")
@pool_option
@store.uncollected()
@output_options(top=ALL)
def command(results: tuple[Path, ...], over: str, pool: bool, wide: bool) -> Output:
    """Fit a line to the step times of cases that differ in a size: latency, and the rate that large sizes approach.

    A step of size n is taken to last t₀ + n/r: t₀, START, is its time at size 0, as the latency of a transfer, and r,
    RATE, that of a step so large that t₀ does not matter, as its bandwidth. A line is fitted to each round of trials;
    shown are the medians, with 95% intervals from six trials on. RESIDUAL is the largest relative distance of a case
    from the line: if it is large, the times do not lie on one.

    RESULT is a record, the folder of a run, or a folder of runs; of several folders, each is a side.

      benchmarker sweep --framework=torch --problem=transfer --bytes=4K..1G

      benchmarker fit results/RUN --over=bytes

    The exit status is 1 if a file cannot be read.
    """
    cases, derive = read_cases(results, pool), load_metrics(results)
    series: dict[bytes, list[Configuration]] = {}
    for case in cases:
        size = case.factors.get(over)
        if case.ok and isinstance(size, int | float) and not isinstance(size, bool) and 0 <= size < LARGEST:
            series.setdefault(msgspec.json.encode({**case.factors, over: None}), []).append(case)
    found: list[tuple[Factors, int, Line]] = []
    for of in series.values():
        sizes = np.array([case.factors[over] for case in of], float)
        rounds = [*zip(*([derive(record)[STEP_TIME].value for record in case.ok] for case in of), strict=False)]
        if len(of) >= LEAST and (fitted := line(sizes, np.array(rounds, float))):
            found.append(({**of[0].factors, over: f"{min(sizes):.0f}..{max(sizes):.0f}"}, len(rounds), fitted))
    if not found:
        differ = varying([case.factors for case in cases])
        numbers = [name for name in differ if type(cases[0].factors.get(name)) in (int, float)]
        raise UserError(
            f"--over={over}: no case has {LEAST} values of it with step times that grow; what varies: "
            f"{', '.join(numbers) or 'no number'}"
        )
    return Output(
        _parts(found, "B/s" if over == "bytes" else "1/s", wide=wide),
        [_data(*each) for each in found],
        1 if cases.faults else 0,
    )


def _data(factors: Factors, rounds: int, fitted: Line) -> dict[str, Any]:
    return {"configuration": factors, "trials": rounds, **dataclasses.asdict(fitted)}


def _parts(found: Sequence[tuple[Factors, int, Line]], unit: str, *, wide: bool) -> Iterator[Part]:
    columns = case_columns([factors for factors, _, _ in found], wide=wide)
    yield from columns.shared
    lines = [fitted for _, _, fitted in found]
    filled = [*columns.columns]
    for name, unit_of, of in (
        ("start", "s", [each.start for each in lines]),
        ("rate", unit, [each.rate for each in lines]),
    ):
        filled.append((Column(name), [Shown(each.value, _with_interval(each, unit_of)) for each in of]))
        filled += interval(name, [(each.low, each.high) for each in of])
    filled.append((number("residual", form=".1%"), [each.residual for each in lines]))
    filled.append((number("trials"), [rounds for _, rounds, _ in found]))
    yield Table.of_columns(filled, drop=["trials"], ordered=True)
    if any(each.start.low is None for each in lines):
        yield Text("note: too few trials for intervals; --trials=6 or more give them", "  ")


def _with_interval(of: Estimate, unit: str) -> str:
    ends = [si(end, unit, 3) for end in (of.low, of.high) if end is not None]
    return si(of.value, unit, 3) + (f" [{', '.join(ends)}]" if ends else "")
