"""What a record says twice must agree: finds mistakes, and changes by hand that were not made everywhere.

Each check follows from how a trial is measured (worker/timing.py, worker/__main__.py) and how its record is built
(running/record_builder.py, power/energy.py, traces/ingest.py). None of them depends on a threshold that a version of
the tool may change, and a trial that was measured passes them all, also one on a busy machine.
"""

import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from benchmarker.api.program import is_program
from benchmarker.formatting import si
from benchmarker.records.energy import Energy, SensorEnergy
from benchmarker.records.profile import Trace
from benchmarker.records.record import Blocks, Inputs, Record, sets_of_rotation
from benchmarker.stats.median_interval import MIN_BLOCKS_FOR_INTERVAL, median_half_width

CLOCK_S = 1e-3
"""Two clocks of a process may differ by this much, s."""
_ROUNDING = 1e-6
_AROUND_S, _AROUND_SHARE = 0.15, 0.1
"""Longest time around the blocks of a timed part, s, and its longest share: counters are read, progress is reported."""
BLOCK_COST_S = 1e-4
"""Longest time from one block to the next, s: progress is reported."""
_PER_CORE_S = 0.02
"""Longest time to read the frequency of a core, s (older kernels wait for it)."""
_METERS_S = 2.0
"""Longest time to read the meters at both edges of the timed part, s (power/window.py)."""
SECOND_S = 2.0
"""Times of day are stored to the second, and the clock may be adjusted."""
_ID = re.compile(r"(\d{8}T\d{6}\.\d{6})-[0-9a-f]{8}")


class Contradiction(NamedTuple):
    """What in a record contradicts another part of it: the check that found it, and what does."""

    check: str
    text: str


def contradictions(record: Record) -> list[Contradiction]:
    """Return what in a record contradicts other parts of it; nothing for a trial that was measured."""
    blocks, energy, trace = record.blocks, record.energy, record.trace
    checks: list[tuple[str, Iterable[str]]] = [
        ("times do not fit the stages or the process", _stages(record)),
        ("the outcome is not that of the stages", _result(record)),
        ("duet and order of blocks do not agree", _design(record)),
        ("the preheat is not as requested", _preheat(record)),
        ("the inputs are not as requested", _inputs(record, record.inputs) if record.inputs else ()),
        ("ids, time, device or threads do not agree", _identity(record)),
        ("blocks do not fill the timed part", _blocks(record, blocks) if blocks else ()),
        ("blocks are not those of the slowest rank", _ranks(record, blocks) if blocks else ()),
        ("the reason to stop does not apply", _stop(record, blocks) if blocks else ()),
        ("energy does not agree with its parts", _energy(record, energy) if energy else ()),
        ("the profile does not agree with its parts", _profile(record, trace) if trace else ()),
    ]
    return [Contradiction(check, text) for check, texts in checks for text in texts]


def _exceeds(value: float, limit: float) -> bool:
    return value > limit * (1 + _ROUNDING) + CLOCK_S


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= _ROUNDING * max(abs(one), abs(other))


def _s(seconds: float) -> str:
    return _text(seconds, "s")


def _text(value: float, unit: str) -> str:
    return si(value, unit) if math.isfinite(value) else f"{value} {unit}"


def _stages(record: Record) -> Iterator[str]:
    """A stage contains what is measured in it, and the process contains its stages."""
    stages, wall_s = record.harness.stages_s, record.harness.wall_s
    if _exceeds(sum(stages.values()), wall_s):
        yield f"its stages take {_s(sum(stages.values()))}, but the whole process {_s(wall_s)}"
    preheat_s = record.preheat.duration_s if record.preheat else None
    timed_s = record.interference.duration_s if record.interference else None
    times = record.token_times
    tokens_s = (sum(times.first_ns) + sum(map(sum, times.gap_ns))) / 1e9 if times else None
    turns = record.local
    local_s = None
    if turns:
        together = (*turns.synchronised_ns, *turns.together_ns)
        local_s = (sum(map(max, together)) + sum(turns.alone_ns)) / 1e9
    device_s = sum(record.device_time.duration_ns) / 1e9 if record.device_time else None
    for name, stage, seconds in (
        ("build_s", "build", record.build_s),
        ("compile_s", "compile", record.compile_s),
        ("preheat.duration_s", "preheat", preheat_s),
        ("interference.duration_s", "timed", timed_s),
        ("the sum of token_times", "tokens", tokens_s),
        ("the sum of device_time", "device", device_s),
        ("the sum of local", "local", local_s),
    ):
        if seconds is not None and stage in stages and _exceeds(seconds, stages[stage]):
            yield f"{name} is {_s(seconds)}, but the stage {stage!r} takes {_s(stages[stage])}"


