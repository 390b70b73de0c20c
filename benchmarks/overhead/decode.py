"""Compare the time per generated token with that of Hugging Face `transformers`, greedy, from the same weights.

In each of several fresh processes, three programs alternate in random order: this project (`--phase=decode` in PyTorch,
or in JAX), and transformers' `generate` with its dynamic and with its static cache. Each token is timed until it is
ready; the prompt and the first token are left out. The tokens must be the same.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import numpy as np
from duet import ratio
from transformers_models import generated, make_model

from benchmarker import open_bench

THEIRS = ("dynamic", "static")


@click.command()
@click.option("--problem", type=click.Choice(["gpt2", "llama"]), default="gpt2", show_default=True)
@click.option("--size", help="Published size of the model; that of the problem if omitted.")
@click.option("--framework", type=click.Choice(["torch", "jax"]), default="torch", show_default=True)
@click.option("--batch-size", default=1, show_default=True)
@click.option("--prompt-len", default=128, show_default=True)
@click.option("--new-tokens", default=16, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Texts of each side in a process.")
@click.option("--processes", type=click.IntRange(min=6), default=6, show_default=True)
@click.option("--process", type=int, hidden=True, help="Run as one of the processes: its seed.")
def main(processes: int, process: int | None, **case: Any) -> None:
    """Print the time per token, and this project's divided by that of the better cache of transformers."""
    if process is not None:
        print(json.dumps(one_process(process, **case)))
        return
    words = [f"--{name.replace('_', '-')}={value}" for name, value in case.items() if value is not None]
    found = []
    for seed in range(processes):
        call = [sys.executable, __file__, *words, f"--process={seed}"]
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(done.returncode)
        found.append(json.loads(done.stdout))
        print(f"process {seed + 1} of {processes}: {found[-1]} ms per token", file=sys.stderr)
    medians = {side: statistics.median(each[side] for each in found) for side in found[0]}
    print(" ".join(words))
    print("ms per token, median over processes: " + ", ".join(f"{side} {ms:.2f}" for side, ms in medians.items()))
    for side in THEIRS:
        print(f"ours / {side}: {ratio([float(np.log(each['ours'] / each[side])) for each in found])}")


class Clock:
    """What `generate` calls with the prompt and with every token: keeps the times, in s."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _: Any) -> None:
        """Note a token."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing: the last token was noted."""


def one_process(
    seed: int,
    problem: str,
    size: str | None,
    framework: str,
    batch_size: int,
    prompt_len: int,
    new_tokens: int,
    rounds: int,
) -> dict[str, float]:
    """Return the milliseconds per token of each side, the median over all tokens."""
    import torch

    given = {"size": size} if size else {}
    lengths: dict[str, Any] = {"batch_size": batch_size, "depth": prompt_len, "new_tokens": new_tokens}
    bench = open_bench(problem, framework, "cpu", seed=seed, phase="decode", **{**lengths, **given})
    data = bench.data(bench.problem, 1)
    workload = bench.build(bench.problem, data)
    model = make_model(problem, bench.problem, data.weights).eval()
    prompt_BP = torch.tensor(data.batches[0]["tokens"][:, :prompt_len], dtype=torch.int64)

    def ours() -> tuple[np.ndarray, list[float]]:
        times, tokens = [time.perf_counter()], []
        for _ in range(new_tokens):
            tokens.append(workload.outputs(workload.step())["tokens"].reshape(-1))
            times.append(time.perf_counter())
        return np.stack(tokens, axis=1), times

    def theirs(cache: str) -> tuple[np.ndarray, list[float]]:
        clock = Clock()
        sequence_BS = generated(model, prompt_BP, new_tokens + 1, cache, clock)
        return sequence_BS[:, prompt_len + 1 :].numpy(), clock.times[1:]

    sides: dict[str, Callable[[], Any]] = {
        "ours": ours,
        **{cache: partial(theirs, cache) for cache in THEIRS},
    }
    expected, _ = ours()
    for side, generate in sides.items():
        if not (generate()[0] == expected).all():
            raise click.ClickException(f"the tokens of {side} are not ours")
    gaps: dict[str, list[float]] = {side: [] for side in sides}
    order, rng = list(sides), random.Random(seed)
    for _ in range(rounds):
        rng.shuffle(order)
        for side in order:
            gaps[side] += np.diff(sides[side]()[1]).tolist()
    return {side: round(1e3 * statistics.median(each), 3) for side, each in gaps.items()}


if __name__ == "__main__":
    main()
