"""A node of a process group, and this machine as one: its meters, and the ranks that are started on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarker.api.case import Case
from benchmarker.machine import description, gpus
from benchmarker.power import samplers
from benchmarker.power.sampler import MeterProbe
from benchmarker.power.samplers import Readings, Sampled, Sampling
from benchmarker.records.record import Machine
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


class Node(Protocol):
    """A node during a trial: this machine, or one behind an agent. What it is asked for, it answers when it is heard.

    `probes` says what the meters can read once it was asked to sample, and `readings` what they read once it has ended.
    If it is given up, `given_up` says what it did.
    """

    given_up: str

    @property
    def name(self) -> str | None:
        """Its name among several nodes."""

    @property
    def address(self) -> str:
        """Where other nodes reach it."""

    @property
    def children(self) -> Sequence[Child]:
        """The processes by which it is heard."""

    @property
    def machine(self) -> Machine | None:
        """What it is, as it was before the trial."""

    @property
    def probes(self) -> dict[str, MeterProbe] | None:
        """What each meter reads there, or why it reads nothing."""

    @property
    def readings(self) -> Readings | None:
        """What the meters have read, with those that read nothing."""

    @property
    def trouble(self) -> str:
        """Why nothing is heard of it any more; empty if it is heard."""

    @property
    def lost(self) -> str:
        """The same with its name."""

    @property
    def has_answered(self) -> bool:
        """Whether it has answered the last ping."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the trial is left."""

    def sample(self, case: Case) -> None:
        """Find what the meters of a case read there, sample them from now on, and rest if it wants idle power."""

    def start(self, tasks: Sequence[Task], logs: Sequence[Path], on_event: OnEvent) -> Sequence[RankProcess]:
        """Start ranks."""

    def ping(self) -> None:
        """Ask whether it is there."""

    def end(self) -> None:
        """End its ranks, and what they started, and then its samplers."""


class LocalNode:
    """The machine of this process, for one trial after the other; what its meters can read is found once."""

    given_up = name = address = trouble = lost = ""
    has_answered = has_ended = True
    machine: Machine | None = None

    def __init__(self) -> None:
        self.children: list[Worker] = []
        self.probes: dict[str, MeterProbe] | None = None
        self.readings: Readings | None = None
        self._known: dict[tuple[object, ...], dict[str, MeterProbe]] = {}
        self._environments: dict[tuple[int | None, int], Environment] = {}
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

    def describe(self) -> Machine:
        """Return what this machine is now."""
        return description.describe()

    def environment(self, case: Case) -> Environment:
        """Return the variables that show workers only the GPUs of a case that are here."""
        shown = (case.gpu, case.devices // case.nodes)
        if shown not in self._environments:
            self._environments[shown] = gpus.environment(case.gpu, os.environ, shown[1])
        return self._environments[shown]

    def sample(self, case: Case) -> None:
        """Find what the meters of a case read here, sample them from now on, and rest if it wants idle power."""
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
        """Start ranks; the first is connected to the samplers."""
        environment = self.environment(tasks[0].cases[0])
        for number, (task, log) in enumerate(zip(tasks, logs, strict=True)):
            sensors = self._sampling.links() if self._sampling and number == 0 else {}
            own = environment_of(task.cases[0], number, environment)
            sent = msgspec.structs.replace(task, sensors=sensors)
            self.children.append(self._ranks.enter_context(started(sent, own, log, partial(on_event, task.rank))))
        return self.children

    def ping(self) -> None:
        """Do nothing: it is there."""

    def end(self) -> None:
        """End the ranks and what they started, and then the samplers."""
        self._ranks.close()
        self.children = []
        if self._sampling and self.probes is not None:
            silent = [
                Sampled(name, (), probe.unavailable, []) for name, probe in self.probes.items() if not probe.channels
            ]
            self.readings = Readings([*self._sampling.gather(), *silent], self._sampling.rest_ns, self._cards)
            self._sampling = None
        self._samplers.close()


def sample_all(nodes: Sequence[Node], case: Case) -> None:
    """Have all nodes sample, and rest if the case wants that; raises LostNodeError."""
    for node in nodes:
        node.sample(case)
    rest_s = case.measuring.power_idle_s if case.measuring.wants_power else 0.0
    wait(nodes, ANSWER_S + rest_s, lambda node: node.probes is not None)
    for node in nodes:
        if node.lost:
            raise LostNodeError(node.name or "", node.lost)


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
