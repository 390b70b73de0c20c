"""Find what makes a comparison doubtful: disturbed trials, unsteady blocks, and effects of order and time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np

from benchmarker.api.case import Case
from benchmarker.api.program import is_program
from benchmarker.comparing.disturbances import COUNTED_S, count
from benchmarker.formatting import part
from benchmarker.machine.description import restriction
from benchmarker.power.energy import SHORT_S
from benchmarker.records.energy import EnergyFlag
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import DEFAULTS, changes, factors_of, varying
from benchmarker.records.profile import Scope
from benchmarker.records.record import EMULATED, Record
from benchmarker.records.step_times import host_share
from benchmarker.stats.shift import unpaired
from benchmarker.stats.steady import change, trend

CERTAINTY = 0.01
"""Largest p-value at which an effect is reported; it is small because several effects are checked in a comparison."""
SKEW = 0.05
"""Difference of the mean step time from the median that is reported; only sides that are closer can change places."""
PURE = 0.9
"""Shares below which a note is added: of a scope's time, its own part; of its own time, the part attributed to it."""
FLAGS: dict[EnergyFlag, str] = {
    "energy_short": f"energy over less than {SHORT_S:g} s",
    "throttled": "the device reduced its clocks",
    "counter_suspect": "energy counter and polled power disagree",
    "aliasing": "a sensor may always see the same part of a step",
    "gaps": "gaps between readings of the power",
}
"""What makes an energy doubtful, in words."""


def differences(baseline: Sequence[Record], contender: Sequence[Record], rate: str = "") -> list[str]:
    """Report differences among the trials of each side, and between the sides: their environments, and their work.

    `rate` is the metric to suggest if the work per step differs.
    """
    sides = {"baseline": baseline, "contender": contender}
    notes = [f"the {name}'s trials differ in {mixed}" for name, records in sides.items() if (mixed := _mixed(records))]
    notes += between(baseline, contender, rate)
    notes += unchecked([*baseline, *contender])
    limits = {name: _limits(records) for name, records in sides.items()}
    if limits["baseline"] != limits["contender"]:
        notes += [f"the {name} was measured on {limit}" for name, several in limits.items() for limit in several]
    return notes


def between(baseline: Sequence[Record], contender: Sequence[Record], rate: str = "") -> list[str]:
    """Report differences between the two sides' environments, how they were measured, and their work per step."""
    if not baseline or not contender:
        return []
    first, second = baseline[0], contender[0]
    one, two = map(environment_of, (first, second))
    differ = threads([baseline, contender]) if first.case.framework != second.case.framework else ""
    shared = [name for name in one if name in two and not (differ and name == "compute_threads")]
    notes = [differ] if differ else []
    notes += [
        f"{what}: {', '.join(changed)}"
        for what, changed in (
            ("environments differ", changes(one, two, shared)),
            ("the sides were measured differently", changes(factors_of(first.case), factors_of(second.case), DEFAULTS)),
        )
        if changed
    ]
    costs = [records[0].cost for records in (baseline, contender)]
    counted = [cost for cost in costs if cost]
    flops = [cost.flops for cost in counted if cost.flops is not None and cost.source == counted[0].source]
    if len(set(flops)) > 1:
        remedy = f"; --metric={rate} compares rates" if rate else ""
        notes.append(f"the work per step differs: {flops[0]:.4g} and {flops[1]:.4g} FLOP{remedy}")
    return notes


def conditions(groups: Sequence[Sequence[Record]]) -> list[str]:
    """Return what a table says of how its cases ran; a group holds the trials of one case."""
    records = [record for group in groups for record in group]
    found = [executions(group[0].case for group in groups), threads(groups), caches(records), host_shares(records)]
    return list(filter(None, [*found, power_caps(records)]))


