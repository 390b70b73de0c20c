"""The roofline model: the performance that a piece of work can attain on a device, and how close it came.

Work that executes some FLOPs and moves some bytes has the arithmetic intensity I = FLOPs / bytes. On a device with the
peak π (FLOP/s) and the bandwidth β (bytes/s) it attains at most min(π, β·I) and takes at least max(FLOPs / π, bytes /
β). At the ridge point, I = π / β, the two bounds meet. (Williams, Waterman and Patterson, "Roofline: an insightful
visual performance model for multicore architectures", CACM 52(4), 2009.)
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.precision import ITEM_BYTES, PRECISIONS
from benchmarker.hooks import names
from benchmarker.records.ceilings import MATVEC_ROWS, SMALL, computed_in, key_of
from benchmarker.records.configurations import configurations
from benchmarker.records.step_times import step_times
from benchmarker.roofline import vendor_peaks
from benchmarker.roofline.formula import formula, of_part, predicted_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarker.records.ceilings import Ceiling, Ceilings, DeviceKey
    from benchmarker.records.profile import Kernel, Trace
    from benchmarker.records.record import Record

Level = Literal["step", "phase", "scope", "kernel"]
Bound = Literal["compute", "memory"]
Source = Literal["measured", "vendor"]

BEYOND = (
    "some work is above its roof: its data stayed in a cache, or the machine was slower when its ceilings were "
    "measured; run `benchmarker ceilings` to measure them again"
)
_BEYOND = 0.05


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
            at = [each.flop_per_byte for each in self.few_rows]
            per_byte_s, start_s = (
                float(np.interp(flops / weight_bytes, at, values))
                for values in zip(*((1 / each.bytes_per_s, each.start_s) for each in self.few_rows), strict=True)
            )
            weights_s = weight_bytes * per_byte_s + products * start_s
        return max(flops / self.flop_per_s, (bytes_ - weight_bytes) / self.bytes_per_s + weights_s)

    def bound_of(self, flops: float, least_s: float) -> Bound:
        """Return whether compute or memory limits work that takes at least a time, s, by `time_s`."""
        return "memory" if least_s > flops / self.flop_per_s else "compute"


class Point(Struct, frozen=True, kw_only=True):
    """A piece of work under its roof: a step, a phase of one that has several, a scope, or a kernel.

    `time_s` is measured; `predicted_s` is the least time that the roof allows. `share` is `predicted_s` / `time_s`. It
    exceeds 1 if data stays in a cache, which the model ignores. `attainable` and `achieved` are in FLOP/s, `intensity`
    is in FLOP/byte. Times of scopes and kernels are measured under the profiler.
    """

    level: Level
    name: str
    flops: float
    bytes: float
    time_s: float
    intensity: float
    attainable: float
    achieved: float
    bound: Bound
    predicted_s: float
    share: float


class Roofline(Struct, frozen=True, kw_only=True):
    """A configuration under the roof of its device; `points` begin with the step and are longest first in each level.

    `model_s` is the time of all parts executed one after the other, each at the roof. It is None if the problem has no
    formula for its parts. `of_model` is the measured time of the step divided by it.
    """

    configuration: str
    trials: int
    roof: Roof
    points: list[Point]
    model_s: float | None
    of_model: float | None = None


def beyond(found: Sequence[Roofline]) -> bool:
    """Return whether any work is more than 5% above its roof."""
    return any(each.share > 1 + _BEYOND for roofline in found for each in roofline.points)


def point(
    level: Level, name: str, flops: float, bytes_: float, time_s: float, roof: Roof, predicted_s: float | None = None
) -> Point:
    """Return the point of a piece of work, predicted by its FLOPs and bytes alone if not otherwise.

    `bytes_` and `time_s` must be above 0.
    """
    predicted_s = roof.time_s(flops, bytes_) if predicted_s is None else predicted_s
    return Point(
        level=level,
        name=name,
        flops=flops,
        bytes=bytes_,
        time_s=time_s,
        intensity=flops / bytes_,
        attainable=flops / predicted_s,
        achieved=flops / time_s,
        bound=roof.bound_of(flops, predicted_s),
        predicted_s=predicted_s,
        share=predicted_s / time_s,
    )


def measured_roof(record: Record, ceilings: Ceilings) -> Roof | None:
    """Return the measured roof of the record's device in its precision, or None if it was not measured."""
    return _measured(ceilings, key_of(record), computed_in(record))


def _measured(ceilings: Ceilings, device: DeviceKey | None, precision: str) -> Roof | None:
    compute, memory = ceilings.of(device, "compute", precision), ceilings.of(device, "memory")
    if compute is None or memory is None:
        return None
    source = f"measured {compute.measured_at[:10]} by {compute.framework} gemm, {memory.framework} stream"
    few_rows = []
    for resource, rows in MATVEC_ROWS.items():
        if large := ceilings.of(device, resource, precision):
            small = ceilings.of(device, SMALL[resource], precision)
            source += "".join(f", {each.framework} {each.resource}" for each in (large, small) if each)
            few_rows.append(_few_rows(rows, ITEM_BYTES[precision], large.value, small))
    return Roof(compute.value, memory.value, f"{compute.device} {precision}", source, tuple(few_rows))


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