def reading_s(record: Record) -> float:
    """Return the longest time to read clock rates and meters around the timed part, s."""
    seen = record.interference
    cores = record.machine.cpu.usable_cores if seen and seen.frequency_MHz is not None else 0
    return _PER_CORE_S * cores + (_METERS_S if any(meter.channels for meter in record.meters) else 0.0)


def around_s(record: Record, timed_s: float) -> float:
    """Return the longest time that a timed part may spend outside its blocks, s.

    What is done there takes up to twice as long if threads wait for a core all the time.
    """
    seen = record.interference
    percent = (seen.pressure_percent or 0.0) + (seen.steal_percent or 0.0) if seen else 0.0
    throttled_s = (seen.throttled_s or 0.0) if seen else 0.0
    count = len(record.blocks.duration_ns) if record.blocks else 0
    own_s = _AROUND_S + _AROUND_SHARE * timed_s + BLOCK_COST_S * count
    return own_s * (1 + min(percent, 100.0) / 100) + throttled_s + reading_s(record)


def _blocks(record: Record, blocks: Blocks) -> Iterator[str]:
    """The blocks are within the timed part, and in a process of one case they are nearly all of it."""
    sum_s = sum(blocks.duration_ns) / 1e9
    if record.device_time and record.device_time.steps_per_block > blocks.steps_per_block:
        yield f"its blocks have {blocks.steps_per_block} steps, but {record.device_time.steps_per_block} on the device"
    around = record.interference.duration_s if record.interference else record.harness.stages_s.get("timed")
    if around is None:
        return
    if _exceeds(sum_s, around):
        yield f"its blocks take {_s(sum_s)}, but the timed part {_s(around)}"
    alone = record.design.partner is None and blocks.stopped_by != "failure"
    if record.interference and alone and around - sum_s > around_s(record, around):
        yield f"its blocks take only {_s(sum_s)} of the timed part of {_s(around)}"


def _ranks(record: Record, blocks: Blocks) -> Iterator[str]:
    """A block of a process group lasts as long as in the rank that took longest."""
    longest = [max(durations) for durations in zip(*(rank.duration_ns for rank in record.ranks), strict=True)]
    if record.ranks and (count := sum(map(int.__ne__, longest, blocks.duration_ns))):
        yield f"{count} of its {len(longest)} blocks do not last as long as in the slowest of its ranks"


def _stop(record: Record, blocks: Blocks) -> Iterator[str]:
    """The reason why the timing ended applies, and no other applied before."""
    measuring, count, by = record.case.measuring, len(blocks.duration_ns), blocks.stopped_by
    alone = record.design.partner is None
    least_s = measuring.power_min_s if measuring.wants_power else 0.0
    limit_s = max(measuring.seconds, least_s) if alone else 2 * measuring.seconds
    sum_s = sum(blocks.duration_ns) / 1e9
    told = f"its blocks ended by {by!r}"
    if by == "failure" and record.error is None:
        yield f"{told}, but the trial did not fail"
    if (by == "blocks" and count != measuring.blocks) or (by == "seconds" and count >= measuring.blocks):
        yield f"{told}, but there are {count} of {measuring.blocks}"
    if by == "power_min" and not least_s:
        yield f"{told}, but no power was requested"
    required_s = {"seconds": measuring.seconds, "power_min": least_s}.get(by, 0.0)
    if alone and required_s - sum_s > around_s(record, required_s):
        yield f"{told}, but they take {_s(sum_s)} instead of {_s(required_s)}"
    if _exceeds(before_last := sum_s - blocks.duration_ns[-1] / 1e9 if count else 0.0, limit_s):
        yield f"{told} after {_s(before_last)}, but the limit is {_s(limit_s)}"
    if by == "median_precision":
        wanted = measuring.median_precision
        if wanted is None or count < MIN_BLOCKS_FOR_INTERVAL:
            yield f"{told}, but {'none was requested' if wanted is None else f'there are only {count}'}"
        elif (half := median_half_width(blocks.duration_ns)) > wanted * (1 + _ROUNDING):
            yield f"{told}, but the interval is ±{half:.3g} of the median, and ±{wanted:.3g} was requested"


def _inputs(record: Record, inputs: Inputs) -> Iterator[str]:
    """The sets of inputs are as requested, and a rotation that nothing limits has as many as it takes."""
    asked, device = record.case.measuring.cache, record.device
    if asked not in (None, inputs.cache):
        yield f"its inputs are {inputs.cache!r}, but cache={asked} was requested"
    if inputs.cache == "hot" and inputs.sets > 1:
        yield f"its inputs are 'hot', but there are {inputs.sets} sets"
    if inputs.cache == "rotate" and inputs.limited_by is None and device and device.cache_bytes and inputs.set_bytes:
        wanted = sets_of_rotation(device.cache_bytes, inputs.set_bytes)
        if inputs.sets != wanted:
            yield f"its inputs rotate through {inputs.sets} sets, but it takes {wanted} to leave the cache"