def threads(groups: Sequence[Sequence[Record]]) -> str:
    """Report that some groups of trials computed with other numbers of CPU threads than others; empty if none did.

    A number that was requested is not reported. Frameworks choose by different rules: OMP_NUM_THREADS, for example,
    sets PyTorch's and NumPy's number, and not JAX's.
    """
    chosen = [
        (record.case.framework, number)
        for records in groups
        for record in records
        if record.case.device == "cpu" and record.case.threads is None and (number := record.software.threads)
    ]
    if len({number for _, number in chosen}) < 2:
        return ""
    frameworks = len({framework for framework, _ in chosen}) > 1
    named = ", ".join(
        f"{framework} {number}" if frameworks else str(number) for framework, number in sorted(set(chosen))
    )
    return f"CPU threads differ: {named}; --threads=N sets them in every framework"


def executions(cases: Iterable[Case]) -> str:
    """Report that some frameworks compile their steps and others do not, and what compiles them; empty if not so."""
    several: dict[str, list[Case]] = {}
    for case in cases:
        several.setdefault(case.framework, []).append(case)
    eager = [of[0] for of in several.values() if not any(case.compile for case in of)]
    compiled = [of[0] for of in several.values() if all(case.compile for case in of)]
    if not (eager and compiled):
        return ""
    one, other = (", ".join(dict.fromkeys(case.execution for case in side)) for side in (eager, compiled))
    able = [case.framework for case in eager if len(case.executions) > 1 and (case.devices == 1 or case.independent)]
    return f"{one} is compared with {other}" + (f" (--compile compiles {', '.join(able)} too)" if able else "")


def caches(records: Iterable[Record]) -> str:
    """Report where steps found their inputs, in cases whose data would fit into the last-level cache; else empty."""
    told = set()
    for record in records:
        inputs, cost, cache_bytes = record.inputs, record.cost, (record.device and record.device.cache_bytes) or 0
        work_bytes = (cost and cost.bytes) or (inputs and inputs.set_bytes) or 0
        if record.error is None and inputs and inputs.cache and work_bytes < cache_bytes:
            if inputs.cache == "hot":
                told.add("stay in place: steps read them from the cache")
            elif inputs.sets * inputs.set_bytes > cache_bytes:
                told.add("rotate: steps read them from memory")
            else:
                told.add("rotate through too few sets to leave the cache")
    return f"data smaller than the last-level cache; inputs {', or '.join(sorted(told))}" if told else ""


def host_shares(records: Sequence[Record]) -> str:
    """Report how much of the step time is not the device's by its own clock; empty where that is next to nothing."""
    if not (shares := sorted(filter(None, map(host_share, records)))):
        return ""
    span = f"{shares[0]:.0%}" + (f" to {shares[-1]:.0%}" if f"{shares[0]:.0%}" != f"{shares[-1]:.0%}" else "")
    trials = part(len(shares), len(records), "trial")
    return (
        f"{span} of the step time is the host's, which launches work or waits, not the device's by its clock ({trials})"
    )


def power_caps(records: Sequence[Record]) -> str:
    """Report in how many trials a power cap held the device's clock back for most of the time; empty if in none."""
    number = sum(
        any(each.measured and each.throttle.get("power cap", 0.0) > 1 / 2 for each in record.telemetry)
        for record in records
    )
    return f"a power cap held the device's clock back ({part(number, len(records), 'trial')})" if number else ""


def short_energies(records: Sequence[Record]) -> str:
    """Report how many energies are of too short a time to be exact; empty if none is."""
    number = sum(record.energy is not None and "energy_short" in record.energy.flags for record in records)
    told = part(number, len(records), "trial")
    return f"{FLAGS['energy_short']} ({told}): --power=auto measures longer" if number else ""


def doubts(groups: Sequence[Sequence[Record]]) -> dict[str, str]:
    """Return what makes one side doubtful, whatever the other is, by kind; a group holds the trials of one case."""
    by_kind = {}
    disturbed, short = count(groups), too_short(groups)
    if disturbed.number:
        by_kind["disturbed"] = f"{disturbed}; {disturbed.advice}"
    if short:
        by_kind["short"] = short
    if skew := skewed([record for group in groups for record in group]):
        by_kind["skewed"] = skew[0]
    if limits := _limits([record for group in groups for record in group]):
        by_kind["cores"] = f"measured on {' or '.join(limits)}"
    if mixed := list(dict.fromkeys(filter(None, map(_mixed, groups)))):
        by_kind["mixed"] = f"the trials of a case differ in {mixed[0]}"
    return by_kind


