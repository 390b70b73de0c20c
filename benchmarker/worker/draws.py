"""Weights and inputs from the seed of a case, drawn on all cores."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarker.api.problem import Data, Problem
from benchmarker.machine.description import usable_cores

CHUNK = 2**22
"""Elements of a large array that one generator draws, in about 40 ms."""


def drawn(problem: Problem, precision: str, seed: int, batches: int) -> Data:
    """Return weights and inputs from a seed; SFC64 is NumPy's fastest generator."""
    return problem.data(precision, Draws(np.random.SFC64(seed)), batches)


class Draws(np.random.Generator):
    """A generator that draws each chunk of a large normal array by a generator of its own: the same on any machine."""

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """Return as `numpy.random.Generator.standard_normal` does, with other numbers in more than one chunk."""
        count = 1 if size is None else int(np.prod(size))
        if out is not None or count <= CHUNK:
            return super().standard_normal(size, dtype, out)
        values = np.empty(size, dtype)
        flat = values.reshape(-1)
        chunks = [flat[start : start + CHUNK] for start in range(0, count, CHUNK)]
        own = self.bit_generator.spawn(len(chunks))
        with ThreadPoolExecutor(usable_cores()) as pool:
            list(
                pool.map(
                    lambda bits, chunk: np.random.Generator(bits).standard_normal(out=chunk, dtype=dtype), own, chunks
                )
            )
        return values
