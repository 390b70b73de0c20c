"""Find what makes a comparison doubtful: disturbed trials, unsteady blocks, and effects of order and time."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from benchmarker.comparing.disturbances import COUNTED_S, disturbances
from benchmarker.records.configurations import environment_of, text, varying
from benchmarker.stats.shift import unpaired
from benchmarker.stats.steady import change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarker.records.profile import Scope
    from benchmarker.records.record import Record

CERTAINTY = 0.01
"""Largest p-value at which an effect is reported; it is small because several effects are checked in a comparison."""
PURE = 0.9
"""Shares below which a note is added: of a scope's time, its own part; of its own time, the part attributed to it."""


def differences(baseline: Sequence[Record], contender: Sequence[Record], rate: str = "") -> list[str]:
    """Report differences between the two sides' environments, and between their work per step.

    `rate` is the metric to suggest if the work differs.
    """
    if not baseline or not contender:
        return []
    found = []
    for name, records in (("baseline", baseline), ("contender", contender)):
        mixed = varying([environment_of(record) for record in records])
        if mixed:
            found.append(f"the {name}'s trials are not alike: they differ in {', '.join(mixed)}")
    one, two = environment_of(baseline[0]), environment_of(contender[0])
    changed = [name for name in varying([one, two]) if name in one and name in two]
    if changed:
        found.append(
            "environments differ: " + ", ".join(f"{name} {text(one[name])} -> {text(two[name])}" for name in changed)
        )
    costs = [records[0].cost for records in (baseline, contender)]
    if costs[0] and costs[1] and costs[0].flops != costs[1].flops:
        remedy = f"; --metric={rate} compares rates" if rate else ""
        found.append(f"the work per step differs: {costs[0].flops:.4g} and {costs[1].flops:.4g} FLOP{remedy}")
    return found


def disturbed(*sides: Sequence[Record]) -> list[str]:
    """Report how many trials were disturbed, and by what."""
    each = [found for side in sides for found in disturbances(side)]
    seen = [record.interference for side in sides for record in side if record.interference]
    short = sum(interference.duration_s < COUNTED_S for interference in seen)
    told = (
        [f"{short} of {len(each)} trials were timed for less than {COUNTED_S} s, too short to detect disturbances"]
        if short
        else []
    )
    kinds = Counter(kind for found in each for kind in found)
    if not kinds:
        return told
    worst = [f"{next(found[kind] for found in each if kind in found)} ({count})" for kind, count in kinds.most_common()]
    number = sum(bool(found) for found in each)
    return [*told, f"{number} of {len(each)} trials were disturbed, for instance: {', '.join(worst)}"]


def energies(baseline: Sequence[Record], contender: Sequence[Record]) -> list[str]:
    """Report causes of an energy difference other than the work: different sensors, or different ways to read them."""
    several = [[each for each in one.energy.sensors if each.measured] for one in (*baseline, *contender) if one.energy]
    found = []
    accuracies = [each.accuracy_percent for sensors in several for each in sensors if each.accuracy_percent]
    if accuracies and len({frozenset(each.id for each in sensors) for sensors in several}) > 1:
        found.append(
            f"the sides were measured by different sensors, each documented to be within ±{max(accuracies):g}%; "
            "the interval covers only the variation between trials, not the sensors' error"
        )
    domains = {" and ".join(each.domain for each in sensors) for sensors in several}
    methods = {" and ".join(sorted({each.method or "neither" for each in sensors})) for sensors in several}
    if len(domains) > 1:
        found.append(f"the energies cover different parts of the machine: some {', others '.join(sorted(domains))}")
    if len(methods) > 1:
        found.append(f"the energies were obtained by different methods: {', '.join(sorted(methods))}")
    flags = Counter(flag for one in (*baseline, *contender) if one.energy for flag in one.energy.flags)
    number = len(baseline) + len(contender)
    return [*found, *(f"{count} of {number} trials are marked {flag}" for flag, count in flags.most_common())]


