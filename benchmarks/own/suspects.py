"""Count how often an honest function is suspected of keeping results, beside processes that come and go.

Each test is that which follows the timed steps of a trial: 21 pairs of a step on inputs never seen and a step on known
ones. A test that takes longer than its limit shows nothing, and is counted apart.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[1] / "verdicts" / "calibration"))

from live_runs import NEIGHBOUR

from benchmarker import open_bench
from benchmarker_problems.own.protection import PAIRS_S

HERE, EXAMPLES = Path(__file__).parent, Path(__file__).parents[2] / "examples" / "own-code"
CASES: list[tuple[Path, str, str, dict[str, Any]]] = [
    (EXAMPLES / "softmax.py", "torch", "fused", {"n": 64, "m": 64}),
    (EXAMPLES / "softmax.py", "torch", "naive", {"n": 512, "m": 512}),
    (EXAMPLES / "top_k.py", "torch", "selected", {"n": 64}),
    (EXAMPLES / "softmax_jax.py", "jax", "fused", {"n": 64, "m": 64}),
    (EXAMPLES / "segment_sum_jax.py", "jax", "added", {}),
    (EXAMPLES / "sort_jax.py", "jax", "by_sort", {"n": 16}),
    (HERE / "sorts.py", "numpy", "by_numpy", {"n": 2**12}),
    (HERE / "sorts.py", "numpy", "by_merging", {"n": 2**15}),
    (HERE / "sorts.py", "numpy", "by_python", {"n": 2**12}),
]


@click.command()
@click.option("--tests", default=200, show_default=True, help="Tests of each function.")
@click.option("--neighbour", "mean_s", default=0.05, show_default=True, help="Its mean time busy, and at rest, s.")
def main(tests: int, mean_s: float) -> None:
    """Print for each function how many of the tests suspect it, as a Markdown table."""
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(mean_s)])
    try:
        print("| function | step | suspect | took too long |\n| --- | --- | --- | --- |")
        for path, framework, function, options in CASES:
            bench = open_bench(str(path), framework, "cpu", function=function, **options)
            workload = bench.build(bench.problem, bench.data(bench.problem, 4))
            steps_s, suspect, too_long = [], 0, 0
            for _ in range(tests):
                start = time.perf_counter()
                bench.framework.synchronize(workload.step())
                steps_s.append(time.perf_counter() - start)
                start = time.perf_counter()
                suspect += bool(workload.suspicions())
                too_long += time.perf_counter() - start > PAIRS_S
            step = f"{1e6 * sorted(steps_s)[tests // 2]:.0f} µs"
            print(f"| {path.name}:{function} | {step} | {suspect} of {tests} | {too_long} |", flush=True)
    finally:
        neighbour.kill()
        neighbour.wait()


if __name__ == "__main__":
    main()
