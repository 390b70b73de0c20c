"""Rules that look at a series after each new point: those of `history`, a threshold, and Apache Otava's.

Each takes series of logarithms, [series, point], and returns for each series the number of points at its first alarm,
and the place that it names; 0 and 0 without an alarm.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

LEAST = 8
"""Points at the first look, as in `history`; a Python with Otava need not have Benchmarker."""
Found = tuple[np.ndarray, np.ndarray]


def of_history(series: np.ndarray, variances: np.ndarray) -> Found:
    """Return the first alarms of `history`; `variances` are those of the points between trials."""
    from benchmarker.stats.changes import ALARM, splits_of

    alarm, place = (np.zeros(len(series), int) for _ in range(2))
    for points in range(LEAST, series.shape[1] + 1):
        splits = splits_of(series[:, :points], variances[:points])
        p_values = splits.p_value
        new = (p_values.min(axis=1) <= ALARM) & (alarm == 0)
        alarm[new] = points
        place[new] = (p_values.argmin(axis=1) + splits.first)[new]
    return alarm, place


def of_threshold(series: np.ndarray, share: float = 0.05, window: int = 10) -> Found:
    """Return the first points that are more than a share from the median of the points before, at most `window`."""
    alarm = np.zeros(len(series), int)
    for points in range(LEAST, series.shape[1] + 1):
        before = np.median(series[:, max(0, points - 1 - window) : points - 1], axis=1)
        new = (np.abs(series[:, points - 1] - before) > np.log1p(share)) & (alarm == 0)
        alarm[new] = points
    return alarm, np.maximum(alarm - 1, 0)


def of_otava(series: np.ndarray, python: Path) -> Found:
    """Return the first alarms of Apache Otava's defaults, run by a Python that has it."""
    asked = json.dumps(np.exp(series).tolist())
    ran = subprocess.run([python, __file__], input=asked, capture_output=True, text=True, check=True)
    alarm, place = np.array(json.loads(ran.stdout)).T
    return alarm, place


def _otava(series: list[list[float]]) -> list[tuple[int, int]]:
    from otava.analysis import compute_change_points

    found = []
    for values in series:
        first = (0, 0)
        for points in range(LEAST, len(values) + 1):
            changes, _ = compute_change_points(values[:points])
            if changes:
                first = points, int(changes[-1].index)
                break
        found.append(first)
    return found


if __name__ == "__main__":
    print(json.dumps(_otava(json.load(sys.stdin))))
