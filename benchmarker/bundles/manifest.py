"""The manifest of a bundle, and the consistency checks on the run in it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from benchmarker.api.numbers import Count
from benchmarker.files.atomic import Fault
from benchmarker.records import ceilings, store
from benchmarker.records.ceilings import Ceiling
from benchmarker.records.plan import Plan, PlannedTrial
from benchmarker.records.record import Record

FORMAT_VERSION: Literal[1] = 1

_JSON_MAX_BYTES = 2**28
"""More than the size of any record; larger files are not read into memory."""


class Remark(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a run or of a bundle, with a remark on it."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Packed(Struct, frozen=True, forbid_unknown_fields=True):
    """A file in a bundle: its path relative to the run's folder, its size, and its SHA-256 in hexadecimal."""

    path: str
    size_bytes: Count
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Trials(Struct, frozen=True, forbid_unknown_fields=True):
    """How many trials were planned, how many have a record, and how many of these failed."""

    planned: Count
    recorded: Count
    failed: Count

    def __str__(self) -> str:
        return f"{self.recorded} of {self.planned} trials recorded, {self.failed} failed"


class _Versioned(Struct):
    format_version: int


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contents of a bundle, and the files of the run that were left out."""

    MAX_BYTES: ClassVar[int] = 2**26
    """More than the size of a manifest of a hundred thousand trials."""

    format_version: Literal[1]
    benchmarker: str
    run_id: str
    trials: Trials
    left_out: list[Remark]
    files: list[Packed]

    @classmethod
    def read(cls, content: bytes) -> Manifest:
        """Decode a manifest. Raises `ValueError` (such as `msgspec.DecodeError`) if it is not valid."""
        version = msgspec.json.decode(content, type=_Versioned).format_version
        if version > FORMAT_VERSION:
            raise ValueError(
                f"format {version} is newer than {FORMAT_VERSION}, which this benchmarker reads: update benchmarker"
            )
        return msgspec.json.decode(content, type=cls)


@dataclass(frozen=True, slots=True)
class Run:
    """A run as read from its files: its plan, its records by path, and the faults in them."""

    plan: Plan | None
    records: Mapping[str, Record]
    faults: tuple[Remark, ...]

    @property
    def trials(self) -> Trials:
        """The numbers of trials."""
        failed = sum(record.status == "failed" for record in self.records.values())
        return Trials(len(self.plan.order) if self.plan else 0, len(self.records), failed)


def is_json(path: str) -> bool:
    """Return whether a file is a plan, a record, or another JSON file of a run."""
    return path.endswith(".json")


def read_run(folder: Path, paths: Iterable[str]) -> Run:
    """Read the plan and the records among the files of a run's folder, and check each record against the plan."""
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
            return Fault(path, f"larger than {_JSON_MAX_BYTES} bytes, the limit for a record")
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
            faults.append(Remark(path, f"contains trial {record.trial_id}; a record must be named after its trial"))
        if record.run_id != plan.run_id:
            faults.append(Remark(path, f"belongs to run {record.run_id}, not to {plan.run_id}"))
        if planned_trial not in planned or planned_trial[0] >= len(plan.cases):
            faults.append(Remark(path, f"trial {planned_trial[1]} of case {planned_trial[0]} is not in the plan"))
        elif plan.cases[planned_trial[0]] != record.case:
            faults.append(Remark(path, f"its case differs from case {planned_trial[0]} of the plan"))
        elif planned_trial in taken:
            faults.append(Remark(path, f"same trial of the same case as {taken[planned_trial]}"))
        taken.setdefault(planned_trial, path)
    return faults


def name_trouble(path: str) -> str | None:
    """Return why a path is not a safe relative file path on every system, or None if it is."""
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
    """Return a form that is equal for two paths that some systems treat as the same."""
    return unicodedata.normalize("NFC", path).casefold()
