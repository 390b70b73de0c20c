"""Looking at a verdict while more blocks come in, without being wrong the oftener for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.stats.verdict import judge

if TYPE_CHECKING:
    from benchmarker.stats.shift import Shift
    from benchmarker.stats.verdict import Outcome

LOOKS = (8, 11, 15, 20, 30)
"""Blocks after which the verdict is looked at: with eight, a p-value of 0.01 can be reached at all."""
GROWTH = 1.4
"""Looks beyond the last of these, where more blocks are allowed: each this much later."""
SHARE = 5
"""Each look has this part of alpha. Five looks then call equal things different in less than 3% of cases where alpha is
5% (simulated: benchmarks/calibration); with all of alpha at each look it would be 10 to 19%."""


def looks(most: int) -> list[int]:
    """Numbers of blocks at which to look, the last being `most`."""
    found = [look for look in LOOKS if look < most]
    while (following := round((found or [most])[-1] * GROWTH)) < most and found[-1] >= LOOKS[-1]:
        found.append(following)
    return [*found, most]


def look(shift: Shift, margin: float, alpha: float) -> Outcome:
    """The verdict at one look."""
    share = alpha / SHARE
    return judge(shift.estimate, shift.p_different, shift.p_within(margin), share)
