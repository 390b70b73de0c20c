"""Compare the time per generated token with that of Hugging Face `transformers`, greedy, from the same weights.

In each of several fresh processes, three programs alternate in random order: this project in PyTorch, and transformers'
`generate` with its dynamic and with its static cache. Each generates a text of one token and one of all tokens; the
time per token is the difference over the tokens between. The tokens must be the same. With `--framework=jax`, this
project's side is JAX.
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

from benchmarker import open_bench
from benchmarker_plugins.gpu_proof.huggingface import generated, make_model

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


def one_process(
    seed: int, problem: str, size: str | None, framework: str, rounds: int, new_tokens: int, **lengths: int
) -> dict[str, float]:
    """Return the milliseconds per token of each side, the median over the rounds."""
    import torch

    given = {"size": size} if size else {}
    # Greedy decoding of random weights repeats a token soon; what it costs does not depend on it.
    cases = {
        count: open_bench(problem, framework, "cpu", seed=seed, phase="generate", new_tokens=count, **given, **lengths)
        for count in (1, new_tokens)
    }
    bench = cases[new_tokens]
    data = bench.data(bench.params, 1)
    model = make_model(problem, bench.params, data.weights).eval()
    prompt_BP = torch.tensor(data.batches[0]["tokens"][:, : bench.params.prompt_len], dtype=torch.int64)
    workloads = {count: case.build(case.params, data) for count, case in cases.items()}

    def ours(count: int) -> np.ndarray:
        workload = workloads[count]
        return workload.outputs(workload.step())["tokens"].reshape(len(prompt_BP), -1)

    def theirs(cache: str, count: int) -> np.ndarray:
        tokens: np.ndarray = generated(model, prompt_BP, count, cache)[:, prompt_BP.shape[1] :].numpy()
        return tokens

    texts: dict[tuple[str, int], Callable[[], np.ndarray]] = {("ours", count): partial(ours, count) for count in cases}
    texts |= {(cache, count): partial(theirs, cache, count) for cache in THEIRS for count in cases}
    expected = {key: text() for key, text in texts.items()}
    for (side, count), tokens in expected.items():
        if not (tokens == expected["ours", count]).all():
            raise click.ClickException(f"the tokens of {side} are not ours")
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in texts}
    order, rng = list(texts), random.Random(seed)
    for _ in range(rounds):
        rng.shuffle(order)
        for key in order:
            start = time.perf_counter()
            texts[key]()
            seconds[key].append(time.perf_counter() - start)
    return {
        side: round(
            1e3 * statistics.median(np.subtract(seconds[side, new_tokens], seconds[side, 1])) / (new_tokens - 1), 3
        )
        for side in ("ours", *THEIRS)
    }


if __name__ == "__main__":
    main()
