"""The interface of a framework: what it reports about itself, and its operations once it is open on a device."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from benchmarker.api.errors import UserError


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a framework reports, and the precisions that the framework supports on it.

    Power sensors are matched to the device by its `uuid` or its PCI address (`0000:65:00.0`). `cache_bytes` is the size
    of the last-level cache; that of a processor is known without the framework. `count` is the number of such devices
    that the framework sees; None stands for a processor, which can be divided into any number.
    """

    platform: str
    name: str
    precisions: tuple[str, ...]
    memory_bytes: int | None = None
    cache_bytes: int | None = None
    uuid: str | None = None
    pci: str | None = None
    count: int | None = 1


@dataclass(frozen=True, slots=True)
class FrameworkInfo:
    """What a framework reports about itself on this machine.

    `devices` are in order of preference: `--device=auto` selects the first. `compile` states whether its steps are
    compiled: always, never, or as requested with `--compile`. `libraries` maps each distribution to its version.
    `variables` names the environment variables that change its speed; a record keeps those that are set. `group` states
    how several devices compute together: by a process for each, by one for those of each node, by one for all, which
    are then on one node, or not at all. `executions` are its words for how a step runs, which tables print: if it is
    not compiled, and if it is, of which one may be missing. Without any, the words are eager and compiled.
    """

    name: str
    version: str
    devices: tuple[Device, ...]
    compile: Literal["always", "optional", "never"]
    libraries: Mapping[str, str]
    variables: tuple[str, ...] = ()
    group: Literal["process_per_device", "process_per_node", "one_process", "none"] = "none"
    executions: tuple[str, ...] = ()


StepMarker = Callable[[int], AbstractContextManager[object]]
"""Returns a context that marks the work within it, for the profiler, as the step with the given number."""


DeviceTimer = Callable[[Callable[[], Any], int], int | None]
"""Runs a step so many times, and returns how long the device computes them by its own clock, ns.

The device begins when the host has launched all of them, so that it never waits for the host in between; None if it
began before: steps wait for their results, or launch more than a queue holds.
"""


class ProcessGroup(Protocol):
    """The processes of a trial that compute together, as one of them sees them: its rank, and their number.

    `local_rank` is its rank among those of its own node. `host` is the address of rank 0, by which all others reach
    it, and `own_host` that of this process, by which rank 0 does.
    """

    rank: int
    local_rank: int
    ranks: int
    host: str
    own_host: str

    def broadcast(self, value: Any) -> Any:
        """Return, in every process, the value that rank 0 gives; the others' are ignored."""


class Framework(ABC):
    """A framework, opened in one precision on one device, or on several that compute together."""

    @abstractmethod
    def synchronize(self, result: Any) -> None:
        """Wait until `result` and every step launched before it are complete."""

    @abstractmethod
    def is_finite(self, result: Any) -> bool:
        """Whether no floating-point or complex number in `result` is NaN or infinite."""

    @abstractmethod
    def threads(self) -> int | None:
        """Number of CPU threads that the framework actually computes with, as inspected; None if it is unknown."""

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Settings that decide the precision of matrix products, as read back from the framework."""

    @abstractmethod
    def peak_memory_bytes(self) -> int | None:
        """Peak number of bytes allocated on the device so far; None if the framework does not count them."""

    def device_timer(self) -> DeviceTimer | None:
        """Return the timer of the device; None if the framework has no clock but the host's."""
        return None

    def fp64(self) -> AbstractContextManager[object]:
        """Return a context in which workloads in fp64 are built and run, whatever the precision of the framework is."""
        return nullcontext()

    def profile(self, folder: Path) -> AbstractContextManager[StepMarker]:
        """Return a context that traces the work within it to a file in `folder`; it provides a `StepMarker`.

        The file is `*.xplane.pb`, or `*.json` in Chrome's format. Raises `UserError` if there is no profiler.
        """
        raise UserError("it has no profiler")

    def join(self, group: ProcessGroup) -> None:
        """Make this process a rank of a process group: it computes on the device whose number is its local rank.

        If `FrameworkInfo.group` is `process_per_node`, it computes on as many as it was opened on. Called once the
        framework is opened, before anything else, and only where processes compute together.
        """
        raise UserError("it runs in one process only")

    def is_lost_peer(self, error: BaseException) -> bool:
        """Whether `error` reports only that another rank of the process group cannot be reached any more."""
        return False

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` reports that memory ran out."""
        return isinstance(error, MemoryError)
