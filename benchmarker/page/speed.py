"""Rates and times: throughput, work per joule, step times of blocks and of scopes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from benchmarker.page.distributions import distributions
from benchmarker.page.page_model import Axis, Bars, Boxes, Figure, Mark, Points, Section, drawn
from benchmarker.page.study import MOST_DRAWN, Group, Study, named, panels, row_names
from benchmarker.records.step_times import step_times
from benchmarker.stats.classical import Description, describe
from benchmarker.stats.median_interval import MIN_BLOCKS_FOR_INTERVAL, median_interval
from benchmarker.tables.table import Column, Table, number


def throughput(study: Study) -> Section:
    """Return samples per second and, if energy was measured, per joule."""
    rates = _panels(study, "samples_per_s", "Throughput", "samples/s")
    energies = _panels(study, "samples_per_J", "Work per joule", "samples/J")
    lead = []
    if not energies:
        why = "; ".join(study.reasons("samples_per_J")[:3]) or "no trial succeeded"
        lead.append(f"No samples/J: {why}.")
    return Section("throughput", "Throughput and energy", tuple(lead), (*rates, *energies))


def _panels(study: Study, metric: str, title: str, unit: str) -> list[Figure]:
    """Return a figure for each problem that has values of a metric."""
    return [
        figure
        for key, problem, groups in panels(study)
        if (figure := _bars(study, groups, metric, f"{title}{problem}, {unit}", unit, f"{metric}{key}"))
    ]


def _bars(study: Study, every: Sequence[Group], metric: str, title: str, unit: str, key: str) -> Figure | None:
    """Return a bar for each group: the median over trials, with its interval or with the trials as dots."""
    groups = [group for group in every if study.values(group, metric)]
    if not groups:
        return None
    shown, left = drawn(groups, MOST_DRAWN, "configurations")
    values = [study.values(group, metric) for group in groups]
    medians = [median(each) for each in values]
    intervals = [median_interval(each) for each in values]
    marks: list[Mark] = []
    for series in dict.fromkeys(group.series for group in shown):
        at = tuple(index for index, group in enumerate(shown) if group.series == series)
        low, high = (tuple(each[end] if (each := intervals[i]) else None for i in at) for end in (0, 1))
        name = shown[at[0]].side or "median"
        marks.append(Bars(name, series, at, tuple(medians[i] for i in at), low, high))
    few = [i for i in range(len(shown)) if intervals[i] is None]
    if few:
        trials = [(value, float(i), None, None, "one trial") for i in few for value in values[i]]
        marks.append(Points.of("trials", 7, trials, "small"))
    kinds = [
        "lines are 95% intervals of this median, between order statistics of the trials"
        if len(few) < len(shown)
        else "",
        f"with fewer than {MIN_BLOCKS_FOR_INTERVAL} trials there is no interval, and dots are the trials"
        if few
        else "",
    ]
    caption = "A bar is the median over trials" + "".join(f"; {kind}" for kind in kinds if kind) + "."
    kind = unit.replace("samples", "1")
    missing = [group for group in every if not study.values(group, metric)]
    table = Table.of_columns(
        [
            *named(study, [*groups, *missing]),
            (number(metric, kind), [*medians, *[None] * len(missing)]),
            *(
                (number(f"interval_{end}", kind), [*(pair and pair[at] for pair in intervals), *[None] * len(missing)])
                for at, end in enumerate(("from", "to"))
            ),
            (number("trials"), [*map(len, values), *[0] * len(missing)]),
            (
                Column("values of the trials"),
                [*(" ".join(f"{value:.6g}" for value in of) for of in values), *[""] * len(missing)],
            ),
        ]
    )
    return Figure(
        key,
        title,
        caption,
        Axis(unit, limit=(0.0,)),
        tuple(marks),
        table,
        rows=row_names([(group.title, group) for group in shown]),
        left_out=left,
    )


LEAST_SHARE = 0.01
"""Share of the longest scope's time below which a scope is not drawn."""
FIVE = ("p5", "q1", "median", "q3", "p95")


