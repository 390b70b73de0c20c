"""Writers of an archive that are killed at any moment, and several at once: nothing is lost, and nothing is doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from unit.records.test_archive import save_run

from benchmarker.hooks import where
from benchmarker.records import archive, store

ADD = """
import sys
from pathlib import Path
from benchmarker.library.archiving import add
print("ready", flush=True)
sys.stdin.readline()
for result in sys.argv[2:]:
    add([Path(result)], Path(sys.argv[1]))
"""
"""Adds each result by itself, when it is told to begin: importing takes longer than adding."""


def writer(to: Path, *results: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", ADD, str(to), *map(str, results)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def end(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")


def there(to: Path) -> Counter[str]:
    """How often each trial is in the archive, as records and as rows."""
    records, faults = store.read([to])
    (_, rows), more = where.query([to], "SELECT trial_id FROM trials")
    assert faults == more == []
    counted = Counter(record.trial_id for record in records)
    assert counted == Counter(trial_id for (trial_id,) in rows)
    return counted


def kill_and_add(tmp_path: Path, kills: int, number: int) -> None:
    """Kill a writer at random moments, look at the archive after each, and let one end at last."""
    rng = random.Random(7)
    results = tmp_path / "results"
    runs = [save_run(results, at, cases=1, trials=2, year=2025 + at % 2) for at in range(number)]
    wanted = Counter(record.trial_id for record in store.read([results])[0])
    whole = writer(tmp_path / "whole", *runs)
    started = time.monotonic()
    begin(whole)
    end(whole)
    takes_s = time.monotonic() - started
    assert there(tmp_path / "whole") == wanted
    to = tmp_path / "archive"
    unfinished = 0
    before: Counter[str] = Counter()
    for _ in range(kills):
        killed = writer(to, *rng.sample(runs, len(runs)))
        begin(killed)
        time.sleep(rng.uniform(0, takes_s / max(1, kills // 4)))
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        if archive.is_archive(to):
            now = there(to)
            assert max(now.values(), default=0) <= 1
            assert before <= now <= wanted
            for run in runs:  # a run appears at once
                assert sum(now[path.stem] for path in run.glob("2*.json")) in (0, 2)
            unfinished += now != wanted
            before = now
    assert unfinished or kills < 10
    last = writer(to, *runs)
    begin(last)
    end(last)
    assert there(to) == wanted
    assert list(to.rglob("*.tmp")) == list(to.rglob(f"*{archive.REPLACES}")) == []


def add_at_once(tmp_path: Path, writers: int, runs_each: int) -> None:
    """Let several writers add at once, each its own runs and those of the next."""
    results, to = tmp_path / "results", tmp_path / "archive"
    runs = [save_run(results, number, cases=1, trials=2) for number in range(writers * runs_each)]
    mine = [runs[number * runs_each : (number + 1) * runs_each] for number in range(writers)]
    started = [writer(to, *mine[number], *mine[(number + 1) % writers]) for number in range(writers)]
    for process in started:
        begin(process)
    for process in started:
        end(process)
    assert there(to) == Counter(record.trial_id for record in store.read([results])[0])
    assert len(list(store.plans_of(to))) == len(runs)


def test_a_few_kills_lose_and_double_nothing(tmp_path):
    kill_and_add(tmp_path, kills=2, number=8)


def test_two_writers_at_once(tmp_path):
    add_at_once(tmp_path, writers=2, runs_each=4)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_kills_lose_and_double_nothing(tmp_path):
    kill_and_add(tmp_path, kills=50, number=40)


@pytest.mark.slow
def test_four_writers_at_once(tmp_path):
    add_at_once(tmp_path, writers=4, runs_each=20)
