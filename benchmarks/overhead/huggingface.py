"""Compare the speed of models in this project with that of Hugging Face `transformers`; if asked, JAX with PyTorch.

In each of several fresh processes, steps of this project's PyTorch model alternate in random order with steps of
transformers' model. Both have the same weights and batches, scaled-dot-product attention, and the same size, precision
and optimizer (fused AdamW). The ratio of each process is the median over its pairs; the interval is over processes.
On a machine that does something else besides, set OMP_NUM_THREADS=1: PyTorch's threads wait for each other in every
product.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import click
import numpy as np
from duet import play, ratio

from benchmarker import NotHereError, UserError
from benchmarker_plugins.gpu_proof.huggingface import PROBLEMS, steps
from benchmarker_plugins.gpu_proof.loops import BATCHES

MODES = ("inference", "training")
WARM_UP = 2
LEAST_PAIRS = 3


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--problem", type=click.Choice(PROBLEMS), default="gpt2", show_default=True)
@click.option("--processes", type=click.IntRange(min=6), default=6, show_default=True)
@click.option(
    "--seconds", default=12.0, show_default=True, help=f"Time for the pairs of a process; at least {LEAST_PAIRS} run."
)
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
@click.option("--jax", is_flag=True, help="Compare JAX with PyTorch, too.")
@click.option("--process", hidden=True, nargs=2, help="Run as one of the processes: mode, seed.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(
    problem: str,
    processes: int,
    seconds: float,
    precision: str,
    jax: bool,
    process: tuple[str, str] | None,
    options: tuple[str, ...],
) -> None:
    """Print this project's step time divided by that of transformers, for each mode.

    OPTIONS are those of the problem, such as --size=base or --seq-len=512. Problem moe needs --dispatch=grouped.
    """
    size = {
        name.removeprefix("--").replace("-", "_"): value for name, _, value in (each.partition("=") for each in options)
    }
    for option in options:
        if not option.startswith("--") or "=" not in option:
            raise click.UsageError(f"{option}: write options of the problem as --name=value")
    if process:
        one_process(problem, process[0], int(process[1]), seconds, precision, size)
        return
    case = [f"--problem={problem}", f"--precision={precision}", *options]
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"{' '.join(case)}, PyTorch; load {load:.1f} on {cores} cores before")
    print(f"{'mode':10} {'ours':>10} {'theirs':>10}   ours / theirs, 95% interval over {processes} processes")
    for mode in MODES:
        found = []
        for seed in range(processes):
            words = [sys.executable, __file__, *case, f"--seconds={seconds}", "--process", mode, str(seed)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                sys.exit(done.returncode)
            found.append(json.loads(done.stdout))
            value, pairs = np.exp(statistics.median(found[-1]["logs"])), len(found[-1]["logs"])
            print(f"{mode}, process {seed + 1} of {processes}: {value:.3f} in {pairs} pairs", file=sys.stderr)
        ours, theirs = (statistics.median(each[side] for each in found) for side in ("ours_ms", "theirs_ms"))
        medians = [statistics.median(each["logs"]) for each in found]
        print(f"{mode:10} {ours:7.1f} ms {theirs:7.1f} ms   {ratio(medians)}", flush=True)
    if not jax:
        return
    print("\nJAX and PyTorch, each in separate processes, measured with the tool:", flush=True)
    for mode in MODES:
        with tempfile.TemporaryDirectory() as results:
            words = [*case, "--framework=jax,torch", f"--mode={mode}", "--impl=fused"]
            words += [f"--results={results}", "--trials=3", "--blocks=20", "--seconds=15"]
            subprocess.run([sys.executable, "-m", "benchmarker", "run", *words], stderr=subprocess.DEVNULL, check=True)


def one_process(problem: str, mode: str, seed: int, seconds: float, precision: str, size: dict[str, str]) -> None:
    """Time both models alternately in one mode and print the log ratios as JSON."""
    try:
        bench, make_theirs = steps("cpu", mode, precision, problem, seed=seed, **size)
        data = bench.data(bench.params, BATCHES)
        ours, theirs = bench.build(bench.params, data).step, make_theirs(data)
    except (NotHereError, UserError) as error:
        raise click.ClickException(str(error)) from error
    times: dict[str, list[int]] = {"ours_ms": [], "theirs_ms": []}

    def timed(side, step):
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
    print(json.dumps({"logs": logs, **{side: statistics.median(each) / 1e6 for side, each in times.items()}}))


if __name__ == "__main__":
    main()