def _preheat(record: Record) -> Iterator[str]:
    preheat, measuring = record.preheat, record.case.measuring
    if preheat is None:
        return
    rates = preheat.window_steps_per_s
    if (preheat.outcome == "fixed") == measuring.preheat:
        yield f"its preheat is {preheat.outcome!r}, but preheat={str(measuring.preheat).lower()}"
    elif preheat.outcome == "fixed":
        if preheat.steps != measuring.warmup_steps or rates:
            yield f"its warm-up has {preheat.steps} steps, but {measuring.warmup_steps} were requested"
    elif not rates or preheat.steps > max(rates) * (preheat.duration_s + CLOCK_S) * (1 + _ROUNDING):
        yield f"its preheat has {preheat.steps} steps in {_s(preheat.duration_s)}, more than its rates allow"
    elif preheat.outcome == "timeout" and preheat.duration_s < measuring.preheat_max_s:
        yield f"its preheat timed out after {_s(preheat.duration_s)} of {_s(measuring.preheat_max_s)}"


def _result(record: Record) -> Iterator[str]:
    """A trial succeeds if and only if every stage did."""
    check = record.check
    if check and check.ok != check.is_within:
        errors = [f"{each.error:.3g} of {each.bound:.3g}" for each in (check, check.componentwise) if each]
        yield f"its check is {'ok' if check.ok else 'not ok'}, but the error is {' and '.join(errors)}"
    if record.status == "ok":
        if check and not check.ok:
            yield "it succeeded, but its check did not"
        for name in ("device", "check", "inputs", "build_s", "compile_s", "preheat", "cost"):
            if getattr(record, name) is None and name not in _may_lack(record):
                yield f"it succeeded, but has no {name}"
    elif record.error and record.error.kind == "skipped" and (record.blocks or record.harness.stages_s):
        yield "it was not started, but something was measured"


def _may_lack(record: Record) -> tuple[str, ...]:
    """Return what a successful trial may not have: of what a user wrote the check, of a program the first step."""
    if is_program(record.case.problem):
        return ("check", "compile_s")
    if record.case.is_emulated:
        return ("inputs", "build_s", "compile_s", "preheat", "cost")
    return ("check",) if record.case.source else ()


def _design(record: Record) -> Iterator[str]:
    design = record.design
    if (design.kind == "duet") != (design.partner is not None) or design.partner == record.trial_id:
        yield f"its design is {design.kind!r}, but its partner is {design.partner}"
    pairs = len(record.blocks.duration_ns) if record.blocks and design.kind == "duet" else 0
    if len(design.partner_first) != pairs:
        yield f"the order of {len(design.partner_first)} pairs of blocks is known, but there are {pairs}"


def _identity(record: Record) -> Iterator[str]:
    """Ids contain the time at which they were made: that of the run first, then that of the trial, then its start."""
    run, trial, started = made_at(record.run_id), made_at(record.trial_id), started_at(record)
    if run and trial and trial < run:
        yield "its trial_id is older than its run_id"
    if started is None:
        yield f"started_at is {record.started_at!r}, which is not a time in UTC"
    elif trial and started - trial < -SECOND_S:
        yield "it started before its trial_id was made"
    if record.device and record.device.platform != record.case.device:
        yield f"its device is {record.device.platform!r}, but {record.case.device!r} was requested"
    if record.device and record.case.threads not in (None, record.software.threads):
        yield f"it computed with {record.software.threads} threads, but {record.case.threads} were requested"


def made_at(name: str) -> float | None:
    """Return the time in an id, s since 1970; None if there is none, as in a record that was made for a test."""
    return _time(parsed[1], "%Y%m%dT%H%M%S.%f") if (parsed := _ID.fullmatch(name)) else None


def started_at(record: Record) -> float | None:
    """Return when a trial started, s since 1970; None if that is no time in UTC."""
    return _time(record.started_at, "%Y-%m-%dT%H:%M:%SZ")


