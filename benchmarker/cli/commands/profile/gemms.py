"""`benchmarker profile gemms`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import TOP, Output, output_options
from benchmarker.cli.display.profiles import column_of, frame_table, headline, notes_on, plain
from benchmarker.cli.display.progress import working
from benchmarker.cli.options.results import result_argument
from benchmarker.cli.options.roof import roof_option
from benchmarker.cli.options.types import Choice
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, si
from benchmarker.records import ceilings
from benchmarker.roofline.roofs import measured_roof, named_roof, vendor_roof
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.records.record import Record
    from benchmarker.roofline.roofs import Roof, Source
    from benchmarker.traces.profile_files import Profile

_PRECISIONS = {"f64": "fp64", "f32": "fp32", "bf16": "bf16", "f16": "fp16", "s8": "int8"}
_PRECISIONS |= dict.fromkeys(("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"), "fp8")
"""The precision in which products of each type are computed, unless another is stated."""
_WIDE = ("bytes", "bytes_per_s", "flops", "op")
_DROPPED = ("kernel", "op", "flop", "bytes", "bytes/s", "batch", "share", "count", "layout", "time")
"""Columns that a narrow terminal does not show, the least important first."""
_HEADINGS = {
    "total_ns": "time",
    "flops": "flop",
    "flop_per_s": "flop/s",
    "bytes_per_s": "bytes/s",
    "name": "kernel",
    "of_roof": "of roof",
}
_HIDDEN = ("busy_ns",)


@click.command("gemms")
@result_argument
@click.option("--device", metavar="NAME", help="The device of a trace, such as 'NVIDIA H100 80GB HBM3', for OF ROOF.")
@click.option(
    "--precision",
    type=Choice(["fp32", "tf32"]),
    help="How the products of f32 in a trace were computed. [default: fp32]",
)
@roof_option
@output_options(top=TOP)
def command(
    result: Path,
    device: str | None,
    precision: str | None,
    source: Source,
    top: int,
    wide: bool,
) -> Output:
    """Show the matrix products of a profile: their sizes, how often they ran, how long and how fast.

    A product is C[M,N] = A[M,K] · B[K,N] in a batch. LAYOUT has a letter each for A and B: N if rows are contiguous in
    memory, T if columns are, as in a transposed matrix, and - if that is unknown. TIME is the sum of the durations of
    all kernels that the products' ops launched themselves. FLOP/S are 2·M·N·K·batch of each product divided by that
    time. SHARE is relative to the busy time of the whole profile. OF ROOF is the least time that the device's roofline
    allows divided by TIME; it needs a record with a known ceiling, or the --device of a trace.

    RESULT is a record of a profiled trial, an event table, or a profiler's trace file.
    """
    from benchmarker.traces.statistics import gemms

    profile = _only(result)
    ingested = profile.ingested
    if profile.record and (device or precision):
        raise UserError("a record names its device and precision; leave --device and --precision out")
    table, others = gemms(ingested.events)
    table["share"] = table["busy_ns"] / max(1, ingested.trace.busy_ns)
    reasons = _add_roofs(table, profile.record, device, precision or "fp32", source, result)
    whole = _table(table, wide=wide)
    return Output(
        _parts(table, whole, others, reasons, ingested.trace),
        plain(table[: top or None]),
        csv=whole,
        notes=notes_on([ingested.trace], [str(result)]),
    )


def _only(result: Path) -> Profile:
    """Return the only profile of a result."""
    with working(f"reading {result}"):
        from benchmarker.traces.profile_files import open_profile

        return open_profile(result)


def _add_roofs(
    table: pd.DataFrame, record: Record | None, device: str | None, precision: str, source: Source, result: Path
) -> list[str]:
    """Add the column `of_roof` for each type of factors whose roof is known; return why the others have none."""
    if not (record or device):
        return []
    known = ceilings.known([result])
    roofs: dict[str, Roof] = {}
    reasons: list[str] = []
    for dtype in table["dtype"].unique():
        computed = precision if dtype == "f32" else _PRECISIONS.get(dtype)
        if computed is None:
            reasons.append(f"no ceiling of products of {dtype} is measured or published")
        elif record:
            roof, reason = _of_record(record, known, source, computed)
            roofs |= {dtype: roof} if roof else {}
            reasons += [] if roof else [reason]
        elif device:
            try:
                roofs[dtype] = named_roof(device, computed, known, source)
            except UserError as error:
                reasons.append(str(error))
    if device and reasons and not roofs:
        raise UserError(reasons[0])
    if roofs:
        table["of_roof"] = [
            roofs[line.dtype].time_s(line.flops, 0.0 if isnan(line.bytes) else line.bytes) * 1e9 / line.total_ns
            if line.dtype in roofs and line.total_ns
            else nan
            for line in table.itertuples()
        ]
    return list(dict.fromkeys(reasons))


def _of_record(record: Record, known: ceilings.Ceilings, source: Source, computed: str) -> tuple[Roof | None, str]:
    """Return the roof of a record's device if its products are computed in a precision; otherwise why there is none."""
    own = ceilings.computed_in(record)
    if computed not in (own, "fp32" if own == "tf32" else own):
        return None, f"the record's precision is {record.case.precision}, these products are {computed}"
    if source == "vendor":
        return vendor_roof(record), f"the vendor data file has no {own} peak for {ceilings.key_of(record)}"
    return measured_roof(record, known), known.lacking(record) or ""


def _parts(
    table: pd.DataFrame, whole: Table, others: pd.DataFrame, reasons: Sequence[str], trace: Trace
) -> Iterator[Part]:
    yield from headline(trace)
    yield from _products(table, whole)
    if len(others):
        share = others["busy_ns"].sum() / max(1, trace.busy_ns)
        yield Text(
            f"not shown: {count(len(others), 'other event')} of the category gemm ({share:.1%} of the busy time): "
            "their shapes are unknown, they compute several products at once, or they are ops around a product",
            "  ",
        )
    for reason in reasons:
        yield Text(f"no roof: {reason}", "  ")


def _products(table: pd.DataFrame, whole: Table) -> Iterator[Part]:
    """Yield the table, the longest time first."""
    if not len(table):
        yield "the profile contains no matrix product of known shape"
        return
    yield whole
    flops, took = table["flops"].sum(), (table["flops"] / table["flop_per_s"]).sum()  # of those whose FLOPs are known
    yield (
        f"all: {si(flops, 'FLOP')} in {si(took, 's')}, {si(flops / took if took else None, 'FLOP/s')}, "
        f"{table['share'].sum():.1%} of the busy time"
    )


def _table(table: pd.DataFrame, *, wide: bool) -> Table:
    hidden = {*_HIDDEN, *(() if wide else _WIDE), *(["batch"] if not wide and (table["batch"] == 1).all() else [])}
    columns = {name: column_of(name, heading) for name, heading in _HEADINGS.items()}
    shown = [name for name in table if name not in hidden]
    return frame_table(table, printed=shown, columns=columns, wide=wide, drop=_DROPPED, cut=["kernel"])
