"""The messages between the parent and the agent of a node, each one line of JSON."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from benchmarker.api.numbers import Count
from benchmarker.records.job import Installed
from benchmarker.records.record import Machine
from benchmarker.worker.protocol import Request, Told


class Here(Struct, frozen=True):
    """Where an agent runs: the first that it tells."""

    machine: Machine
    installed: Installed


class Begin(Struct, frozen=True):
    """The first that an agent is told: the requests to the ranks of its node, in order, and the paths of their logs."""

    requests: list[Request]
    logs: list[str]


class ToRank(Struct, frozen=True, kw_only=True):
    """What an agent is to do with a rank: tell it something, or end it by SIGTERM."""

    rank: Count
    told: Told | None = None
    terminate: bool = False


class FromRank(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent tells of a rank: an event that is valid, why it sent what is not, or its exit status."""

    rank: Count
    event: dict[str, Any] | None = None
    fault: str = ""
    status: int | None = None
