"""Progress of `ab`: a line for each round, in which one sees the interval of the ratio close in."""

import math
from collections.abc import Sequence

from benchmarker.cli.display.progress import Progress
from benchmarker.comparing.formatting import figure
from benchmarker.comparing.judge import round_text
from benchmarker.comparing.results import Comparison
from benchmarker.display.drawings import interval
from benchmarker.library.progress import outcome
from benchmarker.records.record import Record

WIDTH = 80
"""Columns of a line in a pipe."""
FIGURES = 41
"""Columns of the figures before an interval, which stand below each other."""
VERDICT = len(" undecided")
LEAST = 21
"""Fewest columns of an interval beside all figures; on a narrower terminal only the round and the ratio stand there."""
MARGIN = 1.5
"""A scale is so many times as wide as the first interval on it, so that the next ones fit too."""
ZOOM = 4.0
"""There is a new scale when that which is needed is so many times narrower."""


class Rounds(Progress):
    """Shows the trials of so many pairs of cases as they run, and how the ratio stands after each round.

    `same` is the δ of the verdict `same`. On a terminal, successful trials of a single pair leave no lines of their
    own, unless --verbose asks for them.
    """

    def __init__(self, pairs: int, same: float) -> None:
        super().__init__()
        self._pairs, self._same = pairs, same
        self._half = 0.0

    def after_round(self, rounds: int, comparisons: Sequence[Comparison], is_look: bool) -> None:
        """Print how things stand: of one pair after each round, of several when the run may end."""
        if self._quiet or not (self._pairs == 1 or is_look):
            return
        only = comparisons[0]
        if self._pairs > 1 or only.ratio is None:
            self.say(round_text(rounds, comparisons, is_look=is_look))
            return
        ends = None if only.low is None or only.high is None else (only.low, only.high)
        if wider := self._scale_for(only.ratio, *(ends or ())):
            self.say(wider)
        total = min(self._console.width, WIDTH) if self._live else WIDTH
        figures = round_text(rounds, comparisons, is_look=False).ljust(FIGURES)
        if total - len(figures) - 1 - VERDICT < LEAST:
            figures = f"{rounds:>3}: {figure(only.ratio)}"
        columns = total - len(figures) - 1 - VERDICT
        columns -= columns % 2 == 0  # 1 is in the middle
        drawn = interval(only.ratio, ends, self._same, self._half, columns, self._marks)
        self.say(f"{figures} {drawn}{f' {only.verdict}' if is_look else ''}".rstrip())

    def end(self, records: Sequence[Record]) -> None:
        """See `Progress`."""
        if self._live and self._pairs == 1 and not self._verbose and not outcome(records)[1]:
            self._rest()
        else:
            super().end(records)

    def _scale_for(self, *values: float) -> str:
        """Choose a scale on which the values and the bounds of `same` can be seen; returns it in words if it is new."""
        needed = MARGIN * max(2 * math.log1p(self._same), *(abs(math.log(value)) for value in values))
        if self._half / ZOOM < needed <= MARGIN * self._half:
            return ""
        self._half = needed
        bounds = f"{figure(1 / (1 + self._same))} and {figure(1 + self._same)}"
        return (
            f"scale: {figure(math.exp(-needed))} to {figure(math.exp(needed))}; {self._marks.bound} bounds of `same`, "
            f"{bounds}"
        )
