"""Measure the cost of reading and comparing many records: seconds and memory, and how both grow."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click


@click.command()
@click.option("--records", default="1000,10000", show_default=True, help="Numbers of records.")
@click.option("--blocks", default=100, show_default=True, help="Timed blocks of each.")
@click.option("--measure", hidden=True, type=click.Path(path_type=Path))
def main(records: str, blocks: int, measure: Path | None) -> None:
    """Print seconds and memory for loading and comparing, each size in a fresh process."""
    if measure:
        print(json.dumps(cost(measure)))
        return
    print(f"{'records':>8} {'read':>8} {'compare':>8} {'frame':>8} {'memory':>10} {'comparisons':>12}")
    for number in map(int, records.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), number, blocks)
            done = subprocess.run(
                [sys.executable, __file__, "--measure", folder], capture_output=True, text=True, check=True
            )
        found = json.loads(done.stdout)
        print(
            f"{number:8} {found['read_s']:6.2f} s {found['compare_s']:6.2f} s {found['frame_s']:6.2f} s "
            f"{found['memory_MiB']:6.0f} MiB {found['comparisons']:12}",
            flush=True,
        )


def write(folder: Path, number: int, blocks: int) -> None:
    """Write runs of 10 rounds of two frameworks with many seeds, derived from one real NumPy record."""
    words = ["run", "--framework=numpy", "--problem=gemm", "--m=32", "--n=32", "--k=32", "--blocks=1", "--json"]
    with tempfile.TemporaryDirectory() as results:
        command = [sys.executable, "-m", "benchmarker", *words, f"--results={results}"]
        (record,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    del record["metrics"]
    rng = random.Random(0)
    for index in range(number):
        case, trial = divmod(index, 20)
        record["trial"], side = divmod(trial, 2)
        record["run_id"] = f"run-{case:06}"
        record["trial_id"] = f"{index:08}"
        record["case"]["seed"] = case
        record["case"]["framework"] = ("one", "two")[side]
        record["design"]["case_number"] = side
        level = 1e7 * (1 + 0.05 * side) * rng.lognormvariate(0, 0.05)
        record["blocks"]["duration_ns"] = [round(level * rng.lognormvariate(0, 0.02)) for _ in range(blocks)]
        path = folder / record["run_id"] / f"{record['trial_id']}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1))


def cost(folder: Path) -> dict[str, float]:
    """Return seconds and peak memory for reading and comparing the records of a folder and loading them as a frame."""
    from benchmarker import load
    from benchmarker.comparing import matching
    from benchmarker.comparing.judge import compare
    from benchmarker.comparing.results import Rules
    from benchmarker.hooks.metrics import load_metrics
    from benchmarker.records import store

    start = time.perf_counter()
    records, faults = store.read([folder])
    assert not faults, faults[0]
    read = time.perf_counter()
    family = compare(matching.by(records, "framework", "one").matches, Rules(), load_metrics())
    compared = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    load(folder)
    return {
        "read_s": read - start,
        "compare_s": compared - read,
        "frame_s": time.perf_counter() - compared,
        "memory_MiB": peak,
        "comparisons": len(family.comparisons),
    }


if __name__ == "__main__":
    main()
