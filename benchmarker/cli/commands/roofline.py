"""`benchmarker roofline`."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
from msgspec import structs

from benchmarker.api.errors import UserError
from benchmarker.api.precision import PRECISIONS
from benchmarker.cli.ceiling_measurement import is_lacking_here, measure_option, measured_for
from benchmarker.cli.display.output import TOP, Output, output_options
from benchmarker.cli.display.profiles import from_result
from benchmarker.cli.options.results import mixed_output, pool_option, read_cases, results_argument, tell_unread
from benchmarker.cli.options.roof import roof_option, roof_output
from benchmarker.cli.options.types import Choice, figure_option
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, si, with_interval
from benchmarker.hooks.cases import Cases
from benchmarker.library.results import traces_among
from benchmarker.page import plots
from benchmarker.records import ceilings
from benchmarker.roofline.model import BEYOND, Level, Roofline, beyond, of_trace, rooflines
from benchmarker.roofline.roofs import Source, named_roof
from benchmarker.tables.shortening import WIDEST, apart
from benchmarker.tables.table import Cell, Column, Filled, Shown, Table, interval, number

DROPPED = ("predicted", "attainable", "intensity", "achieved")
"""Columns that a narrow terminal does not show, the least important first."""


@click.command("roofline")
@results_argument
@click.option(
    "--level",
    type=Choice(get_args(Level)),
    help="Show only steps, phases of text generation, scopes or kernels; the last two need profiled trials. "
    "[default: all]",
)
@roof_option
@measure_option
@click.option("--device", metavar="NAME", help="The device of a trace, such as 'NVIDIA H100 80GB HBM3'.")
@click.option("--precision", type=Choice(list(PRECISIONS)), metavar="NAME", help="The precision of a trace.")
@pool_option
@figure_option("Write the rooflines")
@output_options(top=TOP)
def command(
    results: tuple[Path, ...],
    level: Level | None,
    source: Source,
    measure: bool,
    device: str | None,
    precision: str | None,
    pool: bool,
    wide: bool,
    output: Path | None,
) -> Output:
    """Show how close steps, scopes and kernels come to the roofline of their device.

    RESULT is a record, the folder of a run, a folder of runs, or an archive; of several folders, each is a side. Or all
    are profiler traces or event tables, which do not name their device and precision: give both.

    INTENSITY is the work in FLOP per byte. The attainable FLOP/s are the smaller of the peak and the bandwidth times
    the intensity. SHARE is the minimum time that this allows divided by the measured time. FLOPs and bytes of steps and
    scopes are computed by formula, those of kernels from their shapes.

    The exit status is 1 if a file cannot be read or a record has no roof, and 2 if no record has a roof.
    """
    traces = traces_among(results)
    if traces and not (device and precision):
        raise UserError("a trace does not name its device and precision; give --device=NAME and --precision=NAME")
    cases = Cases(()) if traces else read_cases(results, pool)
    if cases and (device or precision):
        raise UserError("records name their device and precision; leave --device and --precision out")
    if measure and (traces or source == "vendor"):
        raise UserError("--measure needs records and the roof that is measured; leave it out")
    known = ceilings.known(results)
    if measure:
        measured_for(list(cases.records), known)
        known = ceilings.known(results)
    tell_unread(known.faults)
    reasons: list[str] = []
    if traces and device and precision:
        roof = named_roof(device, precision, known, source)
        profiled = [(str(path), from_result(path)) for path in traces]
        modelled = [of_trace(name, ingested.trace, ingested.kernels(), roof) for name, ingested in profiled]
    else:
        modelled, reasons = rooflines(cases, known, source)
    if not (measure or source == "vendor") and any(is_lacking_here(record, known) for record in cases.records):
        reasons = [f"{reason}, or add --measure" for reason in reasons]
    if not modelled:
        raise UserError("; ".join(reasons) or "every trial failed")
    if level:
        modelled = [
            structs.replace(roofline, points=[point for point in roofline.points if point.level == level])
            for roofline in modelled
        ]
    if output:
        from benchmarker.page.rooflines import Modelled, roofs_figure

        figure = roofs_figure([Modelled(each.configuration, each) for each in modelled])
        if figure is None:
            raise UserError("no work with FLOPs to draw")
        click.echo(plots.save(figure, output), err=True)
    status = 1 if cases.faults or known.faults or reasons else 0
    parts = [*(part for roofline in modelled for part in _output(roofline, level, wide=wide))]
    if beyond(modelled):
        parts.append(Text(f"note: {BEYOND}", "  "))
    parts += [Text(f"no roof: {reason}", "  ") for reason in reasons]
    return Output([*parts, *mixed_output(cases)], {"rooflines": modelled, "without": reasons}, status)


def _output(roofline: Roofline, level: Level | None, *, wide: bool) -> Iterator[Part]:
    """Yield the roof on one line, then a table of the work under it."""
    yield Text(f"{roofline.configuration} ({count(roofline.trials, 'trial')})", "  ")
    yield from roof_output(roofline.roof)
    if roofline.model_s is not None:
        ratio = "" if roofline.of_model is None else f"; measured: {roofline.of_model:.3g} times that"
        yield Text(f"  sum of its parts, each at the roof: {si(roofline.model_s, 's')}{ratio}", "    ")
    points = roofline.points
    if not points:
        yield f"  no {level}" if level in ("step", "phase") else f"  no {level or 'step'} to show: run with --profile"
        return
    names = [point.name for point in points]
    shown = names if wide else apart(names, WIDEST)
    achieved = [(point.achieved or None, point.achieved_low or None, point.achieved_high or None) for point in points]
    filled: list[Filled] = [
        (Column("level", levels=("",)), [point.level for point in points]),
        (Column("name"), [Shown(point.name, name) for point, name in zip(points, shown, strict=True)]),
        (number("flop_per_byte", heading="intensity", form=".3g"), [point.intensity for point in points]),
        (number("attainable_flop_per_s", "FLOP/s", "attainable"), [point.attainable or None for point in points]),
        (number("achieved_flop_per_s", "FLOP/s", "achieved"), [_achieved(*each) for each in achieved]),
        *interval("achieved_flop_per_s", [(low, high) for _, low, high in achieved]),
        (Column("bound_by", levels=("bound by",)), [point.bound for point in points]),
        (number("share", "%"), [point.share for point in points]),
        (number("measured_s", "s"), [point.time_s for point in points]),
        (number("predicted_s", "s"), [point.predicted_s for point in points]),
    ]
    yield Table.of_columns(filled, drop=DROPPED, cut=["name"], ordered=True)
    yield ""


def _achieved(value: float | None, low: float | None, high: float | None) -> Cell:
    return value if value is None or low is None else Shown(value, with_interval(value, low, high, "FLOP/s"))
