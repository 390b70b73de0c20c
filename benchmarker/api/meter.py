"""The interface of a meter: the series that it reads, and the reasons for missing readings."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.formatting import one_line

Domain = Literal["gpu", "gpu_memory", "module", "package", "dram", "psys"]
"""What a sensor covers: `module` is a GPU with its processor, `psys` the platform with its packages and memory."""
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
"""The quantities from which energy is obtained."""
Reason = Literal["library_missing", "driver", "permission", "unsupported", "sentinel", "stalled", "lost"]
"""Why there is no reading: `sentinel` is a number that means no value, `stalled` a sensor that does not answer."""
Reading = float | Reason

Slowdown = Literal["thermal", "hardware", "power brake"]
SLOWDOWNS: tuple[Slowdown, ...] = ("thermal", "hardware", "power brake")
"""Words of `Channel.bits` and `Channel.what` that mark a trial as throttled; others are notes (`power cap`, `idle`)."""


class Channel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One series that a meter reads.

    `id` identifies the component that contains the sensor (a UUID, or the name of a zone). `device` describes the
    component, and `pci` is its PCI address (`0000:65:00.0`). `scope` states what the sensor covers if that is not
    exactly the component. `shared` means that a case may use only a part of what the sensor covers. A counter restarts
    at zero when it reaches `wraps_at`. Three fields come from the sensor's documentation: `update_ms` is its update
    interval, `window_ms` its averaging time, and `accuracy_percent` its possible error. `bits` are the words for the
    bits of a `throttle_mask`. `what` is the word for a `throttle_time_s`, which is cumulative.
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
    """Something that a meter cannot read: the component or quantity (empty: everything), the reason, and the remedy."""

    what: str  #: the hardware or quantity; empty if nothing could be read
    reason: Reason  #: why
    message: str  #: one line, with the remedy

    @property
    def text(self) -> str:
        """All fields in one line."""
        return one_line(": ".join(part for part in (self.what, self.reason, self.message) if part))


class NoMeterError(UserError):
    """Raised by `make_meter` if there is nothing to read; it must not return an empty meter instead."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.unavailable = Unavailable("", reason, message)


class Meter(ABC):
    """An open meter: at least one readable channel, and what it found but cannot read.

    An energy source that exists but cannot be read is listed among the channels as well, so that totals report it as
    missing.
    """

    channels: Sequence[Channel]
    unavailable: Sequence[Unavailable] = ()

    @abstractmethod
    def read(self) -> Sequence[Reading]:
        """Read each channel, or state why it has no reading now; must read energies first and raise nothing."""
