"""The parent's side of a trial: start a fresh worker, listen until it ends, and make the record of it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

import benchmarker
from benchmarker import machine, plan, witness
from benchmarker.conversation import converse, ending_text
from benchmarker.power import account
from benchmarker.power.account import Timed
from benchmarker.power.sampling import Sampled, Sampling
from benchmarker.protocol import Request
from benchmarker.record import SCHEMA_VERSION, Record, nulls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarker.api import Case
    from benchmarker.conversation import Ending, Environment, Event
    from benchmarker.power.account import Accounts
    from benchmarker.power.sampler import Found
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a process leaves: the record of each of its cases, and all that was sampled beside it."""

    records: list[Record]
    sampled: list[Sampled]


def run_process(
    process: Process,
    environment: Environment,
    meters: Mapping[str, Found],
    log: Path,
    hear: Callable[[Event], None],
) -> Outcome:
    """Measure in a fresh worker while the meters that found something are read; whatever fails, the records say how."""
    accounts = [Account(process, number, environment) for number in range(len(process.cases))]

    def gather(event: Event) -> None:
        for each in accounts:
            each.hear(event)
        hear(event)

    first, measuring = process.cases[0], process.cases[0].measuring
    request = Request(task="trial", framework=first.framework, cases=process.cases, seed=process.seed)
    alone = len(accounts) == 1
    start, rest_s = time.monotonic(), 0.0
    reading = [name for name, found in meters.items() if found.channels and alone]
    with Sampling(reading, first.device, measuring.power_hz, environment) as sampling:
        if reading:
            hear({"stage": "rest"})
            sampling.rest(measuring.power_idle_s if measuring.wants_power else 0.0)
            rest_s = time.monotonic() - start
            accounts[0].stages["rest"] = rest_s
        request = msgspec.structs.replace(request, sensors=sampling.lines())
        ending = converse(request, environment, measuring.timeout_s, log, gather)
        sampled = sampling.gather()
    for each in accounts:
        if each.failure is None and not each.done:
            each.fail(_ending_kind(ending), ending_text(ending, log))
    if log.stat().st_size == 0:
        log.unlink()
    if alone:
        silent = [Sampled(name, (), found.lacks, []) for name, found in meters.items() if not found.channels]
        accounts[0].settle([*sampled, *silent], sampling.rest_ns)
    return Outcome([each.record(rest_s + ending.wall_s, ending.exit) for each in accounts], sampled)


def skip(process: Process, reason: str) -> list[Record]:
    """Records of trials that are not begun, and why."""
    accounts = [Account(process, number, {}) for number in range(len(process.cases))]
    for each in accounts:
        each.fail("skipped", reason)
    return [each.record(0.0, None) for each in accounts]


class Account:
    """What is heard of one case while its worker measures, and the record that it makes."""

    def __init__(self, process: Process, number: int, environment: Environment) -> None:
        self.process = process
        self.number = number
        self.environment = environment
        self.case = process.cases[number]
        self.machine = machine.describe()
        self.started_at = machine.utc_now()
        self.parts: dict[str, Any] = {}
        self.stages: dict[str, float] = {}
        self.stage = "start"
        self.done = False
        self.failure: dict[str, Any] | None = None
        self.sensed: Accounts | None = None

    def hear(self, event: Event) -> None:
        """Take in an event; one with `of` is of the case with that number in the process, others are of all."""
        self.stage = event.get("stage", self.stage)
        if "took" in event:
            name, seconds = event["took"]
            self.stages[name] = seconds
        self.done = self.done or "done" in event
        if event.get("of", self.number) == self.number:
            self.parts.update(event.get("part", {}))
            device = self.parts.get("device")
            if device and self.case.device == "cuda" and "CUDA_VISIBLE_DEVICES" in self.environment:
                device["uuid"] = self.environment["CUDA_VISIBLE_DEVICES"]  # the one GPU that the worker was shown
            self.failure = self.failure or event.get("failure")
        elif "failure" in event and self.failure is None:
            self.fail("partner", f"the other case of the duet failed: {event['failure']['message']}")

    def fail(self, kind: str, message: str) -> None:
        """Take down a failure that no event told of."""
        self.failure = {"kind": kind, "message": message, "stage": self.stage}

    def settle(self, sampled: Sequence[Sampled], rest_ns: tuple[int, int]) -> None:
        """Take in what the meters read, after the worker has ended."""
        blocks, cost, device = (self.parts.get(name) for name in ("blocks", "cost", "device"))
        timed = None
        if blocks and cost and device:
            steps = len(blocks["duration_ns"]) * blocks["steps_per_block"]
            timed = Timed(
                platform=device["platform"],
                uuid=device["uuid"],
                pci=device["pci"],
                steps=steps,
                samples=steps * cost["samples"],
                step_s=median(blocks["duration_ns"]) / blocks["steps_per_block"] / 1e9,
            )
        self.sensed = account.settle(sampled, timed, rest_ns, 1 / self.case.measuring.power_hz)

    def record(self, wall_s: float, status: int | None) -> Record:
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
        sensed = self.sensed
        fields["energy"] = sensed.energy if sensed else None
        fields["telemetry"] = sensed.telemetry if sensed else []
        fields["meters"] = sensed.meters if sensed else []
        fields = msgspec.to_builtins(fields)
        fields["reasons"] = {path: self._reason(path) for path in nulls(fields)}
        return msgspec.convert(fields, Record)

    def _reason(self, path: str) -> str:
        """Why the value at `path` of the record is null."""
        for reasons in (machine.REASONS, witness.REASONS, self.sensed.reasons if self.sensed else {}):
            if path in reasons:
                return reasons[path]
        if path == "software.commit":
            return "benchmarker does not run from a git checkout"
        if re.fullmatch(r"machine\.gpus\[\d+\]\.\w+", path):
            return machine.GPU_REASON
        case, failure = self.case, self.failure
        known = {
            "device.uuid": f"{case.framework} reports none for {case.device}",
            "device.pci": f"{case.framework} reports none for {case.device}",
            "device.memory_bytes": f"{case.framework} reports none for {case.device}",
            "software.threads": f"{case.framework} cannot tell on this system",
            "memory.device_peak_bytes": f"{case.framework} counts no allocations on {case.device}",
            "memory": "two cases shared the process, and what each took cannot be told apart",
            "cost.tokens": f"{case.problem} has no tokens",
            "trace": "it was not profiled; --profile does",
            "energy": "two cases took turns in one process, and what each took cannot be told apart",
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
