"""What a load says: latencies of requests by their definitions, percentiles, and how many meet an SLO.

TTFT        planned arrival to first token
ITL         gap between successive tokens of a request (between chunks, if the server sends several tokens in one)
TPOT        (last token - first token) / (tokens - 1) of a request
end to end  planned arrival to last token
goodput     requests per second that meet the whole SLO

A request that failed counts as slower than all others, so a server gains nothing by refusing.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarker.records.load import Load, RequestOutcome, Slo, Step
from benchmarker.stats.quantile_interval import Estimate, binomial_interval, quantile, share

PERCENTILES = (50, 90, 95, 99)
LATENCIES = ("ttft_s", "itl_s", "tpot_s", "e2e_s")


def ttft_s(outcome: RequestOutcome) -> float:
    """Return the time from the planned arrival to the first token, in s; infinite for a failure."""
    return math.inf if outcome.failure else outcome.chunks_s[0] - outcome.arrival_s


def e2e_s(outcome: RequestOutcome) -> float:
    """Return the time from the planned arrival to the last token, in s; infinite for a failure."""
    return math.inf if outcome.failure else outcome.chunks_s[-1] - outcome.arrival_s


def tokens(outcome: RequestOutcome) -> int:
    """Return the tokens of an answer as the server counted them, else its chunks with text."""
    return len(outcome.chunks_s) if outcome.answer_tokens is None else outcome.answer_tokens


def tpot_s(outcome: RequestOutcome) -> float | None:
    """Return the mean time of a token after the first, in s; None for an answer of one, infinite for a failure."""
    if outcome.failure:
        return math.inf
    gaps = tokens(outcome) - 1
    return (outcome.chunks_s[-1] - outcome.chunks_s[0]) / gaps if gaps > 0 else None


def meets(outcome: RequestOutcome, slo: Slo) -> bool:
    """Return whether a request meets all of an SLO; an answer of one token has no TPOT to exceed."""
    pairs = ((slo.ttft_s, ttft_s(outcome)), (slo.tpot_s, tpot_s(outcome)), (slo.e2e_s, e2e_s(outcome)))
    return not outcome.failure and all(limit is None or value is None or value <= limit for limit, value in pairs)


def is_overload(timed_out: int, planned: int, share: float) -> bool:
    """Return whether less than `share` of the requests are answered for certain, even if no other times out.

    Certain means that the 95% interval of the share is wholly below it.
    """
    return binomial_interval(planned - timed_out, planned)[1] < share


@dataclass(frozen=True, eq=False)
class Figures:
    """The figures of a step under an SLO, if there is one, which a `share` of the requests is to meet."""

    step: Step
    slo: Slo | None
    share: float = 0.9

    @cached_property
    def outcomes(self) -> Sequence[RequestOutcome]:
        """The outcomes in order of arrival."""
        return sorted(self.step.outcomes, key=lambda outcome: outcome.arrival_s)

    @cached_property
    def answered(self) -> int:
        """The number of whole answers."""
        return sum(not outcome.failure for outcome in self.outcomes)

    @cached_property
    def failures(self) -> Mapping[str, int]:
        """The number of failures of each kind, most first."""
        return dict(Counter(outcome.failure.kind for outcome in self.outcomes if outcome.failure).most_common())

    @property
    def is_whole(self) -> bool:
        """Whether the step was not interrupted: all outcomes are known, or enough to end it as overloaded."""
        return len(self.outcomes) == self.step.planned or self.is_overloaded

    @property
    def timed_out(self) -> int:
        """The number of requests that timed out."""
        return self.failures.get("timeout", 0)

    @property
    def is_overloaded(self) -> bool:
        """Whether so many requests timed out that the server did not keep up."""
        return is_overload(self.timed_out, self.step.planned, self.share)

    @property
    def reached(self) -> bool:
        """Whether any request reached the server."""
        return set(self.failures) != {"refused"} or self.answered > 0

    @cached_property
    def met(self) -> Estimate | None:
        """The share of requests that meet the SLO; None without an SLO or a request."""
        if self.slo is None or not self.outcomes:
            return None
        return share(np.array([meets(outcome, self.slo) for outcome in self.outcomes]), self.values("ttft_s"))

    @cached_property
    def goodput_per_s(self) -> float | None:
        """The requests that meet the SLO for each second in which requests arrived; None if that is no time."""
        if self.met is None or self.step.seconds == 0:
            return None
        return self.met.value * len(self.outcomes) / self.step.seconds

    @cached_property
    def tokens_per_s(self) -> float | None:
        """The tokens that arrived while requests did, for each second; None if that is no time."""
        if self.step.seconds == 0:
            return None
        arrived = (
            tokens(outcome) * sum(time <= self.step.seconds for time in outcome.chunks_s) / len(outcome.chunks_s)
            for outcome in self.outcomes
            if outcome.chunks_s and not outcome.failure
        )
        return sum(arrived) / self.step.seconds

    @cached_property
    def lateness_s(self) -> np.ndarray:
        """The times from planned arrival to sending, in s: the client's own delay."""
        return np.array([outcome.sent_s - outcome.arrival_s for outcome in self.outcomes])

    def values(self, latency: str) -> np.ndarray:
        """Return the values of a latency (one of LATENCIES), in order of arrival; ITL has one for each gap."""
        if latency == "itl_s":
            gaps = [np.diff(outcome.chunks_s) for outcome in self.outcomes if not outcome.failure]
            return np.concatenate(gaps) if gaps else np.zeros(0)
        of = {"ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": e2e_s}[latency]
        return np.array([value for outcome in self.outcomes if (value := of(outcome)) is not None])

    @cached_property
    def percentiles(self) -> Mapping[str, Mapping[int, Estimate]]:
        """The percentiles of each latency that has values, by LATENCIES and PERCENTILES, in s."""
        return {
            name: {percent: quantile(values, percent / 100) for percent in PERCENTILES}
            for name in LATENCIES
            if len(values := self.values(name))
        }


def figures_of(load: Load) -> list[Figures]:
    """Return the figures of the steps of a load, in ascending order of their rates."""
    every = (Figures(step, load.slo, load.share) for step in load.steps)
    return sorted(every, key=lambda figures: figures.step.rate_per_s or 0.0)
