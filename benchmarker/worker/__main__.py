"""The worker: one process that does one task, then ends.

It reads one request from standard input and writes events to the standard output that it was started with. Anything
that a library prints goes to standard error instead. The worker ends when its parent does.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarker.api.case import MODES
from benchmarker.api.errors import TerminatedError, UserError, terminate
from benchmarker.api.precision import PRECISIONS
from benchmarker.formatting import one_line
from benchmarker.hooks import registry
from benchmarker.machine import counters
from benchmarker.power.window import Edges
from benchmarker.records.record import Blocks, CostPart, Memory, StoppedBy, TokenTimes
from benchmarker.worker import timing
from benchmarker.worker.bench import BATCHES, Bench
from benchmarker.worker.correctness import TRAINING_STEPS, check
from benchmarker.worker.protocol import Events, Request
from benchmarker.worker.serve import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarker.api.case import Measuring
    from benchmarker.api.framework import FrameworkInfo
    from benchmarker.api.problem import Support, Workload

TELL_EVERY_S = 1.0
"""Shortest time between progress reports: sending and showing them takes processor time from the measurement."""


def main() -> None:
    """Do the task that is read from standard input."""
    started_s = time.monotonic()
    events = Events(os.dup(1))
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=Request)
    events.send(took=["python", started_s - request.spawned_s])
    if request.task != "serve":
        threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGTERM, terminate)  # timed out: send what is available, then end
    try:
        tasks = {"describe": _describe, "trial": _trial, "check": _check, "profile": _profile, "serve": _serve}
        tasks[request.task](request, events)
    except UserError as error:
        events.send(refused=one_line(str(error)))
    except TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    sys.stderr.flush()
    os._exit(0)  # everything is sent; the frameworks' own clean-up takes long and may hang


def _end_with_parent() -> None:
    """End the process when the pipe from the parent closes, so that a killed parent leaves no worker behind."""
    os.read(0, 1)
    os._exit(1)


def _describe(request: Request, events: Events) -> None:
    info: FrameworkInfo = registry.load([f"framework.{request.framework}"]).hook.describe_framework()
    support: Support | None = None
    if request.problem:
        support = registry.load([f"workload.{request.problem}.{request.framework}"]).hook.describe_workload()
        assert support is not None
        for mode, precisions in support.precisions.items():
            if unknown := ({mode} - {*MODES}) | ({*precisions} - {*PRECISIONS}):
                address = f"workload.{request.problem}.{request.framework}"
                raise UserError(f"{address} lists {', '.join(sorted(unknown))}, which is neither mode nor precision")
    events.send(info=info, support=support)


def _check(request: Request, events: Events) -> None:
    """Check each mode at the small size, and train it for some steps if training is among the modes."""
    (case,) = request.cases
    bench = Bench(case)
    size = bench.problem.small(bench.params)
    for mode in request.modes:
        bench.case = msgspec.structs.replace(case, mode=mode)
        data = bench.data(size, TRAINING_STEPS)
        events.send(mode=mode, check=check(bench.build(size, data), data, bench.problem, size, bench.case))
        if mode == "training":
            workload = bench.build(size, bench.data(size, BATCHES))
            losses = [float(workload.outputs(workload.step())["loss"]) for _ in range(request.steps)]
            events.send(losses=losses)


def _profile(request: Request, events: Events) -> None:
    """Trace some steps, with a synchronisation after each; the warm-up is not in the trace."""
    (case,) = request.cases
    stages = _Stages(events)
    with stages("open"):
        bench = Bench(case, case.measuring.profiling)
        variables = bench.describe()["variables"]
        profiler = bench.framework.profile(Path(request.folder))
    with stages("build"):
        workload = bench.build(bench.params, bench.data(bench.params, BATCHES))
    stepper = timing.Stepper(workload.step, bench.framework.synchronize)
    with stages("warm-up"):
        for _ in range(case.measuring.warmup_steps + 1):
            stepper.block(1)
    with stages("profile"), profiler as mark:
        for number in range(case.measuring.profile_steps):
            with mark(number):
                duration_ns = stepper.block(1)
            stages.tell(number + 1, duration_ns / 1e9)
    events.send(done=True, variables=variables)


def _serve(request: Request, events: Events) -> None:
    """Serve a case; only this task reads on from standard input."""
    (case,) = request.cases
    serve(case, events, _Stages(events))


def _trial(request: Request, events: Events) -> None:
    stages = _Stages(events)
    rng = random.Random(request.seed)  # noqa: S311 - an order, not a secret
    edges = Edges(request.sensors)
    benches: list[Bench] = []
    try:
        with stages("open"):
            for number, case in enumerate(request.cases):
                stages.of = number
                benches.append(Bench(case))
                stages.send(part=benches[-1].describe())
        if _measure(benches, stages, rng, edges):
            events.send(done=True)
    except Exception as error:  # noqa: BLE001 - any exception becomes the record's error
        if not isinstance(error, UserError):
            traceback.print_exc()
        out_of_memory = any(bench.framework.is_out_of_memory(error) for bench in benches)
        stages.fail(
            "out_of_memory" if out_of_memory or isinstance(error, MemoryError) else "exception", _one_line(error)
        )


class _Stages:
    """Reports to the parent when each stage begins and ends, and events of the case whose number is `of`."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.of = 0
        self.current = "open"
        self._last_told = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.current = name
        self._last_told = 0.0
        self.events.send(stage=name)
        start = time.perf_counter()
        yield
        self.events.send(took=[name, time.perf_counter() - start])

    def send(self, **event: Any) -> None:
        self.events.send(of=self.of, **event)

    def tell(self, done: int, step_s: float) -> None:
        now = time.perf_counter()
        if now - self._last_told >= TELL_EVERY_S:
            self._last_told = now
            self.send(progress=[done, step_s])

    def fail(self, kind: str, message: str) -> None:
        self.send(failure={"kind": kind, "message": message, "stage": self.current})


