"""The parent's side of the samplers: find meters, start samplers before a worker, collect their readings."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import msgspec

from benchmarker import guard
from benchmarker.api.errors import UserError
from benchmarker.api.meter import SOURCES, Channel, Unavailable
from benchmarker.files.locks import temporary
from benchmarker.formatting import clean, names_in
from benchmarker.hooks import registry
from benchmarker.power.sampler import MeterProbe, Sample, SamplingRequest
from benchmarker.power.sampler_client import SamplerLink

ANSWER_S = 15.0
"""Time limit for a meter's answer; a driver that must wake eight cards first takes several seconds."""
STOP_S = 1.0
"""Time limit for a sampler to end; after that it hangs in its driver, and is killed."""
PASSIVE, AUTO, NONE = "passive", "auto", "none"


def meters(power: str) -> list[str]:
    """Return the meters that a value of `--power` selects: all (`passive`, `auto`), none (`none`), or those it names.

    Names are separated by commas. Raises `UserError` if a name is not registered.
    """
    names = names_in(power)
    if words := {PASSIVE, AUTO, NONE} & {*names}:
        if len(names) > 1:
            raise UserError(f"--power={power}: {min(words)} cannot be combined with other names")
        return [] if NONE in names else [plugin.name for plugin in registry.registered("meter").values()]
    if not names:
        raise UserError("--power names no meter; `benchmarker list meters` lists them, and --power=none reads none")
    for name in names:
        registry.find(f"meter.{name}")
    return names


def probe(names: Sequence[str], device: str | None, environment: Mapping[str, str]) -> dict[str, MeterProbe]:
    """Return what each meter reads here, or why it reads nothing; the wait for each is at most ANSWER_S.

    One process queries them in turn. If a meter makes it hang or crash, another process continues with the next meter.
    """
    probes: dict[str, MeterProbe] = {}
    while waiting := tuple(name for name in names if name not in probes):
        with contextlib.ExitStack() as stack:
            with guard.uninterrupted():
                sampler = _Sampler(SamplingRequest(waiting, device), environment)
                stack.callback(sampler.end)
            for name in waiting:
                probes[name] = sampler.answer(time.monotonic() + ANSWER_S)
                if sampler.lost:
                    break
    return probes


@dataclass(frozen=True, slots=True)
class Sampled:
    """One meter over a trial: its channels, what was unavailable or went wrong, and all its samples."""

    meter: str
    channels: tuple[Channel, ...]
    unavailable: tuple[Unavailable, ...]
    samples: list[Sample]


@dataclass(frozen=True, slots=True)
class Readings:
    """What the meters of one node read over a trial, and the idle period before it, by the clock of this node.

    `cards` are the UUIDs of the only GPUs that the worker can see there, those of its devices; none if not known.
    """

    sampled: list[Sampled]
    rest_ns: tuple[int, int]
    cards: tuple[str, ...] = ()


@dataclass
class Sampling:
    """A context with samplers of some meters, from before a worker starts until after it has ended.

    `probes` says what each meter reads here, or why it reads nothing. `rest_ns` is the idle period.
    """

    names: Sequence[str]
    device: str | None
    hz: float
    environment: Mapping[str, str]
    rest_ns: tuple[int, int] = (0, 0)
    probes: dict[str, MeterProbe] = field(default_factory=dict)
    _samplers: list[_Sampler] = field(default_factory=list)

    def __enter__(self) -> Sampling:
        try:
            for name in self.names:
                with guard.uninterrupted():
                    self._samplers.append(_Sampler(SamplingRequest((name,), self.device, self.hz), self.environment))
            deadline = time.monotonic() + ANSWER_S
            self.probes = {sampler.meter: sampler.answer(deadline) for sampler in self._samplers}
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def rest(self, seconds: float) -> None:
        """Wait while the idle device is sampled, to measure its idle power."""
        began_ns = time.monotonic_ns()
        time.sleep(seconds)
        self.rest_ns = (began_ns, time.monotonic_ns())

    def links(self) -> dict[str, SamplerLink]:
        """Return the worker's connection to each sampler that has something to read."""
        return {
            sampler.meter: _link(sampler.worker_end.fileno(), self.probes[sampler.meter])
            for sampler in self._samplers
            if self.probes[sampler.meter].channels
        }

    def forget(self) -> None:
        """Discard everything read so far, so that the files of an endless watch do not grow."""
        for sampler in self._samplers:
            descriptor = sampler.samples.fileno()
            os.lseek(descriptor, 0, os.SEEK_SET)  # the sampler writes at this position: both share one open file
            os.ftruncate(descriptor, 0)

    def gather(self) -> list[Sampled]:
        """Stop the samplers; return everything that they read."""
        for sampler in self._samplers:
            sampler.stop()
        return [sampler.sampled(self.probes[sampler.meter]) for sampler in self._samplers]

    def _end(self) -> None:
        for sampler in self._samplers:
            sampler.end()


