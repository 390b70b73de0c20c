"""The profiled pass: a trial's case again, in a separate process, for some steps under the framework's profiler.

It does not affect the timing: the trial has ended, and its record is complete except for the profile. An error in this
pass is a reason in that record, not a failure of the trial.
"""

import gzip
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarker.agent.supervisor import run_group
from benchmarker.api.errors import UserError
from benchmarker.api.problem import Divides, divided
from benchmarker.files import atomic
from benchmarker.hooks import parameters, registry
from benchmarker.records import store
from benchmarker.records.record import Harness, Record
from benchmarker.running.context import Context
from benchmarker.worker import protocol
from benchmarker.worker.launch import ending_text
from benchmarker.worker.protocol import Task, folder_of

LEAST_SHARE = 0.002
"""Kernels with a smaller share of the busy time are only in the event table, not in the record."""
_FILES = {".xplane.pb": "**/*.xplane.pb", ".json": "*.json"}
"""Endings of profilers' files, and the patterns by which they are found in the folder of a profile."""


def add_profile(context: Context, record: Record) -> Record:
    """The record with the profile of its case, or with the reason why there is none."""
    start = time.monotonic()
    try:
        record = _profiled(context, record)
    except UserError as error:
        record = without_profile(record, str(error))
    except OSError as error:
        record = without_profile(record, f"{error.filename or 'the system'}: {error.strerror}")
    took_s, harness = time.monotonic() - start, record.harness
    harness = Harness(wall_s=harness.wall_s + took_s, stages_s={**harness.stages_s, "profile": took_s})
    return msgspec.structs.replace(record, harness=harness)


def without_profile(record: Record, reason: str) -> Record:
    """The record with a reason why it has no trace."""
    return msgspec.structs.replace(record, reasons={**record.reasons, "trace": reason})


def _profiled(context: Context, record: Record) -> Record:
    from benchmarker.traces import profile_files
    from benchmarker.traces.ingest import Expected
    from benchmarker.traces.together import ingest_ranks

    case = record.case
    problem = divided(parameters.convert(registry.problem(case.problem), case.params), case.devices, case.parallel)
    formula = problem.collectives(case.mode, case.precision) if isinstance(problem, Divides) else ()
    with tempfile.TemporaryDirectory(dir=context.folder.work) as name:
        variables = _take(context, record, Path(name))
        files = [_file(folder_of(Path(name), rank)) for rank in range(case.ranks)]
        context.listener.on_event(protocol.StageBegan("reading the profile"))
        expected = Expected(
            scopes=problem.scopes(case.mode),
            separable=case.measuring.separable,
            variables=variables,
            collectives=formula or None,
            device=record.device.name if record.device else "",
        )
        profile = ingest_ranks([file for file, _ in files], expected)
        own = zip(store.of_ranks(record.trial_id, case.ranks), files, strict=True)
        folder = context.folder.path
        _write(
            {
                folder / f"{record.trial_id}{profile_files.EVENTS}": profile_files.encode(profile),
                **{
                    folder / f"{rank}.profile{ending}.gz": gzip.compress(file.read_bytes(), 6)
                    for rank, (file, ending) in own
                },
            }
        )
    least = LEAST_SHARE * profile.trace.busy_ns
    return msgspec.structs.replace(
        record,
        trace=profile.trace,
        scopes=profile.scopes,
        kernels=[kernel for kernel in profile.kernels() if kernel.busy_ns >= least],
        reasons={path: reason for path, reason in record.reasons.items() if path != "trace"},
    )


def _write(files: Mapping[Path, bytes]) -> None:
    """Write all files, or none."""
    for path, content in files.items():
        try:
            atomic.write(path, content)
        except OSError as error:
            for written in files:
                written.unlink(missing_ok=True)
            raise UserError(f"cannot write {path}: {error.strerror}") from None


def _take(context: Context, record: Record, into: Path) -> dict[str, str]:
    """Run the worker; returns the environment variables that it ran with."""
    case = record.case
    events: list[protocol.Event] = []

    def listen(event: protocol.Event) -> None:
        if isinstance(event, protocol.StageBegan | protocol.StepsDone):
            context.listener.on_event(event)
        else:
            events.append(event)

    logs = [context.folder.log_path(f"{rank}.profile") for rank in store.of_ranks(record.trial_id, case.ranks)]
    packages = context.packages_of(record.design.case_number)
    task = Task(kind="profile", framework=case.framework, cases=(case,), folder=str(into), packages=packages)
    try:
        with context.nodes(case) as nodes:
            ending = run_group(nodes, task, case.measuring.timeout_s, logs, listen)
        text = ending_text(ending, logs[ending.rank or 0])
    finally:
        for log in logs:
            if log.exists() and log.stat().st_size == 0:
                log.unlink()
    variables: dict[str, str] = {}
    for event in events:
        if isinstance(event, protocol.RecordPart):
            variables |= event.variables or {}
        if isinstance(event, protocol.Failed):
            raise UserError(f"{case.framework}: {event.failure.message}")
        if isinstance(event, protocol.Done):
            return variables
    raise UserError(f"the profiled process failed: {text}")


def _file(folder: Path) -> tuple[Path, str]:
    """The profiler's file, and its ending."""
    for ending, pattern in _FILES.items():
        for path in sorted(folder.glob(pattern)):
            return path, ending
    raise UserError("the profiler wrote no file")
