"""Decide when a run of two configurations may stop: the verdict is reached, or the ratio is precise enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarker.comparing import matching
from benchmarker.comparing.formatting import ratio
from benchmarker.comparing.judge import compare
from benchmarker.comparing.results import Comparison, Rules
from benchmarker.formatting import count, duration_text

if TYPE_CHECKING:
    from benchmarker.hooks.metrics import Derive
    from benchmarker.records.record import Record


class Referee:
    """Decides after each round whether the run ends, and records why in `ended`."""

    def __init__(
        self,
        rules: Rules,
        derive: Derive,
        looks: Sequence[int],
        target: float | None,
        budget_s: float | None,
        say: Callable[[str], None],
    ) -> None:
        self.rules, self.derive, self.looks = rules, derive, looks
        self.target, self.budget_s, self.say = target, budget_s, say
        self.ended = (
            f"ended after {_rounds(looks[-1])}, the maximum; for more, start a new run with a larger --max-rounds"
        )

    def __call__(self, records: Sequence[Record]) -> bool:
        """Return whether the run ends."""
        rounds = len({record.trial for record in records})
        walls = [record.harness.wall_s / (2 if record.design.partner else 1) for record in records]
        if rounds == 2 and any(all(r.error for r in records if r.design.case_number == side) for side in (0, 1)):
            self.ended = f"ended after {_rounds(2)} because every trial of one side failed"
            return True
        if rounds in self.looks:
            (comparison,) = compare(matching.within(records).matches, self.rules, self.derive).comparisons
            self.say(f"after {count(rounds, 'round')}: B/A {ratio(comparison)} {comparison.verdict}")
            if self._settled(comparison):
                self.ended = f"ended after {_rounds(rounds)}, {duration_text(sum(walls))}"
                return True
        if self.budget_s is not None and sum(walls) * (rounds + 1) / rounds > self.budget_s:
            self.ended = f"ended after {_rounds(rounds)} because another would exceed --budget"
            return True
        return False

    def _settled(self, comparison: Comparison) -> bool:
        if self.target is None:
            return comparison.verdict != "undecided"
        low, high = comparison.low, comparison.high
        return low is not None and high is not None and (high / low) ** 0.5 - 1 <= self.target


def _rounds(number: int) -> str:
    """Return a number of rounds, and what a round is, so that notes on trials can be related to it."""
    return f"{count(number, 'round')} of 2 trials (one of A, one of B)"