class _Sampler:
    """One sampler process, the sockets to it and the files that it writes to."""

    def __init__(self, request: SamplingRequest, environment: Mapping[str, str]) -> None:
        self.meter = request.meters[-1]
        self.lost = ""
        self._received = b""
        self.control, control = socket.socketpair()
        self.worker_end, worker = socket.socketpair()
        self.samples: BinaryIO = tempfile.TemporaryFile(dir=temporary())  # noqa: SIM115 - closed by `end`
        self.errors: BinaryIO = tempfile.TemporaryFile(dir=temporary())  # noqa: SIM115 - closed by `end`
        try:
            self.process = subprocess.Popen(
                guard.command("benchmarker.power.sampler"),
                stdin=control.fileno(),
                stdout=self.samples,
                stderr=self.errors,
                pass_fds=[worker.fileno()],
                env={**os.environ, **environment},
                start_new_session=True,
            )
            request = msgspec.structs.replace(request, worker=worker.fileno())
            self.control.sendall(msgspec.json.encode(request) + b"\n")
        finally:
            control.close()
            worker.close()

    def answer(self, deadline: float) -> MeterProbe:
        """Return what the next of its meters reads; sets `lost` if it does not answer in time or ends."""
        while b"\n" not in self._received:
            try:
                self.control.settimeout(max(0.001, deadline - time.monotonic()))
                chunk = self.control.recv(1 << 16)
            except TimeoutError:
                self.lost = f"no answer within {ANSWER_S:g} s"
                return MeterProbe(unavailable=(Unavailable("", "stalled", self.lost),))
            if not chunk:
                self.lost = self.ended()
                return MeterProbe(unavailable=(Unavailable("", "driver", self.lost),))
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        try:
            return msgspec.json.decode(line, type=MeterProbe)
        except msgspec.DecodeError as error:
            self.lost = f"it describes a channel that is not valid: {clean(str(error))}"
            return MeterProbe(unavailable=(Unavailable("", "driver", self.lost),))

    def ended(self) -> str:
        """Describe how the process ended unexpectedly."""
        status = self.process.wait()
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        self.errors.seek(0)
        *_, last = ["", *self.errors.read().decode(errors="replace").strip().splitlines()]
        return f"its process ended {how}" + (f": {last[:300]}" if last else "")

    def stop(self) -> None:
        """Ask the process to end, and wait for it at most STOP_S."""
        if self.process.poll() is not None:
            self.lost = self.ended()
            return
        self.control.close()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.lost = f"it did not answer for {STOP_S:g} s, and was ended"

    def sampled(self, probe: MeterProbe) -> Sampled:
        """Return what it read until it ended; a truncated last line is dropped."""
        self.samples.seek(0)
        lines = self.samples.read().split(b"\n")[:-1]
        samples: list[Sample] = []
        try:
            samples.extend(msgspec.json.decode(line, type=Sample) for line in lines)
        except msgspec.DecodeError as error:
            self.lost = f"a sample is not valid: {clean(str(error))}"
        unavailable = probe.unavailable
        if probe.channels and self.lost:
            unavailable = (*unavailable, Unavailable("", "stalled" if "answer" in self.lost else "lost", self.lost))
        return Sampled(self.meter, probe.channels, unavailable, samples)

    def end(self) -> None:
        """Kill the process, and close its sockets and files."""
        guard.end(self.process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)  # one that hangs in the kernel dies when its driver releases it
        for opened in (self.control, self.worker_end, self.samples, self.errors):
            opened.close()


def _link(descriptor: int, probe: MeterProbe) -> SamplerLink:
    """Return the connection to a sampler, with the indices of the readings that show whether a device is warm."""
    channels = probe.channels
    graphics = [at for at, channel in enumerate(channels) if channel.domain == "gpu"]
    ours = graphics or [at for at, channel in enumerate(channels) if channel.domain == "package"]

    def of(*quantities: str) -> tuple[int, ...]:
        return tuple(at for at in ours if channels[at].quantity in quantities)

    energy = of("energy_J")
    return SamplerLink(
        socket=descriptor,
        pid=probe.pid,
        reads_power=any(channel.quantity in SOURCES for channel in channels),
        energy=energy,
        power=of("power_average_W") or of("power_instant_W"),
        temperature=of("temperature_C"),
        wraps_at=tuple(channels[at].wraps_at for at in energy),
    )
