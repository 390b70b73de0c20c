"""`benchmarker ceilings`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarker.api.errors import UserError
from benchmarker.cli.ceiling_measurement import QUICK_NOTE, keep, measure_quickly, plan_of
from benchmarker.cli.display.output import ALL, OUTPUT, Output, output_options
from benchmarker.cli.display.progress import Progress, progress_options
from benchmarker.cli.options.case import case_options
from benchmarker.cli.options.problem import names_of
from benchmarker.cli.options.results import tell_unread
from benchmarker.cli.options.types import Integer, frameworks_option, refuse_given, results_option
from benchmarker.display.result import Part, Text
from benchmarker.formatting import duration_text, names_in, si
from benchmarker.planning.ceiling_search import ceilings_of, resource_of, thorough_s
from benchmarker.records import ceilings, store
from benchmarker.records.ceilings import Ceiling
from benchmarker.records.factors import Value, label
from benchmarker.records.plan import Plan
from benchmarker.roofline.roofs import vendor_peak
from benchmarker.running.ceilings import measure
from benchmarker.tables.table import Cell, Column, Shown, Table, number

_OF_THOROUGH = ("trials", "results", "resume")
_ONE = ("batch_size", 1)


@click.command("ceilings")
@frameworks_option("Frameworks to measure with. [default: all that have the device]", "frameworks")
@click.option(
    "--precision",
    "precisions",
    metavar="NAME[,NAME...]",
    default="fp32",
    help="Precisions of the matrix products; copy and triad are always measured in fp32.",
)
@click.option("--device", default="auto", help="Platform: cpu, cuda, ...; or auto.")
@case_options("gpu")
@click.option(
    "--thorough",
    is_flag=True,
    help="Try more sizes, and measure the fastest of each kind again in fresh processes; takes about 20 minutes.",
)
@click.option(
    "--threads", type=Integer(min=1), help="CPU threads; the ceilings then apply only to trials with as many threads."
)
@click.option(
    "--trials",
    type=Integer(min=1),
    default=5,
    help="With --thorough: trials (fresh processes) that measure each winner of the search again.",
)
@results_option("With --thorough: folder for the records.")
@click.option(
    "--resume", is_flag=True, help="With --thorough: continue the newest unfinished measurement with the same options."
)
@click.option("--known", "only_known", is_flag=True, help="Measure nothing; show the stored ceilings.")
@progress_options
@output_options(top=ALL)
def command(
    frameworks: str | None,
    precisions: str,
    device: str,
    gpu: int | None,
    thorough: bool,
    threads: int | None,
    trials: int,
    results: Path,
    resume: bool,
    only_known: bool,
) -> Output:
    """Measure the device's peak FLOP/s (matrix products) and peak memory bandwidth in bytes/s (copy and triad).

    It also measures in bytes/s how fast products of one row (matvec) and of eight rows (matvec_8) read a weight matrix,
    which limits text generation; matvec_small and matvec_8_small do so for small matrices.

    This takes about half a minute for each framework and precision: one process for each framework tries a few sizes,
    and the fastest of each kind is the ceiling; LOW and HIGH are the slowest and the fastest of its timed blocks.

    With --thorough, more sizes are tried, and the fastest of each kind is measured again in --trials fresh processes.
    The ceiling is the median of these; LOW and HIGH are their minimum and maximum. It replaces a quick one.

    Ceilings are stored for the current user, by device, framework and precision. `roofline`, `predict`, `report` and
    the metrics mfu_measured and roof_share use them.

    The exit status is 1 if something requested was not measured.
    """
    if only_known:
        others = {param.name or "" for param in click.get_current_context().command.params} - {"only_known", *OUTPUT}
        refuse_given(others, "--known measures nothing and shows all stored ceilings; leave {} out")
        known = ceilings.known()
        tell_unread(known.faults)
        return Output(_output(known.known), [_plain(ceiling) for ceiling in known.known], 1 if known.faults else 0)
    if not thorough:
        refuse_given(_OF_THOROUGH, "{} is of a thorough measurement; add --thorough, or leave it out")
    names = names_of(frameworks, "gemm") if frameworks else None
    where = {"device": device, "gpu": gpu, "threads": threads}
    wanted = names_in(precisions)
    if not wanted:
        raise UserError("--precision names no precision")
    if thorough:
        plan = plan_of(names, wanted, where)
        with Progress() as progress:
            for reason in plan.left_out:
                progress.say(f"left out: {reason}")
            searched, measured, folder = measure(plan, trials, results, progress, resume=resume)
        highest = ceilings_of(searched, measured)
        keep(highest, folder / store.CEILINGS)
        records = [*searched, *measured]
    else:
        plan, measured, highest = measure_quickly(names, wanted, where)
        records = measured
    missing = _missing(plan, wanted, highest)
    told = [f"failed: {record.trial_id}: {record.error.message}" for record in records if record.error]
    told += [f"not measured: {kind}" for kind in missing]
    if not thorough:
        about = duration_text(thorough_s(plan, trials))
        told.append(f"note: {QUICK_NOTE}; --thorough measures them in about {about}")
    return Output(
        _output(highest),
        [_plain(ceiling) for ceiling in highest],
        1 if missing or any(record.error for record in measured) else 0,
        notes=[Text(text, err=True) for text in told],
        stored=f"records: {folder}" if thorough else "",
    )


def _missing(plan: Plan, precisions: Sequence[str], highest: Sequence[Ceiling]) -> list[str]:
    """Return the kinds of a search that have no ceiling, and the precisions that no framework supports here."""
    had = {(ceiling.resource, ceiling.framework, ceiling.precision) for ceiling in highest}
    kinds = dict.fromkeys((resource_of(case), case.framework, case.precision) for case in plan.cases)
    done = {precision for resource, _, precision in kinds if resource == "compute"}
    return [
        *(" ".join(kind) for kind in kinds if kind not in had),
        *(precision for precision in precisions if precision not in done),
    ]


def _output(shown: Sequence[Ceiling]) -> Iterator[Part]:
    """Yield the ceilings, highest first for each device, resource and precision, with the vendor's peak if known."""
    if not shown:
        yield "no ceiling is known; run `benchmarker ceilings` to measure those of this device"
        return
    ordered = sorted(
        shown, key=lambda ceiling: (str(ceiling.device), ceiling.resource, ceiling.precision, -ceiling.value)
    )
    columns: list[str | Column] = [
        *("device", "resource", "precision", "framework", "ceiling", "low", "high"),
        *(Column("unit", only="data"), "method", number("trials"), "parameters", "measured"),
    ]
    rows = [_row(ceiling) for ceiling in ordered]
    if any(map(vendor_peak, ordered)):
        columns += ["vendor peak", number("of peak", form=".0%")]
        rows = [(*row, *_beside(ceiling)) for row, ceiling in zip(rows, ordered, strict=True)]
    drop = ["vendor peak", "of peak", "trials", "parameters", "measured", "high", "low", "method"]
    yield Table.of(columns, rows, drop=drop, ordered=True)


def _row(ceiling: Ceiling) -> tuple[Cell, ...]:
    return (
        str(ceiling.device),
        ceiling.resource,
        ceiling.precision,
        f"{ceiling.framework} {ceiling.execution}",
        *(Shown(value, si(value, ceiling.unit)) for value in (ceiling.value, ceiling.low, ceiling.high)),
        ceiling.unit,
        ceiling.method,
        ceiling.trials,
        label(ceiling.params, list(_shown(ceiling))),
        ceiling.measured_at[:10],
    )


def _beside(ceiling: Ceiling) -> tuple[Cell, Cell]:
    """Return the vendor's peak and the share of it that was reached."""
    vendor = vendor_peak(ceiling)
    return Shown(vendor, si(vendor, ceiling.unit)), None if vendor is None else ceiling.value / vendor


def _shown(ceiling: Ceiling) -> dict[str, Value]:
    """Return the parameters that identify the winner."""
    return {name: value for name, value in ceiling.params.items() if value is not False and (name, value) != _ONE}


def _plain(ceiling: Ceiling) -> dict[str, Any]:
    return {**msgspec.to_builtins(ceiling), "unit": ceiling.unit, "vendor_peak": vendor_peak(ceiling)}
