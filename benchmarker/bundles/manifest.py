"""What a bundle says of itself, and what must hold of the run in it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from benchmarker.files.atomic import Fault
from benchmarker.records import ceilings, store
from benchmarker.records.ceilings import Ceiling
from benchmarker.records.plan import Plan, PlannedTrial
from benchmarker.records.record import Count, Record

FORMAT_VERSION: Literal[1] = 1

_JSON_MAX_BYTES = 2**28
"""More than any record takes; what is larger is not read into memory."""


class Remark(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a run or of a bundle, and what is to be said of it."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Packed(Struct, frozen=True, forbid_unknown_fields=True):
    """A file in a bundle: its path below the run's folder, its size, and its SHA-256 in hexadecimal digits."""

    path: str
    size_bytes: Count
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Trials(Struct, frozen=True, forbid_unknown_fields=True):
    """How many trials were planned, how many left a record, and how many of these failed."""

    planned: Count
    recorded: Count
    failed: Count

    def __str__(self) -> str:
        return f"{self.recorded} of {self.planned} trials recorded, {self.failed} failed"


class _Versioned(Struct):
    format_version: int


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is in a bundle, and what of the run is not."""

    MAX_BYTES: ClassVar[int] = 2**26
    """More than a manifest of a hundred thousand trials takes."""

    format_version: Literal[1]
    benchmarker: str
    run_id: str
    trials: Trials
    left_out: list[Remark]
    files: list[Packed]

    @classmethod
    def read(cls, content: bytes) -> Manifest:
        """The manifest in a file's content; raises ValueError (msgspec.DecodeError is one)."""
        version = msgspec.json.decode(content, type=_Versioned).format_version
        if version > FORMAT_VERSION:
            raise ValueError(f"of format {version}, and this benchmarker reads {FORMAT_VERSION}: update it")
        return msgspec.json.decode(content, type=cls)


@dataclass(frozen=True, slots=True)
class Run:
    """A run as its files tell it: its plan, its records by path, and what does not hold of them."""

    plan: Plan | None
    records: Mapping[str, Record]
    faults: tuple[Remark, ...]

    @property
    def trials(self) -> Trials:
        """The trials, counted."""
        failed = sum(record.status == "failed" for record in self.records.values())
        return Trials(len(self.plan.order) if self.plan else 0, len(self.records), failed)


def is_json(path: str) -> bool:
    """Whether a file is a plan, a record, or another file that a run keeps as JSON."""
    return path.endswith(".json")


def read_run(folder: Path, paths: Iterable[str]) -> Run:
    """Read the plan and the records among the files of a run's folder, and hold each record against the plan."""
    faults: list[Remark] = []
    records: dict[str, Record] = {}
    plan: Plan | None = None
    for path in sorted(filter(is_json, paths)):
        name = PurePosixPath(path).name
        if name in store.BESIDE and path != name:
            continue
        found = _read(folder / path)
        if isinstance(found, Fault):
            faults.append(Remark(path, found.reason))
        elif isinstance(found, Plan):
            plan = found
        elif isinstance(found, Record):
            records[path] = found
    if plan:
        faults += _against_plan(plan, records)
    elif not any(fault.path == store.PLAN for fault in faults):
        faults.append(Remark(store.PLAN, "missing"))
    return Run(plan, records, tuple(faults))


def _read(path: Path) -> Plan | Record | list[Ceiling] | Fault:
    try:
        if path.stat().st_size > _JSON_MAX_BYTES:
            return Fault(path, f"larger than {_JSON_MAX_BYTES} bytes; no record is")
    except OSError as error:
        return Fault(path, error.strerror or str(error))
    if path.name == store.PLAN:
        return store.read_plan(path)
    return ceilings.read(path) if path.name == store.CEILINGS else store.read_record(path)


def _against_plan(plan: Plan, records: Mapping[str, Record]) -> list[Remark]:
    faults = []
    planned, taken = set(plan.order), dict[PlannedTrial, str]()
    for path, record in records.items():
        planned_trial = (record.design.case_number, record.trial)
        if path != f"{record.trial_id}.json":
            faults.append(Remark(path, f"holds trial {record.trial_id}; a record is named after its trial"))
        if record.run_id != plan.run_id:
            faults.append(Remark(path, f"of run {record.run_id}, not of {plan.run_id}"))
        if planned_trial not in planned or planned_trial[0] >= len(plan.cases):
            faults.append(
                Remark(path, f"trial {planned_trial[1]} of case {planned_trial[0]}, which the plan does not have")
            )
        elif plan.cases[planned_trial[0]] != record.case:
            faults.append(Remark(path, f"its case is not case {planned_trial[0]} of the plan"))
        elif planned_trial in taken:
            faults.append(Remark(path, f"the same trial of the same case as {taken[planned_trial]}"))
        taken.setdefault(planned_trial, path)
    return faults


def name_trouble(path: str) -> str | None:
    """Why a path is not plainly that of a file below a folder, on any system; None where it is."""
    parts = path.split("/")
    if not path.isprintable():
        return "a control character in its name"
    if "\\" in path or ":" in path:
        return "a backslash or a colon in its name"
    if path.startswith("/"):
        return "an absolute path"
    if any(part in ("", ".", "..") for part in parts):
        return "a path with an empty part, '.' or '..'"
    if any(part[-1] in ". " for part in parts):
        return "a name that ends in a dot or a space"
    if any(len(part.encode(errors="replace")) > 255 for part in parts):
        return "a name longer than 255 bytes"
    return None


def folded(path: str) -> str:
    """What is the same of two paths that some systems take for one."""
    return unicodedata.normalize("NFC", path).casefold()
