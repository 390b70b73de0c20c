"""The time series: all meter readings during a trial, as a Parquet file next to its record (docs/power.md)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarker.api.errors import UserError
from benchmarker.api.meter import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from benchmarker.power.samplers import Sampled

_CHANNELS = b"benchmarker.channels"
COLUMNS = ("node", "time_ns", "mark", "meter", "id", "domain", "quantity", "what", "value", "reason")
_WORDS = ("mark", "meter", "id", "domain", "quantity", "what", "reason")
_WHOLE = ("node", "time_ns")
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
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for node, one in ((node, one) for node, sampled in enumerate(nodes) for one in sampled):
        for sample in one.samples:
            for channel, reading in zip(one.channels, sample.readings, strict=True):
                known = isinstance(reading, float)
                row = (
                    node,
                    sample.time_ns,
                    sample.mark,
                    one.meter,
                    channel.id,
                    channel.domain,
                    channel.quantity,
                    channel.what,
                    reading if known else None,
                    "" if known else reading,
                )
                for name, value in zip(COLUMNS, row, strict=True):
                    columns[name].append(value)
    channels = [{one.meter: one.channels for one in sampled if one.channels} for sampled in nodes]
    table = pa.table(columns, _SCHEMA).sort_by([(name, "ascending") for name in _WHOLE])
    return _written(table, msgspec.json.encode(channels))


def renamed(path: Path, rename: Callable[[str], str]) -> bytes:
    """Return the time series in a file, encoded, with its texts changed by `rename`; raises `UserError` like `read`."""
    found = read(path)
    table = pa.Table.from_pandas(found.readings, _SCHEMA, preserve_index=False)
    for at, name in enumerate(COLUMNS):
        if name in _WORDS:
            words = table[name].combine_chunks().dictionary_encode()
            texts = pa.array([rename(word) for word in words.dictionary.to_pylist()], pa.string())
            table = table.set_column(at, name, pa.DictionaryArray.from_arrays(words.indices, texts).cast(pa.string()))
    return _written(table, rename(msgspec.json.encode(found.channels).decode()).encode())


def _written(table: pa.Table, channels: bytes) -> bytes:
    buffer = io.BytesIO()
    table = table.replace_schema_metadata({_CHANNELS: channels})
    pq.write_table(table, buffer, compression="zstd", use_dictionary=list(_WORDS))
    return buffer.getvalue()


def read(path: Path) -> TimeSeries:
    """Read the time series in a file, which has no nodes if it is of an earlier version.

    Raises `UserError` if it is not a time series.
    """
    try:
        table = pq.read_table(path)
        channels = msgspec.json.decode((table.schema.metadata or {}).get(_CHANNELS, b""), type=_OfNode | list[_OfNode])
        if isinstance(channels, dict):
            table = table.append_column("node", pa.repeat(0, len(table)))
            channels = [channels]
        return TimeSeries(table.select(COLUMNS).cast(_SCHEMA).to_pandas(), channels)
    except (OSError, KeyError, pa.ArrowException, msgspec.DecodeError) as error:
        raise UserError(f"{path}: not a time series: {' '.join(str(error).split())[:200]}") from None
