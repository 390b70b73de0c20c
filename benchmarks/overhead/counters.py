"""Measure how much event counters (`--counters`) slow steps of about a millisecond.

In each of several fresh processes, blocks of ten steps with all counters that this machine permits alternate in random
order with blocks without any. Steps compute, or do nothing but use fresh pages, so that the kernel counts all the time.
The counters are opened and closed around each block, outside of its time; for a block without them, both before it. The
ratio of a process is the median over its pairs; the interval is over processes.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import click
from duet import play, ratio

from benchmarker import Stepper
from benchmarker.machine import perf_events
from benchmarker.worker.timing import Counted

STEP_S = 1e-3
STEPS = 10
"""Steps of a block: 10 ms, as the tool chooses."""


def hashes() -> Callable[[], object]:
    """Return a step that computes on one core."""
    data = bytes(1 << 14)
    return lambda: hashlib.sha256(data).digest()


def pages() -> Callable[[], object]:
    """Return a step that uses 16 fresh pages."""

    def touch() -> None:
        memory = mmap.mmap(-1, 16 * mmap.PAGESIZE)
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1
        memory.close()

    return touch


CASES = {"hashes": hashes, "pages": pages}


@click.command()
@click.option("--processes", type=click.IntRange(min=6), default=10, show_default=True)
@click.option("--pairs", default=200, show_default=True, help="Pairs of blocks of a process.")
@click.option("--process", hidden=True, nargs=2, help="Run as one of the processes: case, seed.")
def main(processes: int, pairs: int, process: tuple[str, str] | None) -> None:
    """Print the time of a step with counters divided by that without any."""
    if process:
        one_process(process[0], int(process[1]), pairs)
        return
    reasons = perf_events.available()
    print(f"counters: {', '.join(name for name, reason in reasons.items() if not reason)}; {os.cpu_count()} cores")
    print(f"{'steps':10} {'time':>9}   with / without, 95% interval over {processes} processes")
    for case in CASES:
        medians, steps_ms = [], []
        for seed in range(processes):
            words = [sys.executable, __file__, f"--pairs={pairs}", "--process", case, str(seed)]
            found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
            medians.append(statistics.median(found["logs"]))
            steps_ms.append(found["step_ms"])
        print(f"{case:10} {statistics.median(steps_ms):6.3f} ms   {ratio(medians)}", flush=True)


def one_process(case: str, seed: int, pairs: int) -> None:
    """Time blocks with and without counters alternately, and print the log ratios as JSON."""
    once = CASES[case]()
    took_s = []
    for _ in range(50):
        start = time.perf_counter()
        once()
        took_s.append(time.perf_counter() - start)
    times = max(1, round(STEP_S / min(took_s)))

    def step() -> None:
        for _ in range(times):
            once()

    names = [name for name, reason in perf_events.available().items() if not reason]
    plain = Stepper(step, lambda _: None)
    without_ns: list[int] = []

    def without() -> int:
        perf_events.Counters(names).close()
        without_ns.append(plain.block(STEPS))
        return without_ns[-1]

    def with_counters() -> int:
        counters = perf_events.Counters(names)
        try:
            return Counted(plain, counters).block(STEPS)
        finally:
            counters.close()

    logs = play(without, with_counters, pairs, seed)
    print(json.dumps({"logs": logs, "step_ms": statistics.median(without_ns) / STEPS / 1e6}))


if __name__ == "__main__":
    main()
