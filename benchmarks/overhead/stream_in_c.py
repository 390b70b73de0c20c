"""Compare the ceilings that the tool finds with bare loops: of matrix products, and of STREAM's triad in C.

In each of several fresh processes, all blocks run in random order in every round. For each size that
`benchmarker ceilings` tries, these are blocks of the tool's measuring loop and of a bare loop over the same library, or
of the tool's triad and of a triad in C of the same length, compiled with `gcc -O3 -fopenmp`. The tool's highest rate by
median block is the ceiling of that process. It is compared with the highest rate of the bare loops. Measured one after
the other they could not be distinguished, because rates differ by a third between processes.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import click
import numpy as np
from duet import ratio

BLOCK_S = 0.15
TRIAD = """
#include <stddef.h>
void triad(float *a, const float *b, const float *c, size_t n) {
#pragma omp parallel for
  for (size_t i = 0; i < n; i++) a[i] = b[i] + 3.0f * c[i];
}
"""


@click.command()
@click.option("--framework", default="jax,torch,numpy", show_default=True)
@click.option("--processes", default=6, show_default=True, help="Processes; at least six, for an interval.")
@click.option("--rounds", default=7, show_default=True)
@click.option("--process", hidden=True, nargs=3, help="Run as one of the processes: framework, resource, seed.")
def main(framework: str, processes: int, rounds: int, process: tuple[str, str, str] | None) -> None:
    """Print the tool's highest rate divided by that of bare loops, for compute and memory, by framework."""
    if process:
        print(json.dumps(one_process(process[0], process[1], int(process[2]), rounds)))
        return
    print(f"the tool's highest rate over the bare loop's, 95% interval over {processes} processes; median rates")
    for resource in ("compute", "memory"):
        for name in framework.split(","):
            found = [child(name, resource, seed, rounds) for seed in range(processes)]
            tool, bare = (
                [max(rates.items(), key=lambda item: item[1]) for rates in side] for side in zip(*found, strict=True)
            )
            values = ratio([float(np.log(one[1] / two[1])) for one, two in zip(tool, bare, strict=True)])
            medians = [statistics.median(rate for _, rate in side) / 1e9 for side in (tool, bare)]
            sizes = [", ".join(sorted({size for size, _ in side})) for side in (tool, bare)]
            unit = "GFLOP/s" if resource == "compute" else "GB/s"
            print(
                f"{resource:8} {name:6} {values}  tool {medians[0]:6.1f} {unit} ({sizes[0]}), "
                f"bare {medians[1]:6.1f} ({sizes[1]})",
                flush=True,
            )


def child(framework: str, resource: str, seed: int, rounds: int) -> list[dict[str, float]]:
    words = [sys.executable, __file__, "--rounds", str(rounds), "--process", framework, resource, str(seed)]
    # A waiting thread must not spin while the other library computes.
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    found: list[dict[str, float]] = json.loads(done.stdout)
    return found


def one_process(framework: str, resource: str, seed: int, rounds: int) -> list[dict[str, float]]:
    """Return the rates of the tool and of the bare loops by size, each from its median block."""
    from benchmarker.planning import ceiling_search
    from benchmarker.worker import timing
    from benchmarker.worker.bench import BATCHES, Bench

    memory = {"problem": "stream", "op": "copy" if framework == "numpy" else "triad"}
    asked = memory if resource == "memory" else {"problem": "gemm"}
    players: list[tuple[int, str, Callable[[int], int], int, int]] = []
    for case in ceiling_search.search([{**asked, "framework": framework}]).cases:
        bench = Bench(case)
        data = bench.data(bench.problem, BATCHES)
        stepper = timing.Stepper(bench.build(bench.problem, data).step, bench.framework.synchronize)
        cost = bench.problem.cost(case.mode, case.precision)
        work = cost.bytes if resource == "memory" else cost.flops
        n = int(case.params["n"])
        bare = triad_in_c(n) if resource == "memory" else bare_product(framework, data)
        bare_work = 3 * 4 * n if resource == "memory" else work
        for side, block, each in ((0, stepper.block, work), (1, bare, bare_work)):
            block(1)
            steps = max(1, round(BLOCK_S / (block(1) / 1e9)))
            players.append((side, str(n), block, steps, each))
    rng = random.Random(seed)
    rates: list[dict[str, list[float]]] = [{}, {}]
    for _ in range(rounds):
        for side, name, block, steps, work in rng.sample(players, len(players)):
            rates[side].setdefault(name, []).append(work * steps / (block(steps) / 1e9))
    return [{name: statistics.median(values) for name, values in side.items()} for side in rates]


def bare_product(framework: str, data: Any) -> Callable[[int], int]:
    """Return a function that times a block of plain products, including the final wait, in ns."""
    multiply: Callable[..., Any]
    wait: Callable[[Any], Any]
    if framework == "numpy":
        pairs = cycle([(batch["a"], batch["b"]) for batch in data.batches])
        multiply, wait = np.matmul, at_once
    elif framework == "torch":
        import torch

        pairs = cycle([(torch.tensor(batch["a"]), torch.tensor(batch["b"])) for batch in data.batches])
        multiply, wait = torch.mm, at_once
    else:
        import jax

        pairs = cycle([(jax.device_put(batch["a"]), jax.device_put(batch["b"])) for batch in data.batches])
        multiply, wait = jax.jit(lambda a, b: a @ b), jax.block_until_ready

    def block(steps: int) -> int:
        start = time.perf_counter_ns()
        for _ in range(steps):
            result = multiply(*next(pairs))
        wait(result)
        return time.perf_counter_ns() - start

    return block


def at_once(result):
    """Return immediately, because the library has finished when it returns."""


def triad_in_c(n: int):
    """Return a function that times a block of triads over arrays of n numbers, in ns."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "triad.c", Path(folder) / "triad.so"
        source.write_text(TRIAD)
        subprocess.run(["gcc", "-O3", "-fopenmp", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        triad = ctypes.CDLL(str(library)).triad
    a, b, c = (np.ones(n, np.float32) for _ in "abc")
    arguments = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, c)] + [ctypes.c_size_t(n)]

    def block(steps: int) -> int:
        start = time.perf_counter_ns()
        for _ in range(steps):
            triad(*arguments)
        duration_ns = time.perf_counter_ns() - start
        assert a[0] == a[-1] == 4.0, a  # 1 + 3 * 1
        return duration_ns

    return block


if __name__ == "__main__":
    main()
