"""Compare a step of an own function, as the tool measures it, with a bare loop that calls the same function.

In each of several fresh processes, blocks of both alternate in random order over equal sets of inputs. The ratio of a
process is the median over its pairs; the interval is over processes.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "overhead"))

from duet import play, ratio

from benchmarker import Stepper, open_bench, steps_per_block
from benchmarker_problems.own import imported
from benchmarker_problems.own.arguments import placed

HERE, EXAMPLES = Path(__file__).parent, Path(__file__).parents[2] / "examples" / "own-code"
CASES: dict[str, tuple[Path, str, str, dict[str, Any]]] = {
    "softmax": (EXAMPLES / "softmax.py", "torch", "fused", {"n": 2048, "m": 2048}),
    "attention": (EXAMPLES / "attention.py", "torch", "naive", {"tokens": 512}),
    "softmax in JAX": (EXAMPLES / "softmax_jax.py", "jax", "naive", {"n": 2048, "m": 2048}),
    "top-k in JAX": (EXAMPLES / "top_k_jax.py", "jax", "selected", {}),
    "sort in NumPy": (HERE / "sorts.py", "numpy", "by_numpy", {"n": 2**18}),
    "sort in Python": (HERE / "sorts.py", "numpy", "by_python", {"n": 2**14}),
}
SETS = 4


@click.command()
@click.option("--processes", default=8, show_default=True)
@click.option("--pairs", default=60, show_default=True)
@click.option("--only", type=click.Choice(list(CASES)))
@click.option("--process", hidden=True, nargs=2, help="Run as one of the processes: case, seed.")
def main(processes: int, pairs: int, only: str | None, process: tuple[str, str] | None) -> None:
    """Print the tool's step time divided by the bare loop's, for each case, as a Markdown table."""
    if process:
        one_process(process[0], int(process[1]), pairs)
        return
    print("| function | step | tool / bare loop |\n| --- | --- | --- |")
    for name in [only] if only else CASES:
        medians, steps = [], []
        for seed in range(processes):
            words = [sys.executable, __file__, "--pairs", str(pairs), "--process", name, str(seed)]
            result = json.loads(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)
            medians.append(statistics.median(result["logs"]))
            steps.append(result["step_ms"])
        print(f"| {name} | {statistics.median(steps):.2f} ms | {ratio(medians)} |", flush=True)


def one_process(name: str, seed: int, pairs: int) -> None:
    """Time both loops alternately for one case and print the log ratios as JSON."""
    path, framework, function, options = CASES[name]
    bench = open_bench(str(path), framework, "cpu", seed=seed, function=function, **options)
    data = bench.data(bench.problem, SETS)
    # The position of arrays in memory affects speed, so every other process creates those of the bare loop first.
    early = bare_step(bench, data) if seed % 2 else None
    workload = bench.build(bench.problem, data)
    stepper, bare = Stepper(workload.step, bench.framework.synchronize), early or bare_step(bench, data)
    for _ in range(SETS):
        stepper.block(1)
        bench.framework.synchronize(bare())
    steps = steps_per_block(stepper)
    durations: list[int] = []

    def tool() -> int:
        durations.append(stepper.block(steps))
        return durations[-1]

    def bare_block() -> int:
        start = time.perf_counter_ns()
        for _ in range(steps):
            result = bare()
        bench.framework.synchronize(result)
        return time.perf_counter_ns() - start

    logs = play(bare_block, tool, pairs, seed)
    print(json.dumps({"logs": logs, "step_ms": statistics.median(durations) / steps / 1e6}))


def bare_step(bench: Any, data: Any) -> Callable[[], Any]:
    """Return a call of the function with the next set of arrays."""
    function = getattr(imported(bench.problem.code), bench.problem.function)
    put: Any = np.array
    if bench.case.framework == "torch":
        import torch

        function, put = torch.no_grad()(function), torch.tensor
    elif bench.case.framework == "jax":
        import jax

        # Numbers such as the k of a top-k are constants of the compiled function, as they are in the tool.
        constants = [number for number, value in enumerate(data.template) if isinstance(value, int)]
        function, put = jax.jit(function, static_argnums=constants), jax.numpy.asarray

    def arguments(batch: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
        return placed(data.template, lambda place: put(batch[place.name]))[0]

    sets = cycle([arguments(batch) for batch in data.batches])
    return lambda: function(*next(sets))


if __name__ == "__main__":
    main()
