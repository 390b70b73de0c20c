"""How close work came to the roof of its device: a step, its phases and scopes, and kernels."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Literal

import numpy as np
from msgspec import Struct

from benchmarker.hooks import names
from benchmarker.hooks.cases import Configuration
from benchmarker.records.ceilings import Ceilings, computed_in, key_of
from benchmarker.records.profile import Kernel, Trace
from benchmarker.records.record import Record
from benchmarker.records.sides import SIDE
from benchmarker.records.step_times import step_times
from benchmarker.roofline.formula import formula, of_part, predicted_step
from benchmarker.roofline.roofs import Bound, Roof, Source, measured_roof, vendor_roof, without_peak
from benchmarker.stats.median_interval import median_interval

Level = Literal["step", "phase", "scope", "kernel"]

BEYOND = (
    "some work is above its roof: its data stayed in a cache, or the machine was slower when its ceilings were "
    "measured; run `benchmarker ceilings --thorough` to measure them again"
)
_BEYOND = 0.05


class RooflinePoint(Struct, frozen=True, kw_only=True):
    """A piece of work under its roof: a step, a phase of one that has several, a scope, or a kernel.

    `time_s` is measured; `predicted_s` is the least time that the roof allows. `share` is `predicted_s` / `time_s`. It
    exceeds 1 if data stays in a cache, which the model ignores. `attainable` and `achieved` are in FLOP/s, `intensity`
    is in FLOP/byte. `achieved_low` and `achieved_high` are the ends of the 95% interval of `achieved`, None for fewer
    than six `trials`. Times of scopes and kernels are measured under the profiler.
    """

    level: Level
    name: str
    flops: float
    bytes: float
    time_s: float
    intensity: float
    attainable: float
    achieved: float
    achieved_low: float | None
    achieved_high: float | None
    trials: int
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
    points: list[RooflinePoint]
    model_s: float | None
    of_model: float | None = None


def beyond(found: Sequence[Roofline]) -> bool:
    """Return whether any work is more than 5% above its roof."""
    return any(each.share > 1 + _BEYOND for roofline in found for each in roofline.points)


def point(
    level: Level,
    name: str,
    flops: float,
    bytes_: float,
    times_s: Sequence[float],
    roof: Roof,
    predicted_s: float | None = None,
) -> RooflinePoint:
    """Return the point of a piece of work, predicted by its FLOPs and bytes alone if not otherwise.

    `times_s` are those of its trials, at least one. Both `bytes_` and their median must be above 0.
    """
    predicted_s = roof.time_s(flops, bytes_) if predicted_s is None else predicted_s
    time_s = median(times_s)
    slowest_first = (median_interval(times_s) or (None, None))[::-1]
    low, high = (flops / end if end else None for end in slowest_first)
    return RooflinePoint(
        level=level,
        name=name,
        flops=flops,
        bytes=bytes_,
        time_s=time_s,
        intensity=flops / bytes_,
        attainable=flops / predicted_s,
        achieved=flops / time_s,
        achieved_low=low,
        achieved_high=high,
        trials=len(times_s),
        bound=roof.bound_of(flops, predicted_s),
        predicted_s=predicted_s,
        share=predicted_s / time_s,
    )


def rooflines(
    configurations: Sequence[Configuration], ceilings: Ceilings, source: Source = "measured"
) -> tuple[list[Roofline], list[str]]:
    """Return the roofline of each configuration, from medians over trials, and the reasons why others have none."""
    models: list[Roofline] = []
    reasons: dict[str, None] = {}
    groups = [each for each in configurations if any(record.blocks for record in each.ok)]
    cases = [group.factors for group in groups]
    named = names.names(cases, [SIDE]).whole if len(cases) > 1 else [names.name(case) for case in cases]
    for configuration, each in zip(map(names.on_side, cases, named), groups, strict=True):
        good = each.ok
        first = good[0]
        roof = measured_roof(first, ceilings) if source == "measured" else vendor_roof(first)
        if roof is None:
            key = key_of(first)
            lacking = without_peak(key.name if key else "", computed_in(first), str(key))
            reasons[(source == "measured" and ceilings.lacking(first)) or lacking] = None
            continue
        model_s = predicted_step(first, roof).time_s
        kernels = _points_of_kernels([(record.trace, record.kernels) for record in good if record.trace], roof)
        points = [*_step(good, roof), *_phases(good, roof), *_scopes(good, roof), *kernels]
        of_model = points[0].time_s / model_s if model_s and points and points[0].level == "step" else None
        models.append(
            Roofline(
                configuration=configuration,
                trials=len(good),
                roof=roof,
                points=points,
                model_s=model_s,
                of_model=of_model,
            )
        )
    return models, list(reasons)


def _step(records: Sequence[Record], roof: Roof) -> list[RooflinePoint]:
    cost = records[0].cost
    times = [float(np.median(step_times(record))) for record in records if record.blocks]
    if cost is None or cost.flops is None or not cost.bytes or not times:
        return []
    return [point("step", "step", cost.flops, cost.bytes, times, roof)]


def _phases(records: Sequence[Record], roof: Roof) -> list[RooflinePoint]:
    """Return points of the phases of a step that generates text from a prompt, by the times at which tokens were ready.

    `prefill` lasts until the first token, and `decode` is one token after it.
    """
    phases = formula(records[0].case).phases
    if len(phases) < 2:
        return []
    times = [record.token_times for record in records if record.token_times]
    times_s = {
        "prefill": [median(time.first_ns) / 1e9 for time in times if time.first_ns],
        "decode": [median(fmean(gaps) for gaps in time.gap_ns) / 1e9 for time in times if time.gap_ns],
    }
    return [
        point("phase", name, phases[name].cost.flops, phases[name].cost.bytes, several, roof)
        for name, several in times_s.items()
        if name in phases and several
    ]


def _scopes(records: Sequence[Record], roof: Roof) -> list[RooflinePoint]:
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
        point("scope", name, work.flops, work.bytes, times, roof, of_part(work, runs.get(name, 0), roof))
        for name, times in by_scope.items()
        if (work := parts.get(name)) and work.bytes and median(times) > 0
    )


def of_trace(name: str, trace: Trace, kernels: Sequence[Kernel], roof: Roof) -> Roofline:
    """Return the kernels of a trace under a roof."""
    points = _points_of_kernels([(trace, kernels)], roof)
    return Roofline(configuration=name, trials=1, roof=roof, points=points, model_s=None)


def _points_of_kernels(profiles: Sequence[tuple[Trace, Sequence[Kernel]]], roof: Roof) -> list[RooflinePoint]:
    """Return points of kernels with known FLOPs and bytes, added up by name and scope; medians over trials."""
    by_name: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for trace, kernels in profiles:
        steps = max(1, trace.steps)
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for kernel in kernels:
            if kernel.flops and kernel.bytes and kernel.self_ns:
                name = f"{kernel.name} ({kernel.scope})" if kernel.scope else kernel.name
                amounts = kernel.flops, kernel.bytes, kernel.self_ns / 1e9
                sums[name] = [one + more / steps for one, more in zip(sums[name], amounts, strict=True)]
        for name, (flops, bytes_, time_s) in sums.items():
            by_name[name].append((flops, bytes_, time_s))
    columns = {name: list(zip(*values, strict=True)) for name, values in by_name.items()}
    return _longest(
        point("kernel", name, median(flops), median(bytes_), times, roof)
        for name, (flops, bytes_, times) in columns.items()
    )


def _longest(points: Iterable[RooflinePoint]) -> list[RooflinePoint]:
    return sorted(points, key=lambda each: -each.time_s)
