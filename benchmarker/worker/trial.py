"""The worker's side of a trial: its stages, and what is sent to the parent in each of them."""

import gc
import random
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from benchmarker.api.case import Case, Measuring
from benchmarker.api.errors import TrialError, UserError
from benchmarker.api.problem import Problem, Workload
from benchmarker.api.program import Execution
from benchmarker.formatting import error_line, one_line
from benchmarker.hooks import registry
from benchmarker.machine import counters, perf_events
from benchmarker.power.sampler_client import Gauge, SamplerClient
from benchmarker.records.record import (
    Blocks,
    Check,
    Componentwise,
    CostPart,
    FailureKind,
    Interference,
    Local,
    Memory,
    StoppedBy,
    TokenTimes,
)
from benchmarker.worker import timing
from benchmarker.worker.bench import Bench
from benchmarker.worker.channel import Channel, LostPeerError, alone, connect_to_rank_0, listen_for_ranks
from benchmarker.worker.correctness import REFERENCE, unlike_weights, worst_of
from benchmarker.worker.parent import Parent, Stages
from benchmarker.worker.process_group import Group, RankRunner
from benchmarker.worker.protocol import Done, Events, RecordPart, Task

GROUP_TRIES = 3
"""Blocks of a process group that must be long enough before their steps are chosen: one late rank makes them longer."""
DUET_TRIES, DUET_PART = 20, 0.1
"""The same in a duet, and how much of a block each is: cases whose blocks are unlike in length are disturbed unlike.

What is shorter than the time slices of the system shows how fast a step is beside other work.
"""
LOCAL_S = 10.0
"""Longest time after which no further turns of a local phase begin."""
MOST_LOCAL_DEVICES = 256
"""Most devices with a local phase: each is alone once, so its time and its numbers grow with their square."""
LOCAL_DIVISOR = 4
"""Its blocks have so many times fewer steps than timed ones; that ranks begin at unlike times matters so much more."""


def measure(task: Task, events: Events, parent: Parent, kind: type[Problem] | None = None) -> None:
    """Run a trial, or a rank of one; any error is sent as its failure. A problem of no plugin is given as its class."""
    stages = Stages(events)
    groups: list[Group] = []
    with failures_sent(groups, stages):
        _open(task.cases, groups, stages, lambda case: open_case(task, case, stages, parent, kind=kind))
        rng = random.Random(task.seed)  # noqa: S311 - an order, not a secret
        if groups[0].coordinate(lambda: _measure(groups, stages, rng)):
            events.send(Done())


def measure_here(cases: Sequence[Case], kind: type[Problem], stages: Stages, seed: int) -> None:
    """Run a trial of one or two cases of a problem in this process, which goes on afterwards; raises any error.

    A wrong result is sent as the trial's failure.
    """
    groups: list[Group] = []
    try:
        _open(cases, groups, stages, lambda case: Group(Bench(case, kind=kind), alone(), stages, SamplerClient({})))
        _measure(groups, stages, random.Random(seed))  # noqa: S311 - an order, not a secret
    finally:
        gc.unfreeze()  # what the timed part had exempted from collection


def _open(cases: Iterable[Case], groups: list[Group], stages: Stages, opened: Callable[[Case], Group]) -> None:
    """Add a group for each case, and send what is known about its device."""
    with stages("open"):
        for stages.of, case in enumerate(cases):
            group = opened(case)
            stages.send(group.bench.describe())
            groups.append(group)


def survey(task: Task, events: Events, parent: Parent) -> None:
    """Run a short trial of each case, one after the other, each freed before the next; see `Task`."""
    for events.of, case in enumerate(task.cases):
        if events.of >= task.required and time.monotonic() - task.spawned_s >= task.most_s:
            return
        measure(msgspec.structs.replace(task, cases=(case,)), events, parent)
        gc.unfreeze()  # what the trial had exempted from collection
        gc.collect()


