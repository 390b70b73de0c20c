"""Records made without a worker."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from benchmarker import PRECISIONS, Case, Record
from benchmarker.hooks import parameters, registry
from benchmarker.planning.cases import command_line
from benchmarker.procurement.evidence import bound_of_case
from benchmarker.records.ceilings import Ceiling, Resource, key_of
from benchmarker.records.energy import Energy, SensorEnergy
from benchmarker.records.machine import DeviceInfo
from benchmarker.records.record import (
    Blocks,
    Check,
    CostPart,
    Design,
    Inputs,
    Interference,
    Memory,
    Preheat,
    Types,
    nulls,
    reason,
)
from benchmarker.running.record_builder import Process, RecordBuilder
from benchmarker.worker.protocol import Done, RecordPart

QUIET = Interference(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 10, 0, 2500.0, 50.0)

HEARD = RecordPart(
    device=DeviceInfo("cpu", "toy", None, None, None, None),
    types=Types("fp32", "fp32", "fp32", "fp32", {}),
    libraries={"toy": "1.0"},
    threads=1,
    inputs=Inputs(None, 4, 16),
    build_s=0.1,
    compile_s=0.1,
    check=Check(error=0.0, output="x", bound=1e-6, ok=True),
    preheat=Preheat(outcome="fixed", duration_s=0.1, steps=3, window_steps_per_s=[]),
    blocks=Blocks(1, [1], "blocks"),
    cost=CostPart(1000, 0, 8, 2, None),
    memory=Memory(device_peak_bytes=None, host_peak_rss_bytes=2**20),
    interference=QUIET,
)
"""What a worker sends of a trial that goes well."""


@functools.cache
def _heard() -> Record:
    """A record of a trial that went well, made without a worker."""
    case = Case(problem="nap", framework="toy", device="cpu", params={"ms": 1.0})
    builder = RecordBuilder(Process("run", ("trial",), (case,), 0, (Design(),)), 0, {})
    for event in (HEARD, Done()):
        builder.on_event(event)
    return builder.record(2.0, 0)


def make_energy(joules: float | None, duration_s: float = 40.0, **sensor: Any) -> Energy:
    """Energy of 100 steps of 2 samples, by the one sensor of a card."""
    fields: dict[str, Any] = dict.fromkeys(SensorEnergy.__struct_fields__, 1.0)
    fields |= {"meter": "nvml", "id": "GPU-a", "device": "Card", "domain": "gpu", "scope": "", "measured": True}
    fields |= {"begin_ns": 0, "end_ns": round(duration_s * 1e9), "energy_J": joules or 0.0, "method": "counter"}
    fields |= {
        "accuracy_percent": 5.0,
        "n": 800,
        "coverage": 1.0,
        "gaps": 0,
        "wraps": 0,
        "flags": [],
        "node": 0,
    } | sensor
    return Energy(
        duration_s=duration_s,
        steps=100,
        samples=200,
        domains=["gpu"],
        energy_J=joules,
        idle_W=30.0,
        total_domains=["gpu"],
        total_J=joules or 0.0,
        total_idle_W=30.0,
        sensors=[SensorEnergy(**fields)],
        flags=[],
    )


EXCHANGED = {
    "error": 0.0,
    "output": "device_0",
    "bound": 0.0,
    "ok": True,
    "against": "reference",
    "place": "",
    "componentwise": None,
}
"""The check of an exchange: every element on every device is equal to NumPy's."""


def make_record(
    step_s: float | Sequence[float] = 1.0,
    *,
    run: str = "run",
    trial: int = 0,
    case: Mapping[str, Any] | None = None,
    design: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Record:
    """A record as a trial leaves it: `step_s` is the step time of its one timed block, or of each of several."""
    plain, case, design = _heard(), dict(case or {}), dict(design or {})
    times = [step_s] if isinstance(step_s, int | float) else step_s
    params = {**plain.case.params, **case.pop("params", {})}
    made = msgspec.structs.replace(plain.case, params=params, **case)
    changed: dict[str, Any] = {
        "run_id": run,
        "trial": trial,
        "trial_id": f"{run}-{trial:04}-{design.get('case_number', 0)}",
        "case": made,
        "design": Design(**design),
        "blocks": Blocks(1, [round(each * 1e9) for each in times], "blocks"),
    }
    if kind := PRECISIONS.get(made.precision):
        changed["types"] = Types(kind.parameter, kind.compute, kind.accumulate, kind.lowest, {})
    return msgspec.structs.replace(plain, **(changed | fields))


def with_formulas(record: Record) -> Record:
    """The record with everything that follows from its case, by the formulas of its problem."""
    case = record.case
    problem = parameters.convert(registry.problem(case.problem), case.params)
    cost = CostPart(recomputed_flops=0, **dataclasses.asdict(problem.cost(case.mode, case.precision)))
    assert record.check
    bound = bound_of_case(problem, case)(record.check.output)
    assert bound is not None
    check = msgspec.structs.replace(record.check, bound=bound)
    kind = problem.numerics(case.mode, case.precision)
    types = Types(kind.parameter, kind.compute, kind.accumulate, kind.lowest, {})
    changed = msgspec.structs.replace(record, cost=cost, check=check, types=types, command=command_line(case))
    reasons = {path: record.reasons.get(path, reason(path, case)) for path in nulls(changed)}
    return msgspec.structs.replace(changed, reasons=reasons)


def make_ceiling(value: float, resource: Resource = "compute", **fields: Any) -> Ceiling:
    """A ceiling of the device that `make_record` was measured on, in fp32."""
    device = key_of(make_record())
    assert device
    plain = Ceiling(
        method="thorough",
        resource="compute",
        device=device,
        host="here",
        framework="toy",
        execution="eager",
        version="1.0",
        precision="fp32",
        value=value,
        low=value * 0.99,
        high=value * 1.01,
        trials=5,
        searched=6,
        params={"m": 1024},
        measured_at="2026-01-01T00:00:00+00:00",
        run_id="run",
    )
    return msgspec.structs.replace(plain, **{"resource": resource, **fields})
