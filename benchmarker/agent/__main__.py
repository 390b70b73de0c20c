"""The agent of a node: it starts the ranks of gangs on this node, and passes on what they and the parent tell.

It tells where it runs, and for each trial is told what to read and what to start. It ends when the parent closes its
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
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from benchmarker import guard
from benchmarker.agent.messages import Begin, End, FromRank, Here, Over, Sense, Sensed, Sensing, ToAgent, ToRank, Where
from benchmarker.api.errors import TerminatedError, terminate
from benchmarker.files.atomic import as_json
from benchmarker.machine import description, gpus
from benchmarker.machine.software import installed
from benchmarker.power.samplers import Readings, Sampling
from benchmarker.worker.launch import environment_of, started
from benchmarker.worker.pipes import listen
from benchmarker.worker.protocol import InvalidLineError, lines, message_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from benchmarker.api.case import Case
    from benchmarker.worker.launch import Environment, Event, Worker

SAMPLES = 2000
"""Samples of each meter in one message."""
FORGOTTEN_S = 45.0
"""Time after its ranks have ended in which an agent must be told something; the parent is never silent for longer."""


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
        self._asked: SimpleQueue[Sense | Begin | End] = SimpleQueue()
        self._ranks: dict[int, Worker] = {}
        self._heard_s = 0.0
        self._started = threading.Event()
        self._started.set()

    def stay(self) -> None:
        """Do what the parent asks, one trial after the other."""
        self._send(Here(description.describe(), installed()))
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            asked = self._asked.get()
            if isinstance(asked, Sense):
                self._measure(asked.case, asked.meters)
            elif isinstance(asked, Begin):
                self._run(asked, _shown(asked.tasks[0].cases[0]))
            self._send(Over())
            self._wait_for_end()

    def _wait_for_end(self) -> None:
        """Wait until the parent ends the trial; if it says nothing, raise TerminatedError.

        Where the launcher has lost this node, what it started here goes on, and its standard input stays open.
        """
        while True:
            try:
                self._asked.get(timeout=FORGOTTEN_S)
            except Empty:
                if time.monotonic() - self._heard_s >= FORGOTTEN_S:
                    raise TerminatedError from None
            else:
                return

    def _listen(self) -> None:
        """Do what the parent tells; when it tells nothing any more, or what is not valid, end this process in order."""
        try:
            for line in lines(0):
                self._heard_s = time.monotonic()
                self._on_message(message_of(line, ToAgent))
        except InvalidLineError as error:
            self.status = 1
            sys.stderr.write(f"the agent was told what is not valid: {error}\n")
        except Exception:  # noqa: BLE001 - whatever it is, nobody would hear the parent any more
            self.status = 1
            traceback.print_exc()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _on_message(self, told: Where | Sense | Begin | ToRank | End) -> None:
        if isinstance(told, Where):
            self._send(Here(description.describe() if told.described else None))
            return
        if isinstance(told, ToRank | End):
            self._started.wait()
        if isinstance(told, ToRank):
            if worker := self._ranks.get(told.rank):
                if told.told:
                    worker.send(told.told)
                if told.terminate:
                    worker.terminate()
            return
        if isinstance(told, Begin):
            self._started.clear()
        elif isinstance(told, End):
            for worker in list(self._ranks.values()):
                guard.end(worker.process)
        self._asked.put(told)

    def _measure(self, case: Case, meters: Sequence[str]) -> None:
        """Run the ranks while the meters of this node are read, and tell what they read."""
        measuring, shown = case.measuring, _shown(case)
        with Sampling(meters, case.device, measuring.power_hz, shown) as sampling:
            is_read = any(found.channels for found in sampling.found.values())
            sampling.rest(measuring.power_idle_s if measuring.wants_power and is_read else 0.0)
            self._send(Sensing(sampling.found))
            begin = self._asked.get()
            if not isinstance(begin, Begin):
                self._asked.put(begin)
                return
            first, *others = begin.tasks
            first = msgspec.structs.replace(first, sensors=sampling.lines())
            self._run(Begin([first, *others], begin.logs), shown)
            cards = shown.get("CUDA_VISIBLE_DEVICES", "") if case.device == "cuda" else ""
            self._tell(Readings(sampling.gather(), sampling.rest_ns, tuple(cards.split(",")) if cards else ()))

    def _tell(self, readings: Readings) -> None:
        """Tell what the meters read, in messages that are short enough."""
        most = max((len(one.samples) for one in readings.sampled), default=0)
        for at in range(0, max(1, most), SAMPLES):
            part = [replace(one, samples=one.samples[at : at + SAMPLES]) for one in readings.sampled]
            self._send(Sensed(replace(readings, sampled=part)))

    def _run(self, begin: Begin, shown: Environment) -> None:
        """Run the ranks to their ends."""
        (case, *_) = begin.tasks[0].cases
        reported: dict[int, tuple[str, int | None]] = {}

        def on_event(rank: int, event: Event) -> None:
            self._send(FromRank(rank=rank, event=dict(event)))

        def report() -> bool:
            """Tell which ranks have failed, or ended, since the last look; never enough."""
            for rank, worker in self._ranks.items():
                now = (worker.fault, worker.status)
                if now != reported.setdefault(rank, ("", None)):
                    reported[rank] = now
                    self._send(FromRank(rank=rank, fault=worker.fault, status=worker.status))
            return False

        with ExitStack() as stack:
            for task, log in zip(begin.tasks, begin.logs, strict=True):
                environment = environment_of(case, task.rank - begin.tasks[0].rank, shown)
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


def _shown(case: Case) -> Environment:
    """Return the variables that show the ranks of this node only the GPUs that they compute on."""
    return gpus.environment(case.gpu, os.environ, case.devices // case.nodes)


if __name__ == "__main__":
    main()
