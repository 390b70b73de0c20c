"""Storage of records: they are written atomically, and read back with every fault reported.

results/<run id>/plan.json          the plan
results/<run id>/<trial id>.json    a record
results/<run id>/<trial id>.log     the worker's standard error, if it wrote any
results/<run id>/ceilings.json      the ceilings of the device, if the run measured them
results/<run id>/load.json          requests to a server over time, of a run of `serve-load`; it has no plan or record

for a run that was submitted to a launcher:

results/<run id>/job.json           what was submitted; job.toml is the plan file, job.sh the script, job.log its output
results/<run id>/attempt-<n>.json   the nth start of the job: where, and how it ended

for a trial whose meters had something to read:

results/<run id>/<trial id>.telemetry.parquet  the time series of all readings

for a trial that was profiled:

results/<run id>/<trial id>.events.parquet  its event table
results/<run id>/<trial id>.profile.*.gz    the profiler's own file
results/<run id>/<trial id>.profile.log     the standard error of the profiled worker
results/<run id>/cut/                       the same of trials that do not count: their round was repeated

In a process group, the names of logs and profilers' files have the rank after the trial id, unless it is 0:
<trial id>.rank1.log
"""

from __future__ import annotations

import gc
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from benchmarker.api.errors import UserError, attempt
from benchmarker.files import atomic, regular
from benchmarker.files.atomic import Fault, decode, encode, write
from benchmarker.files.locks import locked
from benchmarker.records import archive, reading
from benchmarker.records import plan as plans
from benchmarker.records.plan import Plan, PlannedTrial
from benchmarker.records.record import Record
from benchmarker.records.suite import PlannedSuite

if TYPE_CHECKING:
    from benchmarker.records.archive_rows import Places

PLAN = "plan.json"
CEILINGS = "ceilings.json"
LOAD = "load.json"
MANIFEST = "manifest.json"
ENVIRONMENT = "environment.json"
SOURCE = "source"
"""The folder of the user's files that were measured, in a bundle."""
JOB = "job.json"
FLEET = "fleet.json"
NODE = "node.json"
PLAN_FILE = "job.toml"
ATTEMPT = "attempt-"
CUT = "cut"
"""A folder in that of a run: trials that do not count, because they were repeated with the rest of their round."""
BESIDE = (PLAN, CEILINGS, LOAD, MANIFEST, ENVIRONMENT, JOB, FLEET, NODE)
"""Files in the folder of a run or a fleet that are not records; a manifest is from a bundle unzipped by hand."""
TELEMETRY = ".telemetry.parquet"
WORK = ".work"
"""Folder in that of a run, while a process works on it; one that is there without a lock is of a killed process."""
_RUN = re.compile(r"\d{8}T\d{6}\.\d{6}-[0-9a-f]{8}")
_OF_A_TRIAL = re.compile(rf"({_RUN.pattern})\.(rank\d+\.)?(log|telemetry|events|profile)\b")


def new_id() -> str:
    """Return a name that sorts by time and does not collide: UTC to the microsecond, then 32 random bits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{secrets.token_hex(4)}"


def of_ranks(trial_id: str, ranks: int) -> list[str]:
    """Return how the names of a trial's files begin that each rank has."""
    return [trial_id, *(f"{trial_id}.rank{rank}" for rank in range(1, ranks))]


class RunFolder:
    """The folder of one run, locked by one process at a time."""

    def __init__(self, path: Path, plan: Plan, attempt: int | None = None) -> None:
        self.path = path
        self.plan = plan
        self.attempt = attempt
        """The number of this start of the job, if the run was submitted."""

    @property
    def work(self) -> Path:
        """Return the folder for files in the making."""
        return self.path / WORK

    def is_complete(self) -> bool:
        """Return whether every planned trial has a record; raises `UserError` if a record is damaged."""
        return sum(not is_cut(record) for record in done(self.path, self.plan).values()) == len(self.plan.order)

    def is_superseded(self) -> bool:
        """Return whether the launcher has started the job again, though this process still works for it."""
        return self.attempt is not None and attempt_path(self.path, self.attempt + 1).exists()

    def record_path(self, trial_id: str) -> Path:
        """Return the path of a trial's record."""
        return self.path / f"{trial_id}.json"

    def log_path(self, trial_id: str) -> Path:
        """Return the path of the log with the standard error of a trial's worker."""
        return self.path / f"{trial_id}.log"

    def set_aside(self, record: Record) -> None:
        """Move a record, and then the other files of its trial, to the folder of those that do not count."""
        aside = self.path / CUT
        aside.mkdir(exist_ok=True)
        for file in (self.record_path(record.trial_id), *self.path.glob(f"{record.trial_id}.*")):
            if file.exists():
                file.rename(aside / file.name)

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
        results.mkdir(parents=True, exist_ok=True)
        with locked(results, wait=True):
            _sweep_killed(results)
            path.mkdir()
            write(path / PLAN, encode(plan))
    except OSError as error:
        with suppress(OSError):
            path.rmdir()
        raise UserError(f"cannot write to {results}: {error.strerror}; name another folder with --results") from error
    with continued(RunFolder(path, plan)) as folder:
        yield folder


