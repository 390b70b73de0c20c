"""Hold the ceilings that the tool finds against plain loops: of matrix products, and against STREAM in C.

The tool searches as `benchmarker ceilings` does. Then, round by round and in an order drawn anew each time, come a
trial of each winner by the tool, and for each framework a process with a bare loop over all sizes, which writes into
the same memory where the library can; and a triad built here with `gcc -O3 -fopenmp`, over arrays as long as the
tool's. Of a bare loop the size with the highest median over rounds counts. The ratio is of the two in the same round.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from duet import ratio

SECONDS = 1.0
"""Of a bare loop for each size."""

STREAM = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
  size_t n = strtoull(argv[1], 0, 10);
  int rounds = atoi(argv[2]);
  float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c);
#pragma omp parallel for
  for (size_t i = 0; i < n; i++) { a[i] = 0; b[i] = 1; c[i] = 2; }
  for (int k = 0; k < rounds; k++) {
    double start = now();
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 3.0f * c[i];
    printf("%.9f\\n", now() - start);
  }
  return a[n / 2] != 7.0f;
}
"""


@click.command()
@click.option("--framework", default="jax,torch,numpy", show_default=True)
@click.option("--rounds", default=7, show_default=True, help="At least six, for an interval.")
@click.option("--bare", hidden=True, help="Be a bare loop of this framework.")
def main(framework: str, rounds: int, bare: str | None) -> None:
    """Print the tool's rates over those of the bare loops."""
    if bare:
        print(json.dumps(bare_loops(bare)))
        return
    from benchmarker import plan, store
    from benchmarker.ceiling_search import final, rate_of, search
    from benchmarker.cli.progress import Progress
    from benchmarker.execute import execute

    names = framework.split(",")
    settings = [{"problem": "gemm", "framework": name} for name in names]
    settings += [{"problem": "stream", "framework": name, "op": op} for name in names for op in ("copy", "triad")]
    with tempfile.TemporaryDirectory() as folder, Progress() as progress:

        def run(wanted: plan.Plan) -> list:
            with store.new_run(Path(folder), wanted) as opened:
                return execute(opened, progress)

        winners = final(run(search(settings)), 1).cases
        arrays = next(case.params["n"] for case in winners if case.problem == "stream")
        triad = build_stream(Path(folder))
        found: dict[str, list[float]] = {}
        loops: dict[str, dict[str, list[float]]] = {}
        for _ in range(rounds):
            jobs = [*winners, *names, "stream"]
            for job in random.sample(jobs, len(jobs)):
                if job == "stream":
                    found.setdefault("stream in C", []).append(stream(triad, arrays))
                elif isinstance(job, str):
                    for size, rate in bare_rates(job).items():
                        loops.setdefault(job, {}).setdefault(size, []).append(rate)
                else:
                    (record,) = run(plan.make_plan([job], 1))
                    found.setdefault(f"{job.problem} {job.framework}", []).append(rate_of(record))
    print("rates by the tool over those of a bare loop, 95% interval over rounds; medians")
    for name in names:
        size, best = max(loops[name].items(), key=lambda item: statistics.median(item[1]))
        show(f"gemm {name}", found[f"gemm {name}"], best, f"bare loop at {size}", "FLOP/s")
    for name in names:
        show(f"stream {name}", found[f"stream {name}"], found["stream in C"], "triad in C", "B/s")


def show(name: str, tool: list[float], other: list[float], what: str, unit: str) -> None:
    logs = [float(np.log(a / b)) for a, b in zip(tool, other, strict=True)]
    medians = statistics.median(tool), statistics.median(other)
    print(
        f"{name:14} {medians[0] / 1e9:7.1f} G{unit}, {what} {medians[1] / 1e9:7.1f} G{unit}: "
        f"ratio of medians {medians[0] / medians[1]:.3f}, by round {ratio(logs)}",
        flush=True,
    )


def bare_rates(framework: str) -> dict[str, float]:
    words = [sys.executable, __file__, "--bare", framework]
    found: dict[str, float] = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return found


def bare_loops(framework: str) -> dict[str, float]:
    """FLOP/s of each size, by the median product."""
    from benchmarker.ceiling_search import CPU_SIDES

    rates = {}
    for side in CPU_SIDES:
        a, b = (np.random.default_rng(seed).standard_normal((side, side), dtype=np.float32) for seed in (0, 1))
        step = product(framework, a, b)
        step()
        times: list[float] = []
        while sum(times) < SECONDS or len(times) < 3:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        rates[str(side)] = 2 * side**3 / statistics.median(times)
    return rates


def product(framework: str, a: np.ndarray, b: np.ndarray):
    """One matrix product, waited for."""
    if framework == "numpy":
        c = np.empty_like(a)
        return lambda: np.matmul(a, b, out=c)
    if framework == "torch":
        import torch

        ta, tb, tc = torch.tensor(a), torch.tensor(b), torch.empty(a.shape)
        return lambda: torch.mm(ta, tb, out=tc)
    import jax

    ja, jb, multiply = jax.device_put(a), jax.device_put(b), jax.jit(lambda a, b: a @ b)
    return lambda: multiply(ja, jb).block_until_ready()


def build_stream(folder: Path) -> Path:
    source, program = folder / "stream.c", folder / "stream"
    source.write_text(STREAM)
    subprocess.run(["gcc", "-O3", "-fopenmp", str(source), "-o", str(program)], check=True)
    return program


def stream(program: Path, n: int) -> float:
    """Bytes/s of the triad, by its median pass; the first is left out, as in STREAM."""
    times = subprocess.run([program, str(n), "30"], capture_output=True, text=True, check=True).stdout.split()
    return 3 * 4 * n / statistics.median(map(float, times[1:]))


if __name__ == "__main__":
    main()
