"""Cards for the fakes of the vendors' libraries: their power over time, its exact integral, and their faults."""

from __future__ import annotations

import math
import mmap
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Constant:
    """Power that stays at `watts`."""

    watts: float

    @property
    def script(self) -> str:
        return f"constant {self.watts}"

    def energy(self, t: float) -> float:
        """Energy from the origin until `t` s after it, J."""
        return self.watts * t


@dataclass(frozen=True)
class Ramp:
    """Power that goes from `start` to `end` within `seconds` of the origin, and stays there."""

    start: float
    end: float
    seconds: float

    @property
    def script(self) -> str:
        return f"ramp {self.start} {self.end} {self.seconds}"

    def energy(self, t: float) -> float:
        within = min(t, self.seconds)
        risen = (self.end - self.start) * within**2 / (2 * self.seconds)
        return self.start * within + risen + self.end * (t - within)


@dataclass(frozen=True)
class Wave:
    """Power that is `high` for `width` of each `period` (s), else `low`: a square wave, or spikes."""

    low: float
    high: float
    period: float
    width: float

    @property
    def script(self) -> str:
        return f"wave {self.low} {self.high} {self.period} {self.width}"

    def energy(self, t: float) -> float:
        periods = math.floor(t / self.period)
        high = periods * self.width + min(t - periods * self.period, self.width)
        return self.low * t + (self.high - self.low) * high


@dataclass(frozen=True)
class Fault:
    """A function of the library that fails with `code` from and until some seconds after the origin; -1 hangs."""

    function: str
    code: int
    since: float = 0.0
    until: float = math.inf


@dataclass(frozen=True)
class Card:
    """A card as the fakes play it; times in s after the origin, J, W, degrees Celsius."""

    uuid: str = "GPU-11111111-2222-3333-4444-555555555555"
    pci: str = "0000:65:00.0"
    name: str = "Fake Card"
    curve: Constant | Ramp | Wave = Constant(100.0)
    generation: int = 9
    mig: int = 0
    hip_index: int | None = None
    update_s: float = 0.1
    window_s: float = 0.1
    average_s: float = 1.0
    counter_update_s: float = 0.02
    counter_scale: float = 1.0
    latency_s: float = 0.0
    temperature: float = 40.0
    temperature_rise: float = 0.0
    limit: float = 700.0
    stuck_from: float = math.inf
    backwards: tuple[float, float] | None = None
    throttle: tuple[int, float, float] | None = None
    faults: Sequence[Fault] = field(default=())

    def script(self) -> str:
        """This card's part of the script."""
        lines = ["card", f"curve {self.curve.script}"]
        for name in [each.name for each in fields(self)]:
            value = getattr(self, name)
            if name in ("backwards", "throttle") and value:
                lines.append(" ".join([name, *map(str, value)]))
            elif name not in ("backwards", "throttle", "faults", "curve") and value is not None:
                lines.append(f"{name} {value}")
        lines += [f"fault {each.function} {each.code} {each.since} {each.until}" for each in self.faults]
        return "\n".join(lines) + "\n"


class VirtualClock:
    """A clock that the fakes read and the test sets, s after the origin 0."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self.path = path

    def set(self, seconds: float) -> None:
        """Make it this late."""
        self._map[:8] = struct.pack("=q", round(seconds * 1e9))


def write(path: Path, cards: Sequence[Card], clock: VirtualClock | None = None, before_s: float = 100.0) -> float:
    """Write the script to `path`; returns its origin on the monotonic clock, s: `before_s` ago, or 0 of the clock."""
    origin = 0.0 if clock else time.monotonic() - before_s
    head = f"origin {origin!r}\n" + (f"clock {clock.path}\n" if clock else "")
    path.write_text(head + "".join(card.script() for card in cards))
    return origin


def build(source: Path, library: Path, *flags: str) -> Path:
    """Compile a fake as a shared library, once; skips the test where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is here to build the fake library with")
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        half = library.with_name(f".{library.name}.{time.monotonic_ns()}")
        words = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wno-unused-function", f"-I{HERE}", *flags]
        subprocess.run([*words, "-o", str(half), str(source), "-lm"], check=True)
        half.rename(library)
    return library
