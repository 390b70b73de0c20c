"""What would make one doubt the figures of a load, in sentences with their remedies."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import numpy as np

from benchmarker.formatting import every, part, si
from benchmarker.records.load import Load, RequestOutcome
from benchmarker.serving.latency import Figures, figures_of, ttft_s

LATE_S = 0.01
"""Lateness of the latest hundredth of the requests above which the client is too slow; its timer has 1 ms."""
RISING = 1.5
"""Ratio of the median TTFT of the last third of the requests to that of the first, above which it was not stable."""
LEAST_FOR_RISING = 30


def doubts(load: Load) -> list[str]:
    """Return the doubts about the steps, and then those about all requests."""
    figures = figures_of(load)
    outcomes = [outcome for step in figures for outcome in step.outcomes]
    return [*_of_steps(figures, load.share), *_of_answers(load, outcomes)]


def _of_steps(figures: Sequence[Figures], target: float) -> Iterator[str]:
    def at(doubted: Sequence[Figures]) -> str:
        if len(figures) == 1:
            return ""
        return f" at {every([f'{one.step.rate_per_s:.4g}' for one in doubted])} requests/s"

    for step in figures:
        if not step.is_whole:
            known = part(len(step.outcomes), step.step.planned, "request")
            yield f"interrupted{at([step])}: only {known} finished, so the slowest are missing"
    late_s = {step: float(np.quantile(step.lateness_s, 0.99)) for step in figures}
    if late := [step for step in figures if late_s[step] > LATE_S]:
        worst_s = max(late_s.values())
        yield (
            f"the client was late{at(late)}: 1% of the requests were sent {si(worst_s, 's', 2)} after their time or "
            "later, which their latency includes; run the client on an idle machine"
        )
    holding = [step for step in figures if not step.is_overloaded and (not step.met or step.met.value >= target)]
    if rising := [step for step in holding if _is_rising(step.outcomes)]:
        yield f"latency was still rising at the end{at(rising)}: the rate may be unsustainable; raise --seconds"


def _is_rising(outcomes: Sequence[RequestOutcome]) -> bool:
    third = len(outcomes) // 3
    if 3 * third < LEAST_FOR_RISING:
        return False
    first, last = (np.median([ttft_s(outcome) for outcome in part]) for part in (outcomes[:third], outcomes[-third:]))
    return bool(last > RISING * first)


def _of_answers(load: Load, outcomes: Sequence[RequestOutcome]) -> Iterator[str]:
    answers = [outcome for outcome in outcomes if not outcome.failure]
    counted = [(outcome, outcome.answer_tokens) for outcome in answers if outcome.answer_tokens is not None]
    merged = [(outcome, tokens) for outcome, tokens in counted if tokens > len(outcome.chunks_s)]
    if merged:
        per_chunk = sum(tokens for _, tokens in merged) / sum(len(outcome.chunks_s) for outcome, _ in merged)
        yield (
            f"{part(len(merged), len(answers), 'answer')} came in fewer chunks than tokens ({per_chunk:.2g} tokens a "
            "chunk): ITL is the gap between chunks, TPOT counts tokens"
        )
    if fewer := sum(tokens < len(outcome.chunks_s) for outcome, tokens in counted):
        yield f"{part(fewer, len(answers), 'answer')} came in more chunks than the server counted tokens"
    if silent := len(answers) - len(counted):
        yield f"{part(silent, len(answers), 'answer')} came without a count of tokens: chunks were counted"
    if short := sum(tokens < outcome.new_tokens for outcome, tokens in counted):
        yield f"{part(short, len(answers), 'answer', 'was', 'were')} shorter than requested"
    prompts = [(outcome.prompt_tokens, outcome.prompt_len) for outcome in answers if outcome.prompt_tokens is not None]
    if differ := [counted for counted, requested in prompts if counted != requested]:
        yield (
            f"the server counted {min(differ)} to {max(differ)} tokens in {part(len(differ), len(prompts), 'prompt')}, "
            "not as many as requested"
        )
    if load.engine:
        yield "client and engine shared one machine, and may have slowed each other"
        return
    host = urlsplit(load.endpoint or "").hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        yield "client and server shared one machine, and may have slowed each other"
