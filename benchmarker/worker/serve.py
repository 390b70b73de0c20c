"""The worker's side of `serve-load`: an engine that answers the requests of the parent until its pipe closes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError
from benchmarker.api.problem import Data, Engine, Generates, Problem
from benchmarker.records.record import Check
from benchmarker.worker import timing
from benchmarker.worker.bench import Bench
from benchmarker.worker.correctness import Outputs, bounds_of
from benchmarker.worker.parent import Parent, Stages
from benchmarker.worker.protocol import Checked, Done, Events, GenerationRequest, Task, Tokens

SEED = 0
"""Seed of the prompts."""
WARM_UP = 3
"""Tokens that are generated before the first request."""


def serve(task: Task, events: Events, parent: Parent) -> None:
    """Check an engine at a small size, build it, and answer requests."""
    (case,) = task.cases
    stage = Stages(events)
    with stage("open"):
        bench = Bench(case)
        events.send(bench.describe())
    with stage("check"):
        if not isinstance(bench.problem, Generates):
            raise UserError(f"{case.problem} generates no text")
        size = bench.problem.small()
        data = bench.data(size, 1)
        result = check(_engine(bench, size, data), size, data, case)
        events.send(Checked(result))
        if not result.ok:
            raise UserError(
                f"wrong tokens: in the float64 reference, a chosen token is {result.error:.3g} below the largest logit "
                f"(relative); the bound for {case.precision} is {result.bound:.3g}"
            )
    with stage("build"):
        engine = _engine(bench, bench.problem, bench.data(bench.problem, 1))
    with stage("warm-up"):
        _warm_up(engine)
    timing.quiet()
    events.send(Done())
    _answer(engine, parent.requests, events)


def check(engine: Engine, problem: Generates, data: Data, case: Case) -> Check:
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
        return [{"logits": problem.logits(data, np.array([text[:-1]]))} for text in texts.values()]

    exact = logits(data)
    worst, bound = 0.0, 4 * bounds_of(problem, case, data, logits, exact)["logits"]
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


def _engine(bench: Bench, problem: Problem, data: Data) -> Engine:
    engine: Engine | None = bench.hooks.build_engine(
        framework=bench.framework, problem=problem, case=bench.case, data=data
    )
    if engine is None:
        raise UserError(f"{bench.case.problem} in {bench.case.framework} has no text-generation engine")
    return engine


def _warm_up(engine: Engine) -> None:
    """Run each length of prompts for which something may be compiled, and some tokens."""
    lengths = [1 << power for power in range(engine.positions.bit_length())]
    for length in [*(length for length in lengths if length < engine.positions), engine.positions]:
        engine.fill(0, np.zeros(length, np.int64))
    for _ in range(WARM_UP):
        engine.decode()


def _answer(engine: Engine, requests: SimpleQueue[GenerationRequest], events: Events) -> None:
    batching, rng = Batching(engine), np.random.default_rng(SEED)
    while True:
        while batching.is_idle or not requests.empty():
            request = requests.get()
            if request.new_tokens:
                prompt = rng.integers(engine.vocab_size, size=request.prompt_len)
                batching.add(Sequence(request.id, prompt, request.new_tokens))
            else:
                batching.cancel(request.id)
        events.send(Tokens(list(batching.advance())))


@dataclass(slots=True)
class Sequence:
    """A prompt of token ids [P], and how many tokens are still to be generated for it."""

    id: int
    prompt: np.ndarray
    missing: int


class Batching:
    """Continuous batching: sequences join and leave a batch between two tokens (Orca: Yu et al., OSDI 2022).

    A prompt that waits is computed as soon as a slot is free, before further tokens of the others; requests are served
    in the order of their arrival. Each call of `advance` is one pass of the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._waiting or self._running)

    def add(self, sequence: Sequence) -> None:
        """Let a request wait for a slot."""
        self._waiting.append(sequence)

    def cancel(self, number: int) -> None:
        """Drop a request, if it is not answered yet."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting.id != number)
        self._running = {slot: running for slot, running in self._running.items() if running.id != number}

    def advance(self) -> dict[int, int]:
        """Compute the next prompt if a slot is free, otherwise the next token of each sequence; return the tokens."""
        free = min(set(range(self._engine.slots)) - self._running.keys(), default=None)
        if self._waiting and free is not None:
            sequence = self._running[free] = self._waiting.popleft()
            by_slot = {free: self._engine.fill(free, sequence.prompt)}
        else:
            tokens = self._engine.decode()
            by_slot = {slot: int(tokens[slot]) for slot in self._running}
        chosen = {}
        for slot, token in by_slot.items():
            sequence = self._running[slot]
            chosen[sequence.id] = token
            sequence.missing -= 1
            if not sequence.missing:
                del self._running[slot]
        return chosen