def _time(text: str, form: str) -> float | None:
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _energy(record: Record, energy: Energy) -> Iterator[str]:
    blocks, cost = record.blocks, record.cost
    if blocks and energy.steps != len(blocks.duration_ns) * blocks.steps_per_block:
        yield (
            f"its energy is of {energy.steps} steps, but {len(blocks.duration_ns)} blocks of "
            f"{blocks.steps_per_block} steps were timed"
        )
    if cost and energy.samples != energy.steps * cost.samples:
        yield f"its energy is of {energy.samples} samples, but {energy.steps} steps have {cost.samples} each"
    windows = [_window_s(sensor) for sensor in energy.sensors]
    if energy.duration_s and not any(window and _equal(window, energy.duration_s) for window in windows):
        yield f"its energy is of {_s(energy.duration_s)}, but no sensor was read for that long"
    if blocks and energy.duration_s and _exceeds(sum(blocks.duration_ns) / 1e9, energy.duration_s):
        yield f"its blocks take {_s(sum(blocks.duration_ns) / 1e9)}, but its energy is of {_s(energy.duration_s)}"
    for name, value, several in (
        ("energy_J", energy.energy_J, [sensor for sensor in energy.sensors if sensor.measured]),
        ("total_J", energy.total_J, energy.sensors),
    ):
        parts = [each.energy_J for each in several if each.energy_J is not None]
        low, high = min(parts, default=0.0), sum(parts)  # two meters may read the same: then one of them counts
        if value is not None and not low * (1 - _ROUNDING) <= value <= high * (1 + _ROUNDING):
            yield f"energy.{name} is {_text(value, 'J')}, but its sensors measured {_text(high, 'J')}"
        if value is not None and (unread := {*range(len(record.machines))} - {each.node for each in several}):
            yield f"energy.{name} is {_text(value, 'J')}, but no sensor of node {min(unread)} was read"
    for each, window_s in zip(energy.sensors, windows, strict=True):
        yield from (f"the sensor {each.id} {each.domain}: {text}" for text in _sensor(each, window_s))


def _window_s(sensor: SensorEnergy) -> float | None:
    if sensor.begin_ns is None or sensor.end_ns is None:
        return None
    return (sensor.end_ns - sensor.begin_ns) / 1e9


def _sensor(sensor: SensorEnergy, window_s: float | None) -> Iterator[str]:
    energy, mean, polled = sensor.energy_J, sensor.mean_W, sensor.polled_J
    if energy is not None and window_s and mean is not None and not _equal(mean * window_s, energy):
        yield f"{_text(mean, 'W')} for {_s(window_s)} are not {_text(energy, 'J')}"
    if sensor.method == "polled" and energy is not None and polled is not None and not _equal(energy, polled):
        yield f"{_text(energy, 'J')} were polled, but also {_text(polled, 'J')}"
    if sensor.ratio is not None and energy is not None and polled and not _equal(sensor.ratio * polled, energy):
        yield f"the ratio of {_text(energy, 'J')} and {_text(polled, 'J')} is not {sensor.ratio:.4g}"
    if not _ascending(sensor.p50_W, sensor.p95_W, sensor.peak_W):
        yield "its percentiles do not ascend"


def _profile(record: Record, trace: Trace) -> Iterator[str]:
    """Parts of a profile add up to the whole."""
    whole = [device for device in trace.devices if not device.track]
    for name in ("busy_ns", "idle_ns"):
        if getattr(trace, name) != sum(getattr(each, name) for each in whole):
            yield f"trace.{name} is not the sum over its devices"
    if trace.wall_ns != max((device.wall_ns for device in whole), default=0):
        yield "trace.wall_ns is not that of its devices"
    if (trace.waiting_ns or 0) > trace.communication_ns or trace.hidden_ns > trace.communication_ns:
        yield "a part of the communication takes longer than the communication"
    if len(trace.critical_ranks) not in (0, trace.steps):
        yield f"its trace has {trace.steps} steps, but critical ranks of {len(trace.critical_ranks)}"
    if any(device.busy_ns + device.idle_ns != device.wall_ns for device in trace.devices):
        yield "a device of its trace is not either busy or idle"
    if len(trace.step_ns) != trace.steps:
        yield f"its trace has {trace.steps} steps, but {len(trace.step_ns)} step times"
    if trace.complete == bool(trace.missing):
        yield "its trace is complete and misses something, or neither"
    if (of_scopes := sum(scope.root_ns for scope in record.scopes)) != trace.busy_ns:
        yield f"its scopes take {_s(of_scopes / 1e9)}, but its trace {_s(trace.busy_ns / 1e9)}"
    if any(scope.pure_ns > scope.root_ns or sum(scope.step_ns) > scope.root_ns for scope in record.scopes):
        yield "a part of a scope takes longer than the scope"
    if sum(each.busy_ns for each in record.kernels) > trace.busy_ns:
        yield "its kernels take longer than its trace"
    for kernel in record.kernels:
        spread = _ascending(kernel.min_ns, kernel.p5_ns, kernel.median_ns, kernel.p95_ns, kernel.max_ns)
        if not spread or not _equal(kernel.mean_ns * kernel.count, kernel.self_ns):
            yield f"the times of the kernel {kernel.name} do not agree"


def _ascending(*values: float | None) -> bool:
    return all(one <= two * (1 + _ROUNDING) for one, two in pairwise(value for value in values if value is not None))
