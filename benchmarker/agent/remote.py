"""The parent's side of agents: one on each node for the whole run, whose ranks are seen as if they were started here.

A launcher counts what it starts, and allows a job only so much of it: Slurm 40,000 steps (MaxStepCount). So an agent is
started once, when a case first needs its node, and computes all trials there.
"""

from __future__ import annotations

import errno
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from benchmarker import guard
from benchmarker.agent import messages
from benchmarker.agent.node import ANSWER_S, END_S, LostNodeError, Node, OnEvent, end_trial, wait
from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.api.launcher import Allocation, Launcher
from benchmarker.formatting import one_line
from benchmarker.hooks import launchers
from benchmarker.power.sampler import MeterProbe
from benchmarker.power.samplers import Readings
from benchmarker.records.job import Installed, differences
from benchmarker.records.machine import Machine
from benchmarker.worker.launch import LINE_BYTES
from benchmarker.worker.pipes import Child, Lines, end_children, start_child
from benchmarker.worker.protocol import Command, Event, InvalidLineError, Task

PROGRAM = (sys.executable, "-P", "-m", "benchmarker.agent")
AGAIN_S = 20.0
"""Time in which an agent that has answered before must answer again, or it is lost."""
_FILES = 4
"""Files that an agent takes here: three pipes, and the one that tells when it has ended."""
_OTHER_FILES = 512
_OUTPUT_BYTES = 4096
"""How much is kept of what an agent's command writes beside messages: the last says why it ended."""
_DECODER = msgspec.json.Decoder(messages.FromAgent)
"""Made once: it takes four times as long as a message."""


class RemoteRank:
    """A rank behind an agent: `fault` says what it sent that is not valid, `status` is its exit status, once known."""

    def __init__(self, number: int, node: RemoteNode, on_event: Callable[[Event], None]) -> None:
        self.number = number
        self.fault = ""
        self.status: int | None = None
        self.on_event = on_event
        self._node = node

    @property
    def lost(self) -> str:
        """Why nothing is known of it any more; empty if it is heard of, or has ended."""
        return self._node.lost if self.status is None else ""

    def send(self, command: Command) -> None:
        """Send it a command."""
        self._node.send(messages.ToRank(rank=self.number, command=command))

    def terminate(self) -> None:
        """Send SIGTERM to it."""
        self._node.send(messages.ToRank(rank=self.number, terminate=True))


class RemoteNode(Child, Node):
    """A node behind its agent: what is known of it, and its ranks, which seem to be here; see `Node`."""

    def __init__(self, name: str, launcher: Launcher) -> None:
        super().__init__(start_child(launcher.command([name], PROGRAM), _remedy), self._take, self._remember)
        self.name = name
        self.children = [self]
        self.installed: Installed | None = None
        self.is_in_use, self.has_ended = False, True
        self._launcher = launcher
        self._lines = Lines(2 * LINE_BYTES, self._on_line)
        self._last_output = b""
        self._forget()

    def _forget(self) -> None:
        self.has_answered = False
        self.machine: Machine | None = None
        self.ranks: dict[int, RemoteRank] = {}
        self.probes: dict[str, MeterProbe] | None = None
        self.readings: Readings | None = None

    @property
    def address(self) -> str:
        """Where other nodes reach it."""
        return self._launcher.address(self.name)

    @property
    def trouble(self) -> str:
        """Why nothing is heard of it any more, with what its command said last; empty if it is heard."""
        how, status = self.given_up, self.process.returncode
        if not how:
            if status is None:
                return ""
            how = f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
        last = self._last_output.decode(errors="replace").strip().splitlines()[-1:]
        return f"its agent {how}" + (f": {one_line(last[0])[:300]}" if last else "")

    def prepare(self) -> None:
        """Ask how its machine is now, before another trial."""
        self._forget()
        self.send(messages.Ping(described=True))

    def ping(self) -> None:
        """Ask whether it is there."""
        self.has_answered = False
        self.send(messages.Ping())

    def sample(self, case: Case) -> None:
        """Ask for what the meters of its node read, and for the rest that the case wants."""
        self.is_in_use, self.has_ended = True, False
        self.send(messages.StartSampling(case))

    def start(self, tasks: Sequence[Task], logs: Sequence[Path], on_event: OnEvent) -> Sequence[RemoteRank]:
        """Start ranks."""
        self.is_in_use, self.has_ended = True, False
        self.ranks = {task.rank: RemoteRank(task.rank, self, partial(on_event, task.rank)) for task in tasks}
        self.send(messages.StartRanks(list(tasks), [str(log.absolute()) for log in logs]))
        return list(self.ranks.values())

    def end(self) -> None:
        """Have it end its ranks, if it was asked for a trial."""
        self.ignore_ranks()
        if self.is_in_use:
            self.is_in_use = False
            self.send(messages.EndRanks())

    def ignore_ranks(self) -> None:
        """Ignore whatever its ranks still send."""
        for rank in self.ranks.values():
            rank.on_event = _ignore

    def _take(self, chunk: bytes) -> None:
        if not self.given_up:
            try:
                self._lines.take(chunk)
            except InvalidLineError as error:
                self.given_up = f"sent {error}"

    def _on_line(self, line: bytes) -> None:
        """Process a line: a message, or what another program wrote, such as one that the site runs before each task."""
        try:
            message = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._remember(line + b"\n")
            return
        if isinstance(message, messages.FromRank):
            rank = self.ranks[message.rank]
            if message.event is not None:
                rank.on_event(message.event)
            rank.fault = rank.fault or message.fault
            rank.status = message.status if rank.status is None else rank.status
        elif isinstance(message, messages.Present):
            self.has_answered, self._last_output = True, b""
            self.machine = message.machine or self.machine
            self.installed = message.installed or self.installed
        elif isinstance(message, messages.TrialEnded):
            self.has_ended = True
        elif isinstance(message, messages.SamplingStarted):
            self.probes = message.probes
        elif self.readings is None:
            self.readings = message.readings
        else:
            for before, more in zip(self.readings.sampled, message.readings.sampled, strict=True):
                before.samples.extend(more.samples)

    def _remember(self, chunk: bytes) -> None:
        self._last_output = (self._last_output + chunk)[-_OUTPUT_BYTES:]


