"""The files of a run, in its folder or in a bundle: read one at a time, and checked against the plan."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from benchmarker.bundles.manifest import Manifest, Remark, Trials
from benchmarker.files import atomic, regular
from benchmarker.files.atomic import Fault
from benchmarker.records import ceilings, plan, reading, store
from benchmarker.records.plan import Plan, PlannedTrial
from benchmarker.records.record import Record

MAX_JSON_BYTES = 2**24
"""Largest plan, record or other JSON file. A record this large has more than a million timed blocks."""

ANNOTATED = ".annotated.json.gz"
"""Ending of the traces that `trace` and `sql` store next to a record."""

Content = Callable[[str], bytes | Fault]
"""Returns the content of a file of the run by its path, or why it cannot be read."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as read from its files: its plan, the numbers of its trials, and the faults in its files."""

    plan: Plan | None
    trials: Trials
    faults: tuple[Remark, ...]


def in_folder(folder: Path) -> Content:
    """Return what reads the files of a run in its folder."""

    def content(path: str) -> bytes | Fault:
        file = folder / path
        try:
            if file.stat().st_size > MAX_JSON_BYTES:
                return too_large(path, MAX_JSON_BYTES)
            return regular.content(file)
        except OSError as error:
            return Fault(Path(path), error.strerror or str(error))

    return content


def too_large(path: str, max_bytes: int) -> Fault:
    """Return the fault of a JSON file that exceeds the limit."""
    return Fault(Path(path), f"larger than {max_bytes} bytes, the limit for a JSON file")


def against_manifest(folder: Path, paths: Iterable[str]) -> list[Remark]:
    """Return which files of an unpacked run are not as its manifest states; none if there is no manifest.

    Annotated traces are left out: commands store them next to the records.
    """
    try:
        manifest = Manifest.read(regular.content(folder / store.MANIFEST))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        return [Remark(store.MANIFEST, str(error))]
    there = {path for path in paths if path != store.MANIFEST and not path.endswith(ANNOTATED)}
    faults = []
    for packed in manifest.files:
        if packed.path not in there:
            faults.append(Remark(packed.path, "in the manifest, but not here"))
            continue
        with (folder / packed.path).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != packed.sha256:
                faults.append(Remark(packed.path, "changed: its SHA-256 differs from the manifest"))
    listed = {packed.path for packed in manifest.files}
    return faults + [Remark(path, "not in the manifest") for path in sorted(there - listed)]


def read_run(paths: Iterable[str], content: Content, seen: Callable[[Record], None] | None = None) -> Run:
    """Read the plan and then each record among the files of a run, and check each record against the plan.

    Only one record is in memory at a time; `seen` is called with each that can be read.
    """
    json = sorted(path for path in paths if path.endswith(".json") and not path.startswith(f"{store.SOURCE}/"))
    read = _read(store.PLAN, content) if store.PLAN in json else Fault(Path(store.PLAN), "missing")
    planned = read if isinstance(read, Plan) else None
    faults = [Remark(store.PLAN, read.reason)] if isinstance(read, Fault) else []
    taken: dict[PlannedTrial, str] = {}
    recorded = failed = 0
    for path in json:
        if store.is_beside(PurePosixPath(path).name) and path != store.CEILINGS:
            continue
        read = _read(path, content)
        if isinstance(read, Fault):
            faults.append(Remark(path, read.reason))
        elif isinstance(read, Record):
            recorded += 1
            failed += read.status == "failed"
            if planned:
                faults += [Remark(path, reason) for reason in _against_plan(planned, path, read, taken)]
            if seen:
                seen(read)
    return Run(planned, Trials(len(planned.order) if planned else 0, recorded, failed), tuple(faults))


def _read(path: str, content: Content) -> Plan | Record | ceilings.File | Fault:
    bytes_read = content(path)
    if isinstance(bytes_read, Fault):
        return bytes_read
    if path == store.PLAN:
        return atomic.parse(Path(path), bytes_read, plan.read)
    if path == store.CEILINGS:
        return atomic.parse(Path(path), bytes_read, ceilings.decode)
    return atomic.parse(Path(path), bytes_read, reading.read)


def _against_plan(planned: Plan, path: str, record: Record, taken: dict[PlannedTrial, str]) -> list[str]:
    """Return why a record is not that of a trial of the plan; `taken` has the paths of the trials before it."""
    reasons = []
    number, trial = record.design.case_number, record.trial
    if path != f"{record.trial_id}.json":
        reasons.append(f"contains trial {record.trial_id}; a record must be named after its trial")
    if record.run_id != planned.run_id:
        reasons.append(f"belongs to run {record.run_id}, not to {planned.run_id}")
    if number >= len(planned.cases) or trial >= planned.trials:
        reasons.append(f"trial {trial} of case {number} is not in the plan")
    elif planned.cases[number] != record.case:
        reasons.append(f"its case differs from case {number} of the plan")
    elif planned.suite_of(number) != record.suite:
        reasons.append("its suite is not that of the plan")
    elif planned.session_of(trial) != record.design.session:
        reasons.append(f"it is of session {record.design.session}, but its round of {planned.session_of(trial)}")
    elif (number, trial) in taken:
        reasons.append(f"same trial of the same case as {taken[number, trial]}")
    taken.setdefault((number, trial), path)
    return reasons
