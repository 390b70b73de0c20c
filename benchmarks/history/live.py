"""Measure series of this machine, without a change and with a true one by real work, and count what each rule says.

A point is the median over trials, each a fresh process that times blocks of one kind of work (`work.py`). From the 21st
point on, a block of a series with a change does that much more work. Every point is appended to a file, and what the
file has is not measured again.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import click
import numpy as np
from rules import of_history, of_otava, of_threshold
from work import KINDS

from benchmarker.stats.changes import levels_of

POINTS, CHANGE = 40, 20
TRIALS, BLOCKS, COUNT = 4, 40, 1000
SHIFTS = (0.0, 0.01, 0.02, 0.05)
SEED = 37
Key = tuple[float, int]
"""A series: its shift, and its number among those with the same."""


def measured(key: Key, point: int) -> list[float]:
    """Return the logarithm of the median block, s, of each trial of a point."""
    shift, number = key
    kind = list(KINDS)[number % len(KINDS)]
    count = round(COUNT * (1 + shift * (point >= CHANGE)))
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("work.py")), kind, str(count), str(BLOCKS)]
    logs = []
    for _ in range(TRIALS):
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        logs.append(float(np.log(median(map(int, ran.stdout.split())) / 1e9)))
    return logs


def read(file: Path) -> dict[Key, dict[int, list[float]]]:
    """Return the points that the file has; a last line that was cut off is measured again."""
    known: dict[Key, dict[int, list[float]]] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            shift, number, point, logs = json.loads(line)
        except ValueError:
            continue
        known.setdefault((shift, number), {})[point] = logs
    return known


@click.command()
@click.option("--file", type=click.Path(path_type=Path), required=True, help="Points, one a line; continued if there.")
@click.option("--unchanged", default=30, show_default=True, help="Series without a change.")
@click.option("--changed", default=12, show_default=True, help="Series with each change: 1, 2 and 5%.")
@click.option("--together", default=6, show_default=True, help="Series that are measured at the same time, in turns.")
@click.option("--points", "most", type=int, help="Measure at most so many points now.")
@click.option("--otava", type=click.Path(path_type=Path), help="A Python that has the package apache-otava.")
def live(file: Path, unchanged: int, changed: int, together: int, most: int | None, otava: Path | None) -> None:
    """Measure series of this machine and count false alarms, misses and delays; about 1 s a point, 2640 points."""
    keys: list[Key] = [(shift, at) for shift in SHIFTS for at in range(changed if shift else unchanged)]
    random.Random(SEED).shuffle(keys)
    known = read(file)
    todo = [
        (key, point)
        for start in range(0, len(keys), together)
        for point in range(POINTS)
        for key in keys[start : start + together]
        if point not in known.get(key, {})
    ][:most]
    begun = time.monotonic()
    with file.open("a") as out:
        if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
            out.write("\n")
        for done, (key, point) in enumerate(todo, 1):
            logs = measured(key, point)
            known.setdefault(key, {})[point] = logs
            out.write(json.dumps([*key, point, logs]) + "\n")
            out.flush()
            if done % 100 == 0:
                left = (time.monotonic() - begun) / done * (len(todo) - done)
                print(f"{done} of {len(todo)} points, {left / 60:.0f} min left", file=sys.stderr, flush=True)
    for shift in SHIFTS:
        told(
            shift, [known[key] for key in sorted(keys) if key[0] == shift and len(known.get(key, {})) == POINTS], otava
        )


def told(shift: float, several: list[dict[int, list[float]]], otava: Path | None) -> None:
    """Print what each rule says of the complete series with a shift."""
    if not several:
        print(f"{shift:.0%}: no complete series")
        return
    levels = [levels_of([series[point] for point in range(POINTS)]) for series in several]
    values = np.array([each.values for each in levels])
    own = [of_history(each.values[None], each.variances) for each in levels]
    rules = {
        "history": (np.concatenate([alarm for alarm, _ in own]), np.concatenate([place for _, place in own])),
        "5% rule": of_threshold(values),
        **({"Otava": of_otava(values, otava)} if otava else {}),
    }
    flat = values - (np.arange(POINTS) >= CHANGE) * np.log1p(shift)
    rest = flat - flat.mean(axis=1, keepdims=True)
    lag = np.sum(rest[:, 1:] * rest[:, :-1], axis=1) / np.sum(rest**2, axis=1)
    print(
        f"{shift:.0%}: {len(several)} series; noise {np.median(rest.std(axis=1)):.2%} between points (median), "
        f"{np.median([each.deviation for each in levels]):.2%} between trials; autocorrelation {np.median(lag):.2f} "
        f"({lag.min():.2f} to {lag.max():.2f})"
    )
    for name, (alarm, _) in rules.items():
        if not shift:
            print(f"  {name}: an alarm in {np.sum(alarm > 0)} of {len(alarm)}")
            continue
        good = alarm > CHANGE
        delay = f", after {np.median(alarm[good]) - CHANGE:.0f} points (median)" if good.any() else ""
        early = np.sum((alarm > 0) & ~good)
        print(f"  {name}: found in {good.sum()} of {len(alarm)}{delay}; an alarm before it in {early}")
