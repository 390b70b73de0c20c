"""The parent's side of agents: start one on each node, and see each of their ranks as if it were started here."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from benchmarker import guard
from benchmarker.agent.messages import Begin, FromAgent, FromRank, Here, Sense, Sensing, ToRank
from benchmarker.api.errors import UserError
from benchmarker.formatting import one_line
from benchmarker.power import samplers
from benchmarker.power.samplers import Sampled
from benchmarker.records.job import differences
from benchmarker.worker.launch import LINE_BYTES
from benchmarker.worker.pipes import Child, Lines, listen
from benchmarker.worker.protocol import Told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarker.api.case import Case
    from benchmarker.api.launcher import Launcher
    from benchmarker.power.sampler import Found
    from benchmarker.power.samplers import Readings
    from benchmarker.records.job import Installed
    from benchmarker.worker.launch import Event
    from benchmarker.worker.protocol import Request

PROGRAM = (sys.executable, "-P", "-m", "benchmarker.agent")
ANSWER_S = 120.0
"""Time in which an agent must tell where it runs; Python may come from a file system that many nodes read at once."""
END_S = 10.0
"""Time in which an agent that is not told anything any more must have ended all its ranks."""
_KILL_S = 3.0
_FILES = 4
"""Files that an agent takes here: three pipes, and the one that tells when it has ended."""
_OTHER_FILES = 512
_SAID_BYTES = 4096
"""How much is kept of what an agent's command writes beside messages: the last says why it ended."""
_TOLD = msgspec.json.Decoder(FromAgent)
"""Made once: it takes four times as long as a message."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a gang, by the names of their launcher, and the software that they must have, that of this one.

    `found` is what the meters of each node can read, once it was asked; those that read nothing are not asked again.
    """

    names: tuple[str, ...]
    launcher: Launcher
    installed: Installed
    found: dict[str, dict[str, Found]] = field(default_factory=dict)

    @property
    def other(self) -> str:
        """The address of a node that is not the first."""
        return self.launcher.address(self.names[-1])


class RemoteRank:
    """A rank behind an agent: `fault` says what it sent that is not valid, `status` is its exit status, once known."""

    def __init__(self, number: int, agent: Agent, hear: Callable[[Event], None]) -> None:
        self.number = number
        self.fault = ""
        self.status: int | None = None
        self.hear = hear
        self._agent = agent

    @property
    def lost(self) -> str:
        """Why nothing is known of it any more; empty if it is heard of, or has ended."""
        return self._agent.lost if self.status is None else ""

    def send(self, message: Told) -> None:
        """Tell it something."""
        self._agent.send(ToRank(rank=self.number, told=message))

    def terminate(self) -> None:
        """Send SIGTERM to it."""
        self._agent.send(ToRank(rank=self.number, terminate=True))


class Agent(Child):
    """The agent of a node: `here` is where it runs, as soon as it has told, `ranks` are those that it has started.

    `found` is what the meters of its node can read, if it was asked, and `readings` what they read, at the end.
    """

    def __init__(self, node: str, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process, Lines(2 * LINE_BYTES, self._hear).take, self._remember)
        self.node = node
        self.here: Here | None = None
        self.ranks: dict[int, RemoteRank] = {}
        self.found: dict[str, Found] | None = None
        self.readings: Readings | None = None
        self.is_silent = False
        self._said = b""

    @property
    def lost(self) -> str:
        """Why the node is lost; empty if it is not."""
        status = self.process.returncode
        if self.is_silent:
            return f"node {self.node} did not answer within {ANSWER_S:g} s"
        if status is None:
            return ""
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        last = self._said.decode(errors="replace").strip().splitlines()[-1:]
        return f"node {self.node} was lost: its agent {how}" + (f": {one_line(last[0])[:300]}" if last else "")

    def sense(self, case: Case, meters: Sequence[str]) -> None:
        """Ask for what these meters of its node read, and for the rest that the case wants."""
        self.send(Sense(case, list(meters)))

    def begin(self, ranks: Sequence[RemoteRank], requests: Sequence[Request], logs: Sequence[Path]) -> None:
        """Start ranks."""
        self.ranks = {rank.number: rank for rank in ranks}
        self.send(Begin(list(requests), [str(log.absolute()) for log in logs]))

    def _hear(self, line: bytes) -> None:
        """Process a line: a message, or what another program wrote, such as one that the site runs before each task."""
        try:
            if self.here is None:
                self.here = msgspec.json.decode(line, type=Here)
                return
            told = _TOLD.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._remember(line + b"\n")
            return
        if isinstance(told, FromRank):
            rank = self.ranks[told.rank]
            if told.event is not None:
                rank.hear(told.event)
            rank.fault = rank.fault or told.fault
            rank.status = told.status if rank.status is None else rank.status
        elif isinstance(told, Sensing):
            self.found = told.found
        elif self.readings is None:
            self.readings = told.readings
        else:
            for before, more in zip(self.readings.sampled, told.readings.sampled, strict=True):
                before.samples.extend(more.samples)

    def _remember(self, chunk: bytes) -> None:
        self._said = (self._said + chunk)[-_SAID_BYTES:]


