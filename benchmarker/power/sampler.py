"""The sampler: a process of its own that reads one meter tick by tick.

A thread would wait for whoever holds the interpreter's lock; and a driver that hangs or crashes takes nothing with it.
Standard input is a socket to the parent: the request comes on it, the answers say what was found, and its end ends the
process. Samples go to standard output, a file that the parent made; what a library prints goes to standard error.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, get_args

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.api.meter import Channel, Meter, NoMeterError, Reading, Reason, Unavailable
from benchmarker.hooks import registry

if TYPE_CHECKING:
    from typing import BinaryIO

REASONS = frozenset(get_args(Reason))
FLUSH_NS = 1_000_000_000
"""A sampler that must be killed loses no more than what it has read for so long."""


class Request(Struct, frozen=True):
    """What to look for: what the meters read, for a case on a platform; then to sample the last, so often a second.

    `worker` is the socket on which the worker asks for readings at an edge; -1 where nobody does.
    """

    meters: tuple[str, ...]
    device: str | None
    hz: float = 0.0
    worker: int = -1


class Found(Struct, frozen=True):
    """What a meter reads, and what is unavailable."""

    channels: tuple[Channel, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()


class Sample(Struct, frozen=True, array_like=True):
    """One reading of all channels, begun at `time_ns` of the monotonic clock, `late_ns` after its tick was due.

    `mark` names the edge at which the worker asked for it; of a tick it is empty.
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
    sys.stdout = sys.stderr  # what a library prints is told before the error that comes after it, not at the end
    control = socket.socket(fileno=0)
    request = msgspec.json.decode(control.makefile("rb").readline(), type=Request)
    for name in request.meters:
        meter, found = _open(name, request.device)
        control.sendall(msgspec.json.encode(found) + b"\n")
    if meter and request.hz:
        _sample(meter, request, control, output)
    os._exit(0)  # all is written; a driver's own tidying up may hang


def _open(name: str, device: str | None) -> tuple[Meter | None, Found]:
    """A meter with what it reads, or why there is none."""
    try:
        meter: Meter = registry.load([f"meter.{name}"]).hook.make_meter(device=device)
    except NoMeterError as error:
        return None, Found(unavailable=(error.unavailable,))
    except UserError as error:
        return None, Found(unavailable=(Unavailable("", "library_missing", str(error)),))
    return meter, Found(tuple(meter.channels), tuple(meter.unavailable))


def _sample(meter: Meter, request: Request, control: socket.socket, output: BinaryIO) -> None:
    """Read at each tick, and at once where the worker asks; missed ticks are not made up for."""
    encode = msgspec.json.Encoder().encode
    selector = selectors.SelectSelector()  # others round their time limits up to whole milliseconds
    selector.register(control, selectors.EVENT_READ)
    worker = socket.socket(fileno=os.dup(request.worker)) if request.worker >= 0 else None  # select() takes low numbers
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
    """One reading of each channel, and nothing else; what is no finite number stands for none."""
    readings: list[Reading] = []
    for each in meter.read():
        if isinstance(each, str):
            readings.append(each if each in REASONS else "driver")
        else:
            readings.append(float(each) if math.isfinite(each) else "sentinel")
    if len(readings) != len(meter.channels):
        raise ValueError(f"{len(readings)} readings of {len(meter.channels)} channels")
    return tuple(readings)


if __name__ == "__main__":
    main()
