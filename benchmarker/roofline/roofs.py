"""Roofs: what a device can attain at most, measured or by its vendor.

Work that executes some FLOPs and moves some bytes has the arithmetic intensity I = FLOPs / bytes. On a device with the
peak π (FLOP/s) and the bandwidth β (bytes/s) it attains at most min(π, β·I) and takes at least max(FLOPs / π, bytes /
β). At the ridge point, I = π / β, the two bounds meet. (Williams, Waterman and Patterson, "Roofline: an insightful
visual performance model for multicore architectures", CACM 52(4), 2009.)
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.precision import ITEM_BYTES, PRECISIONS
from benchmarker.machine import vendor_peaks
from benchmarker.records.ceilings import MATVEC_ROWS, SMALL, Ceiling, Ceilings, DeviceKey, computed_in, key_of
from benchmarker.records.record import Record

Bound = Literal["compute", "memory"]
Source = Literal["measured", "vendor"]


class FewRows(Struct, frozen=True):
    """How long a product of few rows takes that executes so many FLOP per byte of its matrix of weights.

    It takes `start_s` in any case, and reads the matrix at `bytes_per_s`. (The model t = t₀ + n/r of Hockney, "The
    communication challenge for MPP", Parallel Computing 20(3), 1994, there of messages.)
    """

    flop_per_byte: float
    bytes_per_s: float
    start_s: float = 0.0


class Roof(Struct, frozen=True):
    """The limits of a device: its peak in FLOP/s and its bandwidth in bytes/s, and their source.

    `few_rows` are those of products of few rows, by ascending FLOP per byte; empty if they were not measured.
    """

    flop_per_s: float
    bytes_per_s: float
    name: str = ""
    source: str = ""
    few_rows: tuple[FewRows, ...] = ()

    @property
    def ridge(self) -> float:
        """The intensity, FLOP/byte, at and above which work is compute-bound."""
        return self.flop_per_s / self.bytes_per_s

    def attainable(self, intensity: float) -> float:
        """Return the FLOP/s that work of an intensity (FLOP/byte) can attain: min(π, β·I)."""
        return min(self.flop_per_s, self.bytes_per_s * intensity)

    def bound(self, intensity: float) -> Bound:
        """Return whether compute or memory limits work of an intensity (FLOP/byte)."""
        return "compute" if intensity >= self.ridge else "memory"

    def time_s(self, flops: float, bytes_: float, weight_bytes: float = 0, products: int = 0) -> float:
        """Return the least time, s, of a piece of work, which may have no FLOPs.

        Of its bytes, so many are weights, which so many products read. If it is known how long products of as many
        rows take, it counts.
        """
        weights_s = weight_bytes / self.bytes_per_s
        if flops and weight_bytes and self.few_rows:
            at = [row.flop_per_byte for row in self.few_rows]
            per_byte_s, start_s = (
                float(np.interp(flops / weight_bytes, at, values))
                for values in zip(*((1 / row.bytes_per_s, row.start_s) for row in self.few_rows), strict=True)
            )
            weights_s = weight_bytes * per_byte_s + products * start_s
        return max(flops / self.flop_per_s, (bytes_ - weight_bytes) / self.bytes_per_s + weights_s)

    def bound_of(self, flops: float, least_s: float) -> Bound:
        """Return whether compute or memory limits work that takes at least a time, s, by `time_s`."""
        return "memory" if least_s > flops / self.flop_per_s else "compute"


def measured_roof(record: Record, ceilings: Ceilings) -> Roof | None:
    """Return the measured roof of the record's device in its precision, or None if it was not measured."""
    return _measured(ceilings, key_of(record), computed_in(record))


def _measured(ceilings: Ceilings, device: DeviceKey | None, precision: str) -> Roof | None:
    compute, memory = ceilings.of(device, "compute", precision), ceilings.of(device, "memory")
    if compute is None or memory is None:
        return None
    used = [compute, memory]
    few_rows = []
    for resource, rows in MATVEC_ROWS.items():
        if large := ceilings.of(device, resource, precision):
            small = ceilings.of(device, SMALL[resource], precision)
            used += [each for each in (large, small) if each]
            few_rows.append(_few_rows(rows, ITEM_BYTES[precision], large.value, small))
    return Roof(compute.value, memory.value, f"{compute.device} {precision}", _source(used), tuple(few_rows))


def _source(used: Sequence[Ceiling]) -> str:
    """Return when and by what ceilings were measured, and which of them are quick ones."""
    named = {"compute": "gemm", "memory": "stream"}
    by = ", ".join(f"{each.framework} {named.get(each.resource, each.resource)}" for each in used)
    quick = [named.get(each.resource, each.resource) for each in used if each.method == "quick"]
    how = "quickly " if len(quick) == len(used) else ""
    partly = f" (quickly: {', '.join(quick)})" if quick and not how else ""
    return f"{how}measured {used[0].measured_at[:10]} by {by}{partly}"


def _few_rows(rows: int, item_bytes: float, bytes_per_s: float, small: Ceiling | None) -> FewRows:
    """Return how long products of so many rows take, from the rates of a large matrix and of small ones."""
    start_s = 0.0
    if small:
        small_bytes = int(small.params["width"]) ** 2 * item_bytes
        start_s = max(0.0, small_bytes / small.value - small_bytes / bytes_per_s)
    return FewRows(2 * rows / item_bytes, bytes_per_s, start_s)


def vendor_roof(record: Record) -> Roof | None:
    """Return the roof from the vendor's figures, or None if the data file does not have them."""
    found = vendor_peaks.peak(record.device.name) if record.device else None
    peak = found.products_per_s(computed_in(record)) if found else None
    if found is None or peak is None or found.bytes_per_s is None:
        return None
    return Roof(peak, found.bytes_per_s, f"{found.name} {computed_in(record)}", found.source)


def vendor_peak(ceiling: Ceiling) -> float | None:
    """Return the vendor's peak of what a ceiling is measured of; None if the data file does not contain it."""
    found = vendor_peaks.peak(ceiling.device.name)
    if found is None:
        return None
    return found.products_per_s(ceiling.precision) if ceiling.resource == "compute" else found.bytes_per_s


def named_roof(device: str, precision: str, ceilings: Ceilings, source: Source) -> Roof:
    """Return the roof of a device by its name, or by all that ceilings depend on: `CPU, 2 cores, --threads=1`.

    Raises `UserError` if it is not known.
    """
    if source == "vendor":
        found = vendor_peaks.peak(device)
        if found is None:
            names = ", ".join(each.name for each in vendor_peaks.peaks())
            raise UserError(f"the vendor data file has no device named {device}; it has {names}")
        peak = found.products_per_s(precision)
        if peak is None or found.bytes_per_s is None:
            raise UserError(without_peak(device, precision, device))
        return Roof(peak, found.bytes_per_s, f"{found.name} {precision}", found.source)
    computed = PRECISIONS[precision].compute if precision in PRECISIONS else precision
    for key in {each.device: None for each in ceilings.known if device in (each.device.name, str(each.device))}:
        if roof := _measured(ceilings, key, computed):
            return roof
    raise UserError(
        f"no ceiling of {device} in {precision} is known: run `benchmarker ceilings` there, or give --roof=vendor"
    )


def without_peak(device: str, precision: str, called: str) -> str:
    """Return what the vendor data file lacks for a device."""
    peak = vendor_peaks.peak(device)
    known = peak is not None and peak.products_per_s(precision) is not None
    what = "memory bandwidth" if known else f"{precision} peak"
    return f"the vendor data file has no {what} for {called}"
