"""A framework as the core sees it: what it says of itself, and what it does when it is opened on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarker.api.errors import UserError

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a framework reports, and the precisions that it does there.

    Power sensors are matched to it by its `uuid` or its PCI address (`0000:65:00.0`).
    """

    platform: str
    name: str
    precisions: tuple[str, ...]
    memory_bytes: int | None = None
    uuid: str | None = None
    pci: str | None = None


@dataclass(frozen=True, slots=True)
class FrameworkInfo:
    """What a framework says of itself on this machine.

    `devices` stand in order of preference: the first is what `--device=auto` takes. `compile` says whether its
    steps are compiled: always, never, or as `--compile` asks. `libraries` maps distribution to version.
    `variables` names the environment variables that change its speed; a record keeps those that are set.
    """

    name: str
    version: str
    devices: tuple[Device, ...]
    compile: Literal["always", "optional", "never"]
    libraries: Mapping[str, str]
    variables: tuple[str, ...] = ()


StepMarker = Callable[[int], AbstractContextManager[object]]
"""Marks what runs within it as the step of a number, for the profiler."""


class Framework(ABC):
    """A framework, opened on one device in one precision."""

    @abstractmethod
    def synchronize(self, result: Any) -> None:
        """Wait until `result`, and every step launched before it, is done."""

    @abstractmethod
    def is_finite(self, result: Any) -> bool:
        """Whether no floating-point number in `result` is NaN or infinite."""

    @abstractmethod
    def threads(self) -> int | None:
        """CPU threads that the framework really computes with, as found by looking; None where that cannot be."""

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """What decides the precision of matrix products, as read back from the framework."""

    @abstractmethod
    def peak_memory_bytes(self) -> int | None:
        """Most bytes allocated on the device so far, or None where the framework does not count."""

    def profile(self, folder: Path) -> AbstractContextManager[StepMarker]:
        """Trace what runs within it to a file in `folder`; what it gives marks the step of a number.

        The file is `*.xplane.pb`, or in Chrome's format `*.json`. Raises `UserError` where there is no profiler.
        """
        raise UserError("it has no profiler")

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether `error` says that memory ran out."""
        return isinstance(error, MemoryError)
