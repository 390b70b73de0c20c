"""Compare the problem `latency` with dependent loads in C, by working set.

In each of several fresh processes, steps of the tool and the same loads in C (`gcc -O2`) alternate in random order,
from two copies of one cycle of lines. Both are in memory without huge pages, which NumPy would ask for. The fastest
step of each counts, since other programs only make loads slower.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import click
import numpy as np
from duet import play, ratio

LOADS = 2**17
"""Loads of a step: so few that some steps are not interrupted by other programs."""
CHASE = """
#include <stddef.h>
#include <stdint.h>
uint32_t chase(const uint32_t *memory, uint32_t place, size_t loads) {
  while (loads--) place = memory[place];
  return place;
}
"""


@click.command()
@click.option("--sizes", default="16K,256K,1M,4M,16M,64M", show_default=True, help="Working sets.")
@click.option("--processes", default=6, show_default=True, help="Processes; at least six, for an interval.")
@click.option("--pairs", default=100, show_default=True, help="Pairs of steps in each process.")
@click.option("--process", hidden=True, nargs=2, type=int, help="Run as one of the processes: bytes, seed.")
def main(sizes: str, processes: int, pairs: int, process: tuple[int, int] | None) -> None:
    """Print the time of a load by the tool and in C, and their ratio with its 95% interval over processes."""
    if process:
        print(json.dumps(one_process(*process, pairs)))
        return
    for size in sizes.split(","):
        count = int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]]
        words = [sys.executable, __file__, "--pairs", str(pairs), "--process", str(count)]
        found = [
            json.loads(subprocess.run([*words, str(seed)], capture_output=True, text=True, check=True).stdout)
            for seed in range(processes)
        ]
        tool_ns, c_ns = (median(each[side] for each in found) for side in ("tool_ns", "c_ns"))
        values = ratio([each["log_ratio"] for each in found])
        print(f"{size:>5}  tool {tool_ns:7.2f} ns, C {c_ns:7.2f} ns, ratio {values}", flush=True)


def one_process(size: int, seed: int, pairs: int) -> dict[str, float]:
    """Return the shortest times of a load, ns, and the logarithm of the ratio of the tool's to that in C."""
    from benchmarker.worker.bench import open_bench

    bench = open_bench("latency", "jax", "cpu", bytes=size, loads=LOADS, seed=seed)
    data = bench.data(bench.problem, 1)
    workload = bench.build(bench.problem, data)
    chase = in_c()
    lines = data.weights["memory"].ravel()
    memory = np.frombuffer(mmap.mmap(-1, lines.nbytes), np.uint32)
    memory[:] = lines
    place = int(data.batches[0]["line"]) * 16
    times: dict[str, list[float]] = {"tool_ns": [], "c_ns": []}

    def by_tool() -> int:
        start = time.perf_counter_ns()
        bench.framework.synchronize(workload.step())
        times["tool_ns"].append((time.perf_counter_ns() - start) / LOADS)
        return time.perf_counter_ns() - start

    def by_c() -> int:
        nonlocal place
        start = time.perf_counter_ns()
        place = chase(memory.ctypes.data, place, LOADS)
        times["c_ns"].append((time.perf_counter_ns() - start) / LOADS)
        return time.perf_counter_ns() - start

    by_tool(), by_c()  # compiles, and loads what is loaded first
    assert workload.outputs(workload.step())["line"] * 16 == chase(memory.ctypes.data, place, LOADS)
    bench.framework.synchronize(workload.step())
    play(by_c, by_tool, pairs, seed)
    shortest = {side: min(values) for side, values in times.items()}
    return {"log_ratio": np.log(shortest["tool_ns"] / shortest["c_ns"]), **shortest}


def in_c() -> ctypes._FuncPointer:
    """Return the loads in C: of a memory, a place in it and a number of loads; returns the last place."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "chase.c", Path(folder) / "chase.so"
        source.write_text(CHASE)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        chase = ctypes.CDLL(str(library)).chase
    chase.argtypes, chase.restype = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t], ctypes.c_uint32
    return chase


if __name__ == "__main__":
    main()
