"""The search for the commit since which a case is slower or faster, by comparisons that may err or decide nothing.

Commit 0 is good, the last one is bad, and each one between is like one of them. The first comparison, of good and bad,
gives a threshold: half of their log ratio, or the nearer end of its interval if that is less. A commit is like good if
the interval of its log ratio to good is on one side of the threshold, and like bad if it is on the other side.

The error rate: an interval of level 1 - α/K misses the true ratio on a given side with a probability of at most α/2K.
If none of the intervals does so, the threshold, which is not beyond the nearer end, is between 0 and the true
difference, so every commit is placed rightly. At most 2K comparisons are made, so a wrong commit is named with a
probability of at most α (Boole's inequality, which needs no independence). K is the number of comparisons if all
decide: good and bad, the halvings, and the named commit and its parent.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from benchmarker.comparing.results import Comparison

Place = Literal["good", "bad", "undecided"]


def planned(commits: int) -> int:
    """Return K, the number of comparisons to find one of so many commits after good if each decides."""
    return 2 + math.ceil(math.log2(commits))


def most(commits: int) -> int:
    """Return how many comparisons are made at most."""
    return 2 * planned(commits)


def _interval(comparison: Comparison) -> tuple[float, float] | None:
    """Return the interval of the log ratio; None if there is none."""
    if comparison.low is None or comparison.high is None or comparison.low <= 0:
        return None
    return math.log(comparison.low), math.log(comparison.high)


def threshold(comparison: Comparison) -> float | None:
    """Return half of the log ratio of bad to good, or the nearer end of its interval; None if this contains 0."""
    interval = _interval(comparison)
    if interval is None or interval[0] <= 0 <= interval[1]:
        return None
    return min(math.log(comparison.ratio or 1) / 2, *interval, key=abs)


def is_clear(comparison: Comparison) -> bool:
    """Whether good and bad are the same, or differ and the interval is narrow enough to search by.

    That is if its nearer end is at least half of the estimate, which then is the threshold: nearer to 0, it would take
    more trials to place a commit that is like good.
    """
    if comparison.verdict in ("same", "undecided"):
        return comparison.verdict == "same"
    nearer = threshold(comparison)
    return nearer is not None and 2 * nearer == math.log(comparison.ratio or 1)


def place(comparison: Comparison, limit: float) -> Place:
    """Return which of good and bad a commit is like, by its comparison with good and the threshold."""
    interval = _interval(comparison)
    if interval is None:
        return "undecided"
    low, high = interval if limit > 0 else (-interval[1], -interval[0])
    if high < abs(limit):
        return "good"
    return "bad" if low > abs(limit) else "undecided"


@dataclass
class Search:
    """Where the first bad commit may be: after the one of number `good` and up to `bad`; and what was skipped."""

    good: int
    bad: int
    skipped: set[int] = field(default_factory=set)

    def next(self) -> int | None:
        """Return the commit to ask for next, the one nearest to the middle; None if none is left."""
        left = [number for number in range(self.good + 1, self.bad) if number not in self.skipped]
        return min(left, key=lambda number: abs(2 * number - self.good - self.bad), default=None)

    def tell(self, number: int, where: Place) -> None:
        """Take the answer for a commit; one that is undecided is skipped."""
        if where == "good":
            self.good = number
        elif where == "bad":
            self.bad = number
        else:
            self.skipped.add(number)

    @property
    def suspects(self) -> range:
        """The commits of which one is the first bad one."""
        return range(self.good + 1, self.bad + 1)
