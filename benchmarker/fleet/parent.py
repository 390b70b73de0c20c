"""The parent of a fleet: it starts a stage on all nodes with one command of the launcher, and watches their states."""

import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from benchmarker import guard
from benchmarker.api.errors import UserError
from benchmarker.fleet import folder
from benchmarker.fleet.folder import FleetSpec, NodeState
from benchmarker.fleet.results import grouped
from benchmarker.formatting import count, part
from benchmarker.hooks import launchers
from benchmarker.running.site import read_site
from benchmarker.worker.pipes import start_child

POLL_S = 0.5
"""Least time between two looks at the states."""
POLL_SHARE = 0.1
"""Largest share of the time that looking takes, where there are many nodes and the file system is slow."""
SILENT_S = 600.0
"""Time after which a node whose state does not change is given up, on top of the longest time of a trial."""
GRACE_S = 20.0
"""Time in which the nodes end by themselves after their input has ended."""


class Progress(Protocol):
    """The receiver of a fleet's progress."""

    def say(self, text: str) -> None:
        """A message that stays."""

    def show(self, text: str) -> None:
        """How far the fleet is; it replaces the text before."""


def run_stage(path: Path, spec: FleetSpec, number: int, trial_s: float, progress: Progress) -> None:
    """Run the last stage that was asked for on its nodes, until all have ended or are given up.

    `trial_s` is the longest time of a trial. The trouble of a node is reported, and the others go on. However this
    function ends, even by an interrupt, the nodes are ended too. Raises `UserError` if the launcher starts nothing.
    """
    stage = spec.stages[number]
    launcher = launchers.load_launcher(spec.allocation.launcher)
    program = [*read_site().prefix, sys.executable, "-m", "benchmarker.fleet", str(path.absolute()), str(number)]
    command = launcher.command(stage.nodes, program)
    with (path / folder.LOG).open("ab") as log, ExitStack() as stack:
        with guard.uninterrupted():
            process = start_child(command, lambda _: "check that it is installed here", log, subprocess.STDOUT)
            stack.callback(_end, process)
        _watch(_Watched(path, spec, number, progress), process, trial_s + SILENT_S)


class _Watched:
    """The nodes of a stage: their states as last seen, and of which trouble was reported."""

    def __init__(self, path: Path, spec: FleetSpec, number: int, progress: Progress) -> None:
        self.path, self.spec, self.number, self.progress = path, spec, number, progress
        self.nodes = spec.stages[number].nodes
        self.states: Mapping[str, NodeState | None] = {}
        self.reported: set[str] = set()
        self.failed: dict[str, int] = {}
        self.changed_s = time.monotonic()

    def update(self) -> None:
        """Read all states, show how far they are, and report what is new."""
        states = {node: self._state(node) for node in self.nodes}
        if states != self.states:
            self.states, self.changed_s = states, time.monotonic()
        begun = [state for state in states.values() if state]
        self.progress.show(
            f"{len(begun)} of {count(len(self.nodes), 'node')} begun, {sum(bool(state.ended_at) for state in begun)} "
            f"ended; {part(sum(state.done for state in begun), sum(state.planned for state in begun), 'trial')}"
        )
        self.report({state.node: state.error for state in begun if state.error})
        for state in begun:
            if state.failed > self.failed.get(state.node, 0):
                self.failed[state.node] = state.failed
                self.progress.say(f"{state.node}: {count(state.failed, 'trial')} failed; {self.path / folder.LOG}")

    def report(self, reasons: Mapping[str, str]) -> None:
        """Say what is wrong with nodes, each once; those with the same trouble share a line."""
        new = {node: reason for node, reason in reasons.items() if node not in self.reported}
        self.reported |= new.keys()
        for text in grouped(new):
            self.progress.say(text)

    @property
    def waits(self) -> bool:
        """Whether a node has not ended."""
        return any(state is None or state.ended_at is None for state in self.states.values())

    def _state(self, node: str) -> NodeState | None:
        state = folder.state_of(self.path, node)
        return state if state and state.stage == self.number else None


def _watch(watched: _Watched, process: subprocess.Popen[bytes], silent_s: float) -> None:
    """Look at the states until all nodes or the command have ended, or nothing changes any more; tell what is left."""
    while True:
        ended = process.poll() is not None
        begun_s = time.monotonic()
        watched.update()
        now_s = time.monotonic()
        if ended or not watched.waits or now_s - watched.changed_s > silent_s:
            break
        time.sleep(max(POLL_S, (now_s - begun_s) / POLL_SHARE))
    if process.returncode and not any(watched.states.values()):
        log = watched.path / folder.LOG
        *_, last = ["", *log.read_text(errors="replace").strip().splitlines()]
        raise UserError(f"the launcher started nothing on {count(len(watched.nodes), 'node')}: {last}; {log}")
    watched.report(
        {node: why for node, state in watched.states.items() if (why := folder.trouble(watched.number, state))}
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the nodes' input, at which they end, and wait; what does not end is killed."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
