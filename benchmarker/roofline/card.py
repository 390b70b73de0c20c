"""The card of a machine: what it computes, moves and waits at most, from its ceilings and from diagnostics.

The diagnostics are trials of the problems `launch`, `transfer` and `latency` (docs/problems.md). Every value is the
median over trials, with its 95% interval from six trials on.
"""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

import msgspec
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.comparing import disturbances
from benchmarker.comparing.fits import fits
from benchmarker.formatting import part, si
from benchmarker.hooks.cases import Cases, Configuration
from benchmarker.hooks.metrics import Derive
from benchmarker.machine.description import noise
from benchmarker.records.ceilings import Ceiling, Ceilings, key_of
from benchmarker.records.machine import Machine
from benchmarker.records.record import Record
from benchmarker.records.step_times import STEP_TIME
from benchmarker.stats.median_interval import median_interval
from benchmarker.stats.quantile_interval import Estimate

DOUBTFUL_RESIDUAL = 0.25
"""Relative distance of a size from its line above which latency and bandwidth are doubted."""
BEYOND = 2
"""Working sets of fewer times the last-level cache are partly found in it."""


class Launches(Struct, frozen=True, kw_only=True):
    """Launching kernels in a framework: one of them until the call returns, and until it is complete, s.

    `kernels_per_s` is that of `kernels` launched before one wait. What was not measured is null.
    """

    framework: str
    execution: str
    device: str
    trials: int
    enqueue_s: Estimate | None
    complete_s: Estimate | None
    kernels: int | None
    kernels_per_s: Estimate | None


class Copies(Struct, frozen=True, kw_only=True):
    """Copies between host and device: t = latency + bytes/bandwidth, fitted through a range of sizes."""

    framework: str
    device: str
    direction: str
    memory: str
    bytes: str
    trials: int
    latency_s: Estimate
    bytes_per_s: Estimate
    residual: float


class Loads(Struct, frozen=True, kw_only=True):
    """A load from a working set, s; `level` is the first cache that it fits into, null if the caches are not known."""

    framework: str
    bytes: int
    level: str | None
    trials: int
    load_s: Estimate


class Card(Struct, frozen=True, kw_only=True):
    """What is known of a machine; `reasons` says why a part of it is empty, and `notes` what makes one doubt it."""

    machine: Machine
    measured_at: str
    ceilings: list[Ceiling]
    launches: list[Launches]
    copies: list[Copies]
    loads: list[Loads]
    reasons: dict[str, str]
    notes: list[str]


def card(cases: Cases, derive: Derive, known: Ceilings) -> Card:
    """Return the card of the machine of some records; raises `UserError` if there is none, or several machines."""
    of = {name: [one for one in cases if one.factors["problem"] == name] for name in ("launch", "transfer", "latency")}
    records = [record for several in of.values() for one in several for record in one.records]
    if not records:
        raise UserError("no trial of launch, transfer or latency was read; name the run of a card")
    if len(hosts := sorted({record.machine.host for record in records})) > 1:
        raise UserError(f"these are records of several machines ({', '.join(hosts)}); name the run of one")
    first = min(records, key=lambda record: record.started_at)
    highest = list(_ceilings(records, known))
    launches = list(_launches(of["launch"], derive))
    copies = list(_copies(of["transfer"], derive))
    loads = list(_loads(of["latency"], derive))
    lacking = list(dict.fromkeys(filter(None, map(known.lacking, records))))
    reasons = {
        "ceilings": "" if highest else lacking[0],
        "launches": "" if launches else _none(of["launch"], "launch"),
        "copies": "" if copies else _no_copies(of),
        "loads": "" if loads else _none(of["latency"], "latency"),
    }
    return Card(
        machine=first.machine,
        measured_at=first.started_at,
        ceilings=highest,
        launches=launches,
        copies=copies,
        loads=loads,
        reasons={name: why for name, why in reasons.items() if why},
        notes=[*(lacking if highest else ()), *_doubts(records, highest, copies, loads), *noise(first.machine)],
    )


def _of_metric(one: Configuration | None, name: str, derive: Derive) -> Estimate | None:
    """Return a metric over the trials of a case that have it; None if none has."""
    metrics = (derive(record).get(name) for record in (one.ok if one else ()))
    values = [metric.value for metric in metrics if metric and metric.value is not None]
    return Estimate(median(values), *(median_interval(values) or (None, None))) if values else None


def _ceilings(records: Iterable[Record], known: Ceilings) -> Iterator[Ceiling]:
    """Yield the highest ceiling of each precision, and of memory, of each device that was measured."""
    for device in dict.fromkeys(map(key_of, records)):
        precisions = dict.fromkeys(each.precision for each in known.known if each.device == device)
        found = [known.of(device, "compute", precision) for precision in precisions]
        yield from filter(None, (*found, known.of(device, "memory")))