@contextmanager
def unfinished_run(results: Path, wanted: Plan) -> Iterator[RunFolder]:
    """Lock the newest run of the same plan that is missing a trial.

    Raises `UserError` if there is none, and names the plans that cannot be read.
    """
    faults: list[Fault] = []
    for folder in same_runs(results, wanted, faults):
        if not folder.is_complete():
            with continued(folder):
                yield folder
            return
    unread = "".join(f"; cannot read {fault}" for fault in faults)
    raise UserError(f"no unfinished run of this plan under {results}; run it without --resume{unread}")


def same_runs(results: Path, wanted: Plan, faults: list[Fault]) -> Iterator[RunFolder]:
    """Yield the runs of the same plan, newest first; plans that cannot be read are appended to `faults`."""
    for file in sorted(results.glob(f"*/{PLAN}"), reverse=True):
        plan = read_plan(file)
        if isinstance(plan, Fault):
            faults.append(plan)
        elif plan.same_as(wanted):
            yield RunFolder(file.parent, plan)


def new_submission(results: Path, plan_file: bytes) -> Path:
    """Create the folder of a run that is to be submitted, with its plan file; raises `UserError` if that fails."""
    path = results / new_id()
    with attempt(f"cannot write to {results}", "name another folder with --results"):
        results.mkdir(parents=True, exist_ok=True)
        with locked(results, wait=True):
            path.mkdir()
            write(path / PLAN_FILE, plan_file)
    return path


@contextmanager
def submitted_run(path: Path, plan: Callable[[], Plan], attempt: int, wait: bool) -> Iterator[RunFolder]:
    """Lock the folder of a run that was submitted; `plan` makes its plan if it has none yet.

    Raises `UserError` if another process uses it, unless it is to `wait`.
    """
    with locked(path / PLAN_FILE, wait=True):
        if not (path / PLAN).exists():
            write(path / PLAN, encode(msgspec.structs.replace(plan(), run_id=path.name)))
    with continued(RunFolder(path, plan_of(path), attempt), wait=wait) as folder:
        yield folder


def plan_of(path: Path) -> Plan:
    """Return the plan of the run in a folder; raises `UserError` if it cannot be read."""
    plan = read_plan(path / PLAN)
    if isinstance(plan, Fault):
        raise UserError(f"{plan}; name the folder of a run, such as results/RUN")
    return plan


def attempt_path(path: Path, number: int) -> Path:
    """Return the path of what is known of the nth start of a submitted run's job."""
    return path / f"{ATTEMPT}{number}.json"


def is_beside(name: str) -> bool:
    """Return whether a file of this name in the folder of a run is not a record."""
    return name in BESIDE or name.startswith(ATTEMPT)


def is_cut(record: Record) -> bool:
    """Return whether a trial is to be repeated, because its allocation or a node was taken away meanwhile."""
    return record.error is not None and record.error.kind in ("preempted", "node")


def done(path: Path, plan: Plan) -> dict[PlannedTrial, Record]:
    """Return the planned trials with a record in `path`.

    Raises `UserError` if a record is damaged or belongs to another run.
    """
    records: dict[PlannedTrial, Record] = {}
    for file in _record_files(path, _refuse):
        record = read_record(file)
        if isinstance(record, Fault):
            raise UserError(f"{record}; move it away, then go on with --resume")
        index = record.design.case_number
        if record.run_id != plan.run_id or index >= len(plan.cases) or plan.cases[index] != record.case:
            raise UserError(f"{file}: a record of another run; move it away, then go on with --resume")
        records[index, record.trial] = record
    return records


class Where(Protocol):
    """A condition that selects records."""

    def places(self, parts: Sequence[Path]) -> Places:
        """Return the trials that may fit of parts of an archive."""

    def fitting(self, several: Sequence[tuple[str, Sequence[Record]]]) -> list[list[Record]]:
        """Return the records of each side that fit; sides are given with their names."""


def read(results: Sequence[Path], where: Where | None = None) -> tuple[list[Record], list[Fault]]:
    """Return every record in `results`, in order of time, and every fault.

    A result is a file, the folder of a run, a folder of runs, or an archive, of which only those are read that may fit
    `where`.
    """
    archives: list[Path] = []
    others: list[Path] = []
    for result in results:
        (archives if archive.is_archive(result) else others).append(result)
    records, faults = _read_files(others)
    for result in archives:
        from benchmarker.records import archive_rows  # Arrow takes longer to import than everything else

        with uncollected():
            contents, unread = archive_rows.contents(result, where.places if where else None)
            faults += unread
            for path, content in contents:
                record = atomic.parse(path, content, reading.read)
                if isinstance(record, Record):
                    records.append(record)
                else:
                    faults.append(record)
    return sorted(records, key=lambda record: record.trial_id), faults


