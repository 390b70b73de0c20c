"""The parent's side of links: a process for each, and turns, so that pairs that share no node measure at the same time.

Every process makes its first trial in its turn, group by group, then its second. So the groups are measured in the same
minutes, and a drift of the whole fleet cancels. What a process could wait for without end, its parent gives up.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from benchmarker import guard
from benchmarker.agent.node import ANSWER_S
from benchmarker.agent.remote import allow_files
from benchmarker.fleet import folder
from benchmarker.fleet.folder import FleetSpec
from benchmarker.fleet.parent import Progress
from benchmarker.fleet.results import grouped, name_of_link
from benchmarker.formatting import count
from benchmarker.records.plan import Plan
from benchmarker.worker.pipes import Child, Lines, end_children, listen, start_child

PROGRAM = (sys.executable, "-P", "-m", "benchmarker.fleet")
MOST_AT_ONCE = 128
"""Most pairs that measure at the same time: this node passes on what their agents tell."""
SILENT_S = ANSWER_S + 60.0
"""Time after which a link that does not answer is given up, on top of the longest time of a trial."""
GRACE_S = 20.0
"""Time in which the process of a link ends by itself."""
_FILES = 4
"""Files that a process takes here: three pipes, and the one that tells when it has ended."""
_LONGEST_BYTES = 1 << 16
Link = tuple[str, str]
"""Two nodes between which is measured."""
MOST_GROUPS = 3
"""Groups in which the links of a ring always fit: each shares a node with at most two others."""


class _Turn(Struct):
    """What begins a trial."""

    trial: int


class _Process(Child):
    """The process of a link: `answers` are the trials that it has ended."""

    def __init__(self, link: Link, process: subprocess.Popen[bytes], log: BinaryIO) -> None:
        def note(chunk: bytes) -> None:
            log.write(chunk)

        super().__init__(process, Lines(_LONGEST_BYTES, self._on_line).take, note)
        self.link = link
        self.answers = 0

    def waits(self, trial: int) -> bool:
        """Return whether it has not ended this trial, but may."""
        return self.process.poll() is None and self.answers <= trial

    def _on_line(self, line: bytes) -> None:
        self.answers += 1


def run_links(path: Path, spec: FleetSpec, number: int, plan: Plan, trial_s: float, progress: Progress) -> None:
    """Measure a plan on all links of a stage, until all have ended or are given up.

    `trial_s` is the longest time of a trial. The trouble of a link is reported, and the others go on. However this
    function ends, even by an interrupt, the processes are ended too, and what they started on nodes.
    """
    links = spec.link_stages[number].links
    groups = [group[at : at + MOST_AT_ONCE] for group in disjoint(links) for at in range(0, len(group), MOST_AT_ONCE)]
    with (path / folder.LOG).open("ab", buffering=0) as log, _started(path, number, links, log) as processes:
        for process in processes.values():
            process.send(plan)
        for trial in range(len(plan.order)):
            progress.show(f"{trial} of {count(len(plan.order), 'trial')} on {count(len(links), 'link')}")
            for group in groups:
                _take_turn([processes[link] for link in group], trial, trial_s + SILENT_S)
        listen(list(processes.values()), time.monotonic() + GRACE_S, lambda: False)
    for text in grouped(_troubles(path, spec, number)):
        progress.say(text)


def _take_turn(processes: Sequence[_Process], trial: int, limit_s: float) -> None:
    """Let processes make a trial at the same time; those that do not answer are ended."""
    for process in processes:
        process.send(_Turn(trial))
    running = [process for process in processes if process.waits(trial)]
    listen(running, time.monotonic() + limit_s, lambda: not any(process.waits(trial) for process in running))
    silent = [process for process in running if process.waits(trial)]
    for process in silent:
        process.process.terminate()
    listen(silent, time.monotonic() + GRACE_S, lambda: False)


@contextmanager
def _started(path: Path, number: int, links: Sequence[Link], log: BinaryIO) -> Iterator[dict[Link, _Process]]:
    """A process for each link; when the context ends, they do."""
    processes: dict[Link, _Process] = {}
    allow_files(_FILES * len(links))
    try:
        for link in links:
            with guard.uninterrupted():
                command = [*PROGRAM, str(path.absolute()), str(number), *link]
                processes[link] = _Process(link, start_child(command, lambda _: "use fewer nodes"), log)
        yield processes
    finally:
        end_children(list(processes.values()), GRACE_S)


def _troubles(path: Path, spec: FleetSpec, number: int) -> dict[str, str]:
    """Return what is wrong with links, by name: why one has not done its part, or that trials failed."""
    troubles = {}
    for link in spec.link_stages[number].links:
        state = folder.state_of(path, folder.of_link(link))
        why = folder.trouble(number, state)
        if not why and state and state.failed:
            why = f"{count(state.failed, 'trial')} failed; {path / folder.LOG}"
        if why:
            troubles[name_of_link(link)] = why
    return troubles


def ring(nodes: Sequence[str]) -> list[Link]:
    """Return the links between neighbours, and between the last and the first: two of each node; of two nodes one."""
    following = [*nodes[1:], nodes[0]] if len(nodes) > 2 else nodes[1:]
    return list(zip(nodes, following, strict=False))


def disjoint(links: Sequence[Link]) -> list[list[Link]]:
    """Return links of a ring in few groups of about the same size, in each of which no two share a node.

    A ring of an even number of nodes has two, of an odd number three, so that the groups are alike.
    """
    for number in range(1, MOST_GROUPS):
        if (groups := _in_groups(links, number)) is not None:
            return groups
    groups = _in_groups(links, MOST_GROUPS)
    assert groups is not None
    return groups


def _in_groups(links: Sequence[Link], number: int) -> list[list[Link]] | None:
    """Return links in so many groups, each link in the smallest where none shares a node; None if there is none."""
    groups: list[list[Link]] = [[] for _ in range(number)]
    taken: list[set[str]] = [set() for _ in range(number)]
    for link in links:
        free = [at for at in range(number) if not taken[at] & {*link}]
        if not free:
            return None
        chosen = min(free, key=lambda at: len(groups[at]))
        groups[chosen].append(link)
        taken[chosen] |= {*link}
    return groups
