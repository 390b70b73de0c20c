"""The worker: one process that does one task, then ends.

It reads one request from standard input and writes events to the standard output that it was started with; whatever
a library prints goes to standard error instead. It ends when the parent does.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from benchmarker import measure, registry
from benchmarker.api import MODES
from benchmarker.bench import BATCHES, Bench
from benchmarker.checking import TRAINING_STEPS, check
from benchmarker.errors import UserError
from benchmarker.precision import PRECISIONS
from benchmarker.protocol import Events, Request
from benchmarker.record import Blocks, CostPart, Memory, StoppedBy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarker.api import Case, FrameworkInfo, Support

TELL_EVERY_S = 1.0
"""Progress is told no oftener: telling and showing it takes processor time from what is measured."""


def main() -> None:
    """Do the task that stands on standard input."""
    started_s = time.monotonic()
    events = Events(os.dup(1))
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=Request)
    events.send(took=["python", started_s - request.spawned_s])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # out of time: send what there is, then end
    try:
        {"describe": _describe, "trial": _trial, "check": _check}[request.task](request, events)
    except UserError as error:
        events.send(refused=str(error))
    sys.stderr.flush()
    os._exit(0)  # all is sent; the frameworks' own tidying up takes long and may hang


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
                raise UserError(f"{address} lists {', '.join(sorted(unknown))}, which is no mode and no precision")
    events.send(info=info, support=support)


def _check(request: Request, events: Events) -> None:
    """Check each mode at the small size, and train it for some steps where training is among them."""
    assert request.case is not None
    bench = Bench(request.case)
    size = bench.problem.small(bench.params)
    for mode in request.modes:
        bench.case = msgspec.structs.replace(request.case, mode=mode)
        data = bench.data(size, TRAINING_STEPS)
        events.send(mode=mode, check=check(bench.build(size, data), data, bench.problem, size, bench.case))
        if mode == "training":
            workload = bench.build(size, bench.data(size, BATCHES))
            losses = [float(workload.outputs(workload.step())["loss"]) for _ in range(request.steps)]
            events.send(losses=losses)


def _trial(request: Request, events: Events) -> None:
    assert request.case is not None
    stages = _Stages(events)
    bench: Bench | None = None
    try:
        with stages("open"):
            bench = Bench(request.case)
            events.send(part=bench.describe())
        if _measure(bench, stages):
            events.send(done=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the record's error
        if not isinstance(error, UserError):
            traceback.print_exc()
        out_of_memory = isinstance(error, MemoryError) or (bench and bench.framework.is_out_of_memory(error))
        stages.fail("out_of_memory" if out_of_memory else "exception", _one_line(error))


class _Stages:
    """Tells the parent of each stage as it begins and ends, and of progress and failure within it."""

    def __init__(self, events: Events) -> None:
        self.send = events.send
        self.current = "open"
        self._last_told = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.current = name
        self._last_told = 0.0
        self.send(stage=name)
        start = time.perf_counter()
        yield
        self.send(took=[name, time.perf_counter() - start])

    def tell(self, done: int, step_s: float) -> None:
        now = time.perf_counter()
        if now - self._last_told >= TELL_EVERY_S:
            self._last_told = now
            self.send(progress=[done, step_s])

    def fail(self, kind: str, message: str) -> None:
        self.send(failure={"kind": kind, "message": message, "stage": self.current})


def _measure(bench: Bench, stages: _Stages) -> bool:
    """Check, build, time and verify; returns whether the workload was right, having told of it where it was not."""
    case, framework, problem = bench.case, bench.framework, bench.problem
    with stages("check"):
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
            return False
    with stages("build"):
        start = time.perf_counter()
        workload = bench.build(bench.params, bench.data(bench.params, BATCHES))
        by_formula = asdict(problem.cost(bench.params, case.mode, case.precision))
        cost = msgspec.convert({**by_formula, "recomputed_flops": workload.recomputed_flops}, CostPart)
        stages.send(part={"build_s": time.perf_counter() - start, "cost": cost})
    stepper = measure.Stepper(workload.step, framework.synchronize)
    with stages("compile"):
        stages.send(part={"compile_s": stepper.block(1) / 1e9})
    with stages("preheat"):
        stages.send(part={"preheat": measure.preheat(stepper, case.measuring, stages.tell)})
    with stages("timed"):
        _time(stepper, case, stages)
    with stages("verify"):
        memory = Memory(device_peak_bytes=framework.peak_memory_bytes(), host_peak_rss_bytes=_peak_rss_bytes())
        stages.send(part={"memory": memory})
        finite = framework.is_finite(workload.step())
        if not finite:
            stages.fail("check", f"the outputs in {case.precision} at full size hold NaN or infinity")
    return finite


def _time(stepper: measure.Stepper, case: Case, stages: _Stages) -> None:
    """Time the blocks; those that ended before an error are sent all the same."""
    steps = measure.steps_per_block(stepper)
    durations: list[int] = []
    stopped_by: StoppedBy = "failure"
    try:
        stopped_by = measure.timed_blocks(stepper, steps, case.measuring, durations, stages.tell)
    finally:
        if durations:
            blocks = Blocks(steps_per_block=steps, duration_ns=durations, stopped_by=stopped_by)
            stages.send(part={"blocks": blocks})


def _peak_rss_bytes() -> int:
    """Largest resident set of this process so far; Linux counts in KiB, macOS in bytes (getrusage(2))."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    if isinstance(error, UserError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


if __name__ == "__main__":
    main()
