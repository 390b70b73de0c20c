"""What each node of a fleet measured, and each link: a level for each unit, case and round, and what may explain it.

A unit is a node, an independent device of a node, or a link between two nodes. Records are read node by node and not
kept: of a thousand nodes they would fill the memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.files.atomic import Fault
from benchmarker.fleet import folder
from benchmarker.fleet.folder import FleetSpec
from benchmarker.fleet.results import name_of_link
from benchmarker.records import store
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import Factors, factors_of
from benchmarker.records.record import Record
from benchmarker.records.step_times import local_times, step_times

Part = str
"""What of a case: empty for all of it; with independent devices, `alone`, or `together` with the others."""


class Unit(NamedTuple):
    """A node, one of its devices, or a link."""

    node: str
    device: int | None


class CasePart(NamedTuple):
    """A part of a case; the case by its factors, as JSON."""

    case: str
    part: Part


Round = tuple[int, int]
"""The number of the run of a node, and of the round in it."""


@dataclass
class Node:
    """What one node measured: step times by part of a case, unit and round, s; its properties, and the state it was in.

    It may be a link too: between two nodes, its `ends`. `conditions` are quantities by case and round, such as
    temperatures; `failures` are the messages of failed trials. `trouble` is why it has not done its part, empty if it
    has.
    """

    name: str
    step_s: dict[CasePart, dict[Unit, dict[Round, float]]] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, dict[Round, dict[str, float]]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    trials: int = 0
    trouble: str = ""
    ends: tuple[str, str] | tuple[()] = ()


@dataclass(frozen=True)
class Measured:
    """The nodes of a fleet, in order, and what makes one doubt all of it; or its links, as `links` are.

    `repeats` is how often suspects were measured again; then the rounds of these runs decide. `no_links` is why no link
    was measured, if any should have been; `multi_node_trials` are trials over several nodes that are not counted.
    """

    nodes: dict[str, Node]
    repeats: int
    faults: list[Fault]
    complete: bool = True
    links: Measured | None = None
    no_links: str = ""
    multi_node_trials: int = 0

    @property
    def cases(self) -> dict[str, Factors]:
        """The factors of all cases."""
        names = dict.fromkeys(column.case for node in self.nodes.values() for column in node.step_s)
        return {name: msgspec.json.decode(name) for name in names}


def read_fleet(path: Path) -> Measured:
    """Read the fleet in a folder, also while it runs; raises `UserError` if it cannot be read."""
    spec = folder.spec_of(path)
    nodes = {name: Node(name) for name in spec.stages[0].nodes}
    faults: list[Fault] = []
    for node in nodes.values() if "nodes" in spec.measures else ():
        wanted = max(number for number, stage in enumerate(spec.stages) if node.name in stage.nodes)
        faults += _read_node(path, node.name, node, wanted)
    complete = spec.ended_at is not None
    links = _read_links(path, spec) if spec.link_stages else None
    faults += links.faults if links else []
    return Measured(nodes, len(spec.stages) - 1, faults, complete, links, spec.no_links)


def _read_links(path: Path, spec: FleetSpec) -> Measured:
    links = [Node(name_of_link(ends), ends=ends) for ends in spec.link_stages[0].links]
    faults: list[Fault] = []
    for link in links:
        wanted = max(number for number, stage in enumerate(spec.link_stages) if link.ends in stage.links)
        faults += _read_node(path, folder.of_link(link.ends), link, wanted)
    return Measured({link.name: link for link in links}, len(spec.link_stages) - 1, faults)


def _read_node(path: Path, name: str, node: Node, wanted: int) -> list[Fault]:
    """Read the runs in the folder of a node or link, which should have done the stage `wanted`; returns the faults."""
    node.trouble = folder.trouble(wanted, folder.state_of(path, name))
    faults: list[Fault] = []
    runs = sorted(run for run in (path / name).glob("*/") if (run / store.PLAN).exists())
    for number, run in enumerate(runs):
        records, unread = store.read([run])
        for record in records:
            add(node, number, record)
        faults += (fault for fault in unread if fault.path != run)  # a run without a record: the state has its reason
    return faults


def read_hosts(results: Sequence[Path]) -> Measured:
    """Read records of several machines, which are told apart by their hosts; raises `UserError` if there is none.

    A trial over several nodes says nothing about one of them, so it is not counted.
    """
    records, faults = store.read(list(results))
    of_one = [record for record in records if record.case.nodes == 1]
    if not of_one:
        what = "record of one node" if records else "record"
        raise UserError(
            f"no {what} was read from {', '.join(map(str, results))}; name the folder of a fleet, or runs of hosts"
        )
    nodes: dict[str, Node] = {}
    runs: dict[str, dict[str, int]] = {}
    for record in of_one:
        host = record.machine.host
        of_host = runs.setdefault(host, {})
        number = of_host.setdefault(record.run_id, len(of_host))
        add(nodes.setdefault(host, Node(host)), number, record)
    return Measured(dict(sorted(nodes.items())), 0, faults, multi_node_trials=len(records) - len(of_one))


def read(results: Sequence[Path]) -> Measured:
    """Read a fleet, or the runs of several machines; raises `UserError` if several fleets are named."""
    fleets = [result for result in results if (result / store.FLEET).exists()]
    if not fleets:
        return read_hosts(results)
    if len(results) > 1:
        raise UserError(f"{fleets[0]} is a whole fleet; show it alone, or name runs of its nodes")
    return read_fleet(fleets[0])


def add(node: Node, number: int, record: Record) -> None:
    """Add a trial of the node's nth run."""
    node.trials += 1
    if record.error is not None:
        node.failures[f"{record.error.stage} ({record.error.kind}): {record.error.message}"] += 1
        return
    if record.case.is_emulated:
        return
    case = msgspec.json.encode(factors_of(record.case)).decode()
    at = (number, record.trial)
    for (device, part), step_s in _levels(record).items():
        unit = Unit(node.name, device)
        node.step_s.setdefault(CasePart(case, part), {}).setdefault(unit, {})[at] = step_s
    node.conditions.setdefault(case, {})[at] = conditions(record)
    node.properties |= properties(record)


