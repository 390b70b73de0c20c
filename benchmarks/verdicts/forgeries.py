"""Measure how often a measured run is taken for a forged one, and how often a forged one is found.

    python benchmarks/verdicts/forgeries.py [--minutes=5] [--neighbours=4] [--results=FOLDER]

Trials of several cases in every framework are measured, with and without preheat, while so many neighbours come and go:
processes that compute for 0.2 to 2 s, then sleep as long on average. From these trials, runs of 24 are drawn, of one to
eight cases. Counted are the runs that are doubted, as they were measured and after each forgery: as it is, and with
counters that saw no other work. Copies and contradictions of single trials are counted over all trials. `--minutes=0`
evaluates what is in FOLDER.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import click
import msgspec
from msgspec import structs

from benchmarker.procurement.evidence import of_runs
from benchmarker.records import agreement, store
from benchmarker.records.record import Record

CASES = (
    ("numpy,torch,jax", "gemm", "--m=256", "--n=256", "--k=256"),
    ("numpy,torch,jax", "gemm", "--m=768", "--n=768", "--k=768"),
    ("torch,jax", "attention", "--profile"),
    ("torch,jax", "mlp", "--batch-size=8", "--width=512", "--profile"),
    (
        "numpy,torch,jax",
        "fft",
    ),
)
PREHEATS: tuple[tuple[str, ...], ...] = ((), ("--preheat", "--preheat-max=4"))
TRIALS = 24
DRAWS = 4000


def neighbour(seed: int) -> None:
    """Compute and sleep by turns, forever."""
    rng = random.Random(seed)
    while True:
        end = time.monotonic() + rng.uniform(0.2, 2)
        while time.monotonic() < end:
            pass
        time.sleep(rng.uniform(0.2, 2))


@contextlib.contextmanager
def neighbours(number: int) -> Iterator[None]:
    """Have so many neighbours meanwhile."""
    processes = [multiprocessing.Process(target=neighbour, args=(seed,), daemon=True) for seed in range(number)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def measure(results: Path, minutes: float) -> None:
    """Measure trials of all cases in random order until the time is up."""
    deadline = time.monotonic() + 60 * minutes
    kinds = [(case, preheat) for case in CASES for preheat in PREHEATS]
    while True:
        for (framework, problem, *options), preheat in random.sample(kinds, len(kinds)):
            if time.monotonic() > deadline:
                return
            words = [f"--framework={framework}", f"--problem={problem}", *options, *preheat, f"--results={results}"]
            limits = ["--trials=1", "--blocks=60", "--seconds=1", "--power=none"]
            subprocess.run(
                [sys.executable, "-m", "benchmarker", "run", *words, *limits], check=True, capture_output=True
            )


Blocks = tuple[int, list[int]]
"""Steps of a block, and the durations of all, in ns."""
FORGERIES: dict[str, Callable[[int, list[int]], Blocks]] = {
    "none": lambda steps, times: (steps, times),
    "steps per block x 1.5": lambda steps, times: (math.ceil(1.5 * steps), times),
    "steps per block x 2": lambda steps, times: (2 * steps, times),
    "durations x 0.8": lambda steps, times: (steps, [round(0.8 * time) for time in times]),
    "durations x 0.6": lambda steps, times: (steps, [round(0.6 * time) for time in times]),
}


def forged(record: Record, name: str, *, quiet: bool) -> Record:
    """The record with forged blocks, and if `quiet`, with counters that saw no other work."""
    assert record.blocks
    steps, times = FORGERIES[name](record.blocks.steps_per_block, record.blocks.duration_ns)
    blocks, seen = structs.replace(record.blocks, steps_per_block=steps, duration_ns=times), record.interference
    if quiet and seen:
        seen = structs.replace(seen, other_busy_cores=0.0, pressure_percent=0.0, involuntary_switches=0)
    return structs.replace(record, blocks=blocks, interference=seen)


def draw(cases: list[list[Record]], rng: random.Random) -> list[tuple[int, Record]]:
    """Draw a run: 24 trials of one to eight cases."""
    several = rng.sample(cases, min(len(cases), rng.randint(1, 8)))
    return [(number % len(several), rng.choice(several[number % len(several)])) for number in range(TRIALS)]


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="Time to measure; 0: only evaluate.")
@click.option("--neighbours", "number", default=4, show_default=True, help="Processes that come and go meanwhile.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results/forgeries"), show_default=True)
def main(minutes: float, number: int, results: Path) -> None:
    """Print how many trials and runs are doubted, as they were measured and forged."""
    if minutes:
        with neighbours(number):
            measure(results, minutes)
    records = [record for record in store.read([results])[0] if record.status == "ok"]
    objections = [each for evidence in of_runs(records).values() for each in evidence.objections()]
    print(f"{len(records)} trials, {len(objections)} objections to single ones")
    print(f"\n{'ratio':72} trials  median  above the limit")
    signs: dict[str, list[agreement.Sign]] = defaultdict(list)
    for record in records:
        for sign in agreement.signs(record):
            signs[sign.check].append(sign)
    for check, several in signs.items():
        above = sum(sign.ratio > sign.limit for sign in several)
        print(f"{check:72} {len(several):6} {median(sign.ratio for sign in several):7.2f} {above:16}")

    by_case: dict[bytes, list[Record]] = defaultdict(list)
    for record in records:
        by_case[msgspec.json.encode(record.case)].append(record)
    print(f"\n{DRAWS} runs of {TRIALS} trials of {len(by_case)} cases: doubted")
    print(f"{'forgery':24} as it is  counters without other work")
    for name in FORGERIES:
        shares = [doubted(records, [*by_case.values()], name, quiet=quiet) for quiet in (False, True)]
        print(f"{name:24} {shares[0]:8.2%}  {shares[1]:8.2%}")


def doubted(records: list[Record], cases: list[list[Record]], name: str, *, quiet: bool) -> float:
    """Return the share of the drawn runs that are doubted after a forgery."""
    known = {record.trial_id: agreement.signs(forged(record, name, quiet=quiet)) for record in records}
    rng = random.Random(1)
    runs = [[(case, known[record.trial_id]) for case, record in draw(cases, rng)] for _ in range(DRAWS)]
    return sum(bool(agreement.doubts(run)) for run in runs) / DRAWS


if __name__ == "__main__":
    main()
