"""The part of one node of a fleet: a normal run in the node's own folder, as its state tells.

The node ends its part when its standard input ends: that is when the parent ends, or is interrupted.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import gethostname
from types import TracebackType
from typing import Self

from msgspec import structs

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError, terminate
from benchmarker.fleet import folder
from benchmarker.fleet.folder import NodeState
from benchmarker.fleet.node_plan import plan_of
from benchmarker.hooks import launchers
from benchmarker.machine import description as machine
from benchmarker.machine.description import installed
from benchmarker.records import store
from benchmarker.records.job import differences
from benchmarker.records.record import Record
from benchmarker.running.run import execute
from benchmarker.running.trial import PreemptedError
from benchmarker.worker.protocol import Event


def status_of(measure: Callable[[], None]) -> int:
    """Do the part of a node or link, and return the exit status; SIGTERM ends it in order."""
    signal.signal(signal.SIGTERM, terminate)
    try:
        measure()
    except UserError as error:
        sys.stderr.write(f"benchmarker: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def take_part(path: Path, number: int, parent: int) -> None:
    """Measure what stage `number` of the fleet in `path` asks of this node, until the pipe `parent` closes.

    Raises `UserError` if this node cannot take part, which its state tells too if the node is known.
    """
    spec = folder.spec_of(path)
    node = launchers.load_launcher(spec.allocation.launcher).node()
    stage = spec.stages[number]
    if node is None or node not in stage.nodes:
        raise UserError(f"the launcher started this on {node or gethostname()}, which is not a node of {path}")
    _end_with(parent)
    with Listener(path, node, number) as listener:
        if changed := differences(spec.installed, installed()):
            raise UserError(f"runs different software than the parent: {changed}")
        plan = plan_of(path, spec, stage)
        listener.change(planned=len(plan.order))
        allocation = structs.replace(spec.allocation, nodes=[node])
        with store.new_run(path / node, plan) as run:
            execute(run, listener, allocation)


def _end_with(parent: int) -> None:
    """End this process when the parent's pipe closes, however that comes."""

    def wait() -> None:
        while os.read(parent, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


class Listener:
    """Keeps the state of a node, or of a link, in its folder, and prints what the run says, with its name.

    When its context ends, the state tells so, and which error ended it.
    """

    def __init__(self, path: Path, name: str, stage: int) -> None:
        (path / name).mkdir(exist_ok=True)
        self.path = path
        self.state = NodeState(node=name, host=gethostname(), stage=stage, started_at=machine.utc_now())
        self.change()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        why = ""
        if isinstance(error, PreemptedError):
            why = error.lost_node
        elif isinstance(error, Exception):
            why = str(error) or type(error).__name__
        if why or error is None:
            self.change(error=why, ended_at=machine.utc_now())

    def change(self, **fields: object) -> None:
        """Write the state with some fields changed."""
        self.state = structs.replace(self.state, **fields)
        folder.save_state(self.path, self.state)

    def say(self, text: str) -> None:
        """Print a message with the name of the node or link."""
        sys.stderr.write(f"{self.state.node}: {text}\n")

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """Note nothing: the end of each trial is enough."""

    def on_event(self, event: Event) -> None:
        """Note nothing."""

    def end(self, records: Sequence[Record]) -> None:
        """Count the trials of a process, and print why one failed."""
        errors = [record.error for record in records if record.error]
        for error in errors:
            self.say(f"a trial failed in {error.stage}: {error.message}")
        self.change(done=self.state.done + len(records), failed=self.state.failed + len(errors))
