"""The worker: one process that does one task, then ends.

It reads one task from standard input and writes events to the standard output that it was started with. Anything
that a library prints goes to standard error instead. The worker ends when its parent does.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarker.api.case import MODES
from benchmarker.api.errors import TerminatedError, UserError, terminate
from benchmarker.api.framework import FrameworkInfo
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import Support
from benchmarker.formatting import one_line
from benchmarker.hooks import registry
from benchmarker.worker import perf_tests, protocol
from benchmarker.worker.bench import BATCHES, Bench
from benchmarker.worker.correctness import TRAINING_STEPS, check
from benchmarker.worker.parent import Parent, Stages
from benchmarker.worker.process_group import Group, RankRunner
from benchmarker.worker.protocol import Events, Task, folder_of, lines
from benchmarker.worker.serve import serve
from benchmarker.worker.trial import failures_sent, open_case, survey


def main() -> None:
    """Do the task that is read from standard input."""
    started_s = time.monotonic()
    events = Events(os.dup(1))
    os.dup2(2, 1)
    received = lines(0)
    task = msgspec.json.decode(next(received, b""), type=Task)
    events.send(protocol.StageEnded("python", started_s - task.spawned_s))
    parent = Parent(received, events)
    signal.signal(signal.SIGTERM, terminate)  # timed out: send what is available, then end
    try:
        _TASKS[task.kind](task, events, parent)
    except UserError as error:
        events.send(protocol.Refused(one_line(str(error))))
    except TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    sys.stderr.flush()
    os._exit(0)  # everything is sent; the frameworks' own clean-up takes long and may hang


def _describe(task: Task, events: Events, parent: Parent) -> None:
    info: FrameworkInfo = registry.load([f"framework.{task.framework}"]).hook.describe_framework()
    support: Support | None = None
    if task.problem:
        support = registry.load([f"workload.{task.problem}.{task.framework}"]).hook.describe_workload()
        assert support is not None
        for mode, precisions in support.precisions.items():
            if unknown := ({mode} - {*MODES}) | ({*precisions} - {*PRECISIONS}):
                address = f"workload.{task.problem}.{task.framework}"
                raise UserError(f"{address} lists {', '.join(sorted(unknown))}, which is neither mode nor precision")
    events.send(protocol.Described(info, support))


def _check(task: Task, events: Events, parent: Parent) -> None:
    """Check each mode at the small size, and train it for some steps if training is among the modes.

    The losses of a user's model need not fall, so it is not trained.
    """
    (case,) = task.cases
    bench = Bench(case)
    size = bench.problem.small()
    for mode in task.modes:
        bench.case = msgspec.structs.replace(case, mode=mode)
        data = bench.data(size, TRAINING_STEPS)
        workload = bench.build(size, data)
        events.send(protocol.Checked(check(workload, data, size, bench.case), mode))
        if mode == "training" and workload.exact is None:
            workload = bench.build(size, bench.data(size, BATCHES))
            losses = [float(workload.outputs(workload.step())["loss"]) for _ in range(task.steps)]
            events.send(protocol.Losses([*losses]))


def _profile(task: Task, events: Events, parent: Parent) -> None:
    """Trace some steps, with a synchronisation after each; the warm-up is not in the trace. Any error is sent."""
    (case,) = task.cases
    stages = Stages(events)
    groups: list[Group] = []
    with failures_sent(groups, stages):
        folder = folder_of(Path(task.folder), task.rank)
        folder.mkdir()
        with stages("open"):
            group = open_case(task, case, stages, parent, folder)
            groups.append(group)
            events.send(group.bench.describe())
        group.coordinate(lambda: _trace(group, stages))
        events.send(protocol.Done())


def _trace(group: Group, stages: Stages) -> bool:
    """Profile all ranks; each writes its file when the last step has ended."""
    measuring = group.bench.case.measuring
    with stages("build"):
        group.build()
    with stages("warm-up"):
        for _ in range(measuring.warmup_steps + 1):
            group.stepper.block(1)
    with stages("profile"):
        group.gather(RankRunner.begin_profile)
        for number in range(measuring.profile_steps):
            duration_ns = max(group.gather(RankRunner.profiled_step, number))
            stages.report_progress(number + 1, duration_ns / 1e9)
        group.gather(RankRunner.end_profile)
    return True


_TASKS: dict[str, Callable[[Task, Events, Parent], None]] = {
    "describe": _describe,
    "trial": perf_tests.measure,
    "survey": survey,
    "check": _check,
    "profile": _profile,
    "serve": serve,
}


if __name__ == "__main__":
    main()
