"""Find blocks of one trial in another: durations that were measured never repeat to the nanosecond.

Compared are fingerprints of runs of `RUN` consecutive blocks: of the differences from one block to the next, which stay
if a constant is added to all, and of their ratios, which stay if all are multiplied by a constant; and of all blocks
sorted, which stay in any order. A fingerprint counts only if two trials have the same by chance with a probability
below 2^-60, by the interquartile range of the durations and the resolution of the clock.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarker.records.record import Record

RUN = 12
"""Blocks of a run: shorter copies are found only if they are all blocks of a trial."""
BITS = 60
RATIO = 5e-6
"""Ratios are rounded to this share; rounding to whole ns moves those of blocks of 10 ms by a fiftieth of it."""
_WEIGHTS = np.random.Generator(np.random.PCG64(0)).integers(1, 2**63, RUN, dtype=np.uint64) | np.uint64(1)
_NONE = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True)
class _Prints:
    """The fingerprints of one kind: the trial of each, the number of blocks that it covers, and its text."""

    text: str
    values: list[np.ndarray]
    trials: list[np.ndarray]


class Copies:
    """Fingerprints of the blocks of trials, to find those that are not of one trial alone."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._kinds = [
            _Prints("its blocks are those of {}", [], []),
            _Prints("a run of its blocks is also in {}", [], []),
            _Prints("a run of its blocks has the ratios of one in {}", [], []),
        ]

    def add(self, record: Record) -> None:
        """Take the fingerprints of a trial; one that was added before is left out."""
        if record.blocks is None or record.trial_id in self._names:
            return
        number = self._names[record.trial_id] = len(self._names)
        for kind, values in zip(self._kinds, _prints(np.array(record.blocks.duration_ns, np.int64)), strict=True):
            kind.values.append(values)
            kind.trials.append(np.full(len(values), number, np.int32))

    def found(self) -> dict[str, str]:
        """Return which trials have blocks of others, or of their own again, and which, by trial."""
        names, told = list(self._names), dict[int, str]()
        for kind in self._kinds:
            others: dict[int, Counter[int]] = defaultdict(Counter)
            for trials in _shared(kind):
                for trial in set(trials):
                    others[trial].update({*trials} - {trial} or {trial})
            for trial, counts in others.items():
                other = counts.most_common(1)[0][0]
                where = f"the trial {names[other]}" if other != trial else "the same trial once more"
                told.setdefault(trial, kind.text.format(where))
        return {names[trial]: text for trial, text in sorted(told.items())}


def _prints(durations_ns: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the fingerprints of all blocks in any order, of the differences in each run, and of the ratios in it."""
    if len(durations_ns) < 3:  # fewer have no spread
        yield from (_NONE, _NONE, _NONE)
        return
    low, high = np.percentile(durations_ns, [25, 75])
    tick = max(1, int(np.gcd.reduce(np.abs(np.diff(durations_ns)))))
    spread = (high - low) / tick
    bits = len(durations_ns) * math.log2(1 + spread) - math.lgamma(len(durations_ns) + 1) / math.log(2)
    ordered = np.sort(durations_ns).astype(np.uint64)
    places = np.arange(1, len(ordered) + 1, dtype=np.uint64) * _WEIGHTS[0]
    yield np.array([((ordered ^ places) * (ordered + places)).sum()], np.uint64) if bits >= BITS else _NONE
    relative = (high - low) / (RATIO * float(np.median(durations_ns)))
    ratios = np.round(np.diff(np.log(durations_ns)) / RATIO).astype(np.int64)
    for steps, levels in ((np.diff(durations_ns), spread), (ratios, min(spread, relative))):
        is_telling = (RUN - 1) * math.log2(1 + levels) >= BITS
        yield _of_runs(steps.view(np.uint64)) if is_telling and len(steps) >= RUN - 1 else _NONE


def _of_runs(steps: np.ndarray) -> np.ndarray:
    """Return a fingerprint of each run of `RUN - 1` consecutive steps."""
    runs = len(steps) - RUN + 2
    total = np.zeros(runs, np.uint64)
    for place in range(RUN - 1):
        total += steps[place : place + runs] * _WEIGHTS[place]
    return total


def _shared(prints: _Prints) -> Iterator[list[int]]:
    """Yield the trials of each fingerprint that occurs more than once."""
    values, trials = (np.concatenate(parts or [_NONE]) for parts in (prints.values, prints.trials))
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=~values[order[:1]]))
    ends = np.append(starts[1:], len(values))[: len(starts)]
    for start, end in zip(starts[ends - starts > 1], ends[ends - starts > 1], strict=True):
        yield trials[order[start:end]].tolist()
