"""Where traces are stored: the event table of a record is in the same folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.hooks import names as naming
from benchmarker.records import store
from benchmarker.records.configurations import factors
from benchmarker.records.record import Record
from benchmarker.traces import parquet
from benchmarker.traces.ingest import Ingested, ingest

EVENTS = ".events.parquet"
ANNOTATED = ".annotated.json.gz"


@dataclass(frozen=True, slots=True)
class Profile:
    """A trace, its path, and the record that it belongs to, if there is one."""

    path: Path
    record: Record | None
    ingested: Ingested


def profiles(results: Sequence[Path]) -> list[Profile]:
    """Every trace of the given results: records, event tables, profilers' own files, or folders of records.

    In a folder, records without a trace are skipped. Raises `UserError` if a result has no trace.
    """
    found = []
    for result in results:
        if not result.is_dir():
            found.append(_profile(result))
            continue
        tables = sorted(result.rglob(f"*{EVENTS}"))
        if not tables:
            raise UserError(f"{result} contains no record with a profile; run with --profile")
        found += [_profile(_record_path(table) if _record_path(table).exists() else table) for table in tables]
    return found


def open_trace(result: Path) -> Ingested:
    """The only trace of a result. Raises `UserError` if there is none or more than one."""
    found = profiles([result])
    if len(found) > 1:
        raise UserError(f"{result} contains {len(found)} profiles; name one record in it, such as {found[0].path}")
    return found[0].ingested


def events_of(result: Path) -> pd.DataFrame:
    """The event table of a result."""
    return open_trace(result).events


def names(several: Sequence[Profile]) -> list[str]:
    """Names that distinguish traces: the factors that differ and the trial, or the file if any trace has no record."""
    cases = [factors(each.record.case) for each in several if each.record]
    if len(cases) < len(several):
        return [str(each.path) for each in several]
    named = naming.names(cases)
    made = list(named.each if any(named.each) else named.whole)
    for further in zip(*(_further(each.record) for each in several if each.record), strict=True):
        more = [text if made.count(name) > 1 else "" for name, text in zip(made, further, strict=True)]
        made = [f"{name} {text}".strip() for name, text in zip(made, more, strict=True)]
    return made


def _further(record: Record) -> tuple[str, str, str]:
    """What distinguishes records of one case; each part is used only if needed."""
    return "separable" * record.case.measuring.separable, f"trial {record.trial}", f"of run {record.run_id}"


def annotated_path(result: Path) -> Path:
    """The path of a result's annotated trace, in the same folder as its event table."""
    name = result.name
    for ending in (EVENTS, ".gz", ".json", ".pb", ".xplane"):
        name = name.removesuffix(ending)
    return result.with_name(name + ANNOTATED)


def _profile(path: Path) -> Profile:
    try:
        with path.open("rb") as file:
            first = file.read(4)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if first == parquet.MAGIC:
        return Profile(path, None, parquet.load(path))
    record = store.read_record(path) if path.suffix == ".json" else None
    if not isinstance(record, Record):
        return Profile(path, None, ingest(path))
    if record.trace is None:
        raise UserError(f"{path} has no profile: {record.reasons['trace']}")
    return Profile(path, record, parquet.load(path.with_name(path.stem + EVENTS)))


def _record_path(table: Path) -> Path:
    return table.with_name(table.name.removesuffix(EVENTS) + ".json")
