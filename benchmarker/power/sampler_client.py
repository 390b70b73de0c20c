"""The worker's side of the samplers: request readings at the edges of the timed part."""

import os
import socket
import time
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from benchmarker.power.sampler import Sample

ANSWER_S = 1.0
"""Time limit for a sampler's answer; after that its sensor hangs, and it is not asked again."""


class SamplerLink(Struct, frozen=True):
    """The connection to one sampler: its socket, its process, and whether it reads energy or power at all.

    The other fields are indices into its readings, which preheat uses to decide whether the device is warm: energies
    (J; `wraps_at` is where each counter wraps), powers (W) and temperatures (°C).
    """

    socket: int
    pid: int | None = None
    reads_power: bool = False
    energy: tuple[int, ...] = ()
    power: tuple[int, ...] = ()
    temperature: tuple[int, ...] = ()
    wraps_at: tuple[float | None, ...] = ()


class Gauge(Struct, frozen=True):
    """Mean power since the last reading, and the highest current temperature, if there are sensors."""

    power_W: float | None = None
    temperature_C: float | None = None


class SamplerClient:
    """Requests readings from all samplers at once, before and after the timed part, and in the preheat."""

    def __init__(self, links: Mapping[str, SamplerLink]) -> None:
        self._links = {meter: (link, socket.socket(fileno=os.dup(link.socket))) for meter, link in links.items()}
        self._before: dict[str, Sample] = {}

    @property
    def reads_power(self) -> bool:
        """Whether any sampler reads energy or power."""
        return any(link.reads_power for link, _ in self._links.values())

    @property
    def pids(self) -> list[int]:
        """The samplers' processes."""
        return [link.pid for link, _ in self._links.values() if link.pid is not None]

    def close(self) -> None:
        """Close the connections to all samplers."""
        for meter in list(self._links):
            self._drop(meter)

    def _drop(self, meter: str) -> None:
        self._links.pop(meter)[1].close()

    def mark(self, name: str) -> dict[str, Sample]:
        """Have every sampler read now; `name` marks these samples in the file."""
        samples = {}
        deadline = time.monotonic() + ANSWER_S
        for meter, (_, connection) in list(self._links.items()):
            try:
                connection.sendall(name.encode() + b"\n")
            except OSError:
                self._drop(meter)
        for meter, (_, connection) in list(self._links.items()):
            line = b""
            try:
                while not line.endswith(b"\n"):
                    connection.settimeout(max(0.001, deadline - time.monotonic()))
                    chunk = connection.recv(1 << 16)
                    if not chunk:
                        raise OSError
                    line += chunk
            except OSError:
                self._drop(meter)
            else:
                samples[meter] = msgspec.json.decode(line, type=Sample)
        return samples

    def gauge(self) -> Gauge:
        """Return the temperature, and the power since the last call from counters, or as read now if there are none."""
        samples = self.mark("look")
        powers: list[float] = []
        temperatures: list[float] = []
        for meter, sample in samples.items():
            link = self._links[meter][0]
            readings = sample.readings
            temperatures += [value for at in link.temperature if isinstance(value := readings[at], float)]
            before = self._before.get(meter)
            if link.energy and before:
                seconds = (sample.time_ns - before.time_ns) / 1e9
                for at, wraps_at in zip(link.energy, link.wraps_at, strict=True):
                    now, then = readings[at], before.readings[at]
                    if isinstance(now, float) and isinstance(then, float):
                        risen = now - then + (wraps_at or 0.0) * (now < then)
                        powers.append(risen / seconds)
            elif not link.energy:
                powers += [value for at in link.power if isinstance(value := readings[at], float)]
        self._before = samples
        return Gauge(sum(powers) if powers else None, max(temperatures, default=None))
