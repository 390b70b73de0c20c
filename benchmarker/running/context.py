"""What all trials of a run share: made once, and passed from the run to its trials and profiles."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from benchmarker.agent.node import LocalNode, Node
from benchmarker.agent.remote import Agents
from benchmarker.api.case import Case, Measuring
from benchmarker.api.launcher import Allocation
from benchmarker.hooks import launchers
from benchmarker.machine.description import installed
from benchmarker.power import samplers
from benchmarker.power.sampler import MeterProbe
from benchmarker.records.record import Record
from benchmarker.records.store import RunFolder
from benchmarker.worker.launch import Environment
from benchmarker.worker.protocol import Event


class Listener(Protocol):
    """The receiver of a run's progress."""

    def say(self, text: str) -> None:
        """A message about the run as a whole."""

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """A process begins; `left_s` is the expected remaining time of the whole plan, None if unknown."""

    def on_event(self, event: Event) -> None:
        """A worker has sent an event."""

    def end(self, records: Sequence[Record]) -> None:
        """A process has ended, and its records are stored."""


@dataclass(frozen=True)
class Context:
    """The folder of a run, its listener, and what is determined once for all trials; `close` ends its agents.

    `packages` are the folders of packages that come first in the workers of each case, by its number; empty if none.
    """

    folder: RunFolder
    listener: Listener
    allocation: Allocation | None = None
    packages: Sequence[str] = ()

    def packages_of(self, number: int) -> str:
        """Return the folder of the packages that come first for the case of a number; empty if there is none."""
        return self.packages[number] if self.packages else ""

    def environment(self, case: Case) -> Environment:
        """The environment variables that show a worker only the GPUs of a case; several nodes find their own."""
        return self._here.environment(case) if case.nodes == 1 else {}

    def nodes(self, case: Case) -> AbstractContextManager[Sequence[Node]]:
        """The nodes that compute a case, for a trial: this machine, or the first ones of the allocation."""
        if case.nodes == 1:
            return self._this_machine()
        assert self.allocation is not None
        return self._agents.on(self.allocation.nodes[: case.nodes])

    @contextmanager
    def _this_machine(self) -> Iterator[Sequence[Node]]:
        with self._here.trial():
            yield [self._here]

    def down(self) -> Sequence[str]:
        """Return the nodes that the launcher knows to be lost."""
        return launchers.lost_nodes(self.allocation) if self.allocation else ()

    def close(self) -> None:
        """End the agents on nodes."""
        if "_agents" in vars(self):
            self._agents.close()

    def report_meters(self, nodes: Sequence[Node], measuring: Measuring) -> None:
        """Say to the listener what is read on the nodes, once for the run, and by node if they differ.

        If power was requested, that is which meters are read; and why one that was named is not.
        """
        by_node = {node.name: _messages(node.probes or {}, measuring.power, measuring.wants_power) for node in nodes}
        (first, *others) = by_node.values()
        texts = [f"node {node}: {text}" for node, texts in by_node.items() for text in texts]
        for text in first if all(other == first for other in others) else texts:
            if text not in self._said:
                self._said.add(text)
                self.listener.say(text)

    @cached_property
    def _here(self) -> LocalNode:
        return LocalNode()

    @cached_property
    def _agents(self) -> Agents:
        assert self.allocation is not None
        return Agents(launchers.load_launcher(self.allocation.launcher), self.allocation, installed())

    @cached_property
    def _said(self) -> set[str]:
        return set()


def _messages(probes: Mapping[str, MeterProbe], power: str, wanted: bool) -> list[str]:
    """Messages for the user about the meters."""
    silent = {name: probe.trouble for name, probe in probes.items() if probe.trouble is not None}
    messages = [
        f"no power from {name}: {why}"
        for name, why in silent.items()
        if (wanted and power != samplers.AUTO)
        or any(missing.reason == "stalled" for missing in probes[name].unavailable)
    ]
    if wanted and power == samplers.AUTO:
        reading = ", ".join(name for name in probes if name not in silent) or "no meter"
        rest = f"; unavailable: {', '.join(silent)} (`benchmarker power` shows why)" if silent else ""
        messages.append(f"power: reading {reading}{rest}")
    return messages
