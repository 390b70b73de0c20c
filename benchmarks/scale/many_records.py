"""Measure what many records cost each command that reads them: processor time, records per second, memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import click

TRIALS = 10
"""Trials of each configuration of a result."""
COMMANDS = {
    "show": ["show", "."],
    "show --json": ["show", ".", "--json"],
    "compare OLD NEW": ["compare", "old", "new"],
    "compare --by": ["compare", ".", "--by=framework"],
    "suite score OLD NEW": ["suite", "score", "old", "new"],
    "report OLD NEW": ["report", "old", "new", "-o", "page.html"],
}


@click.command()
@click.option("--records", default="2000,20000", show_default=True, help="Numbers of records, multiples of 40.")
@click.option("--blocks", default=100, show_default=True, help="Timed blocks of each.")
def main(records: str, blocks: int) -> None:
    """Print the processor time, the records per second of it, and the peak memory of each command and number."""
    print(f"{'command':20} {'records':>8} {'time':>8} {'records/s':>10} {'memory':>10}")
    for number in map(int, records.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), number, blocks)
            for name, words in COMMANDS.items():
                seconds, peak_bytes = cost(words, Path(folder))
                rate, memory = number / seconds, peak_bytes / 2**20
                print(f"{name:20} {number:8} {seconds:6.1f} s {rate:10.0f} {memory:6.0f} MiB", flush=True)


def write(folder: Path, number: int, blocks: int) -> None:
    """Write two results, `old` and `new`, derived from one real NumPy record.

    Each has runs of TRIALS rounds of two frameworks, of as many seeds as make up the number of records.
    """
    record = real_record()
    rng = random.Random(0)
    for index in range(number):
        seed, rest = divmod(index, 4 * TRIALS)
        result, rest = divmod(rest, 2 * TRIALS)
        record["trial"], side = divmod(rest, 2)
        record["run_id"] = f"run-{result}-{seed:06}"
        record["trial_id"] = f"{index:08}"
        record["case"]["seed"] = seed
        record["case"]["framework"] = ("one", "two")[side]
        record["design"]["case_number"] = side
        level = 1e7 * (1 + 0.05 * side) * rng.lognormvariate(0, 0.05)
        record["blocks"]["duration_ns"] = [round(level * rng.lognormvariate(0, 0.02)) for _ in range(blocks)]
        path = folder / ("old", "new")[result] / record["run_id"] / f"{record['trial_id']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1))


def real_record() -> dict:
    """Return the record of one short trial, as plain values."""
    words = ["run", "--framework=numpy", "--problem=gemm", "--m=32", "--n=32", "--k=32", "--blocks=1", "--json"]
    with tempfile.TemporaryDirectory() as results:
        command = [sys.executable, "-m", "benchmarker", *words, f"--results={results}"]
        (record,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    del record["metrics"]
    return record


def cost(words: list[str], folder: Path) -> tuple[float, int]:
    """Return the processor time, s, and the peak memory, bytes, of a command; other processes disturb neither."""
    command = [sys.executable, "-m", "benchmarker", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise click.ClickException(f"{' '.join(words)}: {said}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


if __name__ == "__main__":
    main()