def _read_files(results: Iterable[Path]) -> tuple[list[Record], list[Fault]]:
    """Return every record in files, run folders, or folders of runs, and every fault."""
    records: list[Record] = []
    faults: list[Fault] = []
    for result in results:
        if is_beside(result.name):
            faults.append(Fault(result, "not a record; name its folder"))
            continue
        unread: list[OSError] = []
        files = record_files(result, unread.append)
        faults += [Fault(Path(error.filename), str(error.strerror)) for error in unread]
        if not files and not unread:
            faults.append(Fault(result, "contains no record" if result.exists() else "no such file or folder"))
        with uncollected():
            for file in files:
                record = read_record(file)
                if isinstance(record, Record):
                    records.append(record)
                else:
                    faults.append(record)
    return records, faults


def read_record(path: Path) -> Record | Fault:
    """Read the record in one file; return a `Fault` if it is invalid."""
    return decode(path, reading.read)


def read_plan(path: Path) -> Plan | Fault:
    """Read the plan in one file; return a `Fault` if it is invalid."""
    return decode(path, plans.read)


def beside(result: Path, name: str) -> Iterator[tuple[Path, bytes | Fault]]:
    """Yield the path and content of each file of this name in a result, of which each run may have one."""
    if archive.is_archive(result):
        from benchmarker.records import archive_rows

        contents, faults = archive_rows.run_files(result, name)
        yield from contents
        yield from ((fault.path, fault) for fault in faults)
        return
    for file in sorted(result.rglob(name)) if result.is_dir() else [result.with_name(name)]:
        try:
            yield file, regular.content(file)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield file, Fault(file, error.strerror or str(error))


def plans_of(result: Path) -> Iterator[tuple[Path, Plan | Fault]]:
    """Yield the plan of each run of a result, with its path."""
    for path, content in beside(result, PLAN):
        yield path, content if isinstance(content, Fault) else atomic.parse(path, content, plans.read)


def suites(results: Iterable[Path]) -> dict[str, PlannedSuite]:
    """Return the suites in the plans of results, by SHA-256; a plan that cannot be read is left out."""
    read = (plan for result in results for _, plan in plans_of(result))
    return {plan.suite.sha256: plan.suite for plan in read if isinstance(plan, Plan) and plan.suite}


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the cyclic garbage collector: records make no cycles, and it would look through all of them repeatedly."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _refuse(error: OSError) -> None:
    raise UserError(f"{error.filename}: {error.strerror}")


def record_files(result: Path, unread: Callable[[OSError], None]) -> list[Path]:
    """Return the files at `result` that should be records, in order; `unread` is called with each unreadable folder.

    What is hidden is not yet at its final place; archives in it are not looked into.
    """
    return sorted(_record_files(result, unread), key=lambda file: file.parts)


def _record_files(result: Path, unread: Callable[[OSError], None]) -> Iterator[Path]:
    if not result.is_dir():
        if result.exists():
            yield result
        return
    for folder, below, names in os.walk(result, onerror=unread):
        if archive.HEAD in names:
            below.clear()
            continue
        below[:] = [name for name in below if not (name.startswith(".") or (name in (CUT, SOURCE) and PLAN in names))]
        for name in names:
            if name.endswith(".json") and not is_beside(name) and not name.startswith("."):
                yield Path(folder, name)


@contextmanager
def continued(folder: RunFolder, *, wait: bool = False) -> Iterator[RunFolder]:
    """Lock the folder of a run, and sweep out what a killed process left in it.

    Raises `UserError` if another process uses it, unless it is to `wait`.
    """
    path = folder.path
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path / PLAN, wait=wait))
        except BlockingIOError:
            raise UserError(f"{path} is in use by another process; wait for it, or run without --resume") from None
        _sweep(path)
        (path / WORK).mkdir()
        stack.callback(shutil.rmtree, path / WORK, ignore_errors=True)
        yield folder


def _sweep_killed(results: Path) -> None:
    """Sweep the folders of runs whose process was killed; one without a plan had not begun, and is deleted."""
    for path in results.iterdir():
        with suppress(OSError):
            if (path / WORK).is_dir():
                with locked(path / PLAN):
                    _sweep(path)
            elif _RUN.fullmatch(path.name) and not (path / PLAN).exists() and all(map(_is_half, path.iterdir())):
                shutil.rmtree(path)


def _sweep(path: Path) -> None:
    """Delete what a killed process left in a run's folder: half-written files, and files of trials without a record."""
    for file in path.iterdir():
        trial = _OF_A_TRIAL.match(file.name)
        if _is_half(file) or (trial and not (path / f"{trial[1]}.json").exists()):
            file.unlink()
    shutil.rmtree(path / WORK, ignore_errors=True)


def _is_half(file: Path) -> bool:
    """Whether a killed process left the file; what is known of a job is not, as it is written without the lock."""
    of_job = file.name.startswith((f".{JOB}", f".{ATTEMPT}"))
    return file.name.startswith(".") and file.name.endswith(".tmp") and not of_job