def _size(one: Configuration, name: str) -> int:
    return int(one.records[0].case.params[name])


def _launches(cases: Sequence[Configuration], derive: Derive) -> Iterator[Launches]:
    several: dict[bytes, dict[int, Configuration]] = {}
    for one in cases:
        if one.ok:
            several.setdefault(msgspec.json.encode({**one.factors, "kernels": None}), {})[_size(one, "kernels")] = one
    for of in several.values():
        most = max(of)
        single, many = of.get(1), of[most] if most > 1 else None
        case = of[most].ok[0].case
        yield Launches(
            framework=case.framework,
            execution=case.execution,
            device=case.device,
            trials=min(len(one.ok) for one in (single, many) if one),
            enqueue_s=_of_metric(single, "enqueue_s", derive),
            complete_s=_of_metric(single, STEP_TIME, derive),
            kernels=most if many else None,
            kernels_per_s=_of_metric(many, "samples_per_s", derive),
        )


def _copies(cases: Sequence[Configuration], derive: Derive) -> Iterator[Copies]:
    for fit in fits((one for one in cases if one.factors["device"] != "cpu"), "bytes", derive):
        yield Copies(
            **{name: str(fit.factors[name]) for name in ("framework", "device", "direction", "memory", "bytes")},
            trials=fit.rounds,
            latency_s=fit.line.start,
            bytes_per_s=fit.line.rate,
            residual=fit.line.residual,
        )


def _loads(cases: Sequence[Configuration], derive: Derive) -> Iterator[Loads]:
    for one in sorted(cases, key=lambda one: _size(one, "bytes")):
        if load_s := _of_metric(one, "load_latency_s", derive):
            first, size = one.ok[0], _size(one, "bytes")
            yield Loads(
                framework=first.case.framework,
                bytes=size,
                level=_level(size, first.machine),
                trials=len(one.ok),
                load_s=load_s,
            )


def _level(size: int, machine: Machine) -> str | None:
    """Return the first cache that holds a working set, or memory; None if the caches are not known."""
    within = [f"L{cache.level}" for cache in machine.cpu.caches if size <= cache.bytes]
    return [*within, "memory"][0] if machine.cpu.caches else None


def _none(cases: Sequence[Configuration], problem: str) -> str:
    """Return why there is nothing of a problem."""
    for record in (record for one in cases for record in one.records):
        if record.error:
            return f"every trial of {problem} failed: {record.error.message}"
    return f"no trial of {problem}: no framework that was measured has it"


def _no_copies(of: dict[str, list[Configuration]]) -> str:
    """Return why there are no copies between host and device."""
    between = [one for one in of["transfer"] if one.factors["device"] != "cpu"]
    if any(one.ok for one in between):
        return "no line: it needs three sizes, and times that grow with them"
    devices = {one.factors["device"] for name in ("launch", "transfer") for one in of[name]}
    if devices <= {"cpu"}:
        return "the frameworks that were measured see no device but the CPU, which is the host"
    return _none(between, "transfer")


def _doubts(
    records: Sequence[Record], highest: Sequence[Ceiling], copies: Sequence[Copies], loads: Sequence[Loads]
) -> Iterator[str]:
    """Yield what should make one doubt the values of a card."""
    failed = [record for record in records if record.error]
    if failed and failed[0].error:
        yield f"{part(len(failed), len(records), 'trial')} failed, for instance: {failed[0].error.message}"
    disturbed = disturbances.of_records(records)
    if disturbed.number:
        yield f"{disturbed}; {disturbed.advice}"
    rows = [*(each.load_s for each in loads), *(each.latency_s for each in copies)]
    if any(each.low is None for each in rows):
        yield "too few trials for intervals; --trials=6 or more give them"
    if any(each.method == "quick" for each in highest):
        yield "quick ceilings are of one process each, not preheated; `benchmarker ceilings --thorough` takes several"
    for each in copies:
        if each.residual > DOUBTFUL_RESIDUAL:
            yield (
                f"{each.framework}, {each.direction}, {each.memory}: a size is {each.residual:.0%} off the line, so "
                "latency and bandwidth say little; `sweep --problem=transfer --bytes=4K..1G` shows the sizes"
            )
    last = max((cache.bytes for cache in records[0].machine.cpu.caches), default=0)
    largest = max((each.bytes for each in loads), default=0)
    if loads and largest < BEYOND * last:
        yield (
            f"the largest working set, {si(largest, 'B')}, is less than twice the last cache, {si(last, 'B')}: the "
            "latency of memory is higher than that of its loads"
        )