@contextmanager
def failures_sent(groups: Sequence[Group], stages: Stages) -> Iterator[None]:
    """Send any error as the failure of the trial."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any exception becomes the record's error
        if not isinstance(error, UserError):
            traceback.print_exc()
        frameworks = [group.bench.framework for group in groups]
        out_of_memory = any(framework.is_out_of_memory(error) for framework in frameworks)
        kind: FailureKind = "out_of_memory" if out_of_memory or isinstance(error, MemoryError) else "exception"
        status = None
        if isinstance(error, TrialError):
            kind, status = error.kind, error.exit
        lost_peer = isinstance(error, LostPeerError) or any(framework.is_lost_peer(error) for framework in frameworks)
        files = {str(registry.source_file(group.bench.case.problem)) for group in groups}
        stages.fail(kind, _one_line(error, files), lost_peer=lost_peer, status=status)


def open_case(
    task: Task,
    case: Case,
    stages: Stages,
    parent: Parent,
    profile_into: Path | None = None,
    kind: type[Problem] | None = None,
) -> Group:
    """Open a case in this process, which is a rank of its process group."""
    channel = _channel(task, case, stages, parent)
    parent.waits = channel.waits
    bench = Bench(case, profile_into, channel if case.ranks > 1 and not case.independent else None, kind)
    parent.synchronize = getattr(bench.framework.synchronize, "__code__", None)
    return Group(bench, channel, stages, SamplerClient(task.sensors))


def _channel(task: Task, case: Case, stages: Stages, parent: Parent) -> Channel:
    """Connect this rank with the others, if there are any."""
    if case.ranks == 1:
        return alone()
    if task.rank == 0:
        return listen_for_ranks(case.ranks, stages.publish, task.peer_address)
    channel = connect_to_rank_0(task.rank, case.ranks, parent.address())
    channel.local_rank = task.rank % case.ranks_per_node
    return channel


def _measure(groups: list[Group], stages: Stages, rng: random.Random) -> bool:
    """Check, build, time and verify; reports any failure, and returns whether there was none.

    A case of which no time is wanted, as its format is emulated, is only checked.

    In a duet, the order of the two cases in each stage is drawn from `rng`.
    """

    def in_random_order() -> Iterator[Group]:
        for number in rng.sample(range(len(groups)), len(groups)):
            stages.of = number
            yield groups[number]

    with stages("check"):
        if not all(_check_one(group, stages) for group in in_random_order()):
            return False
    if any(group.bench.case.is_emulated for group in groups):
        return True
    with stages("build"):
        for group in in_random_order():
            _build_one(group, stages)
    steppers = [group.stepper for group in groups]
    if (execution := groups[0].runner.workload.execution) and not execution.stepwise:
        stages.send(RecordPart(reasons={"compile_s": "the first execution of a program is timed as the others are"}))
    else:
        with stages("compile"):
            for _ in in_random_order():
                stages.send(RecordPart(compile_s=steppers[stages.of].block(1) / 1e9))
    with stages("preheat"):
        for group in in_random_order():
            gauge = partial(_gauge, group)
            preheat = timing.preheat(steppers[stages.of], group.bench.case.measuring, stages.report_progress, gauge)
            stages.send(RecordPart(preheat=preheat))
    with stages("timed"):
        if len(groups) == 1:
            steps_per_block = [_time(groups[0], stages)]
            _send_counters(groups[0], stages)
        else:
            steps_per_block = _time_duet(groups[0].runner, steppers, groups[0].bench.case.measuring, stages, rng)
    if any(group.runner.workload.tokens for group in groups):
        with stages("tokens"):
            for group in in_random_order():
                _time_tokens(group.runner.workload, group.bench.case.measuring, stages)
    with stages("verify"):
        if len(groups) == 1:
            _send_memory(groups[0], stages)
        for group in in_random_order():
            stages.send(RecordPart(figures=[*group.runner.workload.figures()]))
            if execution and (trouble := _send_told(execution, stages, group.bench.case.precision)):
                stages.fail("check", trouble)
                return False
            for rank, trouble in enumerate(group.gather(RankRunner.verify)):
                if trouble:
                    stages.fail("check", f"rank {rank}: {trouble}" if group.size > 1 else trouble)
                    return False
            if suspicions := [text for texts in group.gather(RankRunner.suspicions) for text in texts]:
                stages.send(RecordPart(suspicions=suspicions))
    if any(group.bench.framework.device_timer() for group in groups):
        with stages("device"):
            for group in in_random_order():
                stages.send(_device_time(group, steps_per_block[stages.of or 0]))
    if groups[0].bench.case.devices > 1:
        with stages("local"):
            local = local_phase(groups[0], steps_per_block[0], groups[0].bench.case.measuring, rng)
            part = RecordPart(local=local) if isinstance(local, Local) else RecordPart(reasons={"local": local})
            stages.send(part)
    return True


def _send_told(execution: Execution, stages: Stages, precision: str) -> str:
    """Send how a program says its output compares; returns what is wrong by that, empty if nothing is."""
    told = execution.check()
    if isinstance(told, str):
        stages.send(RecordPart(reasons={"check": told}))
    if told is None or isinstance(told, str):
        return ""
    check = Check(told.error, told.output, told.bound, ok=told.error <= told.bound, against="what the program says")
    stages.send(RecordPart(check=check))
    trouble = _error_text(check, precision)
    return trouble and f"wrong result: {trouble}"


def _send_memory(group: Group, stages: Stages) -> None:
    """Send the peak memory of a single process, or of each rank and of all together."""
    by_rank = group.gather(RankRunner.memory)
    part = RecordPart(memory=by_rank[0])
    execution = group.runner.workload.execution
    if execution and isinstance(why := execution.peak_rss_bytes(), str):
        part = RecordPart(memory=by_rank[0], reasons={"memory.host_peak_rss_bytes": why})
    if group.size > 1:
        part = RecordPart(memory=_total_memory(by_rank), ranks=group.ranks(by_rank))
    stages.send(part)


def _total_memory(by_rank: list[Memory]) -> Memory:
    """Return the sum over ranks; None where one is not known."""

    def total(values: list[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    return Memory(
        device_peak_bytes=total([memory.device_peak_bytes for memory in by_rank]),
        host_peak_rss_bytes=total([memory.host_peak_rss_bytes for memory in by_rank]),
    )


def _check_one(group: Group, stages: Stages) -> bool:
    case, ranks = group.bench.case, []
    for compared in group.gather(RankRunner.compare):
        if isinstance(compared, str):
            stages.send(RecordPart(reasons={"check": compared}))
            return True
        ranks.append(compared)
    worst = worst_of(ranks)
    stages.send(RecordPart(check=worst))
    trouble = _error_text(worst, case.precision)
    if not trouble and case.parallel != "none":
        trouble = unlike_weights(ranks) or _error_text(worst_of(group.gather(RankRunner.compare_gradients)), "fp64")
        trouble = trouble and f"exchange between devices: {trouble}"
    if trouble:
        stages.fail("check", f"wrong result: {trouble}")
    return not trouble


def _error_text(check: Check, precision: str) -> str:
    """Return what is wrong according to a check; empty if nothing is."""
    if check.ok:
        return ""
    against = "float64" if check.against == REFERENCE else check.against
    wrong: Check | Componentwise = check
    what, share = check.output, "relative"
    if check.error <= check.bound and check.componentwise:
        wrong = check.componentwise
        what, share = f"one element of {wrong.output}", "as a share of the sum of its absolute products"
    place = f"{wrong.output}{wrong.place}"
    if wrong.error == sys.float_info.max:
        return f"{what} contains NaN or infinity; {place}"
    error = f"{what} is off by {wrong.error:.3g} ({share}, against {against})"
    return f"{error}; the bound for {precision} is {wrong.bound:.3g}; {place}"


def _build_one(group: Group, stages: Stages) -> None:
    start, bench = time.perf_counter(), group.bench
    inputs, recomputed_flops = group.build()
    execution = group.runner.workload.execution
    counted = execution.counted() if execution else group.runner.workload.counted
    work = bench.problem.cost(bench.case.mode, bench.case.precision) if counted is None else counted
    by_formula = asdict(work)
    if bench.case.independent:
        by_formula = {
            name: value * bench.case.devices if isinstance(value, int) else value for name, value in by_formula.items()
        }
    cost = msgspec.convert({**by_formula, "recomputed_flops": recomputed_flops}, CostPart)
    stages.send(RecordPart(build_s=time.perf_counter() - start, inputs=inputs, cost=cost))


def _time(group: Group, stages: Stages) -> int:
    """Time the blocks between two readings of the meters, on each node of its own; returns the steps of each.

    Blocks that ended before an error are sent in any case.
    """
    measuring = group.bench.case.measuring
    execution = group.runner.workload.execution
    is_whole = execution is not None and not execution.stepwise
    steps = 1 if is_whole else timing.steps_per_block(group.stepper, GROUP_TRIES if group.size > 1 else 1)
    durations: list[int] = []
    stopped_by: StoppedBy = "failure"
    interference: Interference | UnsetType = UNSET
    least_s = measuring.power_min_s if measuring.wants_power and any(group.gather(RankRunner.reads_power)) else 0.0
    group.gather(RankRunner.quiet)
    group.gather(RankRunner.begin_counting)
    before = _counter_snapshots(group)
    group.blocks_ns.clear()
    group.gather(RankRunner.mark, "begin")
    try:
        stopped_by = timing.timed_blocks(group.stepper, steps, measuring, durations, stages.report_progress, least_s)
    finally:
        if stopped_by == "failure" and group.size > 1:  # ranks of which one failed cannot be called
            group.runner.mark("end")
        else:
            group.gather(RankRunner.mark, "end")
            by_node = [counters.between(*pair) for pair in zip(before, _counter_snapshots(group), strict=True)]
            interference = counters.over_nodes(by_node)
        stages.send(
            RecordPart(
                interference=interference,
                blocks=Blocks(steps, durations, stopped_by) if durations else UNSET,
                ranks=group.ranks([None] * group.size) if group.size > 1 else UNSET,
            )
        )
    return steps


def _gauge(group: Group) -> Gauge:
    """Return the power of all nodes since the last call, and the highest temperature of any."""
    gauges = group.gather(RankRunner.gauge)
    powers = [gauge.power_W for gauge in gauges if gauge.power_W is not None]
    temperatures = [gauge.temperature_C for gauge in gauges if gauge.temperature_C is not None]
    return Gauge(sum(powers) if powers else None, max(temperatures, default=None))


def _counter_snapshots(group: Group) -> list[counters.Snapshot]:
    """Return the counters of each node, with what all its processes count of themselves."""
    ranks, count = group.gather(RankRunner.counter_snapshot), group.bench.case.ranks_per_node
    return [counters.over_ranks(ranks[at : at + count]) for at in range(0, len(ranks), count)]


def _send_counters(group: Group, stages: Stages) -> None:
    """Send what event counters counted in the timed blocks, if the case asks for any."""
    if group.bench.case.measuring.counters != perf_events.NONE:
        counts, reasons = perf_events.totals(group.gather(RankRunner.end_counting))
        stages.send(RecordPart(counters=counts, reasons=reasons))


def _time_duet(
    runner: RankRunner, steppers: list[timing.Steps], measuring: Measuring, stages: Stages, rng: random.Random
) -> list[int]:
    """Time the blocks of two cases in turns; returns the steps of each.

    Pairs that ended before an error are sent in any case.
    """
    steps = [timing.steps_per_block(stepper, DUET_TRIES, DUET_PART) for stepper in steppers]
    durations: tuple[list[int], list[int]] = ([], [])
    second_first: list[bool] = []
    stopped_by: StoppedBy = "failure"
    timing.quiet()
    before = runner.counter_snapshot()
    try:
        stopped_by = timing.duet_blocks(steppers, steps, measuring, durations, second_first, rng, stages)
    finally:
        interference = counters.between(before, runner.counter_snapshot())
        failed, pairs = stages.of, len(second_first)
        for stages.of in (0, 1):
            part = RecordPart(interference=interference)
            if pairs:
                part = RecordPart(
                    interference=interference,
                    partner_first=[first != bool(stages.of) for first in second_first],
                    blocks=Blocks(steps[stages.of], durations[stages.of][:pairs], stopped_by),
                )
            stages.send(part)
        stages.of = failed
    return steps


def _time_tokens(workload: Workload, measuring: Measuring, stages: Stages) -> None:
    """Time single tokens, if the workload generates any; requests that ended before an error are sent in any case."""
    if workload.tokens is None:
        return
    times = TokenTimes([], [])
    try:
        timing.token_times(workload.tokens, measuring, times.first_ns, times.gap_ns, stages.report_progress)
    finally:
        if times.first_ns or times.gap_ns:
            stages.send(RecordPart(token_times=times))


def _device_time(group: Group, steps: int) -> RecordPart:
    """Return the time of steps by the clock of the device, or why there is none."""
    timer = group.bench.framework.device_timer()
    if timer is None:
        return RecordPart()
    if group.bench.case.devices > 1:
        return RecordPart(reasons={"device_time": "several devices wait for each other"})
    try:
        times = timing.device_time(timer, group.runner.workload.step, steps)
    except Exception as error:  # noqa: BLE001 - what was timed before is no worse for it
        return RecordPart(reasons={"device_time": error_line(error)})
    if times is None:
        why = "a step waits for its results, or launches more than the device's queue holds"
        return RecordPart(reasons={"device_time": why})
    return RecordPart(device_time=times)


def _one_line(error: BaseException, files: Collection[str]) -> str:
    """Return an error in one line, and where it arose if that is in one of the user's files."""
    if isinstance(error, UserError):
        return one_line(str(error))[:300]
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    place = f" ({Path(places[-1].filename).name}:{places[-1].lineno})" if places else ""
    return error_line(error, place)