def times(study: Study) -> Section | None:
    """Return boxes of the step times of timed blocks and, if trials were profiled, of scopes."""
    figures, left = distributions(study)
    parts = [*_blocks(study), *figures, *(each for each in [_scopes(study)] if each)]
    return Section("times", "Step times", (left,) if left else (), tuple(parts)) if parts else None


def _blocks(study: Study) -> list[Figure]:
    """Return a figure for each problem."""
    caption = (
        "All timed blocks of a configuration together. The box spans the quartiles, the line in it is the median, and "
        "the whiskers reach to the 5th and 95th percentile. Blocks of one process are not independent, so verdicts "
        "are based on trials."
    )
    return [
        _boxes(study, f"blocks{key}", f"Step time of timed blocks{problem}", caption, found, "timed blocks")
        for key, problem, groups in panels(study)
        if (found := [each for group in groups if (each := _timed(group))])
    ]


def _timed(group: Group) -> tuple[str, Group, Description] | None:
    times = [step_times(record) for record in group.records if record.blocks and record.blocks.duration_ns]
    return (group.title, group, describe(np.concatenate(times))) if times else None


def _scopes(study: Study) -> Figure | None:
    """Return the time per step of each scope, longest first, with the configurations side by side."""
    found: dict[tuple[str, str], list[tuple[Group, list[float]]]] = {}
    for group in study.groups:
        steps: dict[tuple[str, str], list[float]] = {}
        for record in group.ok:
            for scope in record.scopes:
                if scope.scope and any(scope.step_ns):
                    steps.setdefault((scope.scope, scope.phase), []).extend(each / 1e9 for each in scope.step_ns)
        for key, values in steps.items():
            found.setdefault(key, []).append((group, values))
    if not found:
        return None
    largest = sorted(found, key=lambda key: (-max(median(values) for _, values in found[key]), key))
    several = len({group.title for group in study.groups}) > 1
    rows = [
        (" · ".join(filter(None, (*key, group.title if several else ""))), group, describe(values))
        for key in largest
        for group, values in found[key]
    ]
    least = LEAST_SHARE * rows[0][2].median
    caption = (
        "The time of each scope in a profiled step, with boxes as above. Times were measured under the profiler, in a "
        "separate process. A fused kernel is attributed to the scope of its root. Scopes are drawn if they take at "
        f"least {LEAST_SHARE:.0%} of the time of the longest."
    )
    large = [key for key in largest if max(median(values) for _, values in found[key]) >= least]
    number = sum(len(found[key]) for key in large)
    title = "Step time of scopes, profiled"
    return _boxes(study, "scopes", title, caption, rows, "profiled steps", min(number, MOST_DRAWN))


def _boxes(
    study: Study,
    key: str,
    title: str,
    caption: str,
    found: Sequence[tuple[str, Group, Description]],
    of: str,
    most: int = MOST_DRAWN,
) -> Figure:
    shown, left = drawn(found, most)
    marks = []
    for series in dict.fromkeys(group.series for _, group, _ in shown):
        at = tuple(index for index, (_, group, _) in enumerate(shown) if group.series == series)
        values = tuple((each.p5, each.q1, each.median, each.q3, each.p95) for _, _, each in (shown[i] for i in at))
        marks.append(Boxes(shown[at[0]][1].side or "trials", series, at, values))
    (case, _), *side = named(study, [group for _, group, _ in found])
    table = Table.of_columns(
        [
            (case, [name for name, _, _ in found]),
            *side,
            *((number(f"{name}_s", "s"), [getattr(each, name) for _, _, each in found]) for name in FIVE),
            (number(of), [each.n for _, _, each in found]),
        ]
    )
    return Figure(
        key,
        title,
        caption,
        Axis("step time", "s", log=True, limit=(0.0,)),
        tuple(marks),
        table,
        rows=row_names([(name, group) for name, group, _ in shown]),
        left_out=left,
    )