def _mixed(records: Sequence[Record]) -> str:
    """Return in what the environments of one side's trials of a case differ."""
    return ", ".join(varying([environment_of(record) for record in records]))


def _limits(records: Sequence[Record]) -> list[str]:
    """Return to which parts of the machine's cores trials were restricted."""
    return list(dict.fromkeys(limit for record in records if (limit := restriction(record.machine))))


def disturbed(*sides: Sequence[Record]) -> list[str]:
    """Report how many trials were disturbed, and by what."""
    disturbances = count(sides)
    return list(filter(None, (too_short(sides), str(disturbances) if disturbances.number else None)))


def too_short(groups: Sequence[Sequence[Record]]) -> str | None:
    """Report how many trials were too short to detect disturbances; None if none was."""
    records = [record for group in groups for record in group]
    short = sum(record.interference is not None and record.interference.duration_s < COUNTED_S for record in records)
    told = part(short, len(records), "trial", "was", "were")
    return f"{told} timed for less than {COUNTED_S} s, too short to detect disturbances" if short else None


def energies(baseline: Sequence[Record], contender: Sequence[Record]) -> list[str]:
    """Report causes of an energy difference other than the work: different sensors, or different ways to read them."""
    several = [
        [sensor for sensor in one.energy.sensors if sensor.measured] for one in (*baseline, *contender) if one.energy
    ]
    notes = []
    accuracies = [sensor.accuracy_percent for sensors in several for sensor in sensors if sensor.accuracy_percent]
    if accuracies and len({frozenset(sensor.id for sensor in sensors) for sensors in several}) > 1:
        notes.append(
            f"the sides were measured by different sensors, each documented to be within ±{max(accuracies):g}%; "
            "the interval covers only the variation between trials, not the sensors' error"
        )
    domains = {" and ".join(sensor.domain for sensor in sensors) for sensors in several}
    methods = {" and ".join(sorted({sensor.method or "neither" for sensor in sensors})) for sensors in several}
    if len(domains) > 1:
        notes.append(f"the energies cover different parts of the machine: some {', others '.join(sorted(domains))}")
    if len(methods) > 1:
        notes.append(f"the energies were obtained by different methods: {', '.join(sorted(methods))}")
    flags = Counter(flag for one in (*baseline, *contender) if one.energy for flag in one.energy.flags)
    number = len(baseline) + len(contender)
    return [
        *notes,
        *(f"{FLAGS[flag]} ({part(count, number, 'trial')})" for flag, count in flags.most_common()),
    ]


def unsteady(records: Sequence[Record]) -> list[str]:
    """Report trials whose blocks still contain warm-up, or whose step time changes once for all."""
    timed = [record for record in records if record.blocks and record.error is None]
    changed = [
        (record, step)
        for record in timed
        if record.blocks and (step := change(np.array(record.blocks.duration_ns))) is not None
    ]
    notes = []
    if warming := [(record, step) for record, step in changed if step.warmup]:
        record, worst = max(warming, key=lambda pair: abs(pair[1].share))
        many = part(len(warming), len(timed), "trial", "was", "were")
        remedy = "raise --blocks and --seconds" if record.case.measuring.preheat else "use --preheat"
        notes.append(f"{many} still warming up (worst {worst.share:+.0%}, until block {worst.after}): {remedy}")
    if stepped := [(record, step) for record, step in changed if not step.warmup]:
        record, worst = max(stepped, key=lambda pair: abs(pair[1].share))
        many = part(len(stepped), len(timed), "trial")
        notes.append(f"step change in {many} (worst {worst.share:+.0%}, at block {worst.after})")
    return notes


def skewed(records: Sequence[Record]) -> list[str]:
    """Report trials whose mean step time is far from the median, so that rates and step times may disagree."""
    timed = [np.array(record.blocks.duration_ns) for record in records if record.blocks and record.error is None]
    shares = [float(np.mean(durations) / np.median(durations)) - 1 for durations in timed]
    if not (far := [share for share in shares if abs(share) >= SKEW]):
        return []
    return [
        f"the mean step time differs from the median in {part(len(far), len(timed), 'trial')} (worst "
        f"{max(far, key=abs):+.0%}); samples/s, tokens/s and FLOP/s follow the mean, so they may name another winner"
    ]