class Agents:
    """The agents of a run in an allocation, each started when a case first needs its node; `close` ends them."""

    def __init__(self, launcher: Launcher, allocation: Allocation, installed: Installed) -> None:
        self.launcher = launcher
        self._allocation = allocation
        self._installed = installed
        self._by_name: dict[str, RemoteNode] = {}
        self._lost: set[str] = set()

    @contextmanager
    def on(self, names: Sequence[str]) -> Iterator[list[RemoteNode]]:
        """The nodes with these names, for a trial; when the context ends, none of its ranks is left.

        Raises LostNodeError if nothing can be started on a node that is lost, and `UserError` if the launcher refuses
        it on another one, or if the software of a node is not that of this one.
        """
        nodes = self._prepared(names)
        try:
            yield nodes
        except BaseException:  # an interrupt must not wait
            self.close()
            raise
        end_trial(nodes)
        self._drop_lost(nodes)

    def _prepared(self, names: Sequence[str]) -> list[RemoteNode]:
        """Return the nodes, whose agents are started if need be, and have sent how their machines are now."""
        known = [self._by_name[name] for name in names if name in self._by_name]
        for node in known:
            node.prepare()
        wait(known, AGAIN_S, _is_described)
        self._drop_lost(known)
        allow_files(_FILES * len({*self._by_name, *names}))
        for name in names:
            if name not in self._by_name:
                with guard.uninterrupted():
                    self._by_name[name] = RemoteNode(name, self.launcher)
        nodes = [self._by_name[name] for name in names]
        wait(nodes, ANSWER_S, _is_described)
        for node in nodes:
            if node.lost:
                raise self._refusal(node)
            if changed := differences(self._installed, node.installed) if node.installed else "":
                raise UserError(
                    f"the software of node {node.name} is not that of {names[0]}: {changed}; install the same on both"
                )
        return nodes

    def _refusal(self, node: RemoteNode) -> Exception:
        """Return why an agent was not started: its node is lost, or else the launcher does not start it."""
        if node.name in self._lost or node.name in self.down():
            return LostNodeError(node.name, node.lost)
        return UserError(
            f"nothing can be started on node {node.name}: {node.trouble}; fix this, then continue with --resume"
        )

    def down(self) -> Sequence[str]:
        """Return the nodes that the launcher knows to be lost."""
        return launchers.lost_nodes(self._allocation)

    def _drop_lost(self, nodes: Sequence[RemoteNode]) -> None:
        lost = [node for node in nodes if node.lost]
        for node in lost:
            del self._by_name[node.name]
            self._lost.add(node.name)
        _end(lost)

    def close(self) -> None:
        """End all agents, and with them their ranks."""
        nodes, self._by_name = list(self._by_name.values()), {}
        _end(nodes)


def _remedy(error: OSError) -> str:
    return "use fewer nodes, or allow more files with ulimit -n" if error.errno == errno.EMFILE else "use --nodes=1"


def _is_described(node: Node) -> bool:
    return node.machine is not None


def allow_files(number: int) -> None:
    """Let this process open so many more files, if the system lets it: the limit is often 1024 at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _end(nodes: Sequence[RemoteNode]) -> None:
    """Hang up on agents, whereupon they end their ranks, and end those that do not, or were given up."""
    for node in nodes:
        node.ignore_ranks()
    end_children(nodes, END_S, lambda node: not node.trouble)


def _ignore(event: Event) -> None:
    """Pass on nothing."""
