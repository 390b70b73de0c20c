"""Measure what an archive costs beside a folder of JSON: seconds, memory and size, by the number of records."""

from __future__ import annotations

import copy
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from many_records import real_record  # noqa: E402

RUN = 100
"""Trials of a run: of each of its cases one in a round."""
AT_ONCE = 100_000
"""Most records that are written before they are added; a folder of more is not kept, and not measured."""
DAYS = 5 * 365
FIRST = datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)
OF_A_CASE = "problem = 'gemm' AND (factors ->> 'seed') = '7'"
QUESTIONS = {
    "show one case": ["show", "{}", "--where=seed=7"],
    "compare two versions of one case": ["compare", "{}", "--where=seed=7", "--by=numpy"],
    "SQL: newest 20 of one case": [
        *("query", "{}"),
        f"SELECT trial_id, step_time_median_s FROM trials WHERE {OF_A_CASE} ORDER BY started_s DESC LIMIT 20",
    ],
    "SQL: median of one case by month": [
        *("query", "{}"),
        "SELECT strftime(make_timestamp(started_s * 1000000), '%Y-%m') AS month, median(step_time_median_s) "
        f"FROM trials WHERE {OF_A_CASE} GROUP BY ALL",
    ],
    "SQL: median of every case by month": [
        *("query", "{}"),
        "SELECT case_id, strftime(make_timestamp(started_s * 1000000), '%Y-%m') AS month, median(step_time_median_s) "
        "FROM trials GROUP BY ALL",
    ],
    "SQL: number and sum of all blocks": ["query", "{}", "SELECT count(*), sum(duration_ns) FROM blocks"],
}


@click.command()
@click.option("--records", default="10000,100000", show_default=True, help="Numbers of records, multiples of 100.")
@click.option("--blocks", default=30, show_default=True, help="Timed blocks of each.")
@click.option("--cases", default=1000, show_default=True, help="Number of cases, of which each has 100 trials or more.")
@click.option("--folder/--no-folder", default=True, show_default=True, help="Measure the folder of JSON too.")
def main(records: str, blocks: int, cases: int, folder: bool) -> None:
    """Print the time, from outside, and the peak memory of each question to an archive and to the folder of JSON."""
    print(f"{'question':36} {'records':>9} {'archive':>9} {'memory':>10} {'folder':>9} {'memory':>10}")
    for number in map(int, records.split(",")):
        with tempfile.TemporaryDirectory() as name:
            of_folder = folder and number <= AT_ONCE
            measure(Path(name), number, blocks, min(cases, number // RUN), of_folder=of_folder)


def measure(folder: Path, number: int, blocks: int, cases: int, *, of_folder: bool) -> None:
    """Make an archive of so many records, and ask it and the folder that it was made from every question."""
    seconds, most_bytes, json_bytes = 0.0, 0, 0
    for start in range(0, number, AT_ONCE):
        write(folder / "results", range(start, min(number, start + AT_ONCE)), blocks, cases)
        json_bytes += size(folder / "results")
        took_s, peak_bytes = cost(["archive", "add", "results", "--to=archive"], folder)
        seconds, most_bytes = seconds + took_s, max(most_bytes, peak_bytes)
        if not of_folder:
            shutil.rmtree(folder / "results")
    tell("archive add", number, (seconds, most_bytes))
    for question, words in QUESTIONS.items():
        answers = [cost([word.format(each) if word == "{}" else word for word in words], folder)
                   for each in ("archive", "results")[: 1 + of_folder]]  # fmt: skip
        tell(question, number, *answers)
    files = sum(1 for _ in (folder / "archive").rglob("*.parquet"))
    print(f"{'size':36} {number:9} {size(folder / 'archive') / 2**20:5.0f} MiB in {files} files; "
          f"JSON: {json_bytes / 2**20:.0f} MiB", flush=True)  # fmt: skip


def tell(question: str, number: int, *costs: tuple[float, int]) -> None:
    """Print a line of the table."""
    cells = "".join(f"{seconds:7.2f} s {peak_bytes / 2**20:6.0f} MiB" for seconds, peak_bytes in costs)
    print(f"{question:36} {number:9}{cells}", flush=True)


def write(folder: Path, numbers: range, blocks: int, cases: int) -> None:
    """Write records derived from one real NumPy record, in runs spread over five years, nodes and two versions."""
    record = real_record()
    for number, changed in zip(numbers, derived(record, numbers, blocks, cases), strict=True):
        path = folder / changed["run_id"] / f"{changed['trial_id']}.json"
        if number % RUN == 0:
            path.parent.mkdir(parents=True)
        path.write_text(json.dumps(changed, indent=1))


def derived(record: dict, numbers: range, blocks: int, cases: int) -> Iterator[dict]:
    """Yield the record of each number: a run has ten cases, and ten trials of each."""
    for number in numbers:
        run, of_run = divmod(number, RUN)
        rng = random.Random(number)
        began = FIRST + datetime.timedelta(days=run * 7919 % DAYS, minutes=of_run)
        made = copy.deepcopy(record)
        made["run_id"] = f"{FIRST + datetime.timedelta(days=run * 7919 % DAYS):%Y%m%dT%H%M%S.%f}-{run:08x}"
        made["trial_id"] = f"{began:%Y%m%dT%H%M%S.%f}-{number:08x}"
        made["started_at"] = f"{began:%Y-%m-%dT%H:%M:%SZ}"
        made["trial"], made["design"]["case_number"] = divmod(of_run, 10)
        made["case"]["seed"] = (run * 10 + of_run % 10) % cases
        made["machine"]["host"] = f"n{run % 20:02}"
        made["software"]["libraries"]["numpy"] = f"2.{run // (cases // 10) % 2}.0"
        level = 1e7 * rng.lognormvariate(0, 0.05)
        made["blocks"]["duration_ns"] = [round(level * rng.lognormvariate(0, 0.02)) for _ in range(blocks)]
        yield made


def size(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def cost(words: list[str], folder: Path) -> tuple[float, int]:
    """Return the time that a command takes, s, and its peak memory, bytes."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarker", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise click.ClickException(f"{' '.join(words)}: {said}")
    return time.monotonic() - began, used.ru_maxrss * 1024


if __name__ == "__main__":
    main()
