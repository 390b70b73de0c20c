"""A node of a process group, and this machine as one: its meters, and the ranks that are started on it."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarker.api.case import Case
from benchmarker.api.program import is_program
from benchmarker.machine import gpus
from benchmarker.power import samplers
from benchmarker.power.sampler import MeterProbe
from benchmarker.power.samplers import Readings, Sampled, Sampling
from benchmarker.records.machine import Machine
from benchmarker.worker.launch import Environment, Worker, environment_of, started
from benchmarker.worker.pipes import Child, listen
from benchmarker.worker.protocol import Command, Event, Task

ANSWER_S = 120.0
"""Time in which a node must answer first; Python may come from a file system that many nodes read at once."""
END_S = 10.0
"""Time in which a node must have ended all its ranks."""
OnEvent = Callable[[int, Event], None]
"""Called with the number of a rank and what it has sent."""


class LostNodeError(Exception):
    """A node was lost."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(why)
        self.node = node


class RankProcess(Protocol):
    """A worker that was started, wherever: what it sent that is not valid, why it is lost, and its exit status."""

    fault: str

    @property
    def lost(self) -> str:
        """Why nothing is known of it any more; empty if it is heard of, or has ended."""

    @property
    def status(self) -> int | None:
        """Its exit status, None until it is seen to have ended."""

    def send(self, command: Command) -> None:
        """Send it a command."""

    def terminate(self) -> None:
        """Send SIGTERM to it."""


class Node(ABC):
    """A node during a trial: this machine, or one behind an agent. What it is asked for, it answers when it is heard.

    `children` are the processes by which it is heard. `machine` is what it is, as it was before the trial; that of this
    machine is not asked for. `probes` says what each meter reads there, or why it reads nothing, once it was asked to
    sample, and `readings` what they have read, once it has ended. `has_answered` is about the last ping, and
    `has_ended` says that nothing of the trial is left. If it is given up, `given_up` says what it did.
    """

    name = ""
    given_up = ""
    has_answered = True
    has_ended = True
    machine: Machine | None = None
    children: Sequence[Child] = ()
    probes: dict[str, MeterProbe] | None = None
    readings: Readings | None = None

    @property
    def address(self) -> str:
        """Where other nodes reach it."""
        return ""

    @property
    def trouble(self) -> str:
        """Why nothing is heard of it any more; empty if it is heard."""
        return ""

    @property
    def lost(self) -> str:
        """Why the node is lost; empty if it is not."""
        return f"node {self.name} was lost: {self.trouble}" if self.trouble else ""

    @abstractmethod
    def sample(self, case: Case) -> None:
        """Find what the meters of a case read there, sample them from now on, and rest if it wants idle power."""

    @abstractmethod
    def start(self, tasks: Sequence[Task], logs: Sequence[Path], on_event: OnEvent) -> Sequence[RankProcess]:
        """Start ranks; the first is connected to the samplers."""

    def ping(self) -> None:  # noqa: B027 - this machine is there
        """Ask whether it is there."""

    @abstractmethod
    def end(self) -> None:
        """End its ranks, and what they started, and gather what its meters have read."""


class LocalNode(Node):
    """The machine of this process, for one trial after the other; what its meters can read is found once."""

    def __init__(self) -> None:
        self.children: list[Worker] = []
        self._known: dict[tuple[object, ...], dict[str, MeterProbe]] = {}
        self._environments: dict[tuple[int | None, int | None], Environment] = {}
        self._ranks, self._samplers = ExitStack(), ExitStack()
        self._sampling: Sampling | None = None
        self._cards: tuple[str, ...] = ()

    @contextmanager
    def trial(self) -> Iterator[LocalNode]:
        """A trial here; when the context ends, however it does, none of its ranks and samplers is left."""
        self.probes = self.readings = self._sampling = None
        try:
            with self._samplers, self._ranks:
                yield self
        finally:
            self.children = []

    def environment(self, case: Case) -> Environment:
        """Return the variables that show workers only the GPUs of a case that are here; a program sees all of them."""
        shown = (case.gpu, None if is_program(case.problem) else case.devices // case.nodes)
        if shown not in self._environments:
            self._environments[shown] = gpus.environment(case.gpu, os.environ, shown[1])
        return self._environments[shown]

    def sample(self, case: Case) -> None:
        """See `Node`."""
        measuring, environment = case.measuring, self.environment(case)
        key = (measuring.power, case.device, case.gpu, case.devices // case.nodes)
        if key not in self._known:
            self._known[key] = samplers.probe(samplers.meters(measuring.power), case.device, environment)
        self.probes = self._known[key]
        reading = [name for name, probe in self.probes.items() if probe.channels]
        self._sampling = self._samplers.enter_context(Sampling(reading, case.device, measuring.power_hz, environment))
        if reading:
            self._sampling.rest(measuring.power_idle_s if measuring.wants_power else 0.0)
        cards = environment.get("CUDA_VISIBLE_DEVICES", "") if case.device == "cuda" else ""
        self._cards = tuple(cards.split(",")) if cards else ()

    def start(self, tasks: Sequence[Task], logs: Sequence[Path], on_event: OnEvent) -> Sequence[Worker]:
        """See `Node`."""
        environment = self.environment(tasks[0].cases[0])
        for number, (task, log) in enumerate(zip(tasks, logs, strict=True)):
            sensors = self._sampling.links() if self._sampling and number == 0 else {}
            own = environment_of(task.cases[0], number, environment)
            sent = msgspec.structs.replace(task, sensors=sensors)
            self.children.append(self._ranks.enter_context(started(sent, own, log, partial(on_event, task.rank))))
        return self.children

    def end(self) -> None:
        """See `Node`."""
        self._ranks.close()
        self.children = []
        if self._sampling and self.probes is not None:
            silent = [
                Sampled(name, (), probe.unavailable, []) for name, probe in self.probes.items() if not probe.channels
            ]
            self.readings = Readings([*self._sampling.gather(), *silent], self._sampling.rest_ns, self._cards)
            self._sampling = None


def sample_all(nodes: Sequence[Node], case: Case) -> None:
    """Have all nodes sample, and rest if the case wants that; raises LostNodeError."""
    for node in nodes:
        node.sample(case)
    rest_s = case.measuring.power_idle_s if case.measuring.wants_power else 0.0
    wait(nodes, ANSWER_S + rest_s, lambda node: node.probes is not None)
    for node in nodes:
        if node.lost:
            raise LostNodeError(node.name, node.lost)


def end_trial(nodes: Sequence[Node]) -> None:
    """End a trial on all nodes; those that do not in time are given up."""
    for node in nodes:
        node.end()
    wait(nodes, END_S, lambda node: node.has_ended)


def hear(nodes: Sequence[Node], deadline: float, enough: Callable[[], bool]) -> None:
    """Pass on what nodes send until all have ended, until the deadline, or until it is enough."""
    listen([child for node in nodes for child in node.children], deadline, enough)


def wait(nodes: Sequence[Node], seconds: float, has_answered: Callable[[Node], bool]) -> None:
    """Wait until all nodes have answered, or are lost, as those are that have not in time."""
    hear(nodes, time.monotonic() + seconds, lambda: all(has_answered(node) or node.trouble for node in nodes))
    give_up_silent(nodes, seconds, has_answered)


def give_up_silent(nodes: Sequence[Node], seconds: float, has_answered: Callable[[Node], bool]) -> None:
    """Give up the nodes that have not answered within this time."""
    for node in nodes:
        if not has_answered(node) and not node.trouble:
            node.given_up = f"did not answer within {seconds:g} s"
