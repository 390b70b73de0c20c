"""The worker: one process that does one task, then ends.

It reads one request from standard input and writes events to the standard output that it was started with. Anything
that a library prints goes to standard error instead. The worker ends when its parent does.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from benchmarker.api.case import MODES
from benchmarker.api.errors import TerminatedError, UserError, terminate
from benchmarker.api.precision import PRECISIONS
from benchmarker.formatting import one_line
from benchmarker.hooks import registry
from benchmarker.worker.bench import BATCHES, Bench
from benchmarker.worker.correctness import TRAINING_STEPS, check
from benchmarker.worker.parent import Parent
from benchmarker.worker.profile import profile
from benchmarker.worker.protocol import Events, Request, lines
from benchmarker.worker.serve import serve
from benchmarker.worker.trial import measure, survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarker.api.framework import FrameworkInfo
    from benchmarker.api.problem import Support


def main() -> None:
    """Do the task that is read from standard input."""
    started_s = time.monotonic()
    events = Events(os.dup(1))
    os.dup2(2, 1)
    told = lines(0)
    request = msgspec.json.decode(next(told, b""), type=Request)
    events.send(took=["python", started_s - request.spawned_s])
    parent = Parent(told, events)
    signal.signal(signal.SIGTERM, terminate)  # timed out: send what is available, then end
    try:
        _TASKS[request.task](request, events, parent)
    except UserError as error:
        events.send(refused=one_line(str(error)))
    except TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    sys.stderr.flush()
    os._exit(0)  # everything is sent; the frameworks' own clean-up takes long and may hang


def _describe(request: Request, events: Events, parent: Parent) -> None:
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


def _check(request: Request, events: Events, parent: Parent) -> None:
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


_TASKS: dict[str, Callable[[Request, Events, Parent], None]] = {
    "describe": _describe,
    "trial": measure,
    "survey": survey,
    "check": _check,
    "profile": profile,
    "serve": serve,
}


if __name__ == "__main__":
    main()
