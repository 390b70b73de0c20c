"""Where traces lie: the event table of a record stands beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.records import store
from benchmarker.records.configurations import factors, label, varying
from benchmarker.records.record import Record
from benchmarker.traces import parquet
from benchmarker.traces.ingest import Ingested, ingest

EVENTS = ".events.parquet"
ANNOTATED = ".annotated.json.gz"


@dataclass(frozen=True, slots=True)
class Profile:
    """A trace, where it was found, and the record that it belongs to, where there is one."""

    path: Path
    record: Record | None
    ingested: Ingested


def profiles(results: Sequence[Path]) -> list[Profile]:
    """Every trace at results: records, event tables, profilers' own files, or folders of records.

    Of a folder, the records without a trace are passed over. Raises `UserError` where a result has none.
    """
    found = []
    for result in results:
        if not result.is_dir():
            found.append(_profile(result))
            continue
        tables = sorted(result.rglob(f"*{EVENTS}"))
        if not tables:
            raise UserError(f"{result} holds no record with a profile; run with --profile")
        found += [_profile(_record_path(table) if _record_path(table).exists() else table) for table in tables]
    return found


def open_trace(result: Path) -> Ingested:
    """The one trace at a result; raises `UserError` where there is none, or more."""
    found = profiles([result])
    if len(found) > 1:
        raise UserError(f"{result} holds {len(found)} profiles; name one record of it, as {found[0].path}")
    return found[0].ingested


def events_of(result: Path) -> pd.DataFrame:
    """The event table at a result."""
    return open_trace(result).events


def names(several: Sequence[Profile]) -> list[str]:
    """What tells traces apart: in what their cases differ, and the trial; of those without a record, the file."""
    cases = [factors(each.record.case) for each in several if each.record]
    if len(cases) < len(several):
        return [str(each.path) for each in several]
    needed = varying(cases)
    for name in reversed(needed.copy()):
        fewer = [each for each in needed if each != name]
        if len({label(case, fewer) for case in cases}) == len({label(case, needed) for case in cases}):
            needed = fewer  # as `compile`, which goes with the framework
    made = [label(case, needed) or str(case["problem"]) for case in cases]
    for further in zip(*(_further(each.record) for each in several if each.record), strict=True):
        more = [text if made.count(name) > 1 else "" for name, text in zip(made, further, strict=True)]
        made = [f"{name} {text}".strip() for name, text in zip(made, more, strict=True)]
    return made


def _further(record: Record) -> tuple[str, str, str]:
    """What tells records of one case apart, as far as it is needed."""
    return "separable" * record.case.measuring.separable, f"trial {record.trial}", f"of run {record.run_id}"


def annotated_path(result: Path) -> Path:
    """Where the annotated trace of a result goes: beside its table."""
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
