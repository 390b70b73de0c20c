"""What a meter is: the series that it reads, and why there is none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from benchmarker.api.errors import UserError

Domain = Literal["gpu", "gpu_memory", "module", "package", "dram", "psys"]
"""What a sensor sees: `module` holds a GPU with its processor, `psys` the platform with its packages and memory."""
Quantity = Literal[
    "energy_J",
    "power_instant_W",
    "power_average_W",
    "power_limit_W",
    "temperature_C",
    "memory_temperature_C",
    "sm_clock_MHz",
    "memory_clock_MHz",
    "utilisation_percent",
    "memory_used_bytes",
    "throttle_mask",
    "throttle_time_s",
]
SOURCES: tuple[Quantity, ...] = ("energy_J", "power_average_W", "power_instant_W")
"""The quantities that an energy is had from."""
Reason = Literal["library_missing", "driver", "permission", "unsupported", "sentinel", "stalled", "lost"]
"""Why there is no reading: `sentinel` is a number that stands for none, `stalled` a sensor that does not answer."""
Reading = float | Reason

Slowdown = Literal["thermal", "hardware", "power brake"]
SLOWDOWNS: tuple[Slowdown, ...] = ("thermal", "hardware", "power brake")
"""Words of `Channel.bits` and `Channel.what` that mark a trial as throttled; others are notes (`power cap`, `idle`)."""


class Channel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One series that a meter reads.

    `id` names the thing that the sensor sits in (UUID, or the name of a zone), `device` describes it, `pci` is its PCI
    address (`0000:65:00.0`). `scope` says what the sensor sees, where that is not simply the thing; `shared` that a
    case may have only a part of it. A counter starts again at zero when it reaches `wraps_at`. `update_ms`, `window_ms`
    and `accuracy_percent` are, by its documentation, how often the sensor has a new value, over what time that is
    averaged, and how far it may be off. `bits` are the words for the bits of a `throttle_mask`, `what` the word for a
    `throttle_time_s` (cumulative).
    """

    id: str
    domain: Domain
    quantity: Quantity
    device: str = ""
    pci: str | None = None
    scope: str = ""
    shared: bool = False
    wraps_at: float | None = None
    update_ms: float | None = None
    window_ms: float | None = None
    accuracy_percent: float | None = None
    bits: dict[int, str] = {}
    what: str = ""


class Unavailable(Struct, frozen=True, forbid_unknown_fields=True):
    """What a meter cannot read: which thing or quantity (empty: all that it is there for), why, and the remedy."""

    what: str
    reason: Reason
    message: str

    @property
    def text(self) -> str:
        """All of it in one line."""
        return ": ".join(part for part in (self.what, self.reason, self.message) if part)


class NoMeterError(UserError):
    """Raised by `make_meter` where there is nothing to read; never give an empty meter instead."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.unavailable = Unavailable("", reason, message)


class Meter(ABC):
    """An open meter: at least one channel that can be read, and what it found but cannot read.

    A source of energy that is there and cannot be read stands among the channels as well: sums then say that they are
    without it.
    """

    channels: Sequence[Channel]
    unavailable: Sequence[Unavailable] = ()

    @abstractmethod
    def read(self) -> Sequence[Reading]:
        """One reading of each channel, or why it has none now; energies are read first, and nothing is raised."""
