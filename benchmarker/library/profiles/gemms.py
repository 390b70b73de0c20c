"""The view `gemms`: the matrix products of a profile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.display.profiles import column_of, frame_table, headline, notes_on
from benchmarker.display.result import Part, Text
from benchmarker.formatting import count, si
from benchmarker.library.profiles.view import Profiled, the_only
from benchmarker.records import ceilings
from benchmarker.roofline.roofs import Roof, Source, measured_roof, named_roof, vendor_roof
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.records.profile import Trace
    from benchmarker.records.record import Record

ComputedIn = Literal["fp32", "tf32"]
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


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Products(Profiled):
    """The matrix products of one profile, the events that are none, and why there is no roof."""

    trace: Trace
    others: pd.DataFrame
    reasons: Sequence[str]

    def parts(self, *, wide: bool = False, top: int = 0) -> Iterator[Part]:
        """Yield the table, the longest time first, and what is not in it."""
        yield from headline(self.trace)
        yield from self._products(wide=wide)
        if len(self.others):
            share = self.others["busy_ns"].sum() / max(1, self.trace.busy_ns)
            yield Text(
                f"not shown: {count(len(self.others), 'other event')} of the category gemm ({share:.1%} of the busy "
                "time): their shapes are unknown, they compute several products at once, or they are ops around a "
                "product",
                "  ",
            )
        for reason in self.reasons:
            yield Text(f"no roof: {reason}", "  ")

    def _products(self, *, wide: bool) -> Iterator[Part]:
        if not len(self.frame):
            yield "the profile contains no matrix product of known shape"
            return
        yield self.table(wide=wide)
        flops = self.frame["flops"].sum()
        took = (self.frame["flops"] / self.frame["flop_per_s"]).sum()  # of those whose FLOPs are known
        yield (
            f"all: {si(flops, 'FLOP')} in {si(took, 's')}, {si(flops / took if took else None, 'FLOP/s')}, "
            f"{self.frame['share'].sum():.1%} of the busy time"
        )

    def table(self, *, wide: bool = False) -> Table:
        """Return the products, with the main columns unless `wide`."""
        hidden = {*_HIDDEN, *(() if wide else (*_WIDE, *(["batch"] if (self.frame["batch"] == 1).all() else [])))}
        columns = {name: column_of(name, heading) for name, heading in _HEADINGS.items()}
        shown = [name for name in self.frame if name not in hidden]
        return frame_table(self.frame, printed=shown, columns=columns, wide=wide, drop=_DROPPED, cut=["kernel"])


class Gemms(Struct, frozen=True, kw_only=True):
    """Options of the view `gemms`: `device` and `precision` are those of a trace, for its roof."""

    device: str | None = None
    precision: ComputedIn | None = None
    roof: Source = "measured"

    def of(self, results: Sequence[Path]) -> Products:
        """Return the products of one profile."""
        from benchmarker.traces.profile_files import open_profile
        from benchmarker.traces.statistics import gemms

        result = the_only(results)
        profile = open_profile(result)
        trace = profile.ingested.trace
        if profile.record and (self.device or self.precision):
            raise UserError("a record names its device and precision; leave --device and --precision out")
        frame, others = gemms(profile.ingested.events)
        frame["share"] = frame["busy_ns"] / max(1, trace.busy_ns)
        reasons = _add_roofs(frame, profile.record, self.device, self.precision or "fp32", self.roof, result)
        return Products(
            frame=frame, trace=trace, others=others, reasons=reasons, notes=notes_on([trace], [str(result)])
        )


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
