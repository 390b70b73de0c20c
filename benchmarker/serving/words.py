"""A load in words: what was sent where, and what its figures say."""

import math
from collections import Counter
from collections.abc import Sequence

from benchmarker.formatting import part, si
from benchmarker.records.load import Load, Slo
from benchmarker.serving.latency import Figures, figures_of
from benchmarker.serving.search import Highest, highest
from benchmarker.serving.session import named
from benchmarker.stats.quantile_interval import Estimate

NAMES = {"ttft_s": "TTFT", "itl_s": "ITL", "tpot_s": "TPOT", "e2e_s": "end to end"}
ARRIVALS = {"poisson": "Poisson arrivals", "trace": "arrivals of a trace file"}


def named_load(load: Load) -> str:
    """Return what was asked, and where."""
    if not load.engine:
        return f"{load.model} at {load.endpoint}"
    case = load.engine.case
    return (
        f"{load.model} in {case.framework} {case.execution}, {case.precision}, {load.engine.slots} slots, "
        f"on {load.engine.device.name}"
    )


def described(load: Load) -> str:
    """Return what was sent: to what, how long, how it arrived, and under which SLO."""
    arrivals = ARRIVALS.get(load.arrivals) or f"bursts of {load.burst_size} at Poisson arrivals"
    lengths = f"{load.prompt_len} prompt tokens, {load.new_tokens} new tokens, " if load.prompt_len else ""
    slo = f"; SLO: {_limits(load.slo)}" if load.slo else ""
    return f"{named_load(load)}: {lengths}{arrivals}{slo}"


def _limits(slo: Slo) -> str:
    limits = {NAMES[name]: getattr(slo, name) for name in ("ttft_s", "tpot_s", "e2e_s")}
    return ", ".join(f"{name} ≤ {si(limit, 's')}" for name, limit in limits.items() if limit is not None)


def found_rate(load: Load) -> Highest | None:
    """Return the highest rate that holds the SLO; None if no search was asked for, or no rate has all outcomes."""
    return tried_rate(load) if load.searched else None


def tried_rate(load: Load) -> Highest | None:
    """Return the highest of the rates that were tried that holds the SLO; None if no rate has all outcomes."""
    whole = {step.step.rate_per_s: step.met for step in figures_of(load) if step.is_whole and step.reached}
    shares = {rate: met for rate, met in whole.items() if rate and met}
    return highest(shares, load.share) if shares else None


def answer(found: Highest, load: Load) -> str:
    """Return the answer of a search in a sentence, and how sure it is."""
    objective = f"the SLO for {100 * load.share:.3g}% of requests"
    unsure = "not 95% sure; raise --seconds"
    if found.rate is None:
        lowest = min(step.rate_per_s or 0.0 for step in load.steps)
        does_not = "does not" + (f" ({unsure})" if found.high is None else "")
        return f"no rate holds {objective}: the lowest tried, {named(lowest)}, {does_not}; lower the first of --rate"
    if not found.is_bounded:
        hold = f"{named(found.rate)} hold {objective}" + (f" ({unsure})" if found.low != found.rate else "")
        return f"{hold}, and no higher rate was tried; raise the second of --rate"
    sure = [f"{found.low:.4g} holds"] if found.low is not None else []
    sure += [f"{found.high:.4g} does not"] if found.high is not None else []
    known = f"95% sure that {' and '.join(sure)}" if sure else unsure
    return f"highest rate that holds {objective}: {named(found.rate)} ({known})"


def overload(load: Load) -> str:
    """Return at which rate the server was overloaded, and the highest rate that it kept.

    Empty if it never was, and for a search, which overloads the server on purpose and has an answer of its own.
    """
    figures = figures_of(load)
    at = next((number for number, step in enumerate(figures) if step.is_overloaded), None)
    if at is None or load.searched:
        return ""
    first = figures[at]
    sentence = (
        f"overloaded at {named(first.step.rate_per_s)}: "
        f"{part(first.timed_out, first.step.planned, 'request')} timed out after {si(load.timeout_s, 's')}"
    )
    if first.timed_out + first.answered < first.step.planned:
        sentence += ", then the load was ended"
    kept = f"highest rate kept: {named(figures[at - 1].step.rate_per_s)}" if at else "no lower rate was tried"
    return f"{sentence}; {kept}"


def failed(figures: Sequence[Figures]) -> str:
    """Return how many requests failed, by kind; empty if none did."""
    failures = [outcome.failure for step in figures for outcome in step.outcomes if outcome.failure]
    if not failures:
        return ""
    total = sum(len(of.outcomes) for of in figures)
    kinds = ", ".join(
        f"{number} {kind}" for kind, number in Counter(failure.kind for failure in failures).most_common()
    )
    return f"{part(len(failures), total, 'request')} failed ({kinds}); they count as slower than all others"


def latency(value_s: float) -> str:
    """Return a latency as text; that of a failed request is infinite."""
    return si(value_s, "s", 3) if math.isfinite(value_s) else "failed"


def interval(estimate: Estimate) -> str:
    """Return the interval of a latency; an end that too few requests leave open has no value."""
    if estimate.low is not None and estimate.high is not None:
        return f"{latency(estimate.low)} to {latency(estimate.high)}"
    if estimate.low is not None:
        return f"{latency(estimate.low)} or more" if math.isfinite(estimate.low) else "failed"
    return "-" if estimate.high is None else f"{latency(estimate.high)} or less"
