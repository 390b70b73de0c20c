"""Where records lie: written whole or not at all, read back with every fault named.

results/<run id>/plan.json          what was asked
results/<run id>/<trial id>.json    a record
results/<run id>/<trial id>.log     what the worker wrote to its standard error, where it wrote anything
results/<run id>/ceilings.json      what its device can reach, where the run was to find that out

and of a trial whose meters had something to read

results/<run id>/<trial id>.telemetry.parquet  the time line of all that they read

and of a trial that was profiled

results/<run id>/<trial id>.events.parquet  its event table
results/<run id>/<trial id>.profile.*.gz    the profiler's own file
results/<run id>/<trial id>.profile.log     what the profiled worker wrote to its standard error
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import BufferedRandom
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from benchmarker import record as schema
from benchmarker.errors import UserError
from benchmarker.plan import Place, Plan
from benchmarker.record import Record

PLAN = "plan.json"
CEILINGS = "ceilings.json"
MANIFEST = "manifest.json"
ENVIRONMENT = "environment.json"
BESIDE = (PLAN, CEILINGS, MANIFEST, ENVIRONMENT)
"""Files in the folder of a run that are no records; the latter two are those of a bundle that was unzipped by hand."""
TELEMETRY = ".telemetry.parquet"

_T = TypeVar("_T", bound=Struct)


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that could not be read as what it should be: where, at which place in it, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def new_id() -> str:
    """A name that sorts by time and does not collide: UTC to the microsecond, then 32 random bits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{secrets.token_hex(4)}"


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path` whole: written beside it, flushed to the disk, then renamed.

    Raises OSError, and then leaves nothing behind.
    """
    with whole(path) as file:
        file.write(content)


@contextmanager
def whole(path: Path) -> Iterator[BufferedRandom]:
    """A file that is written beside `path`, and takes its place when all has gone well; raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too must outlast a power cut
    finally:
        os.close(folder)


def encode(value: Struct) -> bytes:
    """A record or a plan as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


class RunFolder:
    """The folder of one run, held by one process at a time."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan

    def record_path(self, trial_id: str) -> Path:
        """Where the record of a trial lies."""
        return self.path / f"{trial_id}.json"

    def log_path(self, trial_id: str) -> Path:
        """Where the standard error of a trial's worker goes."""
        return self.path / f"{trial_id}.log"

    def events_path(self, trial_id: str) -> Path:
        """Where the event table of a trial's profile lies."""
        return self.path / f"{trial_id}.events.parquet"

    def telemetry_path(self, trial_id: str) -> Path:
        """Where the time line of a trial's meters lies."""
        return self.path / f"{trial_id}{TELEMETRY}"

    def profile_path(self, trial_id: str, ending: str) -> Path:
        """Where the profiler's own file goes, compressed."""
        return self.path / f"{trial_id}.profile{ending}.gz"

    def discard(self, record: Record) -> None:
        """Take a record away."""
        self.record_path(record.trial_id).unlink()

    def save(self, record: Record) -> Path:
        """Write the record; where the disk refuses, rescue it to the folder for temporary files and say so.

        Raises `UserError` after such a rescue, for the run cannot go on.
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
                raise UserError(f"{text}; nor {rescued}: {second.strerror}; the trial is lost") from error
            raise UserError(
                f"{text}; the record lies at {rescued}: make room, move it to {path}, then go on with --resume"
            ) from error
        return path


@contextmanager
def new_run(results: Path, plan: Plan) -> Iterator[RunFolder]:
    """Make and hold a run's folder; raises `UserError` where the results folder cannot be written."""
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
    """Hold the newest run of the same plan that lacks a trial; raises `UserError` where there is none."""
    for file in sorted(results.glob(f"*/{PLAN}"), reverse=True):
        plan = read_plan(file)
        if isinstance(plan, Fault) or not plan.same_as(wanted):
            continue
        if len(done(file.parent, plan)) < len(plan.order):
            with _held(file.parent):
                yield RunFolder(file.parent, plan)
            return
    raise UserError(f"no unfinished run of this plan under {results}; run it without --resume")


def done(path: Path, plan: Plan) -> dict[Place, Record]:
    """The trials of a plan that have a record in `path`; raises `UserError` where a record is damaged or strange."""
    records: dict[Place, Record] = {}
    for file in _record_files(path):
        record = read_record(file)
        if isinstance(record, Fault):
            raise UserError(f"{record}; move it away, then go on with --resume")
        index = record.design.case_number
        if record.run_id != plan.run_id or index >= len(plan.cases) or plan.cases[index] != record.case:
            raise UserError(f"{file}: a record of another run; move it away, then go on with --resume")
        records[index, record.trial] = record
    return records


def read(places: list[Path]) -> tuple[list[Record], list[Fault]]:
    """Every record at `places` (files, run folders, or folders of runs), in order of time, and every fault."""
    records: list[Record] = []
    faults: list[Fault] = []
    for place in places:
        if place.name in BESIDE:
            faults.append(Fault(place, "not a record; name its folder"))
            continue
        files = sorted(_record_files(place))
        if not files:
            faults.append(Fault(place, "holds no record" if place.exists() else "no such file or folder"))
        for file in files:
            record = read_record(file)
            if isinstance(record, Record):
                records.append(record)
            else:
                faults.append(record)
    return sorted(records, key=lambda record: record.trial_id), faults


def read_record(path: Path) -> Record | Fault:
    """The record in one file, or what is wrong with it."""
    return decode(path, schema.read)


def read_plan(path: Path) -> Plan | Fault:
    """The plan in one file, or what is wrong with it."""
    return decode(path, lambda content: msgspec.json.decode(content, type=Plan))


def decode(path: Path, read: Callable[[bytes], _T]) -> _T | Fault:
    """What a file's content is read as, or what is wrong with it."""
    try:
        return read(path.read_bytes())
    except OSError as error:
        return Fault(path, error.strerror or str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, AttributeError) as error:
        return Fault(path, str(error))  # the latter three are of what no run writes, as lists without an end


def _record_files(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from filter(partial(_is_record, place), place.rglob("*.json"))
    elif place.exists():
        yield place


def _is_record(place: Path, file: Path) -> bool:
    """Whether a JSON file below `place` should be a record; hidden folders are not yet where they will be."""
    below = file.relative_to(place).parts
    return file.name not in BESIDE and not any(part.startswith(".") for part in below)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a run's folder against other processes; the hold ends with the process, however it ends."""
    with (path / PLAN).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{path} is held by another process; wait for it, or run without --resume") from None
        yield
