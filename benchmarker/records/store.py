"""Storage of records: they are written atomically, and read back with every fault reported.

results/<run id>/plan.json          the plan
results/<run id>/<trial id>.json    a record
results/<run id>/<trial id>.log     the worker's standard error, if it wrote any
results/<run id>/ceilings.json      the ceilings of the device, if the run measured them

for a trial whose meters had something to read:

results/<run id>/<trial id>.telemetry.parquet  the time series of all readings

for a trial that was profiled:

results/<run id>/<trial id>.events.parquet  its event table
results/<run id>/<trial id>.profile.*.gz    the profiler's own file
results/<run id>/<trial id>.profile.log     the standard error of the profiled worker
"""

from __future__ import annotations

import fcntl
import gc
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.files.atomic import Fault, decode, encode, write
from benchmarker.records import plan as plans
from benchmarker.records import record as schema
from benchmarker.records.plan import Plan, PlannedTrial
from benchmarker.records.record import Record

PLAN = "plan.json"
CEILINGS = "ceilings.json"
MANIFEST = "manifest.json"
ENVIRONMENT = "environment.json"
BESIDE = (PLAN, CEILINGS, MANIFEST, ENVIRONMENT)
"""Files in the folder of a run that are not records; the last two are from a bundle that was unzipped by hand."""
TELEMETRY = ".telemetry.parquet"


def new_id() -> str:
    """Return a name that sorts by time and does not collide: UTC to the microsecond, then 32 random bits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{secrets.token_hex(4)}"


class RunFolder:
    """The folder of one run, locked by one process at a time."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan

    def record_path(self, trial_id: str) -> Path:
        """Return the path of a trial's record."""
        return self.path / f"{trial_id}.json"

    def log_path(self, trial_id: str) -> Path:
        """Return the path of the log with the standard error of a trial's worker."""
        return self.path / f"{trial_id}.log"

    def events_path(self, trial_id: str) -> Path:
        """Return the path of the event table of a trial's profile."""
        return self.path / f"{trial_id}.events.parquet"

    def telemetry_path(self, trial_id: str) -> Path:
        """Return the path of the time series of a trial's meters."""
        return self.path / f"{trial_id}{TELEMETRY}"

    def profile_path(self, trial_id: str, ending: str) -> Path:
        """Return the path of the profiler's own file, compressed."""
        return self.path / f"{trial_id}.profile{ending}.gz"

    def discard(self, record: Record) -> None:
        """Delete a record."""
        self.record_path(record.trial_id).unlink()

    def save(self, record: Record) -> Path:
        """Write the record; if that fails, save it in the folder for temporary files and report that.

        Raises `UserError` in that case, because the run cannot continue.
        """
        path = self.record_path(record.trial_id)
        content = encode(record)
        try:
            write(path, content)
        except OSError as error:
            text = f"cannot write {path}: {error.strerror}"
            rescued = Path(tempfile.gettempdir()) / f"benchmarker-{path.name}"
            try:
                write(rescued, content)
            except OSError as second:
                raise UserError(
                    f"{text}; cannot write {rescued} either: {second.strerror}; the trial is lost"
                ) from error
            raise UserError(
                f"{text}; the record is saved at {rescued}: free space, move it to {path}, then go on with --resume"
            ) from error
        return path


@contextmanager
def new_run(results: Path, plan: Plan) -> Iterator[RunFolder]:
    """Create and lock a run's folder; raises `UserError` if the results folder cannot be written."""
    plan = msgspec.structs.replace(plan, run_id=new_id())
    path = results / plan.run_id
    try:
        path.mkdir(parents=True)
        write(path / PLAN, encode(plan))
    except OSError as error:
        if path.is_dir():
            path.rmdir()
        raise UserError(f"cannot write to {results}: {error.strerror}; name another folder with --results") from error
    with _held(path):
        yield RunFolder(path, plan)


@contextmanager
def unfinished_run(results: Path, wanted: Plan) -> Iterator[RunFolder]:
    """Lock the newest run of the same plan that is missing a trial.

    Raises `UserError` if there is none, and names the plans that cannot be read.
    """
    faults = []
    for file in sorted(results.glob(f"*/{PLAN}"), reverse=True):
        plan = read_plan(file)
        if isinstance(plan, Fault):
            faults.append(plan)
            continue
        if not plan.same_as(wanted):
            continue
        if len(done(file.parent, plan)) < len(plan.order):
            with _held(file.parent):
                yield RunFolder(file.parent, plan)
            return
    unread = "".join(f"; cannot read {fault}" for fault in faults)
    raise UserError(f"no unfinished run of this plan under {results}; run it without --resume{unread}")


def done(path: Path, plan: Plan) -> dict[PlannedTrial, Record]:
    """Return the planned trials with a record in `path`.

    Raises `UserError` if a record is damaged or belongs to another run.
    """
    records: dict[PlannedTrial, Record] = {}
    for file in _record_files(path):
        record = read_record(file)
        if isinstance(record, Fault):
            raise UserError(f"{record}; move it away, then go on with --resume")
        index = record.design.case_number
        if record.run_id != plan.run_id or index >= len(plan.cases) or plan.cases[index] != record.case:
            raise UserError(f"{file}: a record of another run; move it away, then go on with --resume")
        records[index, record.trial] = record
    return records


def read(results: list[Path]) -> tuple[list[Record], list[Fault]]:
    """Return every record in `results` (files, run folders, or folders of runs), in order of time, and every fault."""
    records: list[Record] = []
    faults: list[Fault] = []
    for result in results:
        if result.name in BESIDE:
            faults.append(Fault(result, "not a record; name its folder"))
            continue
        files = sorted(_record_files(result))
        if not files:
            faults.append(Fault(result, "contains no record" if result.exists() else "no such file or folder"))
        with _uncollected():
            for file in files:
                record = read_record(file)
                if isinstance(record, Record):
                    records.append(record)
                else:
                    faults.append(record)
    return sorted(records, key=lambda record: record.trial_id), faults


def read_record(path: Path) -> Record | Fault:
    """Read the record in one file; return a `Fault` if it is invalid."""
    return decode(path, schema.read)


def read_plan(path: Path) -> Plan | Fault:
    """Read the plan in one file; return a `Fault` if it is invalid."""
    return decode(path, plans.read)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the cyclic garbage collector: records make no cycles, and it would look through all of them repeatedly."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _record_files(result: Path) -> Iterator[Path]:
    if result.is_dir():
        yield from filter(partial(_is_record, result), result.rglob("*.json"))
    elif result.exists():
        yield result


def _is_record(result: Path, file: Path) -> bool:
    """Whether a JSON file below `result` should be a record; hidden folders are not yet at their final place."""
    below = file.relative_to(result).parts
    return file.name not in BESIDE and not any(part.startswith(".") for part in below)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Lock a run's folder against other processes; the lock ends with the process, even if it is killed."""
    with (path / PLAN).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{path} is in use by another process; wait for it, or run without --resume") from None
        yield
