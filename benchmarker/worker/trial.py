"""The worker's side of a trial: its stages, and what is sent to the parent in each of them."""

from __future__ import annotations

import gc
import random
import time
import traceback
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.formatting import one_line
from benchmarker.machine import counters
from benchmarker.power.window import Edges, Gauge
from benchmarker.records.record import Blocks, CostPart, Local, Memory, StoppedBy, TokenTimes
from benchmarker.worker import timing
from benchmarker.worker.bench import Bench
from benchmarker.worker.correctness import unlike_weights, worst_of
from benchmarker.worker.gang import Follower, Leader, LostPeerError, join, lead
from benchmarker.worker.local import local_phase
from benchmarker.worker.protocol import OfCase
from benchmarker.worker.share import Solo
from benchmarker.worker.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarker.api.case import Case, Measuring
    from benchmarker.api.problem import Workload
    from benchmarker.records.record import Check
    from benchmarker.worker.parent import Parent
    from benchmarker.worker.protocol import Events, Request

GANG_TRIES = 3
"""Blocks of a gang that must be long enough before their steps are chosen: one late rank makes a step seem long."""


def measure(request: Request, events: Events, parent: Parent) -> None:
    """Run a trial, or a rank of one; any error is sent as its failure."""
    stages = Stages(events)
    teams: list[Solo | Follower] = []
    with failures_sent(teams, stages):
        with stages("open"):
            for number, case in enumerate(request.cases):
                stages.of = number
                team = open_team(request, case, stages, parent)
                stages.send(part=team.bench.describe())
                teams.append(team)
        if _run(teams, request, stages):
            events.send(done=True)


def survey(request: Request, events: Events, parent: Parent) -> None:
    """Run a short trial of each case, one after the other, each freed before the next; see `Request`."""
    for number, case in enumerate(request.cases):
        if number >= request.required and time.monotonic() - request.spawned_s >= request.most_s:
            return
        measure(msgspec.structs.replace(request, cases=(case,)), OfCase(events, number), parent)
        gc.unfreeze()  # what the trial had exempted from collection
        gc.collect()


