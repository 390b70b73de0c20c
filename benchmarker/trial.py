"""The parent's side of a trial: start a fresh worker, listen until it ends, and make the record of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

import benchmarker
from benchmarker import machine, plan
from benchmarker.conversation import converse, ending_text
from benchmarker.protocol import Request
from benchmarker.record import SCHEMA_VERSION, Record, nulls

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from benchmarker.api import Case
    from benchmarker.conversation import Ending, Environment, Event


def run_trial(
    run_id: str,
    trial_id: str,
    case: Case,
    trial: int,
    environment: Environment,
    log: Path,
    hear: Callable[[Event], None],
) -> Record:
    """Measure one case in a fresh worker; a worker that fails in any way gives a record that says how."""
    here = machine.describe()
    started_at = machine.utc_now()
    parts: dict[str, Any] = {}
    stages: dict[str, float] = {}
    stage = "start"
    done = False
    failure: dict[str, Any] | None = None

    def gather(event: Event) -> None:
        nonlocal stage, done, failure
        stage = event.get("stage", stage)
        parts.update(event.get("part", {}))
        if "took" in event:
            name, seconds = event["took"]
            stages[name] = seconds
        done = done or "done" in event
        failure = failure or event.get("failure")
        hear(event)

    request = Request(task="trial", framework=case.framework, case=case)
    ending = converse(request, environment, case.measuring.timeout_s, log, gather)
    if failure is None and not done:
        failure = {"kind": _ending_kind(ending), "message": ending_text(ending, log), "stage": stage}
    if failure is not None:
        failure = {**failure, "exit": ending.exit}
    if log.stat().st_size == 0:
        log.unlink()

    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "trial_id": trial_id,
        "trial": trial,
        "started_at": started_at,
        "command": plan.command(case),
        "case": case,
        "status": "failed" if failure else "ok",
        "error": failure,
        "machine": here,
        "software": {
            "python": machine.python_version(),
            "benchmarker": benchmarker.__version__,
            "commit": machine.commit(),
            "libraries": parts.get("libraries", {}),
            "variables": parts.get("variables", {}),
            "threads": parts.get("threads"),
        },
        "harness": {"wall_s": ending.wall_s, "stages_s": stages},
    }
    for name in ("device", "types", "build_s", "compile_s", "check", "preheat", "blocks", "cost", "memory"):
        fields[name] = parts.get(name)
    fields = msgspec.to_builtins(fields)
    if case.device == "cuda" and fields["device"] and "CUDA_VISIBLE_DEVICES" in environment:
        fields["device"]["uuid"] = environment["CUDA_VISIBLE_DEVICES"]  # the one GPU that the worker was shown
    fields["reasons"] = {path: _reason(path, case, parts.keys(), failure) for path in nulls(fields)}
    return msgspec.convert(fields, Record)


def _reason(path: str, case: Case, heard: Collection[str], failure: Mapping[str, Any] | None) -> str:
    """Why the value at `path` of a record is null."""
    if path in machine.REASONS:
        return machine.REASONS[path]
    if path == "software.commit":
        return "benchmarker does not run from a git checkout"
    if re.fullmatch(r"machine\.gpus\[\d+\]\.\w+", path):
        return machine.GPU_REASON
    known = {
        "device.uuid": f"{case.framework} reports none for {case.device}",
        "device.memory_bytes": f"{case.framework} reports none for {case.device}",
        "software.threads": f"{case.framework} cannot tell on this system",
        "memory.device_peak_bytes": f"{case.framework} counts no allocations on {case.device}",
        "cost.tokens": f"{case.problem} has no tokens",
    }
    if failure is not None and path.rpartition(".")[2] not in heard and path.partition(".")[0] not in heard:
        return f"the trial failed in stage {failure['stage']!r}"
    return known[path]


def _ending_kind(ending: Ending) -> str:
    if ending.timed_out:
        return "timeout"
    return "killed" if ending.exit < 0 else "exception"
