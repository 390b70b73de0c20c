"""One process's share of a case: what it does in each stage of a trial.

In a trial of one process, the trial calls it. In a gang, each rank has a share, and rank 0 says what all of them do.
"""

from __future__ import annotations

import resource
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarker.formatting import one_line
from benchmarker.machine import counters
from benchmarker.machine.counters import Snapshot
from benchmarker.power.window import Gauge
from benchmarker.records.record import Memory
from benchmarker.worker import timing
from benchmarker.worker.bench import BATCHES
from benchmarker.worker.correctness import TRAINING_STEPS, Compared, compare, compare_gradients

if TYPE_CHECKING:
    from benchmarker.api.framework import StepMarker
    from benchmarker.api.problem import Workload
    from benchmarker.power.window import Edges
    from benchmarker.worker.bench import Bench


class Share:
    """A case in one process. Its public methods take and return what JSON can hold: rank 0 calls them in all ranks."""

    def __init__(self, bench: Bench, edges: Edges, rank: int = 0) -> None:
        self._bench = bench
        self._edges = edges
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

    def nothing(self) -> None:
        """Do nothing: what it takes to call it is what it takes to tell all ranks to begin."""

    def quiet(self) -> None:
        """Collect garbage, and exempt the remaining objects from later collections."""
        timing.quiet()

    def tells_power(self) -> bool:
        """Return whether this process is connected to a sampler that reads energy or power."""
        return self._edges.tell_power

    def mark(self, name: str) -> None:
        """Have the samplers that this process is connected to read now; `name` marks the edge."""
        self._edges.mark(name)

    def gauge(self) -> Gauge:
        """Return the power since the last call, and the temperature, as these samplers read them."""
        return self._edges.gauge()

    def look(self) -> Snapshot:
        """Read the interference counters."""
        return counters.look()

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

    def trouble(self) -> str:
        """Return why the result of one more step is wrong; empty if nothing is."""
        result = self.workload.step()
        if not self._bench.framework.is_finite(result):
            return f"the outputs in {self._bench.case.precision} at full size contain NaN or infinity"
        trouble = self.workload.verify(result)
        return f"wrong result at full size: {trouble}" if trouble else ""


class Solo:
    """A case that this process computes alone: its bench, and its share, the only one."""

    def __init__(self, bench: Bench, edges: Edges) -> None:
        self.bench = bench
        self.share = Share(bench, edges)

    def all(self, name: str, *arguments: Any) -> list[Any]:
        """Call a method of every share; returns the results by rank."""
        return [getattr(self.share, name)(*arguments)]

    @property
    def stepper(self) -> timing.Steps:
        """The step of all shares."""
        return self.share.stepper


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
