"""The parent's side of a trial: start a fresh worker, listen until it ends, and make its record."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from benchmarker.agent.conversation import converse_with_ranks
from benchmarker.agent.remote import LostNodeError
from benchmarker.api.errors import TerminatedError
from benchmarker.hooks import launchers
from benchmarker.machine import counters
from benchmarker.power import samplers
from benchmarker.power.samplers import Readings, Sampled, Sampling
from benchmarker.records import store
from benchmarker.records.record import Design, Record
from benchmarker.running.record_builder import Process, RecordBuilder
from benchmarker.worker.launch import ending_text
from benchmarker.worker.protocol import Task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarker.api.case import Case
    from benchmarker.api.launcher import Allocation
    from benchmarker.records.store import RunFolder
    from benchmarker.running.context import Context
    from benchmarker.worker.launch import Ending, Environment, Event


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a process: the record of each of its cases, and everything that was sampled on each node."""

    records: list[Record]
    sampled: list[list[Sampled]]


class PreemptedError(TerminatedError):
    """The launcher takes the allocation away, or a node; `records` are those of the process that this has ended."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__()
        self.records = records

    @property
    def lost_node(self) -> str:
        """What became of the node; empty if none was lost."""
        errors = [record.error for record in self.records if record.error]
        return next((error.message for error in errors if error.kind == "node"), "")


def run_process(context: Context, process: Process) -> Outcome:
    """Measure in a fresh worker while the available meters are read; any failure is in the records.

    Raises `PreemptedError` if the launcher takes the allocation away meanwhile, or a node on which nothing can be
    started any more. A node of which only the agent was lost gets another one for the next trial.
    """
    environment = context.environment(process.cases[0])
    builders = _builders(process, environment)
    start = time.monotonic()
    try:
        outcome = _run(context, process, environment, builders)
        is_lost = any(each.failure and each.failure["kind"] == "node" for each in builders)
        if not (is_lost and context.allocation and _is_taken(builders, context.allocation)):
            return outcome
    except LostNodeError as error:
        assert context.allocation is not None
        _fail_for_node(builders, str(error), context.allocation.nodes.index(error.node), error.node)
    except TerminatedError:
        if not (context.allocation and _is_taken(builders, context.allocation)):
            raise
    raise PreemptedError([each.record(time.monotonic() - start, None) for each in builders])


def _is_taken(builders: Sequence[RecordBuilder], allocation: Allocation) -> bool:
    """Whether the launcher took the allocation away, or knows of a lost node; if so, that is the trial's failure."""
    lost, where = _lost_node(builders[0].case, allocation), launchers.named(allocation)
    if lost is not None:
        node = allocation.nodes[lost]
        _fail_for_node(builders, f"node {node} was lost, and with it {where}", lost, node)
    elif launchers.ending(allocation) == "preempted":
        for each in _undecided(builders):
            each.fail("preempted", f"the allocation was taken away: {where}")
    else:
        return False
    return True


def _fail_for_node(builders: Sequence[RecordBuilder], message: str, number: int, node: str) -> None:
    """Store that a node was lost, by its number among those of the case."""
    for each in _undecided(builders):
        each.fail("node", message, number * each.case.ranks_per_node, node)


def _undecided(builders: Sequence[RecordBuilder]) -> list[RecordBuilder]:
    """Return the builders of trials that are not over, or of which only a node is known to be lost."""
    return [each for each in builders if not each.done and (each.failure or {"kind": "node"})["kind"] == "node"]


def _lost_node(case: Case, allocation: Allocation) -> int | None:
    """Return the place of a node that was lost while it computed a case with others; None if none was."""
    lost = launchers.lost_nodes(allocation) if case.nodes > 1 else ()
    return next((number for number, node in enumerate(allocation.nodes[: case.nodes]) if node in lost), None)


