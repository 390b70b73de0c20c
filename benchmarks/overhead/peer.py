"""Compare steps of a model of this project with those of another library, in fresh processes, and print the ratios."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
from duet import play, ratio

MODES = ("inference", "training")
WARM_UP = 2
LEAST_PAIRS = 3


def compare(script: str, case: Sequence[str], processes: int, seconds: float) -> None:
    """Print our step time divided by theirs in each mode: the median of each process, the interval over processes.

    A process is the script with the case and `--process MODE SEED`; it prints what `alternate` returns.
    """
    print(f"{' '.join(case)}, PyTorch; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores before")
    print(f"{'mode':10} {'ours':>10} {'theirs':>10}   ours / theirs, 95% interval over {processes} processes")
    for mode in MODES:
        found = []
        for seed in range(processes):
            words = [sys.executable, script, *case, f"--seconds={seconds}", "--process", mode, str(seed)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                sys.exit(done.returncode)
            found.append(json.loads(done.stdout))
            value, pairs = np.exp(statistics.median(found[-1]["logs"])), len(found[-1]["logs"])
            print(f"{mode}, process {seed + 1} of {processes}: {value:.3f} in {pairs} pairs", file=sys.stderr)
        ours, theirs = (statistics.median(each[side] for each in found) for side in ("ours_ms", "theirs_ms"))
        medians = [statistics.median(each["logs"]) for each in found]
        print(f"{mode:10} {ours:7.1f} ms {theirs:7.1f} ms   {ratio(medians)}", flush=True)


def alternate(ours: Callable[[], object], theirs: Callable[[], object], seconds: float, seed: int) -> str:
    """Time both steps alternately in random order; return the log ratios and the median times as JSON."""
    times: dict[str, list[int]] = {"ours_ms": [], "theirs_ms": []}

    def timed(side: str, step: Callable[[], object]) -> Callable[[], int]:
        def once() -> int:
            start = time.perf_counter_ns()
            step()
            times[side].append(time.perf_counter_ns() - start)
            return times[side][-1]

        return once

    baseline, contender = timed("theirs_ms", theirs), timed("ours_ms", ours)
    for _ in range(WARM_UP):
        pair_ns = baseline() + contender()
    for each in times.values():
        each.clear()
    logs = play(baseline, contender, max(LEAST_PAIRS, round(seconds * 1e9 / pair_ns)), seed)
    return json.dumps({"logs": logs, **{side: statistics.median(each) / 1e6 for side, each in times.items()}})
