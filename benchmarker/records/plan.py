"""The plan of a run: its cases, and the order of their trials."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.api.fields import Count, Positive
from benchmarker.formatting import count
from benchmarker.records.record import DesignKind
from benchmarker.records.suite import PlannedSuite, TrialSuite

MOST_TRIALS = 100_000
"""A run of more trials is refused as a mistake: at a second each, it takes more than a day."""
PlannedTrial = tuple[int, int]
"""A trial of a plan: (case index, round)."""


class Plan(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The plan of a run: its cases, and the trials in the order in which they run.

    A round is one trial of every case, in random order. In a duet the two trials of a round share one process.
    """

    run_id: str = ""  #: the run: the name of its folder
    cases: list[Case]  #: the cases, each as in a record
    trials: Positive  #: the number of trials of each case
    design: DesignKind = "rounds"  #: `rounds`: one process per trial; `duet`: two cases take turns in one process
    looks: list[int] = []  #: the numbers of rounds after which the run may end early
    left_out: list[str] = []  #: what was requested but cannot be run, and why
    seed: Count  #: the seed of the random order
    order: list[
        PlannedTrial
    ]  #: the trials in execution order, each as the index of its case and the number of its round
    sessions: Positive = 1  #: the number of sessions over which the rounds are spread (`--runs`)
    pause_s: Annotated[float, Meta(ge=0)] = 0.0  #: the shortest pause between two sessions
    #: the suite or the plan file that the plan was made from, with the settings of all its cases, also of those that
    #: are left out; `case_numbers` are the cases of the plan that each became
    suite: PlannedSuite | None = None

    def __post_init__(self) -> None:
        """Check that every trial of every case is in the order once, as the suite requests; raises ValueError."""
        if self.sessions > self.trials:
            raise ValueError(f"{count(self.trials, 'round')} cannot be spread over {self.sessions} sessions")
        if len(self.order) != len(self.cases) * self.trials or set(self.order) != {
            (index, trial) for index in range(len(self.cases)) for trial in range(self.trials)
        }:
            raise ValueError(
                f"the order is not that of {count(self.trials, 'trial')} of {count(len(self.cases), 'case')}"
            )
        if self.suite and (self.suite.trials, self.suite.design) != (self.trials, self.design):
            raise ValueError("the trials or the design are not those of the suite")

    def suite_of(self, case_number: int) -> TrialSuite | None:
        """Return what the record of a trial of a case says about its suite."""
        return self.suite.of(case_number) if self.suite else None

    def same_as(self, other: Plan) -> bool:
        """Whether both plans request the same, in any order of the trials."""
        names = ("cases", "trials", "design", "looks", "sessions", "pause_s")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def session_of(self, number: int) -> int:
        """Return the session of a round; sessions have as many rounds each, or the first ones have one more."""
        return number * self.sessions // self.trials

    def rounds_of_sessions(self) -> list[int]:
        """Return the number of rounds of each session."""
        return list(Counter(map(self.session_of, range(self.trials))).values())

    def pauses_s(self, ran: int) -> float:
        """Return the pauses that are left, s, after the first `ran` trials of the order."""
        return self.pause_s * max(0, self.sessions - 1 - self.session_of(ran // len(self.cases)))

    def processes(self) -> list[list[PlannedTrial]]:
        """Return the trials of each process, in order."""
        size = len(self.cases) if self.design == "duet" else 1
        return [self.order[start : start + size] for start in range(0, len(self.order), size)]


def make_plan(
    cases: list[Case],
    trials: int,
    *,
    design: DesignKind = "rounds",
    looks: Sequence[int] = (),
    left_out: Sequence[str] = (),
    seed: int | None = None,
    suite: PlannedSuite | None = None,
) -> Plan:
    """Plan rounds, each with one trial of every case in a new random order, from `seed` or a random seed.

    Raises `UserError` if there are more than MOST_TRIALS.
    """
    refuse_too_many(len(cases), trials)
    seed = secrets.randbits(32) if seed is None else seed
    rng = random.Random(seed)  # noqa: S311 - an order, not a secret
    order = [(index, trial) for trial in range(trials) for index in rng.sample(range(len(cases)), len(cases))]
    return Plan(
        cases=cases,
        trials=trials,
        design=design,
        looks=list(looks),
        left_out=list(left_out),
        seed=seed,
        order=order,
        suite=suite,
    )


def refuse_too_many(cases: int, trials: int) -> None:
    """Raise `UserError` if so many trials of each case are more than MOST_TRIALS."""
    if cases * trials > MOST_TRIALS:
        raise UserError(
            f"{count(cases, 'case')} with {count(trials, 'trial')} each: a run has at most {MOST_TRIALS:,} trials"
        )


def read(content: bytes) -> Plan:
    """Decode the plan in a file's content; raises msgspec.DecodeError."""
    return msgspec.json.decode(content, type=Plan)
