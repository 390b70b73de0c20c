"""Continuous batching: sequences join and leave a batch between two tokens (Orca: Yu et al., OSDI 2022).

A prompt that waits is computed as soon as a slot is free, before further tokens of the others; requests are served in
the order of their arrival.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from benchmarker.api.problem import Engine


@dataclass(slots=True)
class Sequence:
    """A prompt of token ids [P], and how many tokens are still to be generated for it."""

    id: int
    prompt: np.ndarray
    left: int


class Batching:
    """Serves requests with an engine; each call of `advance` is one pass."""

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
        self._waiting = deque(each for each in self._waiting if each.id != number)
        self._running = {slot: each for slot, each in self._running.items() if each.id != number}

    def advance(self) -> dict[int, int]:
        """Compute the next prompt if a slot is free, otherwise the next token of each sequence; return the tokens."""
        free = min(set(range(self._engine.slots)) - self._running.keys(), default=None)
        if self._waiting and free is not None:
            sequence = self._running[free] = self._waiting.popleft()
            found = {free: self._engine.fill(free, sequence.prompt)}
        else:
            tokens = self._engine.decode()
            found = {slot: int(tokens[slot]) for slot in self._running}
        chosen = {}
        for slot, token in found.items():
            sequence = self._running[slot]
            chosen[sequence.id] = token
            sequence.left -= 1
            if not sequence.left:
                del self._running[slot]
        return chosen
