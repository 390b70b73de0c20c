"""Compare steps that find their inputs in a cache with steps that do not: triads and products of growing size.

Cases run in rounds, in random order, on one thread (`OMP_NUM_THREADS`). A rate is that of the fastest tenth of blocks,
as other processes only make them slower. Two roofs of memory stand beside them: the ceiling as the tool measures it,
and a triad that no cache holds. What is far above both was not read from memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import click
import numpy as np

LENGTHS = [2**bits for bits in (12, 14, 16, 18, 20, 22)]
"""Elements of a triad: its three arrays in fp32 take 48 KiB to 48 MiB."""
SIDES = [64, 128, 256, 512, 1024, 2048]
"""Sides of a product, of the same sizes."""
CACHES = ("hot", "rotate")
BEYOND = 2**25
"""Elements of a triad of 384 MiB, in the same rounds as the others: the bandwidth of a shared machine changes."""
FASTEST = 0.1


@click.command()
@click.option("--framework", default="torch", show_default=True)
@click.option("--trials", default=5, show_default=True)
@click.option("--seconds", default=0.5, show_default=True, help="Duration of the timed part of a trial.")
def main(framework: str, trials: int, seconds: float) -> None:
    """Print GB/s of triads and GFLOP/s of products, hot and rotating, as a Markdown table."""
    ceilings = [_ceiling(framework)]
    how = [f"--framework={framework}", f"--trials={trials}", f"--seconds={seconds}", f"--axis=cache={','.join(CACHES)}"]
    triads = _rates(
        "n", "bytes", [*how, "--problem=stream", "--op=triad", f"--axis=n={','.join(map(str, [*LENGTHS, BEYOND]))}"]
    )
    products: dict[tuple[int, str], tuple[float, int]] = {}
    for side in SIDES:
        size = [f"--{name}={side}" for name in "mnk"]
        products |= _rates("n", "flops", [*how, "--problem=gemm", *size])
    ceilings.append(_ceiling(framework))
    click.echo(f"ceiling of memory before and after: {', '.join(f'{each / 1e9:.1f}' for each in ceilings)} GB/s")
    beyond = ", ".join(f"{triads[BEYOND, cache][0] / 1e9:.1f}" for cache in CACHES)
    click.echo(f"triad of {12 * BEYOND >> 20} MiB: {beyond} GB/s\n")
    click.echo("| working set | sets | triad, hot | rotating | gemm, hot | rotating |")
    click.echo("| --- | --- | --- | --- | --- | --- |")
    for length, side in zip(LENGTHS, SIDES, strict=True):
        sets = f"{triads[length, 'rotate'][1]}, {products[side, 'rotate'][1]}"
        rates = [f"{triads[length, cache][0] / 1e9:.1f} GB/s" for cache in CACHES]
        rates += [f"{products[side, cache][0] / 1e9:.1f} GFLOP/s" for cache in CACHES]
        click.echo(f"| {12 * length // 1024} KiB | {sets} | {' | '.join(rates)} |")


def _rates(option: str, work: str, words: list[str]) -> dict[tuple[int, str], tuple[float, int]]:
    """Return the rate, and the number of sets, by the value of an option and by cache."""
    step_s: dict[tuple[int, str], list[float]] = {}
    work_and_sets: dict[tuple[int, str], tuple[float, int]] = {}
    for record in _json(["sweep", *words, "--power=none", "--json"]):
        blocks, key = record["blocks"], (record["case"]["params"][option], record["inputs"]["cache"])
        step_s.setdefault(key, []).extend(ns / blocks["steps_per_block"] / 1e9 for ns in blocks["duration_ns"])
        work_and_sets[key] = record["cost"][work], record["inputs"]["sets"]
    return {key: (amount / np.quantile(step_s[key], FASTEST), sets) for key, (amount, sets) in work_and_sets.items()}


def _ceiling(framework: str) -> float:
    """Return the highest bytes/s of memory."""
    ceilings = _json(["ceilings", f"--framework={framework}", "--json"])
    return max(float(each["value"]) for each in ceilings if each["resource"] == "memory")


def _json(words: list[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarker", *words],
            cwd=folder,
            env={**os.environ, "BENCHMARKER_CEILINGS": folder, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            check=True,
        )
    records: list[dict[str, Any]] = json.loads(done.stdout)
    return records


if __name__ == "__main__":
    main()
