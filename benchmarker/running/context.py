"""What all trials of a run share: made once, and passed from the run to its trials and profiles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from benchmarker.agent.remote import Agents, Nodes
from benchmarker.api.case import Case, Measuring
from benchmarker.api.launcher import Allocation
from benchmarker.hooks.launchers import load_launcher
from benchmarker.machine import gpus
from benchmarker.machine.description import installed
from benchmarker.power import samplers
from benchmarker.power.sampler import MeterProbe
from benchmarker.records.record import Record
from benchmarker.records.store import RunFolder
from benchmarker.worker.launch import Environment, Event


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
    """The folder of a run, its listener, and what is determined once for all trials; `close` ends its agents."""

    folder: RunFolder
    listener: Listener
    allocation: Allocation | None = None

    def environment(self, case: Case) -> Environment:
        """The environment variables that show a worker only the GPUs of a case; several nodes find their own."""
        if case.nodes > 1:
            return {}
        shown = (case.gpu, case.devices)
        if shown not in self._environments:
            self._environments[shown] = gpus.environment(case.gpu, os.environ, case.devices)
        return self._environments[shown]

    def nodes(self, case: Case) -> Nodes | None:
        """The nodes of the allocation that compute a case, the first of which is this one; None if it has one."""
        if case.nodes == 1:
            return None
        assert self.allocation is not None
        names = tuple(self.allocation.nodes[: case.nodes])
        key = (case.measuring.power, case.device, case.devices // case.nodes)
        return Nodes(names, self._agents, self._probes_on_nodes.setdefault(key, {}))

    def close(self) -> None:
        """End the agents on nodes."""
        if "_agents" in vars(self):
            self._agents.close()

    def meters(self, cases: Sequence[Case]) -> Mapping[str, MeterProbe]:
        """What the meters can read here, for the cases of one process; nothing for two cases.

        Nothing on several nodes either, whose agents find it. If power was requested, the listener is told which meters
        are read, and why a named one is not.
        """
        if len(cases) > 1 or cases[0].nodes > 1:
            return {}
        measuring = cases[0].measuring
        key = (measuring.power, cases[0].device, cases[0].gpu, cases[0].devices, measuring.wants_power)
        if key not in self._meters:
            probes = samplers.probe(samplers.meters(measuring.power), cases[0].device, self.environment(cases[0]))
            for text in _messages(probes, measuring.power, measuring.wants_power):
                self.listener.say(text)
            self._meters[key] = probes
        return self._meters[key]

    def report_meters(self, nodes: Mapping[str, Mapping[str, MeterProbe]], measuring: Measuring) -> None:
        """Say to the listener what is read on each of several nodes, once for the run, and by node if they differ."""
        by_node = {node: _messages(probes, measuring.power, measuring.wants_power) for node, probes in nodes.items()}
        (first, *others) = by_node.values()
        texts = [f"node {node}: {text}" for node, texts in by_node.items() for text in texts]
        for text in first if all(other == first for other in others) else texts:
            if text not in self._said:
                self._said.add(text)
                self.listener.say(text)

    @cached_property
    def _agents(self) -> Agents:
        assert self.allocation is not None
        return Agents(load_launcher(self.allocation.launcher), self.allocation, installed())

    @cached_property
    def _probes_on_nodes(self) -> dict[tuple[object, ...], dict[str, dict[str, MeterProbe]]]:
        return {}

    @cached_property
    def _said(self) -> set[str]:
        return set()

    @cached_property
    def _environments(self) -> dict[tuple[int | None, int], Environment]:
        return {}

    @cached_property
    def _meters(self) -> dict[tuple[object, ...], Mapping[str, MeterProbe]]:
        return {}


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