def _measure(benches: list[Bench], stages: _Stages, rng: random.Random, edges: Edges) -> bool:
    """Check, build, time and verify; reports any failure, and returns whether there was none.

    In a duet, the order of the two cases in each stage is drawn from `rng`.
    """

    def each() -> Iterator[Bench]:
        for number in rng.sample(range(len(benches)), len(benches)):
            stages.of = number
            yield benches[number]

    with stages("check"):
        if not all(_check_one(bench, stages) for bench in each()):
            return False
    workloads: dict[Bench, Workload] = {}
    with stages("build"):
        for bench in each():
            workloads[bench] = _build_one(bench, stages)
    steppers = [timing.Stepper(workloads[bench].step, bench.framework.synchronize) for bench in benches]
    with stages("compile"):
        for _ in each():
            stages.send(part={"compile_s": steppers[stages.of].block(1) / 1e9})
    with stages("preheat"):
        for bench in each():
            preheat = timing.preheat(steppers[stages.of], bench.case.measuring, stages.tell, edges.gauge)
            stages.send(part={"preheat": preheat})
    with stages("timed"):
        if len(benches) == 1:
            _time(steppers[0], benches[0].case.measuring, stages, edges)
        else:
            _time_duet(steppers, benches[0].case.measuring, stages, rng)
    if any(workload.tokens for workload in workloads.values()):
        with stages("tokens"):
            for bench in each():
                _time_tokens(workloads[bench], bench.case.measuring, stages)
    with stages("verify"):
        if len(benches) == 1:
            peak = benches[0].framework.peak_memory_bytes()
            stages.send(part={"memory": Memory(device_peak_bytes=peak, host_peak_rss_bytes=_peak_rss_bytes())})
        for bench in each():
            result = workloads[bench].step()
            if not bench.framework.is_finite(result):
                stages.fail("check", f"the outputs in {bench.case.precision} at full size contain NaN or infinity")
                return False
            if trouble := workloads[bench].verify(result):
                stages.fail("check", f"wrong result at full size: {trouble}")
                return False
    return True


def _check_one(bench: Bench, stages: _Stages) -> bool:
    case, problem = bench.case, bench.problem
    size = problem.small(bench.params)
    data = bench.data(size, TRAINING_STEPS)
    found = check(bench.build(size, data), data, problem, size, case)
    stages.send(part={"check": found})
    if not found.ok:
        stages.fail(
            "check",
            f"wrong result: {found.output} is off by {found.error:.3g} (relative, against float64); "
            f"the bound for {case.precision} is {found.bound:.3g}",
        )
    return found.ok


def _build_one(bench: Bench, stages: _Stages) -> Workload:
    start = time.perf_counter()
    workload = bench.build(bench.params, bench.data(bench.params, BATCHES))
    by_formula = asdict(bench.problem.cost(bench.params, bench.case.mode, bench.case.precision))
    cost = msgspec.convert({**by_formula, "recomputed_flops": workload.recomputed_flops}, CostPart)
    stages.send(part={"build_s": time.perf_counter() - start, "cost": cost})
    return workload


def _time(stepper: timing.Stepper, measuring: Measuring, stages: _Stages, edges: Edges) -> None:
    """Time the blocks between two readings of the meters; blocks that ended before an error are sent in any case."""
    steps = timing.steps_per_block(stepper)
    durations: list[int] = []
    stopped_by: StoppedBy = "failure"
    least_s = measuring.power_min_s if measuring.wants_power and edges.tell_power else 0.0
    timing.quiet()
    before = counters.look()
    edges.mark("begin")
    try:
        stopped_by = timing.timed_blocks(stepper, steps, measuring, durations, stages.tell, least_s)
    finally:
        edges.mark("end")
        part: dict[str, Any] = {"interference": counters.between(before, counters.look())}
        if durations:
            part["blocks"] = Blocks(steps_per_block=steps, duration_ns=durations, stopped_by=stopped_by)
        stages.send(part=part)


def _time_duet(steppers: list[timing.Stepper], measuring: Measuring, stages: _Stages, rng: random.Random) -> None:
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


def _time_tokens(workload: Workload, measuring: Measuring, stages: _Stages) -> None:
    """Time single tokens, if the workload generates any; requests that ended before an error are sent in any case."""
    if workload.tokens is None:
        return
    times = TokenTimes([], [])
    try:
        timing.token_times(workload.tokens, measuring, times.first_ns, times.gap_ns, stages.tell)
    finally:
        if times.first_ns or times.gap_ns:
            stages.send(part={"token_times": times})


def _peak_rss_bytes() -> int:
    """Largest resident set of this process so far, in bytes.

    On Linux, this is `VmHWM`, in KiB (proc(5)), because the maximum of getrusage(2) is inherited from the process that
    started this one. Elsewhere it is the maximum of getrusage(2), which macOS counts in bytes.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _one_line(error: BaseException) -> str:
    text = one_line(str(error))[:300]
    if isinstance(error, UserError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


if __name__ == "__main__":
    main()
