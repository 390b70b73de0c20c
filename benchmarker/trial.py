"""The parent's side of a trial: start a fresh worker, listen until it ends, and make the record of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

import benchmarker
from benchmarker import machine, plan, witness
from benchmarker.conversation import converse, ending_text
from benchmarker.protocol import Request
from benchmarker.record import SCHEMA_VERSION, Record, nulls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarker.api import Case
    from benchmarker.conversation import Ending, Environment, Event
    from benchmarker.record import Design


@dataclass(frozen=True, slots=True)
class Process:
    """One process to start: the case that it measures, or the two of a duet, and where it stands in its run."""

    run_id: str
    trial_ids: tuple[str, ...]
    cases: tuple[Case, ...]
    trial: int
    designs: tuple[Design, ...]
    seed: int = 0


def run_process(process: Process, environment: Environment, log: Path, hear: Callable[[Event], None]) -> list[Record]:
    """Measure in a fresh worker; one that fails in any way gives records that say how."""
    accounts = [Account(process, number) for number in range(len(process.cases))]

    def gather(event: Event) -> None:
        for account in accounts:
            account.hear(event)
        hear(event)

    first = process.cases[0]
    request = Request(task="trial", framework=first.framework, cases=process.cases, seed=process.seed)
    ending = converse(request, environment, first.measuring.timeout_s, log, gather)
    for account in accounts:
        if account.failure is None and not account.done:
            account.fail(_ending_kind(ending), ending_text(ending, log))
    if log.stat().st_size == 0:
        log.unlink()
    return [account.record(environment, ending.wall_s, ending.exit) for account in accounts]


def skip(process: Process, reason: str) -> list[Record]:
    """Records of trials that are not begun, and why."""
    accounts = [Account(process, number) for number in range(len(process.cases))]
    for account in accounts:
        account.fail("skipped", reason)
    return [account.record({}, 0.0, None) for account in accounts]


class Account:
    """What is heard of one case while its worker measures, and the record that it makes."""

    def __init__(self, process: Process, number: int) -> None:
        self.process = process
        self.number = number
        self.case = process.cases[number]
        self.machine = machine.describe()
        self.started_at = machine.utc_now()
        self.parts: dict[str, Any] = {}
        self.stages: dict[str, float] = {}
        self.stage = "start"
        self.done = False
        self.failure: dict[str, Any] | None = None

    def hear(self, event: Event) -> None:
        """Take in an event; one with `of` is of the case with that number in the process, others are of all."""
        self.stage = event.get("stage", self.stage)
        if "took" in event:
            name, seconds = event["took"]
            self.stages[name] = seconds
        self.done = self.done or "done" in event
        if event.get("of", self.number) == self.number:
            self.parts.update(event.get("part", {}))
            self.failure = self.failure or event.get("failure")
        elif "failure" in event and self.failure is None:
            self.fail("partner", f"the other case of the duet failed: {event['failure']['message']}")

    def fail(self, kind: str, message: str) -> None:
        """Take down a failure that no event told of."""
        self.failure = {"kind": kind, "message": message, "stage": self.stage}

    def record(self, environment: Environment, wall_s: float, status: int | None) -> Record:
        """The record of the trial, its worker having ended with an exit status."""
        case, parts = self.case, self.parts
        fields: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.process.run_id,
            "trial_id": self.process.trial_ids[self.number],
            "trial": self.process.trial,
            "started_at": self.started_at,
            "command": plan.command(case),
            "case": case,
            "design": msgspec.structs.replace(
                self.process.designs[self.number], partner_first=parts.get("partner_first", [])
            ),
            "status": "failed" if self.failure else "ok",
            "error": {**self.failure, "exit": status} if self.failure else None,
            "machine": self.machine,
            "software": {
                "python": machine.python_version(),
                "benchmarker": benchmarker.__version__,
                "commit": machine.commit(),
                "libraries": parts.get("libraries", {}),
                "variables": parts.get("variables", {}),
                "threads": parts.get("threads"),
            },
            "harness": {"wall_s": wall_s, "stages_s": self.stages},
        }
        for name in _MEASURED:
            fields[name] = parts.get(name)
        fields |= {"trace": None, "scopes": [], "kernels": []}
        fields = msgspec.to_builtins(fields)
        if case.device == "cuda" and fields["device"] and "CUDA_VISIBLE_DEVICES" in environment:
            fields["device"]["uuid"] = environment["CUDA_VISIBLE_DEVICES"]  # the one GPU that the worker was shown
        fields["reasons"] = {path: self._reason(path) for path in nulls(fields)}
        return msgspec.convert(fields, Record)

    def _reason(self, path: str) -> str:
        """Why the value at `path` of the record is null."""
        for reasons in (machine.REASONS, witness.REASONS):
            if path in reasons:
                return reasons[path]
        if path == "software.commit":
            return "benchmarker does not run from a git checkout"
        if re.fullmatch(r"machine\.gpus\[\d+\]\.\w+", path):
            return machine.GPU_REASON
        case, failure = self.case, self.failure
        known = {
            "device.uuid": f"{case.framework} reports none for {case.device}",
            "device.memory_bytes": f"{case.framework} reports none for {case.device}",
            "software.threads": f"{case.framework} cannot tell on this system",
            "memory.device_peak_bytes": f"{case.framework} counts no allocations on {case.device}",
            "memory": "two cases shared the process, and what each took cannot be told apart",
            "cost.tokens": f"{case.problem} has no tokens",
            "trace": "it was not profiled; --profile does",
        }
        if (
            failure is not None
            and path != "trace"
            and not {path.rpartition(".")[2], path.partition(".")[0]} & self.parts.keys()
        ):
            return (
                "it was not begun"
                if failure["kind"] == "skipped"
                else f"the trial failed in stage {failure['stage']!r}"
            )
        return known[path]


_MEASURED = ("device", "types", "build_s", "compile_s", "check", "preheat", "blocks", "cost", "memory", "witnesses")
"""Parts of the record that the worker sends."""


def _ending_kind(ending: Ending) -> str:
    if ending.timed_out:
        return "timeout"
    return "killed" if ending.exit < 0 else "exception"
