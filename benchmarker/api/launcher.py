"""Launchers: where programs are started other than by the user, such as a cluster's scheduler."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.fields import Count

Phase = Literal["pending", "running", "ended", "unknown"]
Ending = Literal["preempted", "time limit", "node failure", "cancelled"]


class Allocation(Struct, frozen=True, forbid_unknown_fields=True):
    """What a launcher gave to this process: the number of the job, its nodes, and how often the job was restarted."""

    launcher: str  #: name of the launcher
    job: str  #: number of the job
    nodes: list[str]  #: names of its nodes
    restarts: Count  #: how often the launcher had restarted the job


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job: its phase, the same in the launcher's own words with the reason, and its nodes, if known.

    `unknown` means that it cannot be told now; a job that the launcher has forgotten has `ended`.
    """

    phase: Phase
    detail: str
    nodes: str = ""


class Launcher(ABC):
    """Starts scripts as jobs, and reports their status."""

    @abstractmethod
    def allocation(self) -> Allocation | None:
        """Return the allocation that this process runs in, None outside of any.

        Raises `UserError` if it runs in one in a way that cannot be measured, such as beside its nodes.
        """

    @abstractmethod
    def directives(self, name: str, log: Path, nodes: int) -> Sequence[str]:
        """Return the lines of a script that tell the launcher what a job needs; `log` is where its output goes.

        The script runs once, on the first of the job's nodes. The job may be restarted, and gets SIGTERM some time
        before it must end. Raises `UserError` if a job cannot have `nodes` nodes.
        """

    @abstractmethod
    def submit(self, script: Path, log: Path) -> str:
        """Submit a script, and return the job's number; raises `UserError` if it is refused or could never start."""

    @abstractmethod
    def states(self, jobs: Sequence[str]) -> Mapping[str, JobState]:
        """Return the state of each job."""

    @abstractmethod
    def cancel(self, job: str) -> None:
        """End a job, or take it off the queue."""

    def node(self) -> str | None:
        """Return the name of the allocation's node on which this process runs, None if it is not known."""
        return None

    def command(self, nodes: Sequence[str], program: Sequence[str]) -> Sequence[str]:
        """Return the command that runs a program once on each of these nodes of the allocation, until all have ended.

        Such commands run at the same time as others, each with all cores and devices of its nodes. What the command
        reads goes to each program, also that there is no more; one that ends leaves the others alone. Lines of output
        arrive whole if there is one node. Raises `UserError` if this launcher starts nothing on nodes.
        """
        raise UserError("the launcher of this allocation starts nothing on other nodes; use one node")

    def address(self, node: str) -> str:
        """Return the address at which other nodes of the allocation reach this one, by its name if not told."""
        return node

    def lost_nodes(self, allocation: Allocation) -> Sequence[str]:
        """Return the nodes of the allocation that the launcher knows to be lost."""
        return ()

    def ending(self, allocation: Allocation) -> Ending:
        """Return why SIGTERM was sent to this process, which runs in the allocation."""
        return "cancelled"

    def requeue(self, allocation: Allocation) -> None:  # noqa: B027 - most launchers have nothing to do
        """Put the job of this process, which is preempted or has lost a node, back on the queue if it is not there."""