def rooflines(
    records: Sequence[Record], ceilings: Ceilings, source: Source = "measured"
) -> tuple[list[Roofline], list[str]]:
    """Return the roofline of each configuration, from medians over trials, and the reasons why others have none."""
    found: list[Roofline] = []
    reasons: dict[str, None] = {}
    groups = [each for each in configurations(records) if any(record.error is None for record in each.records)]
    cases = [each.factors for each in groups]
    named = names.names(cases).whole if len(cases) > 1 else [names.name(case) for case in cases]
    for configuration, each in zip(named, groups, strict=True):
        good = [record for record in each.records if record.error is None]
        first = good[0]
        roof = measured_roof(first, ceilings) if source == "measured" else vendor_roof(first)
        if roof is None:
            key = key_of(first)
            lacking = _without_peak(key.name if key else "", computed_in(first), str(key))
            reasons[(source == "measured" and ceilings.lacking(first)) or lacking] = None
            continue
        model_s = predicted_step(first, roof).time_s
        points = [*_step(good, roof), *_phases(good, roof), *_scopes(good, roof), *_kernels(good, roof)]
        of_model = points[0].time_s / model_s if model_s and points and points[0].level == "step" else None
        found.append(
            Roofline(
                configuration=configuration,
                trials=len(good),
                roof=roof,
                points=points,
                model_s=model_s,
                of_model=of_model,
            )
        )
    return found, list(reasons)


def _step(records: Sequence[Record], roof: Roof) -> list[Point]:
    cost = records[0].cost
    times = [float(np.median(step_times(record))) for record in records if record.blocks]
    if cost is None or not cost.bytes or not times:
        return []
    return [point("step", "step", cost.flops, cost.bytes, median(times), roof)]


def _phases(records: Sequence[Record], roof: Roof) -> list[Point]:
    """Return points of the phases of a step that generates text from a prompt, by the times at which tokens were ready.

    `prefill` lasts until the first token, and `decode` is one token after it.
    """
    phases = formula(records[0].case).phases
    if len(phases) < 2:
        return []
    times = [record.token_times for record in records if record.token_times]
    found = {
        "prefill": [median(each.first_ns) for each in times if each.first_ns],
        "decode": [median(fmean(gaps) for gaps in each.gap_ns) for each in times if each.gap_ns],
    }
    return [
        point("phase", name, phases[name].cost.flops, phases[name].cost.bytes, median(times_ns) / 1e9, roof)
        for name, times_ns in found.items()
        if name in phases and times_ns
    ]


def _scopes(records: Sequence[Record], roof: Roof) -> list[Point]:
    """Return points of the scopes that the problem has a formula for; the phases of a scope are added up."""
    parts, runs = formula(records[0].case).parts, formula(records[0].case).runs
    by_scope: dict[str, list[float]] = defaultdict(list)
    for record in records:
        own: dict[str, float] = defaultdict(float)
        for scope in record.scopes:
            if scope.step_ns:
                own[scope.scope] += median(scope.step_ns) / 1e9
        for name, time_s in own.items():
            by_scope[name].append(time_s)
    return _longest(
        point("scope", name, work.flops, work.bytes, median(times), roof, of_part(work, runs.get(name, 0), roof))
        for name, times in by_scope.items()
        if (work := parts.get(name)) and work.bytes and median(times) > 0
    )


def of_trace(name: str, trace: Trace, kernels: Sequence[Kernel], roof: Roof) -> Roofline:
    """Return the kernels of a trace under a roof."""
    points = _points_of_kernels([(trace, kernels)], roof)
    return Roofline(configuration=name, trials=1, roof=roof, points=points, model_s=None)


def _without_peak(device: str, precision: str, called: str) -> str:
    """Return what the vendor data file lacks for a device."""
    found = vendor_peaks.peak(device)
    known = found is not None and found.products_per_s(precision) is not None
    what = "memory bandwidth" if known else f"{precision} peak"
    return f"the vendor data file has no {what} for {called}"


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
            raise UserError(_without_peak(device, precision, device))
        return Roof(peak, found.bytes_per_s, f"{found.name} {precision}", found.source)
    computed = PRECISIONS[precision].compute if precision in PRECISIONS else precision
    for key in {each.device: None for each in ceilings.known if device in (each.device.name, str(each.device))}:
        if roof := _measured(ceilings, key, computed):
            return roof
    raise UserError(
        f"no ceiling of {device} in {precision} is known: run `benchmarker ceilings` there, or give --roof=vendor"
    )


def _kernels(records: Sequence[Record], roof: Roof) -> list[Point]:
    return _points_of_kernels([(record.trace, record.kernels) for record in records if record.trace], roof)


def _points_of_kernels(profiles: Sequence[tuple[Trace, Sequence[Kernel]]], roof: Roof) -> list[Point]:
    """Return points of kernels with known FLOPs and bytes, added up by name and scope; medians over trials."""
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for trace, kernels in profiles:
        steps = max(1, trace.steps)
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for each in kernels:
            if each.flops and each.bytes and each.self_ns:
                name = f"{each.name} ({each.scope})" if each.scope else each.name
                amounts = each.flops, each.bytes, each.self_ns / 1e9
                sums[name] = [one + more / steps for one, more in zip(sums[name], amounts, strict=True)]
        for name, (flops, bytes_, time_s) in sums.items():
            found[name].append((flops, bytes_, time_s))
    middle = {name: [median(column) for column in zip(*values, strict=True)] for name, values in found.items()}
    return _longest(
        point("kernel", name, flops, bytes_, time_s, roof) for name, (flops, bytes_, time_s) in middle.items()
    )


def _longest(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda each: -each.time_s)
