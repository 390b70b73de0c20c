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
    from collections.abc import Callable
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
    failure: dict[str, Any] | None = None

    def gather(event: Event) -> None:
        nonlocal stage, failure
        stage = event.get("stage", stage)
        parts.update(event.get("part", {}))
        if "took" in event:
            name, seconds = event["took"]
            stages[name] = seconds
        failure = failure or event.get("failure")
        hear(event)

    request = Request(task="trial", framework=case.framework, case=case)
    ending = converse(request, environment, case.measuring.timeout_s, log, gather)
    if failure is None and (ending.timed_out or "memory" not in parts):
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
    if fields["device"] and fields["device"]["platform"] == "cuda":
        fields["device"]["uuid"] = environment.get("CUDA_VISIBLE_DEVICES")  # the one GPU that the worker was shown
    failed_in = failure["stage"] if failure else None
    fields["reasons"] = {path: _reason(path, case, failed_in) for path in nulls(fields)}
    return msgspec.convert(fields, Record)


def _reason(path: str, case: Case, failed_in: str | None) -> str:
    """Why the value at `path` of a record is null."""
    if path in machine.REASONS:
        return machine.REASONS[path]
    if re.fullmatch(r"machine\.gpus\[\d+\]\.\w+", path):
        return machine.GPU_REASON
    known = {
        "software.commit": "benchmarker does not run from a git checkout",
        "device.uuid": f"{case.framework} reports none for {case.device}",
        "device.memory_bytes": f"{case.framework} reports none for {case.device}",
        "software.threads": f"{case.framework} cannot tell on this system",
        "memory.device_peak_bytes": f"{case.framework} counts no allocations on {case.device}",
        "cost.tokens": f"{case.problem} has no tokens",
    }
    if failed_in is not None and path not in known:
        return f"the trial failed in stage {failed_in!r}"
    return known[path]


def _ending_kind(ending: Ending) -> str:
    if ending.timed_out:
        return "timeout"
    return "killed" if ending.exit < 0 else "exception"
