"""Launches: kernels that do next to nothing, so that a step takes as long as to launch them and to wait for the last.

Each kernel adds 1 to one number, the result of the kernel before it: they run one after the other, and the sum says
that all of them ran.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Precision, Problem, hookimpl

PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = {"inference": ("fp64", "fp32")}
"""Types in which 2^20 additions of 1 to a small whole number are exact."""
_LARGEST = 100
"""Inputs are whole numbers up to this."""
_SMALL = 50


@dataclass(frozen=True)
class Launch(Problem):
    """Kernels of one addition each, launched one after the other, and a wait for the last."""

    summary = "kernels that add 1 to one number, then a wait for the last: launch latency, kernels per second"
    cost_formula = (
        "flops = 0: the additions are not what is measured\n"
        "bytes = a number read and a number written by each kernel; a sample is a kernel"
    )

    kernels: Annotated[int, Meta(ge=1, le=2**20, description="kernels that a step launches before it waits")] = 1

    def title(self, mode: Mode) -> str:
        """Return the number of kernels: `launch of 100 kernels`."""
        return f"launch of {self.kernels} kernel{'s' if self.kernels > 1 else ''}"

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return nothing: to mark a kernel may take as long as to launch it."""
        return {}

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types with a bound of 0: sums of small whole numbers are exact."""
        return replace(PRECISIONS[precision], stated_bound=0.0)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count what the kernels read and write; each is a sample."""
        return Cost(0, 2 * self.kernels * PRECISIONS[precision].parameter_bytes, self.kernels)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw a whole number for each batch."""
        dtype = np.float64 if precision == "fp64" else np.float32
        return Data({}, tuple({"x": rng.integers(_LARGEST, size=1).astype(dtype)} for _ in range(batches)))

    def small(self) -> Self:
        """Return a step of at most 50 kernels."""
        return replace(self, kernels=min(self.kernels, _SMALL))

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return the number with that of the kernels added."""
        return {"x": batch["x"] + self.kernels}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of launching kernels."""
    return Launch
