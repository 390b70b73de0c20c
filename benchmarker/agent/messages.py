"""The messages between the parent and the agent of a node, each one line of JSON."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from benchmarker.api.case import Case
from benchmarker.api.fields import Count
from benchmarker.power.sampler import Found
from benchmarker.power.samplers import Readings
from benchmarker.records.job import Installed
from benchmarker.records.record import Machine
from benchmarker.worker.protocol import Command, Task


class Where(Struct, frozen=True, tag=True):
    """Tell that you are there, with a description of the machine if it is wanted."""

    described: bool = False


class Sense(Struct, frozen=True, tag=True):
    """Find what these meters read on this node, sample them for a case from now on, and rest if it wants idle power.

    Without it, no meter is read.
    """

    case: Case
    meters: list[str]


class Begin(Struct, frozen=True, tag=True):
    """Start the ranks of this node: their tasks, in order, and the paths of their logs."""

    tasks: list[Task]
    logs: list[str]


class End(Struct, frozen=True, tag=True):
    """End all ranks of this node; after each trial, also if they have ended: then another one may begin."""


class ToRank(Struct, frozen=True, kw_only=True, tag=True):
    """What an agent is to do with a rank: tell it something, or end it by SIGTERM."""

    rank: Count
    told: Command | None = None
    terminate: bool = False


ToAgent = Where | Sense | Begin | ToRank | End
"""What an agent may be told: for each trial, `Sense` if meters are read, `Begin`, and `End`."""


class Here(Struct, frozen=True, omit_defaults=True, tag=True):
    """The answer to `Where`; the first that an agent tells is where it runs, and with which software."""

    machine: Machine | None = None
    installed: Installed | None = None


class Sensing(Struct, frozen=True, tag=True):
    """The answer to `Sense`, when the node has rested: what each meter reads there, or why it reads nothing."""

    found: dict[str, Found]


class Sensed(Struct, frozen=True, tag=True):
    """What the meters of a node read, told after all of its ranks have ended.

    In several messages if it is much: the samples of each go on with those of the one before.
    """

    readings: Readings


class FromRank(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """What an agent tells of a rank: an event that is valid, why it sent what is not, or its exit status."""

    rank: Count
    event: dict[str, Any] | None = None
    fault: str = ""
    status: int | None = None


class Over(Struct, frozen=True, tag=True):
    """All of a trial has been told, and none of its ranks is left: the next one may begin."""


FromAgent = Here | Sensing | Sensed | FromRank | Over
"""What an agent may tell."""
