"""The sampler: a separate process that reads one meter at every tick.

A thread would have to wait for the interpreter's lock, and a driver that hangs or crashes would affect the measurement.
Standard input is a socket to the parent. It carries the request and the answers about what was found; closing it ends
the process. Samples go to standard output, a file created by the parent. Output of libraries goes to standard error.
"""

import math
import os
import selectors
import signal
import socket
import sys
import time
from typing import BinaryIO, get_args

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.meter import Channel, Meter, NoMeterError, Reading, Reason, Unavailable
from benchmarker.files.atomic import as_json
from benchmarker.hooks import registry

REASONS = frozenset(get_args(Reason))
FLUSH_NS = 1_000_000_000
"""Time between flushes: a sampler that is killed loses at most the readings of this time."""


class SamplingRequest(Struct, frozen=True):
    """Find what the meters read for a case on a platform, then sample the last meter `hz` times per second.

    `worker` is the socket on which the worker requests readings at an edge; -1 if there is no worker.
    """

    meters: tuple[str, ...]
    device: str | None
    hz: float = 0.0
    worker: int = -1


class MeterProbe(Struct, frozen=True):
    """What a meter can read, what is unavailable, and the process that reads it, if any does."""

    channels: tuple[Channel, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    pid: int | None = None

    @property
    def trouble(self) -> str | None:
        """Why nothing can be read; None if something can."""
        return None if self.channels else "; ".join(missing.text for missing in self.unavailable)


class Sample(Struct, frozen=True, array_like=True):
    """One reading of all channels, started at `time_ns` of the monotonic clock, `late_ns` after its tick was due.

    `mark` names the edge at which the worker requested it; it is empty for a tick.
    """

    time_ns: int
    late_ns: int
    mark: str
    readings: tuple[Reading, ...]


def main() -> None:
    """Answer the request on standard input, and sample until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # a library's output then comes before the error that follows it, not at the end
    control = socket.socket(fileno=0)
    request = msgspec.json.decode(control.makefile("rb").readline(), type=SamplingRequest)
    for name in request.meters:
        meter, probe = _open(name, request.device)
        control.sendall(as_json(probe) + b"\n")
    if meter and request.hz:
        _sample(meter, request, control, output)
    os._exit(0)  # everything is written; a driver's own clean-up may hang


def _open(name: str, device: str | None) -> tuple[Meter | None, MeterProbe]:
    """Open a meter; return it with what it reads, or why there is none."""
    try:
        meter: Meter = registry.load([f"meter.{name}"]).hook.make_meter(device=device)
    except NoMeterError as error:
        return None, MeterProbe(unavailable=(error.unavailable,))
    except UserError as error:
        return None, MeterProbe(unavailable=(Unavailable("", "library_missing", str(error)),))
    return meter, MeterProbe(tuple(meter.channels), tuple(meter.unavailable), os.getpid())


def _sample(meter: Meter, request: SamplingRequest, control: socket.socket, output: BinaryIO) -> None:
    """Read at each tick, and immediately on the worker's request; missed ticks are skipped."""
    encode = msgspec.json.Encoder().encode
    selector = selectors.SelectSelector()  # other selectors round timeouts up to whole milliseconds
    selector.register(control, selectors.EVENT_READ)
    worker = socket.socket(fileno=os.dup(request.worker)) if request.worker >= 0 else None  # select() needs low numbers
    if worker:
        selector.register(worker, selectors.EVENT_READ)

    def read(due_ns: int | None, mark: str) -> bytes:
        time_ns = time.monotonic_ns()
        sample = Sample(time_ns, time_ns - (due_ns or time_ns), mark, _readings(meter))
        line = encode(sample) + b"\n"
        output.write(line)
        return line

    period_ns = round(1e9 / request.hz)
    due_ns = flush_ns = time.monotonic_ns()
    while True:
        for key, _ in selector.select(max(0, due_ns - time.monotonic_ns()) / 1e9):
            if key.fileobj is control:
                output.flush()
                return
            assert worker is not None
            marks = worker.recv(4096)
            if not marks:
                selector.unregister(worker)
            for mark in marks.decode().split():
                worker.sendall(read(None, mark))
                output.flush()
        now_ns = time.monotonic_ns()
        if now_ns >= due_ns:
            read(due_ns, "")
            due_ns += period_ns * max(1, -(-(now_ns - due_ns) // period_ns))
        if now_ns >= flush_ns:
            output.flush()
            flush_ns = now_ns + FLUSH_NS


def _readings(meter: Meter) -> tuple[Reading, ...]:
    """Read each channel exactly once; a number that is not finite means that there is no value."""
    readings: list[Reading] = []
    for value in meter.read():
        if isinstance(value, str):
            readings.append(value if value in REASONS else "driver")
        else:
            readings.append(float(value) if math.isfinite(value) else "sentinel")
    if len(readings) != len(meter.channels):
        raise ValueError(f"{len(readings)} readings of {len(meter.channels)} channels")
    return tuple(readings)


if __name__ == "__main__":
    main()