@contextmanager
def failures_sent(teams: Sequence[Solo | Follower], stages: Stages) -> Iterator[None]:
    """Send any error as the failure of the trial."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - any exception becomes the record's error
        if not isinstance(error, UserError):
            traceback.print_exc()
        frameworks = [team.bench.framework for team in teams]
        out_of_memory = any(framework.is_out_of_memory(error) for framework in frameworks)
        kind = "out_of_memory" if out_of_memory or isinstance(error, MemoryError) else "exception"
        lost_peer = isinstance(error, LostPeerError) or any(each.is_lost_peer(error) for each in frameworks)
        stages.fail(kind, _one_line(error), lost_peer=lost_peer)


def open_team(
    request: Request, case: Case, stages: Stages, parent: Parent, profile_into: Path | None = None
) -> Solo | Follower:
    """Open a case in this process, which is a rank of a gang if the case has several."""
    edges = Edges(request.sensors)
    if case.ranks == 1:
        return Solo(Bench(case, profile_into), edges)
    rank = request.rank
    channel = join(rank, case.ranks, parent.address()) if rank else lead(case.ranks, stages.publish, request.towards)
    channel.local_rank = rank % case.ranks_per_node
    parent.waits = channel.waits
    bench = Bench(case, profile_into, None if case.independent else channel)
    parent.synchronize = getattr(bench.framework.synchronize, "__code__", None)
    return Follower(bench, channel, edges) if rank else Leader(bench, channel, stages, edges)


def _run(teams: list[Solo | Follower], request: Request, stages: Stages) -> bool:
    """Measure, or follow rank 0, which does; reports any wrong result, and returns whether there was none."""
    (first, *_) = teams
    if isinstance(first, Follower):
        first.follow(stages)
        return True
    rng = random.Random(request.seed)  # noqa: S311 - an order, not a secret
    ok = _measure([team for team in teams if isinstance(team, Solo)], stages, rng)
    if isinstance(first, Leader):
        first.end()
    return ok


def _measure(teams: list[Solo], stages: Stages, rng: random.Random) -> bool:
    """Check, build, time and verify; reports any failure, and returns whether there was none.

    In a duet, the order of the two cases in each stage is drawn from `rng`.
    """

    def each() -> Iterator[Solo]:
        for number in rng.sample(range(len(teams)), len(teams)):
            stages.of = number
            yield teams[number]

    with stages("check"):
        if not all(_check_one(team, stages) for team in each()):
            return False
    with stages("build"):
        for team in each():
            _build_one(team, stages)
    steppers = [team.stepper for team in teams]
    with stages("compile"):
        for _ in each():
            stages.send(part={"compile_s": steppers[stages.of].block(1) / 1e9})
    with stages("preheat"):
        for team in each():
            gauge = partial(_gauge, team)
            preheat = timing.preheat(steppers[stages.of], team.bench.case.measuring, stages.tell, gauge)
            stages.send(part={"preheat": preheat})
    steps_per_block = 0
    with stages("timed"):
        if len(teams) == 1:
            steps_per_block = _time(teams[0], stages)
        else:
            _time_duet(steppers, teams[0].bench.case.measuring, stages, rng)
    if any(team.share.workload.tokens for team in teams):
        with stages("tokens"):
            for team in each():
                _time_tokens(team.share.workload, team.bench.case.measuring, stages)
    with stages("verify"):
        if len(teams) == 1:
            _tell_memory(teams[0], stages)
        for team in each():
            for rank, trouble in enumerate(team.all("trouble")):
                if trouble:
                    stages.fail("check", f"rank {rank}: {trouble}" if team.bench.case.ranks > 1 else trouble)
                    return False
    if teams[0].bench.case.devices > 1:
        with stages("local"):
            found = local_phase(teams[0], steps_per_block, teams[0].bench.case.measuring, rng)
            stages.send(part={"local": found} if isinstance(found, Local) else {"reasons": {"local": found}})
    return True


def _tell_memory(team: Solo, stages: Stages) -> None:
    """Tell the peak memory of a process, or of each rank of a gang and of all."""
    found: list[Memory] = team.all("memory")
    part: dict[str, Any] = {"memory": found[0]}
    if isinstance(team, Leader):
        part = {"memory": _together(found), "ranks": team.ranks(found)}
    stages.send(part=part)


def _together(ranks: list[Memory]) -> Memory:
    """Return the sum over ranks; None where one is not known."""

    def total(values: list[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    return Memory(
        device_peak_bytes=total([each.device_peak_bytes for each in ranks]),
        host_peak_rss_bytes=total([each.host_peak_rss_bytes for each in ranks]),
    )


def _check_one(team: Solo, stages: Stages) -> bool:
    case, ranks = team.bench.case, team.all("compare")
    found = worst_of(ranks)
    stages.send(part={"check": found})
    trouble = _off(found, case.precision)
    if not trouble and case.parallel != "none":
        trouble = unlike_weights(ranks) or _off(worst_of(team.all("compare_gradients")), "fp64")
        trouble = trouble and f"exchange between devices: {trouble}"
    if trouble:
        stages.fail("check", f"wrong result: {trouble}")
    return not trouble


def _off(found: Check, precision: str) -> str:
    """Return what is wrong according to a check; empty if nothing is."""
    if found.ok:
        return ""
    how = f"{found.output} is off by {found.error:.3g} (relative, against float64)"
    return f"{how}; the bound for {precision} is {found.bound:.3g}"


def _build_one(team: Solo, stages: Stages) -> None:
    start, bench = time.perf_counter(), team.bench
    recomputed_flops = sum(team.all("build"))
    by_formula = asdict(bench.problem.cost(bench.params, bench.case.mode, bench.case.precision))
    if bench.case.independent:
        by_formula = {name: value and value * bench.case.devices for name, value in by_formula.items()}
    cost = msgspec.convert({**by_formula, "recomputed_flops": recomputed_flops}, CostPart)
    stages.send(part={"build_s": time.perf_counter() - start, "cost": cost})


def _time(team: Solo, stages: Stages) -> int:
    """Time the blocks between two readings of the meters, on each node of its own; returns the steps of each.

    Blocks that ended before an error are sent in any case.
    """
    stepper, measuring = team.stepper, team.bench.case.measuring
    steps = timing.steps_per_block(stepper, GANG_TRIES if isinstance(team, Leader) else 1)
    durations: list[int] = []
    stopped_by: StoppedBy = "failure"
    least_s = measuring.power_min_s if measuring.wants_power and any(team.all("tells_power")) else 0.0
    team.all("quiet")
    before = _look(team)
    if isinstance(team, Leader):
        team.blocks_ns.clear()
    team.all("mark", "begin")
    part: dict[str, Any] = {}
    try:
        stopped_by = timing.timed_blocks(stepper, steps, measuring, durations, stages.tell, least_s)
    finally:
        if stopped_by == "failure" and isinstance(team, Leader):  # a gang that failed cannot be asked
            team.share.mark("end")
        else:
            team.all("mark", "end")
            counted = [counters.between(*each) for each in zip(before, _look(team), strict=True)]
            part["interference"] = counters.over_nodes(counted)
        if durations:
            part["blocks"] = Blocks(steps_per_block=steps, duration_ns=durations, stopped_by=stopped_by)
        if isinstance(team, Leader):
            part["ranks"] = team.ranks([None] * team.bench.case.ranks)
        stages.send(part=part)
    return steps


def _gauge(team: Solo) -> Gauge:
    """Return the power of all nodes since the last call, and the highest temperature of any."""
    found: list[Gauge] = team.all("gauge")
    powers = [each.power_W for each in found if each.power_W is not None]
    temperatures = [each.temperature_C for each in found if each.temperature_C is not None]
    return Gauge(sum(powers) if powers else None, max(temperatures, default=None))


def _look(team: Solo) -> list[counters.Snapshot]:
    """Return the counters of each node, with what all its processes count of themselves."""
    ranks, count = team.all("look"), team.bench.case.ranks_per_node
    return [counters.together(ranks[at : at + count]) for at in range(0, len(ranks), count)]


def _time_duet(steppers: list[timing.Steps], measuring: Measuring, stages: Stages, rng: random.Random) -> None:
    """Time the blocks of two cases in turns; pairs that ended before an error are sent in any case."""
    steps = [timing.steps_per_block(stepper) for stepper in steppers]
    durations: tuple[list[int], list[int]] = ([], [])
    second_first: list[bool] = []
    stopped_by: StoppedBy = "failure"
    timing.quiet()
    before = counters.look()
    try:
        stopped_by = timing.duet_blocks(steppers, steps, measuring, durations, second_first, rng, stages)
    finally:
        interference = counters.between(before, counters.look())
        failed, pairs = stages.of, len(second_first)
        for stages.of in (0, 1):
            part: dict[str, Any] = {"interference": interference}
            if pairs:
                part["partner_first"] = [first != bool(stages.of) for first in second_first]
                part["blocks"] = Blocks(
                    steps_per_block=steps[stages.of], duration_ns=durations[stages.of][:pairs], stopped_by=stopped_by
                )
            stages.send(part=part)
        stages.of = failed


def _time_tokens(workload: Workload, measuring: Measuring, stages: Stages) -> None:
    """Time single tokens, if the workload generates any; requests that ended before an error are sent in any case."""
    if workload.tokens is None:
        return
    times = TokenTimes([], [])
    try:
        timing.token_times(workload.tokens, measuring, times.first_ns, times.gap_ns, stages.tell)
    finally:
        if times.first_ns or times.gap_ns:
            stages.send(part={"token_times": times})


def _one_line(error: BaseException) -> str:
    text = one_line(str(error))[:300]
    if isinstance(error, UserError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
