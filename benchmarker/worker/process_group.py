"""The processes that compute one case together, its process group: each is a rank, and rank 0 coordinates them.

Whatever rank 0 does with the case, all ranks do: it sends the name of a method of `RankRunner`, calls it too, and
gathers the results. So rank 0 alone decides how many steps a block has and when it is enough, and says so between the
blocks, outside the timed part. By clocks of their own, ranks would take unlike numbers of steps and wait for each other
without end. A process that computes a case alone is rank 0 of a group that has no others.

    rank 0   |- block 40 -|==== own 40 steps ====|-- gather ---|     the block takes as long as
    rank 1           |========= own 40 steps ========|               the slowest of its ranks

The ranks talk through sockets of their own, not through the framework: what is measured carries no messages.
"""

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from benchmarker.api.framework import StepMarker
from benchmarker.api.problem import Data, Divides, Workload
from benchmarker.formatting import error_line
from benchmarker.machine import counters, perf_events
from benchmarker.machine.counters import Snapshot
from benchmarker.machine.perf_events import Reading
from benchmarker.power.sampler_client import Gauge, SamplerClient
from benchmarker.records.record import Inputs, Memory, Rank
from benchmarker.worker import timing
from benchmarker.worker.bench import Bench, with_sets
from benchmarker.worker.channel import Channel
from benchmarker.worker.correctness import TRAINING_STEPS, Compared, compare, compare_gradients
from benchmarker.worker.parent import Stages

P = ParamSpec("P")
T = TypeVar("T")


class _Call(Struct, frozen=True, array_like=True):
    """What rank 0 sends to the others in a stage: the name of a method of `RankRunner`; empty, the trial is over."""

    stage: str
    method: str = ""
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}


