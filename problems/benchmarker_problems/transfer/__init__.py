"""Transfers: an array is copied from the host to a device, or back, to measure what connects them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import PRECISIONS, Arrays, Cost, Data, Mode, Precision, Problem, hookimpl
from benchmarker_problems.sizes import refuse_remainder, size_text

PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = {"inference": ("fp32",)}
ON_A_CPU = {"memory": "pinned", "device": "cpu"}
"""What is excluded: memory is pinned for a device that reads it by itself."""
_ITEM_BYTES = 4
_SHIFT = 16
"""Elements between the beginnings of two batches."""
_SMALL_BYTES = 4096


@dataclass(frozen=True)
class Transfer(Problem):
    """A copy of an array between host and device, which is waited for; on a CPU, a copy within the host's memory."""

    summary = "copies between host and device, of pageable or pinned memory; on a CPU, copies within its memory"
    accelerator = {"bytes": 2**28}
    cost_formula = "flops = 0\nbytes = 2·bytes, read and written; twice that in a round trip"

    bytes: Annotated[int, Meta(ge=4, description="bytes of the array, a multiple of 4")] = 2**24
    direction: Annotated[
        Literal["to_device", "from_device", "round_trip"],
        Meta(description="round_trip: to the device, and what has arrived there back to the host"),
    ] = "to_device"
    memory: Annotated[
        Literal["pageable", "pinned"],
        Meta(description="the host's memory; pinned (page-locked): the device reads and writes it by itself"),
    ] = "pageable"

    def title(self, mode: Mode) -> str:
        """Return what is copied: `16 MiB to_device, pageable`."""
        return f"{size_text(self.bytes)} {self.direction}, {self.memory}"

    def refuse(self, mode: Mode) -> None:
        """Refuse parts of a number."""
        refuse_remainder(self.bytes, _ITEM_BYTES, ", the bytes of a number")

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return nothing: a copy is no program in which a framework could mark a part."""
        return {}

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types with a bound of 0: a copy is exact."""
        return replace(PRECISIONS[precision], stated_bound=0.0)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count what is read and written; a step is one sample."""
        return Cost(0, 2 * self.bytes * (2 if self.direction == "round_trip" else 1), 1)

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw numbers from a normal distribution; each batch is a window of them, 16 elements after the one before."""
        n = self.bytes // _ITEM_BYTES
        drawn = rng.standard_normal(n + _SHIFT * (batches - 1), dtype=np.float32)
        return Data({}, tuple({"x": drawn[_SHIFT * i :][:n]} for i in range(batches)))

    def small(self) -> Self:
        """Return the same copy of at most 4 KiB."""
        return replace(self, bytes=min(self.bytes, _SMALL_BYTES))

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return what has arrived."""
        return {"x": batch["x"]}


@hookimpl
def define_problem() -> type[Problem]:
    """Return the problem of moving an array."""
    return Transfer
