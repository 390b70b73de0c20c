"""STREAM: arrays read and written once in order, which is how the bandwidth of a memory is measured.

After McCalpin, "Memory bandwidth and machine balance in current high performance computers" (1995).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Cost, Data, Mode, Problem, Work, hookimpl

SCALAR = 3.0
"""STREAM's own factor of the triad."""
PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = {"inference": ("fp64", "fp32", "bf16", "fp16")}


@dataclass(frozen=True)
class StreamParams:
    """What is done with how long arrays."""

    op: Annotated[Literal["copy", "triad"], Meta(description="copy: a = b; triad: a = b + 3·c")] = "triad"
    n: Annotated[
        int, Meta(ge=1, description="numbers in an array; beyond four times the last cache for its memory")
    ] = 2**25


class Stream(Problem):
    """A pass over arrays of n numbers; what a step writes lies in one array, time and again."""

    summary = "STREAM: copy a = b, or triad a = b + 3·c, on arrays of n numbers"
    params = StreamParams
    accelerator = {"n": 2**28}
    cost_formula = (
        "flops = 0 (copy) or 2·n (triad); bytes = 2·n or 3·n numbers, as STREAM counts: what a cache reads before it\n"
        "is written over does not count"
    )

    def scopes(self, params: StreamParams, mode: Mode) -> Mapping[str, int]:
        """The pass is the only part."""
        return {"stream": 1}

    def cost(self, params: StreamParams, mode: Mode, precision: str) -> Cost:
        """One pass is one sample."""
        item = PRECISIONS[precision].parameter_bytes
        if params.op == "copy":
            return Cost(0, 2 * params.n * item, 1)
        return Cost(2 * params.n, 3 * params.n * item, 1)

    def parts(self, params: StreamParams, mode: Mode, precision: str) -> Mapping[str, Work]:
        """The pass is the only part."""
        cost = self.cost(params, mode, precision)
        return {"stream": Work(cost.flops, cost.bytes)}

    def data(self, params: StreamParams, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Arrays b and c, normal numbers; the batches are windows of one array, each a number further on."""
        dtype = np.float64 if precision == "fp64" else np.float32
        b, c = (rng.standard_normal(params.n + batches - 1, dtype=dtype) for _ in "bc")
        return Data({}, tuple({"b": b[i : i + params.n], "c": c[i : i + params.n]} for i in range(batches)))

    def small(self, params: StreamParams) -> StreamParams:
        """The same pass over a thousand numbers."""
        return replace(params, n=min(params.n, 1000))

    def reference(self, params: StreamParams, data: Data, mode: Mode) -> Iterator[Mapping[str, np.ndarray]]:
        """The array that is written."""
        for batch in data.batches:
            b, c = batch["b"].astype(np.float64), batch["c"].astype(np.float64)
            yield {"a": b if params.op == "copy" else b + SCALAR * c}


@hookimpl
def make_problem() -> Problem:
    """STREAM."""
    return Stream()
