"""Latency of memory: each load says where the next one is (a pointer chase), so that they run one after the other.

The lines of a working set form one cycle in random order, which no prefetcher foresees. As in `lat_mem_rd` of lmbench
(McVoy and Staelin, "lmbench: portable tools for performance analysis", USENIX 1996), but there with a fixed stride.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Precision, Problem, hookimpl
from benchmarker_problems.sizes import refuse_remainder, size_text

LINE_BYTES = 64
"""Size of a cache line, or of a part of one on processors with longer ones."""
ITEMS = LINE_BYTES // 4
"""Integers of 32 bits in a line; the first is the place of the next line's first among all, the second its number."""
_SMALL_LINES, _SMALL_LOADS = 37, 100


@dataclass(frozen=True)
class Latency(Problem):
    """Dependent loads from a working set, whose size decides in which cache they find it."""

    summary = "dependent loads from a working set: the latency of each cache and of memory"
    cost_formula = "flops = 0\nbytes = 64 for each line that is loaded; a sample is a load"

    bytes: Annotated[int, Meta(ge=LINE_BYTES, le=2**33, description="bytes of the working set, a multiple of 64")] = (
        2**28
    )
    loads: Annotated[int, Meta(ge=1, le=2**30, description="loads of a step")] = 2**20

    @property
    def lines(self) -> int:
        """Lines of the working set."""
        return self.bytes // LINE_BYTES

    def title(self, mode: Mode) -> str:
        """Return the size of the working set: `loads from 16 MiB`."""
        return f"loads from {size_text(self.bytes)}"

    def refuse(self, mode: Mode) -> None:
        """Refuse parts of a line."""
        refuse_remainder(self.bytes, LINE_BYTES, ", the bytes of a line")

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the loads, the only part."""
        return {"chase": 1}

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types with a bound of 0: what is loaded are integers."""
        return replace(PRECISIONS[precision], stated_bound=0.0)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count the lines that are loaded, each once; each load is a sample."""
        return Cost(0, LINE_BYTES * min(self.loads, self.lines), self.loads)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw the order of the lines; each batch begins at the line at which a step from the one before ends."""
        order = rng.permutation(np.arange(self.lines, dtype=np.uint32))
        memory = np.zeros((self.lines, ITEMS), np.uint32)
        memory[order, 0] = np.roll(order, -1) * np.uint32(ITEMS)
        memory[order, 1] = np.arange(self.lines, dtype=np.uint32)
        starts = (order[step * self.loads % self.lines] for step in range(batches))
        return Data({"memory": memory}, tuple({"line": np.array(start)} for start in starts))

    def small(self) -> Self:
        """Return a working set of at most 37 lines and 100 loads."""
        return replace(self, bytes=min(self.bytes, _SMALL_LINES * LINE_BYTES), loads=min(self.loads, _SMALL_LOADS))

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the line at which the loads end: the one that is so many places further in the cycle."""
        numbers = weights["memory"][:, 1]
        return {"line": np.flatnonzero(numbers == (int(numbers[batch["line"]]) + self.loads) % self.lines)}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of dependent loads."""
    return Latency
