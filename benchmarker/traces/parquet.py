"""The event table as a Parquet file, with its summary in the file's metadata."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.records.profile import Scope, Trace
from benchmarker.traces.events import FLOATS, INTEGERS, MEMORY, TEXTS, codes, frame, words
from benchmarker.traces.ingest import LONGEST_NS, Ingested

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