def _run(context: Context, process: Process, environment: Environment, builders: Sequence[RecordBuilder]) -> Outcome:
    first, measuring = process.cases[0], process.cases[0].measuring
    meters = context.meters(process.cases)
    logs, on_event = log_paths(context.folder, process), context.listener.on_event

    def gather(event: Event) -> None:
        if "meters" in event:
            context.tell(event["meters"], measuring)
        for each in builders:
            each.on_event(event)
        on_event(event)

    task = Task(kind="trial", framework=first.framework, cases=process.cases, seed=process.seed)
    start = time.monotonic()
    reading = [name for name, found in meters.items() if found.channels]
    with Sampling(reading, first.device, measuring.power_hz, environment) as sampling:
        if reading:
            on_event({"stage": "rest"})
            sampling.rest(measuring.power_idle_s if measuring.wants_power else 0.0)
            builders[0].stages["rest"] = time.monotonic() - start
        task = msgspec.structs.replace(task, sensors=sampling.lines())
        kills = counters.oom_kills()
        ending = converse_with_ranks(task, environment, measuring.timeout_s, logs, gather, context.nodes(first))
        killed_here = ending.exit == -signal.SIGKILL and first.nodes == 1
        out_of_memory = killed_here and (counters.oom_kills() or 0) > (kills or 0)
        readings = _readings(process, ending) or [Readings(sampling.gather(), sampling.rest_ns)]
    for each in builders:
        if each.failure is None and (ending.fault or not each.done):
            if out_of_memory and not (ending.fault or ending.timed_out):
                each.fail("out_of_memory", "the kernel ended the worker because memory ran out", ending.rank)
            else:
                text = ending_text(ending, logs[ending.rank or 0])
                each.fail(_ending_kind(ending), text, ending.rank, ending.node)
    for log in logs:
        if log.exists() and log.stat().st_size == 0:
            log.unlink()
    if len(builders) == 1:
        silent = [Sampled(name, (), found.unavailable, []) for name, found in meters.items() if not found.channels]
        builders[0].settle([each and replace(each, sampled=[*each.sampled, *silent]) for each in readings])
    wall_s = builders[0].stages.get("rest", 0.0) + ending.wall_s
    sampled = [each.sampled if each else [] for each in readings]
    return Outcome([each.record(wall_s, ending.exit) for each in builders], sampled)


def _readings(process: Process, ending: Ending) -> list[Readings | None]:
    """Return what the agents' meters read on each of several nodes, None where it did not arrive; none for one node."""
    first = process.cases[0]
    if first.nodes == 1:
        return []
    assert process.allocation is not None
    nothing = None if samplers.meters(first.measuring.power) else Readings([], (0, 0))
    return [ending.readings.get(node, nothing) for node in process.allocation.nodes[: first.nodes]]


def log_paths(folder: RunFolder, process: Process) -> list[Path]:
    """Return the paths of the logs of the process, or of the ranks of its gang."""
    return [folder.log_path(name) for name in store.of_ranks(process.trial_ids[0], process.cases[0].ranks)]


def skip(process: Process, reason: str) -> list[Record]:
    """Records of trials that are not started, with the reason."""
    builders = _builders(process, {})
    for each in builders:
        each.fail("skipped", reason)
    return [each.record(0.0, None) for each in builders]


def not_begun(case: Case) -> Record:
    """The record of a case before any trial: it shows which metrics there are, but has no values."""
    process = Process(run_id="", trial_ids=("",), cases=(case,), trial=0, designs=(Design(),))
    return skip(process, "it was not started")[0]


def _builders(process: Process, environment: Environment) -> list[RecordBuilder]:
    return [RecordBuilder(process, number, environment) for number in range(len(process.cases))]


def _ending_kind(ending: Ending) -> str:
    if ending.lost:
        return "node"
    if ending.fault:
        return "exception"
    if ending.timed_out:
        return "timeout"
    return "killed" if ending.exit is not None and ending.exit < 0 else "exception"
