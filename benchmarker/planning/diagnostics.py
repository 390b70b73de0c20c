"""The trials that a machine's card consists of: launches, copies between host and device, loads from each cache."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarker.api.errors import UserError
from benchmarker.hooks import registry
from benchmarker.machine import gpus
from benchmarker.machine.description import caches
from benchmarker.planning import build
from benchmarker.planning.capabilities import abilities
from benchmarker.planning.ceiling_search import memory_bytes
from benchmarker.records.plan import Plan, make_plan

PROBLEMS = ("launch", "transfer", "latency")
MEASURE = {"warmup_steps": 2, "blocks": 30, "seconds": 0.5, "power": "none", "timeout_s": 300.0}
KERNELS = (1, 1000)
"""Kernels of a step: one that is waited for, and many before one wait."""
COPIED_BYTES = (2**12, 2**20, 2**28)
"""Bytes of a copy: mostly latency, mostly bandwidth, and one between; through three sizes a line can be doubted."""
LOADS = 2**18
LINE_BYTES = 64
UNKNOWN_CACHES = (2**15, 2**20, 2**24)
"""Caches that are assumed if the system reports none."""
LEAST_BEYOND = 2**28
MOST_OF_MEMORY = 32
"""The largest working set has at most this part of the memory; with its copies, a trial needs several times as much."""


def diagnostics(names: Sequence[str] | None, gpu: int | None, trials: int) -> Plan:
    """Return the plan of the diagnostics in these frameworks, or in all that are available.

    Each framework measures on the device that it prefers, and loads on the CPU; copies need a device that is not the
    CPU. Raises `UserError` if a framework is unknown, or if none of them measures any of this.
    """
    for name in names or ():
        registry.find(f"framework.{name}")
    tables = [{**table, **MEASURE} for problem in PROBLEMS for table in _tables(problem, names, gpu)]
    if not tables:
        able = dict.fromkeys(name for problem in PROBLEMS for name in registry.implementing(problem))
        raise UserError(
            f"{', '.join(names or ())}: no launch, transfer or latency; frameworks that have them: {', '.join(able)}"
        )
    cases, left_out = build.make_cases(tables)
    return make_plan(cases, trials, left_out=left_out)


def _tables(problem: str, names: Sequence[str] | None, gpu: int | None) -> Iterator[dict[str, Any]]:
    """Yield the settings of the trials of a problem in each framework."""
    able = registry.available(problem) if names is None else registry.implementing(problem)
    chosen = [name for name in able if names is None or name in names]
    if problem == "latency":
        for name in chosen:
            for size in working_sets():
                yield {"problem": problem, "framework": name, "device": "cpu", "bytes": size, "loads": LOADS}
        return
    for name, ability in abilities(problem, chosen, gpus.environment(gpu, os.environ)).items():
        device = "auto" if isinstance(ability, UserError) else ability.info.devices[0].platform
        of_all: dict[str, Any] = {"problem": problem, "framework": name, "device": device}
        of_all |= {} if gpu is None or device == "cpu" else {"gpu": gpu}
        if problem == "launch":
            yield from ({**of_all, "kernels": kernels} for kernels in KERNELS)
        elif device != "cpu":
            for direction in ("to_device", "from_device"):
                for memory in ("pageable", "pinned"):
                    for size in COPIED_BYTES:
                        yield {**of_all, "direction": direction, "memory": memory, "bytes": size}


def working_sets() -> list[int]:
    """Return the bytes of each working set: half of each cache of a core, and one beyond the last."""
    inside = [cache.bytes for cache in caches()] or UNKNOWN_CACHES
    beyond = min(max(LEAST_BEYOND, 2 * max(inside)), memory_bytes() // MOST_OF_MEMORY)
    return sorted({size // LINE_BYTES * LINE_BYTES for size in (*(size // 2 for size in inside), beyond)})
