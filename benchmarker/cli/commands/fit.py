"""`benchmarker fit`."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import ALL, Output, output_options
from benchmarker.cli.options.results import pool_option, read_cases, results_argument
from benchmarker.comparing.fits import LEAST, Fit, fits
from benchmarker.display.cases import case_columns
from benchmarker.display.result import Part, Text
from benchmarker.formatting import with_interval
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import store
from benchmarker.records.factors import varying
from benchmarker.tables.table import Column, Shown, Table, interval, number


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

    RESULT is a record, the folder of a run, a folder of runs, or an archive; of several folders, each is a side.

      benchmarker sweep --framework=torch --problem=transfer --bytes=4K..1G

      benchmarker fit results/RUN --over=bytes

    The exit status is 1 if a file cannot be read.
    """
    cases, derive = read_cases(results, pool), load_metrics(results)
    found = fits(cases, over, derive)
    if not found:
        differ = varying([case.factors for case in cases])
        numbers = [name for name in differ if type(cases[0].factors.get(name)) in (int, float)]
        raise UserError(
            f"--over={over}: no case has {LEAST} values of it with step times that grow; what varies: "
            f"{', '.join(numbers) or 'no number'}"
        )
    return Output(
        _parts(found, "B/s" if over == "bytes" else "1/s", wide=wide),
        [_data(each) for each in found],
        1 if cases.faults else 0,
    )


def _data(each: Fit) -> dict[str, Any]:
    return {"configuration": each.factors, "trials": each.rounds, **dataclasses.asdict(each.line)}


def _parts(found: Sequence[Fit], unit: str, *, wide: bool) -> Iterator[Part]:
    columns = case_columns([each.factors for each in found], wide=wide)
    yield from columns.shared
    filled = [*columns.columns]
    for name, unit_of, of in (
        ("start", "s", [each.line.start for each in found]),
        ("rate", unit, [each.line.rate for each in found]),
    ):
        texts = [with_interval(each.value, each.low, each.high, unit_of) for each in of]
        filled.append((Column(name), [Shown(each.value, text) for each, text in zip(of, texts, strict=True)]))
        filled += interval(name, [(each.low, each.high) for each in of])
    filled.append((number("residual", form=".1%"), [each.line.residual for each in found]))
    filled.append((number("trials"), [each.rounds for each in found]))
    yield Table.of_columns(filled, drop=["trials"], ordered=True)
    if any(each.line.start.low is None for each in found):
        yield Text("note: too few trials for intervals; --trials=6 or more give them", "  ")
