"""Collectives: what several devices exchange, to measure the bandwidth and the latency between them.

Sizes and bandwidths are those of NCCL Tests (doc/PERFORMANCE.md, github.com/NVIDIA/nccl-tests).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
from msgspec import Meta

from benchmarker import (
    PRECISIONS,
    STORED_FLOATS,
    Arrays,
    Cost,
    Data,
    IsExchange,
    Mode,
    Precision,
    Problem,
    UserError,
    hookimpl,
)
from benchmarker import Collective as Exchange
from benchmarker_problems.sizes import refuse_remainder, size_text

PRECISIONS_DONE: Mapping[Mode, tuple[str, ...]] = {"inference": STORED_FLOATS}
_WIDEST_BYTES = 8
"""Size of an element of fp64; every precision then has a whole number of elements for each device."""
_SMALL = 64
_LARGEST = 4
"""Inputs are whole numbers up to this: sums of up to 60 of them are exact in every precision."""


@dataclass(frozen=True)
class Collective(IsExchange):
    """One exchange between all devices."""

    summary = "collectives: all_reduce, all_gather, ... between several devices (--devices)"
    accelerator = {"bytes": 2**28}
    cost_formula = (
        "flops = 0\n"
        "bytes = devices·(input + output): each is --bytes, but the input of all_gather and the output of "
        "reduce_scatter are --bytes / devices"
    )

    op: Annotated[
        Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"],
        Meta(description="what is exchanged; broadcast: from the first to all; send_recv: from each to the next"),
    ] = "all_reduce"
    bytes: Annotated[int, Meta(ge=8, description="bytes of the larger array of a device, its input or its output")] = (
        2**20
    )

    def title(self, mode: Mode) -> str:
        """Return the operation and the size: `all_reduce 1 MiB`."""
        return f"{self.op} {size_text(self.bytes)}"

    def refuse(self, mode: Mode) -> None:
        """Refuse what cannot be divided among the devices, and a message from a device to itself."""
        refuse_remainder(self.bytes, _WIDEST_BYTES * self.devices, f", {_WIDEST_BYTES} for each device")
        if self.op == "send_recv" and self.devices == 1:
            raise UserError("--op=send_recv needs several devices; give --devices=2")

    def scopes(self, mode: Mode) -> Mapping[str, int]:
        """Return the exchange, the only part."""
        return {"collective": 1}

    def numerics(self, mode: Mode, precision: str) -> Precision:
        """Return the types with a bound of 0: sums of small whole numbers are exact, in short types as well."""
        return replace(PRECISIONS[precision], stated_bound=0.0)

    def cost(self, mode: Mode, precision: str) -> Cost:
        """Count one exchange, which is one sample."""
        read = self.bytes if self.op == "all_gather" else self.devices * self.bytes
        written = self.bytes if self.op == "reduce_scatter" else self.devices * self.bytes
        return Cost(0, read + written, 1)

    def collectives(self, mode: Mode, precision: str) -> tuple[Exchange, ...]:
        """Return the one exchange."""
        return (Exchange(self.op, 1, self.bytes),) if self.devices > 1 else ()

    def data(self, precision: str, rng: np.random.Generator, batches: int) -> Data:
        """Draw whole numbers; the input of each device in each batch is a window of them, shifted by one element."""
        n = self.bytes // PRECISIONS[precision].parameter_bytes
        n //= self.devices if self.op == "all_gather" else 1
        dtype = np.float64 if precision == "fp64" else np.float32
        drawn = rng.integers(-_LARGEST, _LARGEST, n + batches * self.devices, dtype=np.int8, endpoint=True)
        whole = drawn.astype(dtype)
        starts = range(batches * self.devices)
        windows = [whole[start : start + n] for start in starts]
        return Data(
            {},
            tuple(
                {name(rank): windows[batch * self.devices + rank] for rank in range(self.devices)}
                for batch in range(batches)
            ),
        )

    def small(self) -> Self:
        """Return the same exchange of at most 512 bytes for each device."""
        return replace(self, bytes=min(self.bytes, _SMALL * _WIDEST_BYTES * self.devices))

    def step(self, weights: Arrays, batch: Arrays, mode: Mode) -> Arrays:
        """Return what every device has afterwards."""
        inputs = [batch[name(rank)] for rank in range(self.devices)]
        return {name(rank): result(self.op, inputs, rank) for rank in range(self.devices)}


def name(rank: int) -> str:
    """Return the name of what a device has, before and after."""
    return f"device_{rank}"


def result(op: str, inputs: Sequence[np.ndarray], rank: int) -> np.ndarray:
    """Return what the device with a number has after an exchange of the inputs of all."""
    n = len(inputs)
    share = slice(rank * len(inputs[0]) // n, (rank + 1) * len(inputs[0]) // n)
    found: np.ndarray
    match op:
        case "all_reduce":
            found = np.sum(inputs, axis=0)
        case "all_gather":
            found = np.concatenate(inputs)
        case "reduce_scatter":
            found = np.sum([each[share] for each in inputs], axis=0)
        case "all_to_all":
            found = np.concatenate([each[share] for each in inputs])
        case "broadcast":
            found = inputs[0]
        case _:
            found = inputs[rank - 1]
    return found


def trouble(op: str, batch: Mapping[str, np.ndarray], rank: int, observed: np.ndarray) -> str | None:
    """Return what is wrong with what a device has after an exchange of a batch; None if nothing is."""
    exact = result(op, [batch[name(each)] for each in range(len(batch))], rank)
    wrong = np.count_nonzero(observed != exact) if observed.shape == exact.shape else max(exact.size, 1)
    return f"{wrong} of {exact.size} elements of device {rank} are wrong" if wrong else None


@hookimpl
def define_problem() -> type[Problem]:
    """Return the collectives between any number of devices."""
    return Collective
