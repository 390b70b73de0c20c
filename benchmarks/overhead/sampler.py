"""Measure how much a sampler slows a workload that uses all cores, and how late its ticks are.

Blocks of NumPy matrix products run in random order in every round: one without a sampler, a second one without (its
difference is the noise of the machine), and one at each rate. The sampler is the tool's own, in a separate process,
with the real binding on the tests' simulated driver. The time of calls in a real driver is not included.

Starting a sampler costs more than a block, so each sampler is started once and is suspended by a signal except during
its own blocks. Only ticks that were due within a block count, so a tick missed while suspended is not counted as late.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
from duet import ratio
from threadpoolctl import threadpool_limits

from benchmarker.power.samplers import Sampling

# After the tool's own modules: below tests there is a folder of the same name.
sys.path.append(str(Path(__file__).parents[2] / "tests"))

from support import cards as fake_cards
from support import nvml, sysfs

BLOCK_S = 0.5
SETTLE_S = 0.03
"""Pause before a block for the sampler to catch up, and after it for late ticks; also made without a sampler."""
SIZE = 1024


@dataclass
class Contender:
    """Blocks with one sampler running, or with none if `sampling` is None."""

    name: str
    hz: float = 0.0
    sampling: Sampling | None = None
    windows: list[tuple[int, int]] = field(default_factory=list)
    busy_ns: int = 0

    @property
    def pid(self) -> int:
        """The sampler's process."""
        assert self.sampling is not None
        return self.sampling._samplers[0].process.pid

    def play(self, work: Callable[[], None]) -> None:
        """Time one block."""
        self.send(signal.SIGCONT)
        time.sleep(SETTLE_S)
        busy_ns, began_ns = self.cpu_ns(), time.monotonic_ns()
        work()
        self.windows.append((began_ns, time.monotonic_ns()))
        self.busy_ns += self.cpu_ns() - busy_ns
        time.sleep(SETTLE_S)
        self.send(signal.SIGSTOP)

    def send(self, number: int) -> None:
        """Send a signal to the sampler, if there is one."""
        if self.sampling:
            os.kill(self.pid, number)

    def cpu_ns(self) -> int:
        """Return the processor time of the sampler, ns, from its clock; the id is as in clock_getcpuclockid(3)."""
        return time.clock_gettime_ns(~self.pid << 3 | 2) if self.sampling else 0

    @property
    def logs(self) -> np.ndarray:
        """Logarithms of the blocks' durations."""
        return np.log([ended - began for began, ended in self.windows])

    def told(self) -> str:
        """Return the lateness of the ticks, how many were read of how many due, and their cost, as text."""
        if not self.sampling:
            return ""
        self.send(signal.SIGCONT)
        (sampled,) = self.sampling.gather()
        late_ms = [
            sample.late_ns / 1e6
            for sample in sampled.samples
            if any(began <= sample.time_ns - sample.late_ns < ended for began, ended in self.windows)
        ]
        if not late_ms:
            return "; ".join(["no tick was read", *(missing.text for missing in sampled.unavailable)])
        seconds = sum(ended - began for began, ended in self.windows) / 1e9
        p50, p95 = np.percentile(late_ms, [50, 95])
        return (
            f"{p50:6.2f} {p95:6.2f} {max(late_ms):6.2f}   {len(late_ms):5} of {seconds * self.hz:<5.0f}"
            f" {self.busy_ns / seconds / 1e7:6.2f}% {self.busy_ns / len(late_ms) / 1e3:7.0f}"
        )


@click.command()
@click.option(
    "--rounds", type=click.IntRange(min=6), default=60, show_default=True, help="Rounds; each takes 0.6 s per row."
)
@click.option("--hz", "rates", default="10,20,50,100", show_default=True, help="Rates, separated by commas.")
@click.option("--meter", type=click.Choice(["nvml", "rapl"]), default="nvml", show_default=True)
@click.option("--cards", "count", default=1, show_default=True, help="Cards (nvml) or packages (rapl).")
@click.option(
    "--threads", default=2, show_default=True, help="Threads of the workload; use all cores for a strict test."
)
def main(rounds: int, rates: str, meter: str, count: int, threads: int) -> None:
    """Print, for each rate, the workload's time relative to no sampler, and the lateness and cost of ticks."""
    if meter == "nvml" and not (shutil.which("gcc") or shutil.which("cc")):
        raise click.ClickException(
            "gcc is needed to build the simulated NVIDIA library; install it or use --meter=rapl"
        )
    started = time.perf_counter()
    contenders = [Contender("none"), Contender("none again")]
    with ExitStack() as stack, threadpool_limits(threads, user_api="blas"):
        environment = pretended(meter, count, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        for hz in map(float, rates.split(",")):
            sampling = stack.enter_context(Sampling([meter], "cuda", hz, environment))
            if not sampling.probes[meter].channels:
                raise click.ClickException("; ".join(missing.text for missing in sampling.probes[meter].unavailable))
            contenders.append(Contender(f"{hz:g} Hz", hz, sampling))
            contenders[-1].send(signal.SIGSTOP)
        work = workload()
        rng = random.Random()
        for _ in range(rounds):
            for contender in rng.sample(contenders, len(contenders)):
                contender.play(work)
        readings = len(sampling.probes[meter].channels)
        print(
            f"meter.{meter}, {readings} readings per tick; {rounds} rounds, {threads} threads, {os.cpu_count()} cores"
        )
        print(
            f"{'sampler':10}   {'time / without, 95%':24}   late, ms: p50    p95    max    ticks, due     core  µs/tick"
        )
        for contender in contenders[1:]:
            compared = str(ratio(list(contender.logs - contenders[0].logs)))
            print(f"{contender.name:10}   {compared:24}          {contender.told()}".rstrip())
    print(f"took {time.perf_counter() - started:.0f} s")


def pretended(meter: str, count: int, folder: Path) -> dict[str, str]:
    """Return the environment variables that make a sampler find `count` simulated cards or packages in a folder."""
    if meter == "rapl":
        zones = {f"intel-rapl:{at}": f"package-{at}" for at in range(count)}
        sysfs.powercap(folder, zones | {f"{zone}:0": "dram" for zone in zones})
        return {"BENCHMARKER_SYSFS": str(folder)}
    curve = fake_cards.Wave(100.0, 600.0, 0.2, 0.1)
    present = [
        fake_cards.Card(uuid=f"GPU-{at:08}-0000-0000-0000-000000000000", pci=f"0000:{at:02x}:00.0", curve=curve)
        for at in range(1, count + 1)
    ]
    fake_cards.write(folder / "cards", present)
    return nvml.environment(folder / "cards")


def workload() -> Callable[[], None]:
    """Return a function that runs matrix products for about BLOCK_S seconds."""
    a, b = np.random.default_rng(0).standard_normal((2, SIZE, SIZE), np.float32)
    out = np.empty_like(a)
    durations = []
    for _ in range(20):
        began = time.perf_counter()
        np.matmul(a, b, out)
        durations.append(time.perf_counter() - began)
    steps = max(1, round(BLOCK_S / statistics.median(durations)))

    def work() -> None:
        for _ in range(steps):
            np.matmul(a, b, out)

    return work


if __name__ == "__main__":
    main()