class RankRunner:
    """Runs a case in one rank. Its public methods take and return what JSON can hold: rank 0 calls them in all."""

    def __init__(self, bench: Bench, samplers: SamplerClient, rank: int = 0) -> None:
        self._bench = bench
        self._samplers = samplers
        self._data: Data | None = None
        self._workload: Workload | None = None
        self._stack = ExitStack()
        self._mark: StepMarker = nullcontext
        self._devices = bench.case.devices_of(rank)
        self._local: list[timing.Steps] = []
        self._counters: perf_events.Counters | None = None

    @property
    def workload(self) -> Workload:
        """The workload at full size, which is built."""
        assert self._workload is not None
        return self._workload

    @property
    def stepper(self) -> timing.Steps:
        """The step of the workload, or the execution of a program; counted between the two calls that say so."""
        steps = self.workload.execution or timing.Stepper(self.workload.step, self._bench.framework.synchronize)
        return timing.Counted(steps, self._counters) if self._counters else steps

    def compare(self) -> Compared | str:
        """Compare the outputs at the small size with the reference, or return why there is none."""
        bench = self._bench
        size = bench.problem.small()
        data = bench.data(size, TRAINING_STEPS)
        return compare(bench.build(size, data), data, size, bench.case)

    def compare_gradients(self) -> Compared:
        """Compare the gradients of devices that divide a training step, in fp64 at the small size."""
        bench = self._bench
        small = bench.problem.small()
        size = small.in_fp64() if isinstance(small, Divides) else small
        data = bench.data(size, 1, "fp64")
        with bench.framework.fp64():
            return compare_gradients(bench.build(size, data, "fp64"), data, size)

    def draw(self) -> Inputs:
        """Draw weights and inputs; returns how many sets of inputs this rank would take in turns."""
        self._data, inputs = self._bench.draw()
        return inputs

    def build(self, sets: int) -> int:
        """Build the workload with so many sets of the inputs that are drawn; returns the FLOPs that it recomputes."""
        assert self._data is not None
        data, self._data = with_sets(self._data, sets, self._bench.read(self._data)), None
        self._workload = self._bench.build(self._bench.problem, data)
        if self._workload.execution:
            self._workload.execution.prepare()
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
        """Read the interference counters; of a program that goes on, with what it has done so far."""
        execution = self.workload.execution
        is_running = execution is not None and execution.stepwise
        return counters.snapshot(self._samplers.pids, with_running=is_running)

    def begin_counting(self) -> None:
        """Open the event counters of the case, if it asks for any, for all threads that there are."""
        if names := perf_events.chosen(self._bench.case.measuring.counters):
            self._counters = perf_events.Counters(names)

    def end_counting(self) -> list[Reading]:
        """Return what they counted in the blocks since then, and close them."""
        if self._counters is None:
            return []
        with closing(self._counters):
            readings, self._counters = self._counters.read(), None
        return readings

    def memory(self) -> Memory:
        """Return the peak memory so far; of a program, that of its processes."""
        own = self.workload.execution.peak_rss_bytes() if self.workload.execution else _peak_rss_bytes()
        return Memory(
            device_peak_bytes=self._bench.framework.peak_memory_bytes(),
            host_peak_rss_bytes=own if isinstance(own, int) else None,
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
            return f"no step without communication: {error_line(error)}"
        return ""

    def local_together(self, steps: int) -> list[int]:
        """Run steps without communication on all devices at once; returns their durations in ns."""
        return timing.at_once(self._local, steps)

    def local_alone(self, device: int, steps: int) -> int:
        """Run steps without communication on the device with a number; returns their duration in ns, 0 if elsewhere."""
        return self._local[device - self._devices.start].block(steps) if device in self._devices else 0

    def verify(self) -> str:
        """Return why the result of one more step is wrong; empty if nothing is. A program is not executed again."""
        if self.workload.execution:
            return ""
        result = self.workload.step()
        if not self._bench.framework.is_finite(result):
            return f"the outputs in {self._bench.case.precision} at full size contain NaN or infinity"
        trouble = self.workload.verify(result)
        return f"wrong result at full size: {trouble}" if trouble else ""

    def suspicions(self) -> list[str]:
        """Return what makes the time of the steps doubtful."""
        return list(self.workload.suspicions())


class Group:
    """The process group of a case, as one of its ranks sees it; a process that computes a case alone is a group of one.

    `size` is the number of its ranks, and `blocks_ns` has their durations of each block, if they are several. Rank 0
    sends the current stage with whatever it calls, so that the failures of the others name it.
    """

    def __init__(self, bench: Bench, channel: Channel, stages: Stages, samplers: SamplerClient) -> None:
        self.bench = bench
        self.runner = RankRunner(bench, samplers, channel.rank)
        self.size = channel.ranks
        self.blocks_ns: list[list[int]] = []
        self._channel = channel
        self._stages = stages

    def coordinate(self, measure: Callable[[], bool]) -> bool:
        """Measure at rank 0 and return what that returns; at another rank, run what rank 0 calls until it has done so.

        Rank 0 outlives the others: a library may abort a process that loses it. Raises LostPeerError.
        """
        if self._channel.rank:
            return self._serve()
        measured = measure()
        self._channel.send(_Call(self._stages.current))
        self._channel.drain()
        self._channel.close()
        return measured

    def gather(self, method: Callable[Concatenate[RankRunner, P], T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Call a method of `RankRunner` in every rank, from rank 0; returns the results by rank. Raises LostPeerError.

        Arguments and results are what JSON can hold.
        """
        if self.size > 1:
            self._channel.send(_Call(self._stages.current, method.__name__, args, kwargs))
        own = method(self.runner, *args, **kwargs)
        others = [self._channel.receive(rank) for rank in range(1, self.size)]
        return [own, *(msgspec.convert(other, _result(method)) for other in others)]

    def build(self) -> tuple[Inputs, int]:
        """Build the workload in every rank with as many sets of inputs; returns these, and the recomputed FLOPs."""
        fewest = min(self.gather(RankRunner.draw), key=lambda inputs: inputs.sets)
        return fewest, sum(self.gather(RankRunner.build, fewest.sets))

    def _serve(self) -> bool:
        """Run the methods that rank 0 names until it ends the trial."""
        while True:
            call = msgspec.convert(self._channel.receive(0), _Call)
            self._stages.current = call.stage
            if not call.method:
                return True
            self._channel.send(getattr(self.runner, call.method)(*call.args, **call.kwargs))

    @property
    def stepper(self) -> timing.Steps:
        """The step of all ranks."""
        return _GroupStepper(self) if self.size > 1 else self.runner.stepper

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

    def __init__(self, group: Group) -> None:
        self._group = group

    def block(self, steps: int) -> int:
        """Run `steps` steps in all ranks; returns the longest of their durations in ns."""
        durations_ns = self._group.gather(RankRunner.block, steps)
        self._group.blocks_ns.append(durations_ns)
        return max(durations_ns)

    def sync_s(self) -> float:
        """The cost of waiting for results that are available, or of telling all ranks to begin if that is more, s."""
        begin_s = []
        for _ in range(timing.SYNCS):
            start = time.perf_counter()
            self._group.gather(RankRunner.ping)
            begin_s.append(time.perf_counter() - start)
        return max(*self._group.gather(RankRunner.sync_s), min(begin_s))


@cache
def _result(method: Callable[..., Any]) -> Any:
    """Return the type that a method of `RankRunner` returns."""
    return get_type_hints(method)["return"]


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
