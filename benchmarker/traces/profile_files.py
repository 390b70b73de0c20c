"""Where traces are stored: the event table of a record is in the same folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.formatting import clean
from benchmarker.hooks import names as naming
from benchmarker.records import sides, store
from benchmarker.records.factors import factors_of
from benchmarker.records.record import Record
from benchmarker.traces import parquet
from benchmarker.traces.formats import databases, rocprof
from benchmarker.traces.formats.aten_cost import Causal
from benchmarker.traces.formats.chrome import CAUSAL
from benchmarker.traces.formats.source import Source
from benchmarker.traces.ingest import Expected, Ingested, foreign, ingest

EVENTS = ".events.parquet"
ANNOTATED = ".annotated.json.gz"
_ENDINGS = (".gz", ".json", ".parquet", ".pb", ".sqlite", ".db", ".csv")


@dataclass(frozen=True, slots=True)
class Profile:
    """A trace, its path, the record that it belongs to, if there is one, and the name of its side, if it has one."""

    path: Path
    record: Record | None
    ingested: Ingested
    side: str = ""


def is_trace(path: Path) -> bool:
    """Whether a file looks like an event table or a profiler's trace; it may still be damaged."""
    first = _beginning(path)
    return (
        first.startswith(parquet.MAGIC)
        or (first.startswith(databases.MAGIC) and databases.is_profile(path))
        or rocprof.is_file(first)
        or first.lstrip()[:1] == b"["
        or b'"traceEvents"' in first
        or (bool(first) and path.name.removesuffix(".gz").endswith(".pb"))
    )


def what_else(path: Path) -> str:
    """What a file is if it is neither a trace nor JSON; empty if it may be one of these, or is no file."""
    first = _beginning(path)
    if not first or is_trace(path):
        return ""
    return foreign(first) or ("" if first.lstrip()[:1] in (b"", b"{") else "not a record and not a trace")


def traces_in(folder: Path) -> Path | None:
    """A trace in a folder that contains no JSON file that could be a record; None if there is none."""
    found = []
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.suffix in _ENDINGS and is_trace(path):
            found.append(path)
        elif path.suffix == ".json":
            return None
    return min(found, default=None)


def traces_of(result: Path) -> list[Path]:
    """The result itself, or the traces in a folder, in order of their names: its event tables if it has any."""
    if not result.is_dir():
        return [result]
    found = [path for path in sorted(result.iterdir()) if path.suffix in _ENDINGS and is_trace(path)]
    tables = [path for path in found if path.name.endswith(EVENTS)]
    if not found:
        raise UserError(f"{result} contains no trace; name traces, or a folder of them")
    return tables or [path for path in found if not path.name.endswith(ANNOTATED)]


def _beginning(path: Path) -> bytes:
    """The first bytes of a file, decompressed; empty if it is no file or cannot be read."""
    if not path.is_file():
        return b""
    try:
        return next(Source(path).pieces(), b"")
    except UserError:
        return b""


def profiles(results: Sequence[Path], causal: Causal | None = None, *, pool: bool = False) -> list[Profile]:
    """Every trace of the given results: records, event tables, profilers' own files, or folders of records.

    Those of several folders are on the side of theirs, unless `pool`.

    `causal` is how to count FLOPs of causal attention; an event table must have been made so. In a folder, records
    without a trace are skipped. Raises `UserError` if a result has no trace.
    """
    side_of = {path: side for side, paths in sides.named(results, pool=pool) for path in paths}
    found = []
    for result in results:
        if not result.is_dir():
            found.append(replace(_profile(result, causal), side=side_of[result]))
            continue
        tables = sorted(result.rglob(f"*{EVENTS}"))
        if not tables:
            inside = traces_in(result)
            remedy = f"name one of its traces, such as {inside}" if inside else "run with --profile"
            raise UserError(f"{result} contains no record with a profile; {remedy}")
        paths = [_record_path(table) if _record_path(table).exists() else table for table in tables]
        found += [replace(_profile(path, causal), side=side_of[result]) for path in paths]
    return found


def open_profile(result: Path, causal: Causal | None = None) -> Profile:
    """The only profile of a result. Raises `UserError` if there is none or more than one."""
    found = profiles([result], causal)
    if len(found) > 1:
        raise UserError(f"{result} contains {len(found)} profiles; name one record in it, such as {found[0].path}")
    return found[0]


def open_trace(result: Path, causal: Causal | None = None) -> Ingested:
    """The only trace of a result. Raises `UserError` if there is none or more than one."""
    return open_profile(result, causal).ingested


def events_of(result: Path) -> pd.DataFrame:
    """The event table of a result."""
    return open_trace(result).events


def names(several: Sequence[Profile]) -> list[str]:
    """Names that distinguish traces: the configuration and the trial, or the file if any trace has no record."""
    made = configurations(several)
    records = [each.record for each in several if each.record]
    if len(records) < len(several):
        return made
    made = _apart(made, [f"trial {record.trial}" for record in records])
    return _apart(made, [f"of run {record.run_id}" for record in records])


def configurations(several: Sequence[Profile]) -> list[str]:
    """The side and configuration of each trace, by the factors that differ; the file if any trace has no record."""
    records = [each.record for each in several if each.record]
    if len(records) < len(several):
        return [clean(str(each.path)) for each in several]
    named = naming.names([factors_of(record.case) for record in records])
    short = named.each if any(named.each) or any(each.side for each in several) else named.whole
    made = _apart(short, ["separable" * record.case.measuring.separable for record in records])
    return [": ".join(filter(None, (each.side, name))) for each, name in zip(several, made, strict=True)]


def _apart(made: Sequence[str], further: Sequence[str]) -> list[str]:
    """The names; where several are the same, with what distinguishes them further."""
    number = Counter(made)
    return [f"{name} {text}".strip() if number[name] > 1 else name for name, text in zip(made, further, strict=True)]


def annotated_path(result: Path) -> Path:
    """The path of a result's annotated trace, in the same folder as its event table."""
    name = result.name
    for ending in (EVENTS, ".gz", ".json", ".pb", ".xplane", ".sqlite", ".db", ".csv"):
        name = name.removesuffix(ending)
    return result.with_name(name + ANNOTATED)


def _profile(path: Path, causal: Causal | None) -> Profile:
    try:
        with regular.opened(path) as file:
            first = file.read(4)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if first == parquet.MAGIC:
        return Profile(path, None, _table(path, causal))
    record = store.read_record(path) if path.suffix == ".json" else None
    if not isinstance(record, Record):
        return Profile(path, None, ingest(path, Expected(causal=causal or "half")))
    if record.trace is None:
        raise UserError(f"{path} has no profile: {record.reasons['trace']}")
    return Profile(path, record, _table(path.with_name(path.stem + EVENTS), causal))


def _table(path: Path, causal: Causal | None) -> Ingested:
    """The event table in a file. Raises `UserError` if it counts causal attention in another way."""
    found = parquet.load(path)
    if causal and any(text in found.trace.notes for kind, text in CAUSAL.items() if kind != causal):
        raise UserError(
            f"{path}: its FLOPs were not counted with --causal={causal}; import the profiler's file with it"
        )
    return found


def _record_path(table: Path) -> Path:
    return table.with_name(table.name.removesuffix(EVENTS) + ".json")
