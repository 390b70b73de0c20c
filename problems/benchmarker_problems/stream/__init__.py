"""STREAM: arrays are read and written once, in order, to measure memory bandwidth.

After McCalpin, "Memory bandwidth and machine balance in current high performance computers" (1995).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, STORED_FLOATS, Arrays, Cost, Data, Mode, Problem, hookimpl

SCALAR = 3.0
"""STREAM's factor of the triad."""
PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = {"inference": STORED_FLOATS}


@dataclass(frozen=True)
class Stream(Problem):
    """A pass over arrays of n elements; with each set of inputs goes an array that its steps write to."""

    summary = "STREAM: copy a = b, or triad a = b + 3·c, on arrays of n elements"
    accelerator = {"n": 2**28}
    cache = "rotate"
    cost_formula = (
        "flops = 0 (copy) or 2·n (triad)\n"
        "bytes = 2·n or 3·n elements, as STREAM counts them: without write-allocate reads of the cache"
    )

    op: Annotated[Literal["copy", "triad"], Meta(description="copy: a = b; triad: a = b + 3·c")] = "triad"
    n: Annotated[
        int, Meta(ge=1, description="elements per array; over four times the last-level cache to measure memory")
    ] = 2**25

    def title(self, mode: Mode) -> str:
        """Return the operation and the length: `STREAM triad n=2^25`."""
        bits = self.n.bit_length() - 1
        return f"STREAM {self.op} n={f'2^{bits}' if self.n == 2**bits else self.n}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the pass, the only part."""
        return {"stream": 1}

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count one pass, which is one sample."""
        item = PRECISIONS[precision].parameter_bytes
        if self.op == "copy":
            return Cost(0, 2 * self.n * item, 1)
        return Cost(2 * self.n, 3 * self.n * item, 1)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw b and c from a normal distribution; each batch is a window of them, shifted by one element."""
        dtype = np.float64 if precision == "fp64" else np.float32
        b, c = (rng.standard_normal(self.n + batches - 1, dtype=dtype) for _ in "bc")
        return Data({}, tuple({"b": b[i : i + self.n], "c": c[i : i + self.n]} for i in range(batches)))

    def small(self) -> Self:
        """Return the same pass over at most 1000 elements."""
        return replace(self, n=min(self.n, 1000))

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the array that is written."""
        return {"a": batch["b"] if self.op == "copy" else batch["b"] + SCALAR * batch["c"]}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the STREAM problem."""
    return Stream
