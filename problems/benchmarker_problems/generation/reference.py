"""Generated text in NumPy: every token from the whole sequence before it, without a cache."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarker import Data
from benchmarker_problems.generation import positions
from benchmarker_problems.layers.reference import Weights
from benchmarker_problems.quantization import dequantized

LogitsOf = Callable[[Weights, np.ndarray], np.ndarray]
"""From weights and tokens [B, T] to logits [B, T, V]."""


def generated(data: Data, problem: Any, logits_of: LogitsOf) -> Iterator[Mapping[str, np.ndarray]]:
    """Yield what each step of a phase gives: the token that is chosen, or with forced decoding the logits."""
    p = problem
    weights = dequantized(data.weights)
    for batch in data.batches:
        tokens_BT = batch["tokens"]
        first = p.prompt_len + p.depth - 1
        if p.decoding == "greedy":
            new_tokens = positions(p) - (first + 1)
            tokens_BT = continued(tokens_BT[:, : first + 1], new_tokens, lambda tokens: logits_of(weights, tokens))
        logits_BTV = logits_of(weights, tokens_BT)
        for step in steps_of(p, logits_BTV[:, first:]):
            yield {"logits": step} if p.decoding == "forced" else {"tokens": step.argmax(axis=-1)}


def steps_of(problem: Any, logits_BTV: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the logits of each step of a phase, from those of the last position of the prompt on."""
    p = problem
    if p.phase == "prefill":
        yield logits_BTV[:, 0]
    elif p.phase == "generate":
        yield logits_BTV
    else:
        for step in range(p.new_tokens):
            yield logits_BTV[:, 1 + step]


def continued(tokens_BT: np.ndarray, new_tokens: int, logits_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the tokens and those that follow by greedy choice."""
    for _ in range(new_tokens):
        next_B = logits_of(tokens_BT)[:, -1].argmax(axis=-1)
        tokens_BT = np.concatenate([tokens_BT, next_B[:, None]], axis=1)
    return tokens_BT
