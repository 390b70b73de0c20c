"""The processes that compute one case together, its process group: each is a rank, and rank 0 coordinates them.

Rank 0 measures as a single process does, but whatever it does with the case, all ranks do: it sends the name of a
method of `RankRunner`, calls it too, and gathers the results. So rank 0 alone decides how many steps a block has and
when it is enough, and says so between the blocks, outside the timed part. By clocks of their own, ranks would take
unlike numbers of steps and wait for each other without end.

    rank 0   |- block 40 -|==== own 40 steps ====|-- gather ---|     the block takes as long as
    rank 1           |========= own 40 steps ========|               the slowest of its ranks

The ranks talk through sockets of their own, not through the framework: what is measured carries no messages.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from benchmarker.api.framework import StepMarker
from benchmarker.api.problem import Workload
from benchmarker.formatting import one_line
from benchmarker.machine import counters
from benchmarker.machine.counters import Snapshot
from benchmarker.power.sampler_client import Gauge, SamplerClient
from benchmarker.records.record import Memory, Rank
from benchmarker.worker import timing
from benchmarker.worker.bench import BATCHES, Bench
from benchmarker.worker.channel import Channel
from benchmarker.worker.correctness import TRAINING_STEPS, Compared, compare, compare_gradients
from benchmarker.worker.parent import Stages

_END = ""
"""Sent instead of the name of a method: the trial is over."""


class RankRunner:
    """Runs a case in one rank. Its public methods take and return what JSON can hold: rank 0 calls them in all."""

    def __init__(self, bench: Bench, samplers: SamplerClient, rank: int = 0) -> None:
        self._bench = bench
        self._samplers = samplers
        self._workload: Workload | None = None
        self._stack = ExitStack()
        self._mark: StepMarker = nullcontext
        self._devices = bench.case.devices_of(rank)
        self._local: list[timing.Stepper] = []

    @property
    def workload(self) -> Workload:
        """The workload at full size, which is built."""
        assert self._workload is not None
        return self._workload

    @property
    def stepper(self) -> timing.Stepper:
        """The step of the workload."""
        return timing.Stepper(self.workload.step, self._bench.framework.synchronize)

    def compare(self) -> Compared:
        """Compare the outputs at the small size with the reference."""
        bench = self._bench
        size = bench.problem.small(bench.params)
        data = bench.data(size, TRAINING_STEPS)
        return compare(bench.build(size, data), data, bench.problem, size, bench.case)

    def compare_gradients(self) -> Compared:
        """Compare the gradients of devices that divide a training step, in fp64 at the small size."""
        bench = self._bench
        size = bench.problem.in_fp64(bench.problem.small(bench.params))
        data = bench.data(size, 1, "fp64")
        with bench.framework.fp64():
            return compare_gradients(bench.build(size, data, "fp64"), data, bench.problem, size)

    def build(self) -> int:
        """Build the workload; returns the FLOPs that it recomputes."""
        self._workload = self._bench.build(self._bench.params, self._bench.data(self._bench.params, BATCHES))
        return self._workload.recomputed_flops

    def block(self, steps: int) -> int:
        """Run steps and wait for them; returns their duration in ns."""
        return self.stepper.block(steps)

    def begin_profile(self) -> None:
        """Start the profiler of this process."""
        self._mark = self._stack.enter_context(self._bench.profiler)

    def profiled_step(self, number: int) -> int:
        """Run a step that the profiler marks with its number, and wait for it; returns its duration in ns."""
        with self._mark(number):
            return self.block(1)

    def end_profile(self) -> None:
        """Stop the profiler, which writes its file."""
        self._stack.close()

    def sync_s(self) -> float:
        """Return the cost of waiting for a result that is already available, s."""
        return self.stepper.sync_s()

    def ping(self) -> None:
        """Do nothing: what it takes to call it is what it takes to tell all ranks to begin."""

    def quiet(self) -> None:
        """Collect garbage, and exempt the remaining objects from later collections."""
        timing.quiet()

    def reads_power(self) -> bool:
        """Return whether this process is connected to a sampler that reads energy or power."""
        return self._samplers.reads_power

    def mark(self, name: str) -> None:
        """Have the samplers that this process is connected to read now; `name` marks the edge."""
        self._samplers.mark(name)

    def gauge(self) -> Gauge:
        """Return the power since the last call, and the temperature, as these samplers read them."""
        return self._samplers.gauge()

    def counter_snapshot(self) -> Snapshot:
        """Read the interference counters."""
        return counters.snapshot()

    def memory(self) -> Memory:
        """Return the peak memory so far."""
        return Memory(
            device_peak_bytes=self._bench.framework.peak_memory_bytes(), host_peak_rss_bytes=_peak_rss_bytes()
        )

    def open_local(self) -> str:
        """Make the steps without communication and run each once; returns why that is not possible, empty if it is."""
        if self._bench.case.independent:
            self._local = [self.stepper]
            return ""
        if self.workload.local is None:
            strategy = self._bench.case.parallel
            how = "" if strategy == "none" else f" in --parallel={strategy}"
            return f"{self._bench.case.problem} has no step without communication{how}"
        try:
            synchronize = self._bench.framework.synchronize
            self._local = [timing.Stepper(step, synchronize) for step in self.workload.local()]
            timing.at_once(self._local, 1)
        except Exception as error:  # noqa: BLE001 - what was timed before is no worse for it
            return f"no step without communication: {type(error).__name__}: {one_line(str(error))[:300]}"
        return ""

    def local_together(self, steps: int) -> list[int]:
        """Run steps without communication on all devices at once; returns their durations in ns."""
        return timing.at_once(self._local, steps)

    def local_alone(self, device: int, steps: int) -> int:
        """Run steps without communication on the device with a number; returns their duration in ns, 0 if elsewhere."""
        return self._local[device - self._devices.start].block(steps) if device in self._devices else 0

    def verify(self) -> str:
        """Return why the result of one more step is wrong; empty if nothing is."""
        result = self.workload.step()
        if not self._bench.framework.is_finite(result):
            return f"the outputs in {self._bench.case.precision} at full size contain NaN or infinity"
        trouble = self.workload.verify(result)
        return f"wrong result at full size: {trouble}" if trouble else ""


class SingleProcess:
    """A case that this process computes alone."""

    def __init__(self, bench: Bench, samplers: SamplerClient) -> None:
        self.bench = bench
        self.runner = RankRunner(bench, samplers)

    def gather(self, name: str, *arguments: Any) -> list[Any]:
        """Call a method of `RankRunner` in every rank; returns the results by rank."""
        return [getattr(self.runner, name)(*arguments)]

    @property
    def stepper(self) -> timing.Steps:
        """The step of all ranks."""
        return self.runner.stepper


class Coordinator(SingleProcess):
    """A case that this process, rank 0, computes together with others; `blocks_ns` has their durations of each block.

    It sends them the current stage, which their failures name.
    """

    def __init__(self, bench: Bench, channel: Channel, stages: Stages, samplers: SamplerClient) -> None:
        super().__init__(bench, samplers)
        self._channel = channel
        self._stages = stages
        self.blocks_ns: list[list[int]] = []

    def gather(self, name: str, *arguments: Any) -> list[Any]:
        """Call a method of `RankRunner` in every rank; returns the results by rank. Raises LostPeerError."""
        self._channel.send([self._stages.current, name, arguments])
        own = getattr(self.runner, name)(*arguments)
        others = [self._channel.receive(rank) for rank in range(1, self._channel.ranks)]
        return [own, *(msgspec.convert(other, _result(name)) for other in others)]

    def end(self) -> None:
        """End the trial in the other ranks, and outlive them: a library may abort a process that loses rank 0."""
        self._channel.send([self._stages.current, _END, ()])
        self._channel.drain()
        self._channel.close()

    @property
    def stepper(self) -> timing.Steps:
        """The step of all ranks."""
        return _GroupStepper(self)

    def ranks(self, memory: Sequence[Memory | None]) -> list[Rank]:
        """Return what is measured of each rank: its durations of the blocks, and its memory."""
        return [
            Rank(
                rank=number,
                node=number // self.bench.case.ranks_per_node,
                devices=[*self.bench.case.devices_of(number)],
                duration_ns=[block[number] for block in self.blocks_ns],
                memory=peak,
            )
            for number, peak in enumerate(memory)
        ]


class _GroupStepper:
    """A step that all ranks take together; the slowest counts."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def block(self, steps: int) -> int:
        """Run `steps` steps in all ranks; returns the longest of their durations in ns."""
        durations_ns: list[int] = self._coordinator.gather("block", steps)
        self._coordinator.blocks_ns.append(durations_ns)
        return max(durations_ns)

    def sync_s(self) -> float:
        """The cost of waiting for results that are available, or of telling all ranks to begin if that is more, s."""
        begin_s = []
        for _ in range(timing.SYNCS):
            start = time.perf_counter()
            self._coordinator.gather("ping")
            begin_s.append(time.perf_counter() - start)
        sync_s: list[float] = self._coordinator.gather("sync_s")
        return max(*sync_s, min(begin_s))


class RankServer:
    """A case that this process computes together with others: it runs what rank 0 calls."""

    def __init__(self, bench: Bench, channel: Channel, samplers: SamplerClient) -> None:
        self.bench = bench
        self._channel = channel
        self._samplers = samplers

    def serve(self, stages: Stages) -> None:
        """Run the methods that rank 0 names until it ends the trial; raises LostPeerError."""
        runner = RankRunner(self.bench, self._samplers, self._channel.rank)
        while True:
            stages.current, name, arguments = self._channel.receive(0)
            if name == _END:
                return
            self._channel.send(getattr(runner, name)(*arguments))


@cache
def _result(name: str) -> Any:
    """Return the type that a method of `RankRunner` returns."""
    return get_type_hints(getattr(RankRunner, name))["return"]


def _peak_rss_bytes() -> int:
    """Largest resident set of this process so far, in bytes.

    On Linux, this is `VmHWM`, in KiB (proc(5)), because the maximum of getrusage(2) is inherited from the process that
    started this one. Elsewhere it is the maximum of getrusage(2), which macOS counts in bytes.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