def local_phase(group: Group, timed_steps: int, measuring: Measuring, rng: random.Random) -> Local | str:
    """Time blocks of several devices with and without communication, to tell what keeps them from scaling; or why not.

    In an exchange all devices wait for the slowest, so that synchronised steps do not show which one it is. Each turn
    is therefore three blocks, shorter than the timed ones of `timed_steps`, in random order: the step of all; the work
    of each device without communication, on all devices at once; and the same on one device alone, each in its turn.
    What differs between them has one cause each:

        alone        one device has what they share to itself: memory, power, cores
        together     ... and now shares it with the others: contention; the slowest is a straggler
        synchronised ... and now communicates, and waits for the slowest

    Each device is alone in as many turns. There are as many turns as blocks are requested, within the time limits.
    """
    devices, steps = group.bench.case.devices, max(1, timed_steps // LOCAL_DIVISOR)
    if devices > MOST_LOCAL_DEVICES:
        return (
            f"{devices} devices are too many for each to be alone once; at most {MOST_LOCAL_DEVICES} have a local phase"
        )
    if trouble := next(filter(None, group.gather(RankRunner.open_local)), ""):
        return trouble
    local = Local(steps, [], [], [], [])
    deadline = time.perf_counter() + min(measuring.seconds, LOCAL_S)
    while not local.alone_ns or (len(local.alone_ns) + devices <= measuring.blocks and time.perf_counter() < deadline):
        for device in rng.sample(range(devices), devices):
            local.alone_device.append(device)
            for kind in rng.sample(("synchronised", "together", "alone"), 3):
                if kind == "synchronised":
                    local.synchronised_ns.append(group.gather(RankRunner.block, steps))
                elif kind == "together":
                    by_rank = group.gather(RankRunner.local_together, steps)
                    local.together_ns.append([duration_ns for durations_ns in by_rank for duration_ns in durations_ns])
                else:
                    local.alone_ns.append(max(group.gather(RankRunner.local_alone, device, steps)))
    return local
