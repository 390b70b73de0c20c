"""The agent of a node: it starts ranks on this node, and passes on what they and the parent send.

It sends where it runs, and for each trial receives what to read and what to start. It ends when the parent closes its
standard input: then it ends all ranks, and what they started. The meters are those of its node, and so is the clock of
what they read: the first of its ranks marks the edges of the timed part among the readings.
"""

import math
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO

import msgspec

from benchmarker import guard
from benchmarker.agent import messages
from benchmarker.agent.node import LocalNode
from benchmarker.api.errors import TerminatedError, terminate
from benchmarker.files.atomic import as_json
from benchmarker.machine import description
from benchmarker.machine.description import installed
from benchmarker.power.samplers import Readings
from benchmarker.worker.launch import Worker
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import Event, InvalidLineError, lines, message_of

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
    agent = _Agent(output)
    with suppress(TerminatedError):
        agent.stay()
    os._exit(agent.status)  # a thread may still read


class _Agent:
    """The node, and the channel to the parent; `status` is that with which this process ends."""

    def __init__(self, output: BinaryIO) -> None:
        self.status = 0
        self._output = output
        self._sending = threading.Lock()
        self._requests: SimpleQueue[messages.Request] = SimpleQueue()
        self._node = LocalNode()
        self._ranks: dict[int, Worker] = {}
        self._received_s = 0.0
        self._started = threading.Event()
        self._started.set()

    def stay(self) -> None:
        """Do what the parent asks, one trial after the other."""
        self._send(messages.Present(description.describe(), installed()))
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            with self._node.trial():
                self._take_part(self._requests.get())
            self._send(messages.TrialEnded())
            self._wait_for_end()

    def _take_part(self, request: messages.Request) -> None:
        """Do what is asked for a trial, and send what the meters read, if they were asked to."""
        if isinstance(request, messages.StartSampling):
            self._node.sample(request.case)
            self._send(messages.SamplingStarted(self._node.probes or {}))
            request = self._requests.get()
        if isinstance(request, messages.StartRanks):
            self._run(request)
            self._node.end()
            if self._node.readings:
                self._send_readings(self._node.readings)
        else:
            self._requests.put(request)

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
                self._on_message(message_of(line, messages.ToAgent))
        except InvalidLineError as error:
            self.status = 1
            sys.stderr.write(f"the agent was told what is not valid: {error}\n")
        except Exception:  # noqa: BLE001 - whatever it is, nobody would hear the parent any more
            self.status = 1
            traceback.print_exc()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _on_message(self, message: messages.ToAgent) -> None:
        if isinstance(message, messages.Ping):
            self._send(messages.Present(description.describe() if message.described else None))
            return
        if isinstance(message, messages.ToRank | messages.EndRanks):
            self._started.wait()
        if isinstance(message, messages.ToRank):
            if worker := self._ranks.get(message.rank):
                if message.command:
                    worker.send(message.command)
                if message.terminate:
                    worker.terminate()
            return
        if isinstance(message, messages.StartRanks):
            self._started.clear()
        elif isinstance(message, messages.EndRanks):
            for worker in list(self._ranks.values()):
                guard.end(worker.process)
        self._requests.put(message)

    def _send_readings(self, readings: Readings) -> None:
        """Send what the meters read, in messages that are short enough."""
        most = max((len(meter.samples) for meter in readings.sampled), default=0)
        for at in range(0, max(1, most), SAMPLES):
            part = [replace(meter, samples=meter.samples[at : at + SAMPLES]) for meter in readings.sampled]
            self._send(messages.SampledReadings(replace(readings, sampled=part)))

    def _run(self, begin: messages.StartRanks) -> None:
        """Run the ranks to their ends."""
        reported: dict[int, tuple[str, int | None]] = {}

        def on_event(rank: int, event: Event) -> None:
            self._send(messages.FromRank(rank=rank, event=event))

        def report() -> bool:
            """Send which ranks have failed, or ended, since the last look; never enough."""
            for rank, worker in self._ranks.items():
                now = (worker.fault, worker.status)
                if now != reported.setdefault(rank, ("", None)):
                    reported[rank] = now
                    self._send(messages.FromRank(rank=rank, fault=worker.fault, status=worker.status))
            return False

        workers = self._node.start(begin.tasks, [Path(log) for log in begin.logs], on_event)
        self._ranks = {task.rank: worker for task, worker in zip(begin.tasks, workers, strict=True)}
        self._started.set()
        listen(workers, math.inf, report)
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


if __name__ == "__main__":
    main()
