"""The worker's side of `serve-load`: an engine that answers the requests of the parent until its pipe closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.records.record import Check
from benchmarker.worker import timing
from benchmarker.worker.batching import Batching, Sequence
from benchmarker.worker.bench import Bench
from benchmarker.worker.correctness import bounds_of
from benchmarker.worker.stages import Stages

if TYPE_CHECKING:
    from queue import SimpleQueue

    from benchmarker.api.case import Case
    from benchmarker.api.problem import Data, Engine, Problem
    from benchmarker.worker.correctness import Outputs
    from benchmarker.worker.parent import Parent
    from benchmarker.worker.protocol import Events, Order, Request

SEED = 0
"""Seed of the prompts."""
WARM_UP = 3
"""Tokens that are generated before the first request."""


def serve(request: Request, events: Events, parent: Parent) -> None:
    """Check an engine at a small size, build it, and answer requests."""
    (case,) = request.cases
    stage = Stages(events)
    with stage("open"):
        bench = Bench(case)
        events.send(part=bench.describe())
    with stage("check"):
        size = bench.problem.small(bench.params)
        data = bench.data(size, 1)
        found = check(_engine(bench, size, data), bench.problem, size, data, case)
        events.send(check=found)
        if not found.ok:
            raise UserError(
                f"wrong tokens: in the float64 reference, a chosen token is {found.error:.3g} below the largest logit "
                f"(relative); the bound for {case.precision} is {found.bound:.3g}"
            )
    with stage("build"):
        engine = _engine(bench, bench.params, bench.data(bench.params, 1))
    with stage("warm-up"):
        _warm_up(engine)
    timing.quiet()
    events.send(done=True)
    _answer(engine, parent.orders, events)


def check(engine: Engine, problem: Problem, size: Any, data: Data, case: Case) -> Check:
    """Hold the tokens of requests that overlap in time against the reference, which computes whole sequences.

    Rounding may decide a near tie either way. So the error is how far the logit of a chosen token is below the largest
    one, relative to the root mean square of the logits. Its bound allows each of the two logits twice the root mean
    square error that the bound of a check of logits is about.
    """
    rng = np.random.default_rng(SEED)
    batching, half = Batching(engine), engine.positions // 2
    texts: dict[int, list[int]] = {}
    first: dict[int, int] = {}
    for number in range(2 * engine.slots + 1):
        prompt = rng.integers(engine.vocab_size, size=rng.integers(1, half + 1))
        texts[number], first[number] = prompt.tolist(), len(prompt)
        batching.add(Sequence(number, prompt, int(rng.integers(1, engine.positions - half + 1))))
        for _ in range(rng.integers(1, 4)):
            _advance(batching, texts)
    while not batching.is_idle:
        _advance(batching, texts)

    def logits(data: Data) -> list[Outputs]:
        return [{"logits": problem.logits(size, data, np.array([text[:-1]]))} for text in texts.values()]

    exact = logits(data)
    worst, bound = 0.0, 4 * bounds_of(problem, size, case, data, logits, exact)["logits"]
    for (number, text), outputs in zip(texts.items(), exact, strict=True):
        (logits_TV,) = outputs["logits"]
        for token, logits_V in zip(text[first[number] :], logits_TV[first[number] - 1 :], strict=True):
            below = float(logits_V.max() - logits_V[token])
            worst = max(worst, below / float(np.sqrt(np.mean(logits_V**2))))
    return Check(error=worst, output="tokens", bound=bound, ok=worst <= bound)


def _advance(batching: Batching, texts: dict[int, list[int]]) -> None:
    if not batching.is_idle:
        for number, token in batching.advance().items():
            texts[number].append(token)


def _engine(bench: Bench, size: Any, data: Data) -> Engine:
    engine: Engine | None = bench.hooks.build_engine(
        framework=bench.framework, problem=bench.problem, case=bench.case, params=size, data=data
    )
    if engine is None:
        raise UserError(f"{bench.case.problem} in {bench.case.framework} has no text-generation engine")
    return engine


def _warm_up(engine: Engine) -> None:
    """Run each length of prompts for which something may be compiled, and some tokens."""
    lengths = [1 << power for power in range(engine.positions.bit_length())]
    for length in [*(each for each in lengths if each < engine.positions), engine.positions]:
        engine.fill(0, np.zeros(length, np.int64))
    for _ in range(WARM_UP):
        engine.decode()


def _answer(engine: Engine, orders: SimpleQueue[Order], events: Events) -> None:
    batching, rng = Batching(engine), np.random.default_rng(SEED)
    while True:
        while batching.is_idle or not orders.empty():
            order = orders.get()
            if order.new_tokens:
                prompt = rng.integers(engine.vocab_size, size=order.prompt_len)
                batching.add(Sequence(order.id, prompt, order.new_tokens))
            else:
                batching.cancel(order.id)
        events.send(tokens=list(batching.advance()))
