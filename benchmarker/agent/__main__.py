"""The agent of a node: it starts ranks on this node, and passes on what they and the parent send.

It sends where it runs, and for each trial receives what to read and what to start. It ends when the parent closes its
standard input: then it ends all ranks, and what they started. The meters are those of its node, and so is the clock of
what they read: the first of its ranks marks the edges of the timed part among the readings.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO

import msgspec

from benchmarker import guard
from benchmarker.agent.messages import (
    EndRanks,
    FromRank,
    Ping,
    Present,
    SampledReadings,
    SamplingStarted,
    StartRanks,
    StartSampling,
    ToAgent,
    ToRank,
    TrialEnded,
)
from benchmarker.api.case import Case
from benchmarker.api.errors import TerminatedError, terminate
from benchmarker.files.atomic import as_json
from benchmarker.machine import description, gpus
from benchmarker.machine.description import installed
from benchmarker.power.samplers import Readings, Sampling
from benchmarker.worker.launch import Environment, Event, Worker, environment_of, started
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import InvalidLineError, lines, message_of

SAMPLES = 2000
"""Samples of each meter in one message."""
FORGOTTEN_S = 45.0
"""Time after its ranks have ended in which an agent must receive something; the parent is never silent for longer."""


def main() -> None:
    """Read the meters and start the ranks that standard input names, until it ends."""
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's terminal is not this agent's: the parent ends it
    signal.signal(signal.SIGTERM, terminate)
    node = _Node(output)
    with suppress(TerminatedError):
        node.stay()
    os._exit(node.status)  # a thread may still read


class _Node:
    """What runs on this node, and the channel to the parent; `status` is that with which this process ends."""

    def __init__(self, output: BinaryIO) -> None:
        self.status = 0
        self._output = output
        self._sending = threading.Lock()
        self._requests: SimpleQueue[StartSampling | StartRanks | EndRanks] = SimpleQueue()
        self._ranks: dict[int, Worker] = {}
        self._received_s = 0.0
        self._started = threading.Event()
        self._started.set()

    def stay(self) -> None:
        """Do what the parent asks, one trial after the other."""
        self._send(Present(description.describe(), installed()))
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            request = self._requests.get()
            if isinstance(request, StartSampling):
                self._measure(request.case, request.meters)
            elif isinstance(request, StartRanks):
                self._run(request, _visible_gpus(request.tasks[0].cases[0]))
            self._send(TrialEnded())
            self._wait_for_end()

    def _wait_for_end(self) -> None:
        """Wait until the parent ends the trial; if it says nothing, raise TerminatedError.

        Where the launcher has lost this node, what it started here goes on, and its standard input stays open.
        """
        while True:
            try:
                self._requests.get(timeout=FORGOTTEN_S)
            except Empty:
                if time.monotonic() - self._received_s >= FORGOTTEN_S:
                    raise TerminatedError from None
            else:
                return

    def _listen(self) -> None:
        """Do what the parent asks; when it closes the pipe, or sends what is not valid, end this process in order."""
        try:
            for line in lines(0):
                self._received_s = time.monotonic()
                self._on_message(message_of(line, ToAgent))
        except InvalidLineError as error:
            self.status = 1
            sys.stderr.write(f"the agent was told what is not valid: {error}\n")
        except Exception:  # noqa: BLE001 - whatever it is, nobody would hear the parent any more
            self.status = 1
            traceback.print_exc()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _on_message(self, message: Ping | StartSampling | StartRanks | ToRank | EndRanks) -> None:
        if isinstance(message, Ping):
            self._send(Present(description.describe() if message.described else None))
            return
        if isinstance(message, ToRank | EndRanks):
            self._started.wait()
        if isinstance(message, ToRank):
            if worker := self._ranks.get(message.rank):
                if message.command:
                    worker.send(message.command)
                if message.terminate:
                    worker.terminate()
            return
        if isinstance(message, StartRanks):
            self._started.clear()
        elif isinstance(message, EndRanks):
            for worker in list(self._ranks.values()):
                guard.end(worker.process)
        self._requests.put(message)

    def _measure(self, case: Case, meters: Sequence[str]) -> None:
        """Run the ranks while the meters of this node are read, and send what they read."""
        measuring, visible = case.measuring, _visible_gpus(case)
        with Sampling(meters, case.device, measuring.power_hz, visible) as sampling:
            is_read = any(probe.channels for probe in sampling.probes.values())
            sampling.rest(measuring.power_idle_s if measuring.wants_power and is_read else 0.0)
            self._send(SamplingStarted(sampling.probes))
            begin = self._requests.get()
            if not isinstance(begin, StartRanks):
                self._requests.put(begin)
                return
            first, *others = begin.tasks
            first = msgspec.structs.replace(first, sensors=sampling.links())
            self._run(StartRanks([first, *others], begin.logs), visible)
            cards = visible.get("CUDA_VISIBLE_DEVICES", "") if case.device == "cuda" else ""
            self._send_readings(Readings(sampling.gather(), sampling.rest_ns, tuple(cards.split(",")) if cards else ()))

    def _send_readings(self, readings: Readings) -> None:
        """Send what the meters read, in messages that are short enough."""
        most = max((len(meter.samples) for meter in readings.sampled), default=0)
        for at in range(0, max(1, most), SAMPLES):
            part = [replace(meter, samples=meter.samples[at : at + SAMPLES]) for meter in readings.sampled]
            self._send(SampledReadings(replace(readings, sampled=part)))

    def _run(self, begin: StartRanks, visible: Environment) -> None:
        """Run the ranks to their ends."""
        (case, *_) = begin.tasks[0].cases
        reported: dict[int, tuple[str, int | None]] = {}

        def on_event(rank: int, event: Event) -> None:
            self._send(FromRank(rank=rank, event=dict(event)))

        def report() -> bool:
            """Send which ranks have failed, or ended, since the last look; never enough."""
            for rank, worker in self._ranks.items():
                now = (worker.fault, worker.status)
                if now != reported.setdefault(rank, ("", None)):
                    reported[rank] = now
                    self._send(FromRank(rank=rank, fault=worker.fault, status=worker.status))
            return False

        with ExitStack() as stack:
            for task, log in zip(begin.tasks, begin.logs, strict=True):
                environment = environment_of(case, task.rank - begin.tasks[0].rank, visible)
                send_event = partial(on_event, task.rank)
                worker = stack.enter_context(started(task, environment, Path(log), send_event))
                self._ranks[task.rank] = worker
            self._started.set()
            listen(list(self._ranks.values()), math.inf, report)
            report()
            self._ranks = {}

    def _send(self, message: msgspec.Struct) -> None:
        """Send a line, of either thread; if nobody reads any more, this process is to end."""
        try:
            with self._sending:
                rest = memoryview(as_json(message) + b"\n")
                while rest:
                    rest = rest[self._output.write(rest) :]
        except BrokenPipeError:
            raise TerminatedError from None


def _visible_gpus(case: Case) -> Environment:
    """Return the variables that show the ranks of this node only the GPUs that they compute on."""
    return gpus.environment(case.gpu, os.environ, case.devices // case.nodes)


if __name__ == "__main__":
    main()
