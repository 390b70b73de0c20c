"""The messages between the parent and the agent of a node, each one line of JSON."""

from msgspec import Struct

from benchmarker.api.case import Case
from benchmarker.api.fields import Count
from benchmarker.power.sampler import MeterProbe
from benchmarker.power.samplers import Readings
from benchmarker.records.job import Installed
from benchmarker.records.machine import Machine
from benchmarker.worker.protocol import Command, Event, Task


class Ping(Struct, frozen=True, tag=True):
    """Asks whether the agent is there, and for a description of its machine if it is wanted."""

    described: bool = False


class StartSampling(Struct, frozen=True, tag=True):
    """Find what the meters of a case read on this node, sample them from now on, and rest if it wants idle power.

    Without it, no meter is read.
    """

    case: Case


class StartRanks(Struct, frozen=True, tag=True):
    """Start the ranks of this node: their tasks, in order, and the paths of their logs."""

    tasks: list[Task]
    logs: list[str]


class EndRanks(Struct, frozen=True, tag=True):
    """End all ranks of this node; after each trial, also if they have ended: then another one may begin."""


class ToRank(Struct, frozen=True, kw_only=True, tag=True):
    """What an agent is to do with a rank: send it a command, or end it by SIGTERM."""

    rank: Count
    command: Command | None = None
    terminate: bool = False


Request = StartSampling | StartRanks | EndRanks
"""What is done one after the other."""
ToAgent = Ping | ToRank | Request
"""What an agent may be sent: for each trial, `StartSampling` if meters are read, `StartRanks`, and `EndRanks`."""


class Present(Struct, frozen=True, omit_defaults=True, tag=True):
    """The answer to `Ping`; the first is sent unasked, with the software of the node too."""

    machine: Machine | None = None
    installed: Installed | None = None


class SamplingStarted(Struct, frozen=True, tag=True):
    """The answer to `StartSampling`, when the node has rested: what each meter reads there, or why it reads nothing."""

    probes: dict[str, MeterProbe]


class SampledReadings(Struct, frozen=True, tag=True):
    """What the meters of a node read, sent after all of its ranks have ended.

    In several messages if it is much: the samples of each go on with those of the one before.
    """

    readings: Readings


class FromRank(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """What an agent passes on of a rank: an event that is valid, why it sent what is not, or its exit status."""

    rank: Count
    event: Event | None = None
    fault: str = ""
    status: int | None = None


class TrialEnded(Struct, frozen=True, tag=True):
    """All of a trial has been sent, and none of its ranks is left: the next one may begin."""


FromAgent = Present | SamplingStarted | SampledReadings | FromRank | TrialEnded
"""What an agent may send."""
