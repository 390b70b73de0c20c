"""The time line: all that the meters read during a trial, as a Parquet file beside its record (docs/power.md)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarker.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from benchmarker.power.sampling import Sampled

COLUMNS = ("time_ns", "mark", "meter", "id", "domain", "quantity", "what", "value", "reason")
_WORDS = ("mark", "meter", "id", "domain", "quantity", "what", "reason")


def encode(sampled: Sequence[Sampled]) -> bytes:
    """The readings as Parquet, a row each, in order of time.

    `time_ns` is of the monotonic clock; `mark` names the edge at which it was read (`begin` and `end` of the timed
    part, `look` in preheat), of a tick it is empty; `value` is in the unit that the `quantity` names, or null, and then
    `reason` says why.
    """
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for one in sampled:
        for sample in one.samples:
            for channel, reading in zip(one.channels, sample.readings, strict=True):
                known = isinstance(reading, float)
                row = (
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
    kinds = {"time_ns": pa.int64(), "value": pa.float64()} | dict.fromkeys(_WORDS, pa.string())
    table = pa.table({name: pa.array(columns[name], kinds[name]) for name in COLUMNS}).sort_by("time_ns")
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=list(_WORDS))
    return buffer.getvalue()


def read(path: Path) -> pd.DataFrame:
    """The readings of a file, a row each; raises `UserError` where it is none."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: not a time line: {' '.join(str(error).split())[:200]}") from None
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise UserError(f"{path}: not a time line: it lacks the column {missing[0]!r}")
    return table.select(COLUMNS).to_pandas()