@contextmanager
def agents(nodes: Nodes) -> Iterator[list[Agent]]:
    """Agents on all nodes that have told where they run, or are lost; when the context ends, they and their ranks are.

    Raises `UserError` if the software of a node is not that of this one.
    """
    found: list[Agent] = []
    allow_files(_FILES * len(nodes.names))
    try:
        for node in nodes.names:
            with guard.uninterrupted():
                process = _process(nodes.launcher.command([node], PROGRAM))
                found.append(Agent(node, process))
        _wait(found, ANSWER_S, lambda agent: agent.here is not None)
        for agent in found:
            if agent.here and (changed := differences(nodes.installed, agent.here.installed)):
                first = nodes.names[0]
                raise UserError(
                    f"the software of node {agent.node} is not that of {first}: {changed}; install the same on both"
                )
        yield found
    finally:
        _end(found)


def sense(found: Sequence[Agent], nodes: Nodes, case: Case) -> None:
    """Have all agents find what the meters of their nodes read, and rest if the case wants that; wait for them."""
    for agent in found:
        known = nodes.found.get(agent.node, {})
        names = samplers.meters(case.measuring.power)
        agent.sense(case, [name for name in names if name not in known or known[name].channels])
    rest_s = case.measuring.power_idle_s if case.measuring.wants_power else 0.0
    _wait(found, ANSWER_S + rest_s, lambda agent: agent.found is not None)
    for agent in found:
        if agent.found is not None:
            nodes.found.setdefault(agent.node, agent.found)


def readings_of(found: Sequence[Agent], nodes: Nodes) -> dict[str, Readings]:
    """Return what the meters of each node read, by its name, as far as it arrived, with those that read nothing."""
    by_node = {}
    for agent in found:
        if agent.readings:
            asked = {one.meter for one in agent.readings.sampled}
            silent = [
                Sampled(name, (), each.unavailable, [])
                for name, each in nodes.found[agent.node].items()
                if name not in asked
            ]
            by_node[agent.node] = replace(agent.readings, sampled=[*agent.readings.sampled, *silent])
    return by_node


def _wait(found: Sequence[Agent], seconds: float, has_told: Callable[[Agent], bool]) -> None:
    """Wait until all agents have told something, or are lost, as those are that have not told it in time."""
    listen(found, time.monotonic() + seconds, lambda: all(has_told(agent) or agent.lost for agent in found))
    for agent in found:
        agent.is_silent = not has_told(agent) and agent.process.returncode is None


def allow_files(number: int) -> None:
    """Let this process open so many more files, if the system lets it: the limit is often 1024 at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _process(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, so that it ends in order when the terminal is interrupted."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=os.environ,
            start_new_session=True,
        )
    except OSError as error:
        few = "use fewer nodes, or allow more files with ulimit -n" if error.errno == errno.EMFILE else "use --nodes=1"
        raise UserError(f"{command[0]} cannot be started: {error.strerror}; {few}") from error


def _end(found: Sequence[Agent]) -> None:
    """Hang up on all agents, whereupon they end their ranks, and end those that do not."""
    for agent in found:
        for rank in agent.ranks.values():
            rank.hear = _ignore
        agent.hang_up()
    try:
        listen(found, time.monotonic() + END_S, lambda: False)
    finally:
        for send in (subprocess.Popen.terminate, subprocess.Popen.kill):
            left = [agent for agent in found if agent.process.poll() is None]
            for agent in left:
                send(agent.process)
            if left:
                listen(left, time.monotonic() + _KILL_S, lambda: False)
        for agent in found:
            for pipe in (agent.process.stdout, agent.process.stderr):
                assert pipe is not None
                pipe.close()


def _ignore(event: Event) -> None:
    """Pass on nothing."""
