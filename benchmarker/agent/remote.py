"""The parent's side of agents: one on each node for the whole run, whose ranks are seen as if they were started here.

A launcher counts what it starts, and allows a job only so much of it: Slurm 40,000 steps (MaxStepCount). So an agent is
started once, when a case first needs its node, and computes all trials there.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from benchmarker import guard
from benchmarker.agent.messages import (
    EndRanks,
    FromAgent,
    FromRank,
    Ping,
    Present,
    SamplingStarted,
    StartRanks,
    StartSampling,
    ToRank,
    TrialEnded,
)
from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.api.launcher import Allocation, Launcher
from benchmarker.formatting import one_line
from benchmarker.hooks import launchers
from benchmarker.power import samplers
from benchmarker.power.sampler import MeterProbe
from benchmarker.power.samplers import Readings, Sampled
from benchmarker.records.job import Installed, differences
from benchmarker.records.record import Machine
from benchmarker.worker.launch import LINE_BYTES, Event
from benchmarker.worker.pipes import Child, Lines, listen
from benchmarker.worker.protocol import Command, InvalidLineError, Task

PROGRAM = (sys.executable, "-P", "-m", "benchmarker.agent")
ANSWER_S = 120.0
"""Time in which an agent must answer first; Python may come from a file system that many nodes read at once."""
AGAIN_S = 20.0
"""Time in which an agent that has answered before must answer again, or it is lost."""
END_S = 10.0
"""Time in which an agent must have ended all its ranks."""
_KILL_S = 3.0
_FILES = 4
"""Files that an agent takes here: three pipes, and the one that tells when it has ended."""
_OTHER_FILES = 512
_OUTPUT_BYTES = 4096
"""How much is kept of what an agent's command writes beside messages: the last says why it ended."""
_DECODER = msgspec.json.Decoder(FromAgent)
"""Made once: it takes four times as long as a message."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a process group, by the names of their launcher, and the agents of the run.

    `probes` says what the meters of each node can read, once it was asked; those that read nothing are not asked again.
    """

    names: tuple[str, ...]
    agents: Agents
    probes: dict[str, dict[str, MeterProbe]] = field(default_factory=dict)

    @property
    def peer_address(self) -> str:
        """The address of a node that is not the first."""
        return self.agents.launcher.address(self.names[-1])


