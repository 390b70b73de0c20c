"""The part of a node or a link of a fleet in a stage: `python -m benchmarker.fleet FOLDER STAGE [NODE NODE]`.

The launcher starts it on each node, without names of nodes; see `member.py`. With the names of two, it is the process
of a link, on the node of the parent. It makes a normal run, of which each trial is computed by both nodes together. The
first line of its standard input is the plan; then each line is a turn, in which it makes one trial, and answers with a
line. When its input ends, so does it.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarker.api.case import Case
from benchmarker.fleet import folder
from benchmarker.fleet.member import Listener, status_of, take_part
from benchmarker.records import store
from benchmarker.records.plan import Plan
from benchmarker.records.record import Record
from benchmarker.running.run import execute
from benchmarker.worker.protocol import lines


def measure(path: Path, number: int, ends: Sequence[str], turns: Iterator[bytes], answers: int) -> None:
    """Measure a stage between two nodes of the fleet in `path`, a trial for each turn; raises `UserError`."""
    spec = folder.spec_of(path)
    plan = msgspec.json.decode(next(turns), type=Plan)
    name = folder.of_link(ends)
    with _Turns(path, name, number, answers) as listener:
        threading.Thread(target=listener.take, args=(turns,), daemon=True).start()
        listener.change(planned=len(plan.order))
        with store.new_run(path / name, plan) as run:
            execute(run, listener, msgspec.structs.replace(spec.allocation, nodes=list(ends)))


class _Turns(Listener):
    """Lets a trial begin when it is told to, and answers when it has ended."""

    def __init__(self, path: Path, name: str, stage: int, answers: int) -> None:
        super().__init__(path, name, stage)
        self._answers = answers
        self._turns = threading.Semaphore(0)

    def take(self, turns: Iterator[bytes]) -> None:
        """Take turns until there are no more, which ends this process."""
        for _ in turns:
            self._turns.release()
        os.kill(os.getpid(), signal.SIGTERM)

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """Wait for the turn."""
        self._turns.acquire()

    def end(self, records: Sequence[Record]) -> None:
        """Count the trial, and answer."""
        super().end(records)
        os.write(self._answers, b"\n")


def main(path: str, stage: str, *ends: str) -> int:
    """Take part, and return the exit status; what is wrong is in the state of the node or link too."""
    if not ends:
        return status_of(lambda: take_part(Path(path), int(stage), sys.stdin.fileno()))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's terminal is not this process's: the parent ends it
    answers = os.dup(1)
    os.dup2(2, 1)
    return status_of(lambda: measure(Path(path), int(stage), ends, lines(0), answers))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
