"""The parent's side of a trial: start a fresh worker, listen until it ends, and make its record."""

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarker.agent.node import LostNodeError, sample_all
from benchmarker.agent.supervisor import run_group
from benchmarker.api.case import Case
from benchmarker.api.errors import TerminatedError
from benchmarker.api.launcher import Allocation
from benchmarker.hooks import launchers
from benchmarker.machine import counters
from benchmarker.power import samplers
from benchmarker.power.samplers import Readings, Sampled
from benchmarker.records import store
from benchmarker.records.record import Design, FailureKind, Record
from benchmarker.records.store import RunFolder
from benchmarker.running.context import Context
from benchmarker.running.record_builder import Process, RecordBuilder
from benchmarker.worker.launch import Ending, Environment, ending_text
from benchmarker.worker.protocol import Event, StageBegan, StageEnded, Task


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What a process gave: the record of each of its cases, and everything that was sampled on each node."""

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


def run_process(context: Context, process: Process) -> ProcessResult:
    """Measure in a fresh worker while the available meters are read; any failure is in the records.

    Raises `PreemptedError` if the launcher takes the allocation away meanwhile, or a node on which nothing can be
    started any more. A node of which only the agent was lost gets another one for the next trial.
    """
    environment = context.environment(process.cases[0])
    builders = _builders(process, environment)
    start = time.monotonic()
    try:
        result = _run(context, process, builders)
        is_lost = any(builder.failure and builder.failure.kind == "node" for builder in builders)
        if not (is_lost and context.allocation and _is_taken(builders, context.allocation)):
            return result
    except LostNodeError as error:
        assert context.allocation is not None
        _fail_for_node(builders, str(error), context.allocation.nodes.index(error.node), error.node)
    except TerminatedError:
        if not (context.allocation and _is_taken(builders, context.allocation)):
            raise
    raise PreemptedError([builder.record(time.monotonic() - start, None) for builder in builders])


def _is_taken(builders: Sequence[RecordBuilder], allocation: Allocation) -> bool:
    """Whether the launcher took the allocation away, or knows of a lost node; if so, that is the trial's failure."""
    case, where = builders[0].case, launchers.named(allocation)
    gone = launchers.lost_nodes(allocation) if case.nodes > 1 else ()
    lost = next((number for number, node in enumerate(allocation.nodes[: case.nodes]) if node in gone), None)
    if lost is not None:
        node = allocation.nodes[lost]
        _fail_for_node(builders, f"node {node} was lost, and with it {where}", lost, node)
    elif launchers.ending(allocation) == "preempted":
        for builder in _undecided(builders):
            builder.fail("preempted", f"the allocation was taken away: {where}")
    else:
        return False
    return True


def _fail_for_node(builders: Sequence[RecordBuilder], message: str, number: int, node: str) -> None:
    """Store that a node was lost, by its number among those of the case."""
    for builder in _undecided(builders):
        builder.fail("node", message, number * builder.case.ranks_per_node, node)


def _undecided(builders: Sequence[RecordBuilder]) -> list[RecordBuilder]:
    """Return the builders of trials that are not over, or of which only a node is known to be lost."""
    return [
        builder for builder in builders if not builder.done and (not builder.failure or builder.failure.kind == "node")
    ]


def _run(context: Context, process: Process, builders: Sequence[RecordBuilder]) -> ProcessResult:
    first, measuring = process.cases[0], process.cases[0].measuring
    logs, on_event = log_paths(context.folder, process), context.listener.on_event

    def dispatch(event: Event) -> None:
        for builder in builders:
            builder.on_event(event)
        on_event(event)

    packages = context.packages_of(process.designs[0].case_number)
    task = Task(kind="trial", framework=first.framework, cases=process.cases, seed=process.seed, packages=packages)
    rest_s = 0.0
    with context.nodes(first) as nodes:
        start = time.monotonic()
        for builder in builders:
            builder.machines = [node.machine for node in nodes if node.machine]
        try:
            if len(process.cases) == 1 and samplers.meters(measuring.power):
                on_event(StageBegan("rest"))
                sample_all(nodes, first)
                context.report_meters(nodes, measuring)
                if any(probe.channels for node in nodes for probe in (node.probes or {}).values()):
                    rest_s = time.monotonic() - start
                    dispatch(StageEnded("rest", rest_s))
            kills = counters.oom_kills()
            ending = run_group(nodes, task, measuring.timeout_s, logs, dispatch, context.down)
        except LostNodeError as error:
            ending = Ending(None, False, time.monotonic() - start, node=error.node, lost=str(error))
        ran_out = first.nodes == 1 and (counters.oom_kills() or 0) > (kills or 0)
        out_of_memory = ending.exit == -signal.SIGKILL and ran_out
    nothing = None if samplers.meters(measuring.power) else Readings([], (0, 0))
    readings = [node.readings or nothing for node in nodes]
    for builder in builders:
        if builder.failure and builder.failure.exit == -signal.SIGKILL and ran_out:
            builder.fail("out_of_memory", "the kernel ended the program because memory ran out")
        if builder.failure is None and (ending.fault or not builder.done):
            if out_of_memory and not (ending.fault or ending.timed_out):
                builder.fail("out_of_memory", "the kernel ended the worker because memory ran out", ending.rank)
            else:
                text = ending_text(ending, logs[ending.rank or 0])
                builder.fail(_ending_kind(ending), text, ending.rank, ending.node)
    for log in logs:
        if log.exists() and log.stat().st_size == 0:
            log.unlink()
    if len(builders) == 1:
        builders[0].finish_energy(readings)
    sampled = [node.sampled if node else [] for node in readings]
    return ProcessResult([builder.record(rest_s + ending.wall_s, ending.exit) for builder in builders], sampled)


def log_paths(folder: RunFolder, process: Process) -> list[Path]:
    """Return the paths of the logs of the process, or of its ranks."""
    return [folder.log_path(name) for name in store.of_ranks(process.trial_ids[0], process.cases[0].ranks)]


def skip(process: Process, reason: str) -> list[Record]:
    """Records of trials that are not started, with the reason."""
    builders = _builders(process, {})
    for builder in builders:
        builder.fail("skipped", reason)
    return [builder.record(0.0, None) for builder in builders]


def not_begun(case: Case) -> Record:
    """The record of a case before any trial: it shows which metrics there are, but has no values."""
    process = Process(run_id="", trial_ids=("",), cases=(case,), trial=0, designs=(Design(),))
    return skip(process, "it was not started")[0]


def _builders(process: Process, environment: Environment) -> list[RecordBuilder]:
    return [RecordBuilder(process, number, environment) for number in range(len(process.cases))]


def _ending_kind(ending: Ending) -> FailureKind:
    if ending.lost:
        return "node"
    if ending.fault:
        return "exception"
    if ending.timed_out:
        return "timeout"
    return "killed" if ending.exit is not None and ending.exit < 0 else "exception"
