"""The files of profiles: event tables, which are Parquet files beside their records, and profilers' own files.

The summary of an event table is in the metadata of its file.
"""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.formatting import clean
from benchmarker.hooks import names as naming
from benchmarker.records import archive, sides, store
from benchmarker.records.factors import factors_of
from benchmarker.records.profile import Scope, Trace
from benchmarker.records.record import Record
from benchmarker.traces.events import FLOATS, INTEGERS, MEMORY, TEXTS, codes, frame, words
from benchmarker.traces.formats import rocprof
from benchmarker.traces.formats.aten_cost import Causal
from benchmarker.traces.formats.chrome import CAUSAL
from benchmarker.traces.formats.reading import SQLITE, Source
from benchmarker.traces.ingest import LONGEST_NS, Expected, Ingested, foreign, ingest, is_profile

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
        first.startswith(MAGIC)
        or (first.startswith(SQLITE) and is_profile(path))
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
            archive.refuse(result, "event tables")
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
    if first == MAGIC:
        return Profile(path, None, _table(path, causal))
    record = store.read_record(path) if path.suffix == ".json" else None
    if not isinstance(record, Record):
        return Profile(path, None, ingest(path, Expected(causal=causal or "half")))
    if record.trace is None:
        raise UserError(f"{path} has no profile: {record.reasons['trace']}")
    return Profile(path, record, _table(path.with_name(path.stem + EVENTS), causal))


def _table(path: Path, causal: Causal | None) -> Ingested:
    """The event table in a file. Raises `UserError` if it counts causal attention in another way."""
    found = load(path)
    if causal and any(text in found.trace.notes for kind, text in CAUSAL.items() if kind != causal):
        raise UserError(
            f"{path}: its FLOPs were not counted with --causal={causal}; import the profiler's file with it"
        )
    return found


def _record_path(table: Path) -> Path:
    return table.with_name(table.name.removesuffix(EVENTS) + ".json")


_KEY = b"benchmarker"
_TIMES, _DURATIONS = ("ts_ns", "end_ns"), ("dur_ns", "self_ns", "busy_ns", "waiting_ns")
"""Columns with times in ns: none may overflow 64 bits when durations are added to it, or added up."""
MAGIC = b"PAR1"


class _Summary(Struct, frozen=True, forbid_unknown_fields=True):
    trace: Trace
    scopes: list[Scope]


def table(events: pd.DataFrame) -> pa.Table:
    """An event table in Arrow's format, with the number of each row; values that mean "none" are null."""
    columns: dict[str, pa.Array] = {"event_id": pa.array(events.index.to_numpy())}
    for name in TEXTS:
        column = events[name]
        code = codes(column)
        texts = pa.array([str(value) for value in column.cat.categories], pa.string())
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(code, mask=(column == "").to_numpy()), texts)
    for name in INTEGERS:
        values = events[name].to_numpy()
        columns[name] = pa.array(values, mask=values == -1)
    for name in (*FLOATS, *MEMORY):
        if name in events:
            columns[name] = pa.array(events[name].to_numpy(), from_pandas=True)
    return pa.table(columns)


def encode(ingested: Ingested) -> bytes:
    """The file's content."""
    summary = msgspec.json.encode(_Summary(ingested.trace, ingested.scopes))
    sink = io.BytesIO()
    pq.write_table(table(ingested.events).replace_schema_metadata({_KEY: summary}), sink, compression="zstd")
    return sink.getvalue()


def load(path: Path) -> Ingested:
    """The event table in a file, and its summary. Raises `UserError` if the file is not an event table."""
    try:
        regular.check(path)
        held = pq.read_table(path)
        summary = msgspec.json.decode((held.schema.metadata or {})[_KEY], type=_Summary)
        columns = {name: _texts(held[name]) for name in TEXTS}
        columns |= {name: held[name].fill_null(-1).to_numpy().astype(np.int64) for name in INTEGERS}
        floats = (*FLOATS, *(name for name in MEMORY if name in held.column_names))
        columns |= {name: held[name].to_numpy().astype(float) for name in floats}
        if held.num_rows and not -1 <= columns["parent_id"].min() <= columns["parent_id"].max() < held.num_rows:
            raise ValueError("a parent_id is not the number of a row")
        times = [columns[name].astype(float) for name in (*_TIMES, *_DURATIONS)]
        latest, longest = (
            max(time_.max(initial=0) for time_ in times),
            max(time_.sum() for time_ in times[len(_TIMES) :]),
        )
        if min(time_.min(initial=0) for time_ in times) < -1 or latest > 2 * LONGEST_NS or longest > LONGEST_NS:
            raise ValueError("its times are not those of a trace")
        if "memory" in columns["kind"].categories and not set(MEMORY) <= columns.keys():
            raise ValueError("memory events lack their sizes")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise UserError(f"{path}: not an event table of this version: {' '.join(str(error).split())}") from None
    return Ingested(frame(columns, held.num_rows), summary.trace, summary.scopes)


def _texts(column: pa.ChunkedArray) -> pd.Categorical:
    if not pa.types.is_dictionary(column.type):
        raise ValueError("a text column is not dictionary-encoded")
    chunk = column.unify_dictionaries().combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):
        chunk = chunk.chunk(0) if chunk.num_chunks else pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), [""])
    values = chunk.dictionary.to_pylist()
    return words(chunk.indices.fill_null(len(values)).to_numpy(), [*values, ""])
