"""The time series: all meter readings during a trial, as a Parquet file next to its record (docs/power.md)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarker.api.errors import UserError
from benchmarker.api.meter import Channel
from benchmarker.files import regular

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.power.samplers import Sampled

_CHANNELS = b"benchmarker.channels"
COLUMNS = ("node", "time_ns", "mark", "meter", "id", "domain", "quantity", "what", "value", "reason")
_WORDS = ("mark", "meter", "id", "domain", "quantity", "what", "reason")
_WHOLE = ("node", "time_ns")
_OF_CHANNEL = ("id", "domain", "quantity", "what")
_SCHEMA = pa.schema(
    [(name, pa.string() if name in _WORDS else pa.int64() if name in _WHOLE else pa.float64()) for name in COLUMNS]
)


_OfNode = dict[str, tuple[Channel, ...]]


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """All readings, one per row by node and in order of its time, and the channels of each meter of each node."""

    readings: pd.DataFrame
    channels: Sequence[Mapping[str, tuple[Channel, ...]]]

    def seconds(self) -> pd.Series:
        """Return the time of each reading since the timed part began on its node, or else since its first, s."""
        zero_ns = {}
        for node, of in self.readings.groupby("node"):
            begun = of[of["mark"] == "begin"]
            zero_ns[node] = (begun if len(begun) else of)["time_ns"].iloc[0]
        return (self.readings["time_ns"] - self.readings["node"].map(zero_ns)) / 1e9


def encode(*nodes: Sequence[Sampled]) -> bytes:
    """Encode the readings on each node as Parquet, one per row; the channels are in the file's metadata.

    `node` is the place of the node in the record's `machines`, 0 if there is one. `time_ns` is a time of its monotonic
    clock: times of different nodes cannot be compared. Rows are in order of both. `mark` names the edge of the reading
    (`begin` and `end` of the timed part, `look` in preheat); it is empty for a tick. `value` is in the unit that the
    `quantity` names; if it is null, `reason` states why.
    """
    channels = [{meter.meter: meter.channels for meter in sampled if meter.channels} for sampled in nodes]
    return _written((_table(node, sampled) for node, sampled in enumerate(nodes)), msgspec.json.encode(channels))


def _table(node: int, sampled: Sequence[Sampled]) -> pa.Table:
    """Return the readings of a node in order of time."""
    tables = [_SCHEMA.empty_table()]
    for meter in sampled:
        samples, channels = meter.samples, meter.channels
        readings = [reading for sample in samples for reading in sample.readings]
        columns: dict[str, list[Any]] = {
            "node": [node] * len(readings),
            "time_ns": [sample.time_ns for sample in samples for _ in channels],
            "mark": [sample.mark for sample in samples for _ in channels],
            "meter": [meter.meter] * len(readings),
            **{name: [getattr(channel, name) for channel in channels] * len(samples) for name in _OF_CHANNEL},
            "value": [reading if isinstance(reading, float) else None for reading in readings],
            "reason": ["" if isinstance(reading, float) else reading for reading in readings],
        }
        tables.append(pa.table(columns, _SCHEMA))
    return pa.concat_tables(tables).sort_by("time_ns")


def renamed(path: Path, rename: Callable[[str], str]) -> bytes:
    """Return the time series in a file, encoded, with its texts changed by `rename`; raises `UserError` like `read`."""
    series = read(path)
    table = pa.Table.from_pandas(series.readings, _SCHEMA, preserve_index=False)
    for at, name in enumerate(COLUMNS):
        if name in _WORDS:
            words = table[name].combine_chunks().dictionary_encode()
            texts = pa.array([rename(word) for word in words.dictionary.to_pylist()], pa.string())
            table = table.set_column(at, name, pa.DictionaryArray.from_arrays(words.indices, texts).cast(pa.string()))
    return _written([table], rename(msgspec.json.encode(series.channels).decode()).encode())


def _written(tables: Iterable[pa.Table], channels: bytes) -> bytes:
    """Encode tables one after the other, so that only one has to be in memory."""
    buffer = io.BytesIO()
    schema = _SCHEMA.with_metadata({_CHANNELS: channels})
    with pq.ParquetWriter(buffer, schema, compression="zstd", use_dictionary=list(_WORDS)) as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata))
    return buffer.getvalue()


def read(path: Path) -> TimeSeries:
    """Read the time series in a file; raises `UserError` if it is not one."""
    try:
        regular.check(path)
        table = pq.read_table(path)
        channels = msgspec.json.decode((table.schema.metadata or {}).get(_CHANNELS, b""), type=list[_OfNode])
        return TimeSeries(table.select(COLUMNS).cast(_SCHEMA).to_pandas(), channels)
    except (OSError, KeyError, pa.ArrowException, msgspec.DecodeError) as error:
        raise UserError(f"{path}: not a time series: {' '.join(str(error).split())[:200]}") from None