def _levels(record: Record) -> dict[tuple[int | None, Part], float]:
    """Return the median step time of each independent device, with and without the others, or of all."""
    if not record.case.independent:
        return {(None, ""): float(np.median(step_times(record)))}
    assert record.blocks is not None
    steps = record.blocks.steps_per_block * 1e9
    levels: dict[tuple[int | None, Part], float] = {
        (rank.rank, "together"): float(np.median(rank.duration_ns)) / steps for rank in record.ranks
    }
    if times := local_times(record):
        levels |= {(device, "alone"): alone_s for device, alone_s in enumerate(times.alone_s)}
    return levels


def properties(record: Record) -> dict[str, str]:
    """Return what the machine is and how it is set, without its name and without what changes from trial to trial."""
    machine = record.machine
    known: dict[str, object] = {**environment_of(record), "os": machine.os, "kernel": machine.kernel}
    del known["host"]
    known |= {
        "governor": machine.cpu.governor,
        "SMT": machine.cpu.smt,
        "maximum MHz": machine.cpu.frequency_max_MHz,
    }
    known |= {"CPU quota": machine.cpu_quota_cores, "virtualization": machine.virtualization}
    known |= {"container": machine.container, "GPUs": len(machine.gpus)}
    known["memory GiB"] = round(machine.memory_bytes / 2**30)
    for name in ("name", "driver", "power_limit_W", "ecc", "mig"):
        values = sorted({str(getattr(gpu, name)) for gpu in machine.gpus})
        if values:
            known[f"GPU {name.replace('_', ' ')}"] = ", ".join(values)
    return {name: str(value) for name, value in known.items() if value is not None} | dict(record.software.variables)


def conditions(record: Record) -> dict[str, float]:
    """Return the state of the machine in the timed part: what disturbs, clocks and temperatures.

    Of several devices it is the median, of slowdowns the sum.
    """
    quantities: dict[str, float | None] = {}
    if seen := record.interference:
        quantities |= {
            "cores busy with other work": seen.other_busy_cores,
            "% stolen by the hypervisor": seen.steal_percent,
            "% of the time waiting for a core": seen.pressure_percent,
            "s throttled by its cgroup": seen.throttled_s,
            "MHz of the processor": seen.frequency_MHz,
            "°C of the processor": seen.temperature_C,
        }
    by_quantity: dict[str, list[float]] = {}
    for device in record.telemetry:
        if device.measured:
            for name, readings in device.ranges.items():
                by_quantity.setdefault(f"{name} of the device", []).append(readings.mean)
            for word in device.slowdowns:
                by_quantity.setdefault(f"devices slowed down: {word}", []).append(1.0)
    for name, values in by_quantity.items():
        quantities[name] = sum(values) if name.startswith("devices") else median(values)
    return {name: value for name, value in quantities.items() if value is not None and math.isfinite(value)}