def unchecked(records: Sequence[Record]) -> list[str]:
    """Report what was timed without a check of its result, and why; the output of a program may have had to be sane."""
    ended = [record for record in records if record.error is None and not record.check]
    unsure = [each for each in ended if not (is_program(each.case.problem) and each.case.params.get("sanity"))]
    return list(dict.fromkeys(record.reasons["check"] for record in unsure))


def emulated(records: Sequence[Record]) -> list[str]:
    """Report formats that are emulated, of which no speed is known."""
    names = dict.fromkeys(record.case.precision for record in records if record.case.is_emulated)
    return [f"{EMULATED} ({', '.join(names)})"] if names else []


def profiles(*sides: tuple[str, Sequence[Record]]) -> list[str]:
    """Report what makes the profiled times of one part of a step doubtful; a side is its name and its records."""
    notes = []
    separable = [[record.trace.separable for record in records if record.trace] for _, records in sides]
    if len({each for side in separable for each in side}) > 1:
        counts = " and ".join(f"{sum(each)} of {len(each)}" for each in separable)
        notes.append(f"only some trials were profiled with --separable, which changes what is fused: {counts} trials")
    for name, records in sides:
        traces = [record.trace for record in records if record.trace]
        if incomplete := [trace for trace in traces if not trace.complete]:
            lost = "; ".join(incomplete[0].missing[:1])
            notes.append(f"{name}: {len(incomplete)} of {len(traces)} profiles are incomplete, for instance: {lost}")
        notes += _fused(name, [scope for record in records for scope in record.scopes])
    runs = [_runs_a_step(records) for _, records in sides]
    if len(set(runs)) > 1:
        counts = " and ".join(f"{run:.3g}" for run in runs)
        notes.append(f"it is executed {counts} times per step; the time of one execution is compared")
    return notes


def _fused(name: str, scopes: Sequence[Scope]) -> list[str]:
    """Report if one scope's time by root includes time of other scopes, or theirs includes its own."""
    notes = []
    ran = [scope for scope in scopes if scope.root_ns]
    if ran and (purity := median(scope.purity for scope in ran)) < PURE:
        notes.append(f"{name}: fused with other scopes, purity {purity:.0%}: its time by root includes time of theirs")
    if ran and (own := median(scope.root_ns / max(scope.root_ns, scope.any_ns) for scope in ran)) < PURE:
        notes.append(
            f"{name}: fused with other scopes: {1 - own:.0%} of the time that contains its work is attributed to them"
        )
    return notes


def _runs_a_step(records: Sequence[Record]) -> float | None:
    """Return how often the kernel of these records is executed per step, or None if they contain no kernel."""
    ran = [(record.kernels, record.trace) for record in records if record.kernels and record.trace]
    return (
        median(sum(kernel.count for kernel in kernels) / max(1, trace.steps) for kernels, trace in ran) if ran else None
    )


def drifting(name: str, levels: np.ndarray) -> list[str]:
    """Report if logarithms, given in order of time, drift up or down."""
    if len(levels) < 4 or trend(levels) >= CERTAINTY:
        return []
    third = -(-len(levels) // 3)
    share = float(np.expm1(np.median(levels[-third:]) - np.median(levels[:third])))
    return [f"{name} drifts from trial to trial ({share:+.1%} from the first third to the last)"]


def effects(ratios: np.ndarray, contender_last: np.ndarray, levels: np.ndarray) -> list[str]:
    """Report if the log ratio drifts or depends on which side ran first; arrays are by round, in order of time."""
    notes = []
    after, before = ratios[contender_last], ratios[~contender_last]
    if len(after) and len(before) and unpaired(before, after).p_different < CERTAINTY:
        notes.append("the ratio depends on which of the two ran first in its round")
    return [*notes, *drifting("the ratio", ratios), *drifting("the common level of both sides", levels)]