class LostNodeError(Exception):
    """A node was lost."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(why)
        self.node = node


class RemoteRank:
    """A rank behind an agent: `fault` says what it sent that is not valid, `status` is its exit status, once known."""

    def __init__(self, number: int, agent: Agent, on_event: Callable[[Event], None]) -> None:
        self.number = number
        self.fault = ""
        self.status: int | None = None
        self.on_event = on_event
        self._agent = agent

    @property
    def lost(self) -> str:
        """Why nothing is known of it any more; empty if it is heard of, or has ended."""
        return self._agent.lost if self.status is None else ""

    def send(self, command: Command) -> None:
        """Send it a command."""
        self._agent.send(ToRank(rank=self.number, command=command))

    def terminate(self) -> None:
        """Send SIGTERM to it."""
        self._agent.send(ToRank(rank=self.number, terminate=True))


class Agent(Child):
    """The agent of a node: `ranks` are those that it has started, `machine` is its node as it is before a trial.

    `probes` says what the meters of its node can read, if it was asked, and `readings` what they read, at the end. If
    it is given up, `given_up` says what it did.
    """

    def __init__(self, node: str, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process, self._take, self._remember)
        self.node = node
        self.installed: Installed | None = None
        self.given_up = ""
        self.is_in_use, self.has_ended_trial = False, True
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
    def trouble(self) -> str:
        """Why nothing is heard of it any more, with what its command said last; empty if it is heard."""
        how, status = self.given_up, self.process.returncode
        if not how:
            if status is None:
                return ""
            how = f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
        last = self._last_output.decode(errors="replace").strip().splitlines()[-1:]
        return f"its agent {how}" + (f": {one_line(last[0])[:300]}" if last else "")

    @property
    def lost(self) -> str:
        """Why the node is lost; empty if it is not."""
        return f"node {self.node} was lost: {self.trouble}" if self.trouble else ""

    def prepare(self) -> None:
        """Ask how its machine is now, before another trial."""
        self._forget()
        self.send(Ping(described=True))

    def ping(self) -> None:
        """Ask whether it is there."""
        self.has_answered = False
        self.send(Ping())

    def start_sampling(self, case: Case, meters: Sequence[str]) -> None:
        """Ask for what these meters of its node read, and for the rest that the case wants."""
        self.is_in_use, self.has_ended_trial = True, False
        self.send(StartSampling(case, list(meters)))

    def begin(self, ranks: Sequence[RemoteRank], tasks: Sequence[Task], logs: Sequence[Path]) -> None:
        """Start ranks."""
        self.is_in_use, self.has_ended_trial = True, False
        self.ranks = {rank.number: rank for rank in ranks}
        self.send(StartRanks(list(tasks), [str(log.absolute()) for log in logs]))

    def end(self) -> None:
        """Have it end its ranks, if it was asked for a trial."""
        self.ignore_ranks()
        if self.is_in_use:
            self.is_in_use = False
            self.send(EndRanks())

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
        if isinstance(message, FromRank):
            rank = self.ranks[message.rank]
            if message.event is not None:
                rank.on_event(message.event)
            rank.fault = rank.fault or message.fault
            rank.status = message.status if rank.status is None else rank.status
        elif isinstance(message, Present):
            self.has_answered, self._last_output = True, b""
            self.machine = message.machine or self.machine
            self.installed = message.installed or self.installed
        elif isinstance(message, TrialEnded):
            self.has_ended_trial = True
        elif isinstance(message, SamplingStarted):
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
        self._by_node: dict[str, Agent] = {}
        self._lost: set[str] = set()

    @contextmanager
    def on(self, nodes: Sequence[str]) -> Iterator[list[Agent]]:
        """The agents of these nodes, for a trial; when the context ends, none of its ranks is left.

        Raises LostNodeError if nothing can be started on a node that is lost, and `UserError` if the launcher refuses
        it on another one, or if the software of a node is not that of this one.
        """
        agents = self._prepared(nodes)
        try:
            yield agents
        except BaseException:  # an interrupt must not wait
            self.close()
            raise
        for agent in agents:
            agent.end()
        _wait(agents, END_S, lambda agent: agent.has_ended_trial)
        self._drop_lost(agents)

    def _prepared(self, nodes: Sequence[str]) -> list[Agent]:
        """Return the agents of these nodes, started if need be, which have sent how their machines are now."""
        known = [self._by_node[node] for node in nodes if node in self._by_node]
        for agent in known:
            agent.prepare()
        _wait(known, AGAIN_S, lambda agent: agent.machine is not None)
        self._drop_lost(known)
        allow_files(_FILES * len({*self._by_node, *nodes}))
        new = [node for node in nodes if node not in self._by_node]
        for node in new:
            with guard.uninterrupted():
                self._by_node[node] = Agent(node, _process(self.launcher.command([node], PROGRAM)))
        agents = [self._by_node[node] for node in nodes]
        _wait(agents, ANSWER_S, lambda agent: agent.machine is not None)
        for agent in agents:
            if agent.lost:
                raise self._refusal(agent)
            if changed := differences(self._installed, agent.installed) if agent.installed else "":
                raise UserError(
                    f"the software of node {agent.node} is not that of {nodes[0]}: {changed}; install the same on both"
                )
        return agents

    def _refusal(self, agent: Agent) -> Exception:
        """Return why an agent was not started: its node is lost, or else the launcher does not start it."""
        if agent.node in self._lost or agent.node in self.down():
            return LostNodeError(agent.node, agent.lost)
        return UserError(
            f"nothing can be started on node {agent.node}: {agent.trouble}; fix this, then continue with --resume"
        )

    def down(self) -> Sequence[str]:
        """Return the nodes that the launcher knows to be lost."""
        return launchers.lost_nodes(self._allocation)

    def _drop_lost(self, agents: Sequence[Agent]) -> None:
        lost = [agent for agent in agents if agent.lost]
        for agent in lost:
            del self._by_node[agent.node]
            self._lost.add(agent.node)
        _end(lost)

    def close(self) -> None:
        """End all agents, and with them their ranks."""
        agents, self._by_node = list(self._by_node.values()), {}
        _end(agents)


def start_sampling(agents: Sequence[Agent], nodes: Nodes, case: Case) -> None:
    """Have all agents find what the meters of their nodes read, and rest if the case wants that; wait for them."""
    for agent in agents:
        known = nodes.probes.get(agent.node, {})
        names = samplers.meters(case.measuring.power)
        agent.start_sampling(case, [name for name in names if name not in known or known[name].channels])
    rest_s = case.measuring.power_idle_s if case.measuring.wants_power else 0.0
    _wait(agents, ANSWER_S + rest_s, lambda agent: agent.probes is not None)
    for agent in agents:
        if agent.probes is not None:
            nodes.probes.setdefault(agent.node, agent.probes)


def readings_of(agents: Sequence[Agent], nodes: Nodes) -> dict[str, Readings]:
    """Return what the meters of each node read, by its name, as far as it arrived, with those that read nothing."""
    by_node = {}
    for agent in agents:
        if agent.readings:
            sampled = {meter.meter for meter in agent.readings.sampled}
            silent = [
                Sampled(name, (), probe.unavailable, [])
                for name, probe in nodes.probes[agent.node].items()
                if name not in sampled
            ]
            by_node[agent.node] = replace(agent.readings, sampled=[*agent.readings.sampled, *silent])
    return by_node


def give_up_silent(agents: Sequence[Agent], seconds: float, has_answered: Callable[[Agent], bool]) -> None:
    """Give up the agents that have not answered within this time."""
    for agent in agents:
        if not has_answered(agent) and not agent.trouble:
            agent.given_up = f"did not answer within {seconds:g} s"


def _wait(agents: Sequence[Agent], seconds: float, has_answered: Callable[[Agent], bool]) -> None:
    """Wait until all agents have answered, or are lost, as those are that have not in time."""
    listen(agents, time.monotonic() + seconds, lambda: all(has_answered(agent) or agent.trouble for agent in agents))
    give_up_silent(agents, seconds, has_answered)


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


def _end(agents: Sequence[Agent]) -> None:
    """Hang up on agents, whereupon they end their ranks, and end those that do not, or were given up."""
    for agent in agents:
        agent.ignore_ranks()
        agent.hang_up()
    try:
        listen([agent for agent in agents if not agent.trouble], time.monotonic() + END_S, lambda: False)
    finally:
        for send in (subprocess.Popen.terminate, subprocess.Popen.kill):
            left = [agent for agent in agents if agent.process.poll() is None]
            for agent in left:
                send(agent.process)
            if left:
                listen(left, time.monotonic() + _KILL_S, lambda: False)
        for agent in agents:
            for pipe in (agent.process.stdout, agent.process.stderr):
                assert pipe is not None
                pipe.close()


def _ignore(event: Event) -> None:
    """Pass on nothing."""
