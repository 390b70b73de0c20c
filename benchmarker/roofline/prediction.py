"""The time that a step should take on a device, from its work by formula and the roof of the device.

The parts of a step run one after the other, each at the roof: T = Σ max(FLOPs / π, bytes / β). Of a step as a whole,
which reads each weight and input once and writes each result once, the least time is the same formula without the sum.
"""

import dataclasses
from bisect import bisect_left
from typing import Any

from msgspec import Struct

from benchmarker.api.case import Mode
from benchmarker.api.cost import Work
from benchmarker.api.errors import UserError
from benchmarker.api.precision import ITEM_BYTES, PRECISIONS
from benchmarker.api.problem import Generates, Problem, phases_of
from benchmarker.roofline.formula import of_part
from benchmarker.roofline.roofs import Bound, Roof

MOST_BATCH = 2**20
"""A step that is not compute-bound at this batch size never is."""


class Part(Struct, frozen=True, kw_only=True):
    """A scope, in all its executions: its work, its least time, and what bounds that."""

    scope: str
    flops: int
    bytes: int
    time_s: float
    bound: Bound


class Phase(Struct, frozen=True, kw_only=True):
    """A phase of a step, which runs `count` times in it; all else is of one time.

    `time_s` is predicted, the sum over the scopes; `least_s` and `bound` are of the phase as a whole. The bytes are
    those that the scopes move: weights, the cache, and all else. `crossover_batch` is the smallest batch size at which
    the phase as a whole is compute-bound: None if there is none, or if the phase has no cache.
    """

    name: str
    count: int
    flops: int
    weight_bytes: int
    cache_bytes: int
    activation_bytes: int
    time_s: float
    least_s: float
    bound: Bound
    crossover_batch: int | None
    parts: list[Part]


class Fit(Struct, frozen=True, kw_only=True):
    """What a problem with a cache needs of a device's memory, in bytes.

    `largest_batch` is that at which weights and caches fill the memory; None if the size of the memory is not known.
    """

    weight_bytes: int
    cache_bytes_per_sequence: int
    memory_bytes: float | None
    largest_batch: int | None


class Prediction(Struct, frozen=True, kw_only=True):
    """What a step should take under a roof.

    `time_s` and `least_s` add up its phases. Rates are by `time_s`, `tokens_per_s_per_user` is that of one sequence of
    the batch; both are None for a problem without tokens. With as many rows as `ridge_rows`, a product with weights
    turns from memory- to compute-bound: as FLOPs per row and weight are 2, at π/β · (bytes of a weight) / 2.
    """

    name: str
    precision: str
    roof: Roof
    samples: int
    time_s: float
    least_s: float
    samples_per_s: float
    tokens_per_s: float | None
    tokens_per_s_per_user: float | None
    ridge_rows: float
    phases: list[Phase]
    fit: Fit | None


def predict(problem: Problem, mode: Mode, precision: str, roof: Roof, memory_bytes: float | None = None) -> Prediction:
    """Predict a step under a roof, on a device with so much memory. Raises `UserError` for a problem without parts."""
    if PRECISIONS[precision].is_emulated:
        raise UserError(f"{precision} is emulated: no device computes in it here, so its time cannot be predicted")
    phases = [_phase(own, name, count, mode, precision, roof) for name, (count, own) in phases_of(problem).items()]
    cost = problem.cost(mode, precision)
    time_s = sum(phase.count * phase.time_s for phase in phases)
    tokens_per_s = None if cost.tokens is None else cost.tokens / time_s
    return Prediction(
        name=problem.title(mode),
        precision=precision,
        roof=roof,
        samples=cost.samples,
        time_s=time_s,
        least_s=sum(phase.count * phase.least_s for phase in phases),
        samples_per_s=cost.samples / time_s,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_user=None if tokens_per_s is None else tokens_per_s / cost.samples,
        ridge_rows=roof.ridge * ITEM_BYTES[problem.numerics(mode, precision).parameter] / 2,
        phases=phases,
        fit=_fit(problem, precision, cost.samples, memory_bytes),
    )


def _phase(problem: Problem, name: str, count: int, mode: Mode, precision: str, roof: Roof) -> Phase:
    parts = problem.parts(mode, precision)
    if not parts:
        raise UserError("the problem has no formula for the work of its scopes, so its time cannot be predicted")
    runs = problem.scopes(mode)
    timed = [_part(scope, work, runs.get(scope, 0), roof) for scope, work in parts.items()]
    total = sum(parts.values(), Work(0, 0))
    least_s, bound = _whole(problem, mode, precision, roof)
    return Phase(
        name=name,
        count=count,
        flops=total.flops,
        weight_bytes=total.weight_bytes,
        cache_bytes=total.cache_bytes,
        activation_bytes=total.bytes - total.weight_bytes - total.cache_bytes,
        time_s=sum(each.time_s for each in timed),
        least_s=least_s,
        bound=bound,
        crossover_batch=_crossover(problem, mode, precision, roof),
        parts=timed,
    )


def _part(scope: str, work: Work, runs: int, roof: Roof) -> Part:
    time_s = of_part(work, runs, roof)
    bound = roof.bound_of(work.flops, time_s)
    return Part(scope=scope, flops=work.flops, bytes=work.bytes, time_s=time_s, bound=bound)


def _whole(problem: Problem, mode: Mode, precision: str, roof: Roof) -> tuple[float, Bound]:
    """Return the least time, s, of a phase as a whole, and what bounds it; weights are those of its parts."""
    cost = problem.cost(mode, precision)
    weight_bytes = sum(work.weight_bytes for work in problem.parts(mode, precision).values())
    least_s = roof.time_s(cost.flops, cost.bytes, min(weight_bytes, cost.bytes))
    return least_s, roof.bound_of(cost.flops, least_s)


def _crossover(problem: Problem, mode: Mode, precision: str, roof: Roof) -> int | None:
    """Return the smallest batch size at which a phase is compute-bound; None without one, or without a cache."""
    if not isinstance(problem, Generates) or not problem.cache_bytes(precision):
        return None

    def is_compute_bound(batch_size: int) -> bool:
        of_size: dict[str, Any] = {"batch_size": batch_size}
        return _whole(dataclasses.replace(problem, **of_size), mode, precision, roof)[1] == "compute"

    batch = 1 + bisect_left(range(1, MOST_BATCH + 1), True, key=is_compute_bound)
    return batch if batch <= MOST_BATCH else None


def _fit(problem: Problem, precision: str, samples: int, memory_bytes: float | None) -> Fit | None:
    if not isinstance(problem, Generates) or not (caches := problem.cache_bytes(precision)):
        return None
    weight_bytes, cache_bytes = problem.weight_bytes(precision), caches // samples
    return Fit(
        weight_bytes=weight_bytes,
        cache_bytes_per_sequence=cache_bytes,
        memory_bytes=memory_bytes,
        largest_batch=None if memory_bytes is None else max(0, int((memory_bytes - weight_bytes) // cache_bytes)),
    )
