"""Check that a step measured by the tool is as fast as in a bare loop.

In each of several fresh processes, blocks of the tool's measuring loop alternate in random order with blocks of a
hand-written loop that has the same shapes, number of steps and framework settings. For GEMM and attention the bare
step is the framework's own call; for GPT-2 it is the same compiled step, called directly. The ratio of each process is
the median over its pairs; the interval is over processes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import click
from duet import play, ratio

from benchmarker import Stepper, open_bench, steps_per_block
from benchmarker.worker.bench import BATCHES

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemm 512": ("gemm", {"m": 512, "n": 512, "k": 512}),
    "gemm 1024": ("gemm", {"m": 1024, "n": 1024, "k": 1024}),
    "attention": ("attention", {"batch_size": 1, "heads": 12, "seq_len": 256, "impl": "matmul"}),
    "gpt2": ("gpt2", {"n_layer": 2, "seq_len": 64}),
}


@click.command()
@click.option("--framework", default="jax,torch", show_default=True)
@click.option("--processes", default=10, show_default=True)
@click.option("--pairs", default=60, show_default=True)
@click.option("--only", type=click.Choice(list(CASES)))
@click.option("--process", hidden=True, nargs=3, help="Run as one of the processes: framework, case, seed.")
def main(framework: str, processes: int, pairs: int, only: str | None, process: tuple[str, str, str] | None) -> None:
    """Print the tool's step time divided by the bare loop's, for each case and framework."""
    if process:
        one_process(process[0], process[1], int(process[2]), pairs)
        return
    print(f"{'case':12} {'framework':10} {'step':>10}   tool / bare, 95% interval over {processes} processes")
    for name in [only] if only else CASES:
        for each in framework.split(","):
            medians, steps = [], []
            for seed in range(processes):
                words = [sys.executable, __file__, "--pairs", str(pairs), "--process", each, name, str(seed)]
                found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
                medians.append(statistics.median(found["logs"]))
                steps.append(found["step_ms"])
            print(f"{name:12} {each:10} {statistics.median(steps):7.3f} ms   {ratio(medians)}", flush=True)


def one_process(framework: str, name: str, seed: int, pairs: int) -> None:
    """Time both loops alternately for one case and print the log ratios as JSON."""
    problem, given = CASES[name]
    bench = open_bench(problem, framework, "cpu", seed=seed, **given)
    data = bench.data(bench.problem, BATCHES)
    # The position of arrays in memory affects speed, so every other process creates those of the bare loop first.
    early = bare_step(framework, problem, data) if seed % 2 else None
    workload = bench.build(bench.problem, data)
    stepper = Stepper(workload.step, bench.framework.synchronize)
    bare = workload.step if problem == "gpt2" else early or bare_step(framework, problem, data)
    for _ in range(5):
        stepper.block(1)
        bare_block(bare, bench.framework.synchronize, 1)
    steps = steps_per_block(stepper)
    durations: list[int] = []

    def tool() -> int:
        durations.append(stepper.block(steps))
        return durations[-1]

    logs = play(lambda: bare_block(bare, bench.framework.synchronize, steps), tool, pairs, seed)
    print(json.dumps({"logs": logs, "step_ms": statistics.median(durations) / steps / 1e6}))


def bare_block(step, wait, steps: int) -> int:
    start = time.perf_counter_ns()
    for _ in range(steps):
        result = step()
    wait(result)
    return time.perf_counter_ns() - start


def bare_step(framework: str, problem: str, data: Any) -> Any:
    """Return a hand-written step of GEMM or attention, or None for GPT-2."""
    if problem == "gpt2":
        return None
    return torch_step(problem, data) if framework == "torch" else jax_step(problem, data)


def torch_step(problem: str, data: Any) -> Callable[[], Any]:
    import torch

    batches = cycle([{key: torch.tensor(value) for key, value in batch.items()} for batch in data.batches])
    mask = torch.full((1024, 1024), float("-inf")).triu(1)

    def gemm():
        batch = next(batches)
        return batch["a"] @ batch["b"]

    def attention():
        batch = next(batches)
        q, k, v = (batch[key].transpose(1, 2) for key in "qkv")
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask[: q.shape[-2], : q.shape[-2]]
        return (torch.softmax(scores, -1) @ v).transpose(1, 2)

    return gemm if problem == "gemm" else attention


def jax_step(problem: str, data: Any) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    batches = cycle([{key: jnp.asarray(value) for key, value in batch.items()} for batch in data.batches])
    matmul = jax.jit(lambda a, b: a @ b)

    @jax.jit
    def attend(q, k, v):
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
        scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
        return (jax.nn.softmax(scores, -1) @ v).swapaxes(1, 2)

    def gemm():
        batch = next(batches)
        return matmul(batch["a"], batch["b"])

    def attention():
        batch = next(batches)
        return attend(batch["q"], batch["k"], batch["v"])

    return gemm if problem == "gemm" else attention


if __name__ == "__main__":
    main()
