"""What every trial of a run shares: made once, and handed whole from the run to its trials and profiles."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from benchmarker.machine import gpus
from benchmarker.power import samplers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarker.api.case import Case
    from benchmarker.power.sampler import Found
    from benchmarker.records.record import Record
    from benchmarker.records.store import RunFolder
    from benchmarker.worker.launch import Environment, Event


class Listener(Protocol):
    """Whoever is told how a run goes; `again` ends the sentence that says that it was interrupted."""

    again: str

    def say(self, text: str) -> None:
        """Something about the run as a whole."""

    def begin(self, title: str, case: Case, left_s: float | None) -> None:
        """A process begins; `left_s` is what the whole plan should still take, where that can be told."""

    def hear(self, event: Event) -> None:
        """A worker has sent an event."""

    def end(self, records: Sequence[Record]) -> None:
        """A process has ended, and its records are stored."""


@dataclass(frozen=True)
class Context:
    """The folder of a run, whoever listens to it, and what is found out once for all trials alike."""

    folder: RunFolder
    listener: Listener

    def environment(self, case: Case) -> Environment:
        """The variables that show a worker the GPU of a case."""
        if case.gpu not in self._environments:
            self._environments[case.gpu] = gpus.environment(case.gpu, os.environ)
        return self._environments[case.gpu]

    def meters(self, cases: Sequence[Case]) -> Mapping[str, Found]:
        """What the meters read here, for the cases of one process; none where there are two, for they share one power.

        Where power was asked for, it is told which are read and why one named is not.
        """
        if len(cases) > 1:
            return {}
        measuring = cases[0].measuring
        key = (measuring.power, cases[0].device, cases[0].gpu, measuring.wants_power)
        if key not in self._meters:
            found = samplers.find(samplers.meters(measuring.power), cases[0].device, self.environment(cases[0]))
            for text in _told(found, measuring.power, measuring.wants_power):
                self.listener.say(text)
            self._meters[key] = found
        return self._meters[key]

    @cached_property
    def _environments(self) -> dict[int | None, Environment]:
        return {}

    @cached_property
    def _meters(self) -> dict[tuple[object, ...], Mapping[str, Found]]:
        return {}


def _told(found: Mapping[str, Found], power: str, asked: bool) -> list[str]:
    """What a user wants to know of the meters that were found."""
    silent = {
        name: "; ".join(missing.text for missing in each.unavailable)
        for name, each in found.items()
        if not each.channels
    }
    told = [
        f"no power from {name}: {why}"
        for name, why in silent.items()
        if (asked and power != samplers.AUTO) or any(missing.reason == "stalled" for missing in found[name].unavailable)
    ]
    if asked and power == samplers.AUTO:
        reading = ", ".join(name for name in found if name not in silent) or "no meter"
        rest = f"; not {', '.join(silent)}: `benchmarker power` says why" if silent else ""
        told.append(f"power: reading {reading}{rest}")
    return told