def unsteady(records: Sequence[Record]) -> list[str]:
    """Report trials whose blocks still contain warm-up, or whose step time changes level."""
    found = [
        (len(record.blocks.duration_ns), change(np.array(record.blocks.duration_ns)))
        for record in records
        if record.blocks
    ]
    notes = []
    for warmup, what in ((True, "warm-up is left in"), (False, "the step time changes level within")):
        these = [(n, each) for n, each in found if each is not None and each.warmup == warmup]
        if these:
            n, worst = max(these, key=lambda pair: abs(pair[1].share))
            most = f"at most {worst.share:+.0%} after {worst.after} of {n} blocks"
            notes.append(f"{what} {len(these)} of {len(found)} trials ({most})")
    return notes


def profiles(*sides: tuple[str, Sequence[Record]]) -> list[str]:
    """Report what makes the profiled times of one part of a step doubtful; a side is its name and its records."""
    found = []
    separable = [[record.trace.separable for record in records if record.trace] for _, records in sides]
    if len({each for side in separable for each in side}) > 1:
        counts = " and ".join(f"{sum(each)} of {len(each)}" for each in separable)
        found.append(f"only some trials were profiled with --separable, which changes what is fused: {counts} trials")
    for name, records in sides:
        traces = [record.trace for record in records if record.trace]
        if incomplete := [trace for trace in traces if not trace.complete]:
            lost = "; ".join(incomplete[0].missing[:1])
            found.append(f"{name}: {len(incomplete)} of {len(traces)} profiles are incomplete, for instance: {lost}")
        found += _fused(name, [scope for record in records for scope in record.scopes])
    runs = [_runs_a_step(records) for _, records in sides]
    if len(set(runs)) > 1:
        counts = " and ".join(f"{each:.3g}" for each in runs)
        found.append(f"it is executed {counts} times per step; the time of one execution is compared")
    return found


def _fused(name: str, scopes: Sequence[Scope]) -> list[str]:
    """Report if one scope's time by root includes time of other scopes, or theirs includes its own."""
    found = []
    ran = [scope for scope in scopes if scope.root_ns]
    if ran and (purity := median(scope.purity for scope in ran)) < PURE:
        found.append(f"{name}: fused with other scopes, purity {purity:.0%}: its time by root includes time of theirs")
    if ran and (own := median(scope.root_ns / max(scope.root_ns, scope.any_ns) for scope in ran)) < PURE:
        found.append(
            f"{name}: fused with other scopes: {1 - own:.0%} of the time that contains its work is attributed to them"
        )
    return found


def _runs_a_step(records: Sequence[Record]) -> float | None:
    """Return how often the kernel of these records is executed per step, or None if they contain no kernel."""
    ran = [(record.kernels, record.trace) for record in records if record.kernels and record.trace]
    return median(sum(each.count for each in kernels) / max(1, trace.steps) for kernels, trace in ran) if ran else None


def drifting(name: str, levels: np.ndarray) -> list[str]:
    """Report if logarithms, given in order of time, drift up or down."""
    if len(levels) < 4 or np.ptp(levels) == 0:
        return []
    if stats.spearmanr(np.arange(len(levels)), levels).pvalue >= CERTAINTY:
        return []
    third = -(-len(levels) // 3)
    share = float(np.expm1(np.median(levels[-third:]) - np.median(levels[:third])))
    return [f"{name} drifts from trial to trial ({share:+.1%} from the first third to the last)"]


def effects(ratios: np.ndarray, contender_last: np.ndarray, levels: np.ndarray) -> list[str]:
    """Report if the log ratio drifts or depends on which side ran first; arrays are by round, in order of time."""
    found = []
    after, before = ratios[contender_last], ratios[~contender_last]
    if len(after) and len(before) and unpaired(before, after).p_different < CERTAINTY:
        found.append("the ratio depends on which of the two ran first in its round")
    return [*found, *drifting("the ratio", ratios), *drifting("the level of both", levels)]
