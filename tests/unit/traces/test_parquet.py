"""Event tables as files: exact there and back, and nothing else taken for one."""

import re

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import profiles

from benchmarker import UserError
from benchmarker.traces import events, profile_files
from benchmarker.traces.ingest import Ingested, ingest

NAMES = ["'; DROP TABLE x", "<b>", "\x00\x1b\n", "ü😀", "", "n" * (1 << 20), "[red]"]


def made(tmp_path, content: bytes) -> Ingested:
    (tmp_path / "trace").write_bytes(content)
    return ingest(tmp_path / "trace")


def contents() -> dict[str, bytes]:
    hostile = [{"ph": "X", "cat": "cpu_op", "name": name, "ts": at, "dur": 0.5} for at, name in enumerate(NAMES)]
    return {
        "cpu": profiles.small_cpu_space(),
        "gpu": profiles.small_gpu_space(),
        "torch": profiles.torch_json(),
        "hostile": profiles.torch_json(hostile),
    }


@pytest.mark.parametrize("name", contents())
def test_there_and_back(tmp_path, name):
    before = made(tmp_path, contents()[name])
    (tmp_path / "table").write_bytes(profile_files.encode(before))
    after = profile_files.load(tmp_path / "table")
    assert after.trace == before.trace
    assert after.scopes == before.scopes
    assert after.kernels() == before.kernels()
    assert list(after.events.columns) == list(before.events.columns)
    assert after.events.index.equals(before.events.index)
    for column in events.TEXTS:
        assert after.events[column].tolist() == before.events[column].tolist()
    for column in events.INTEGERS:
        assert after.events[column].dtype == "int64"
        assert after.events[column].tolist() == before.events[column].tolist()
    for column in events.FLOATS:
        pd.testing.assert_series_equal(after.events[column], before.events[column])


def test_none_is_null_for_other_readers(tmp_path):
    (tmp_path / "table").write_bytes(profile_files.encode(made(tmp_path, profiles.small_cpu_space())))
    found = pq.read_table(tmp_path / "table")
    assert found["event_id"].to_pylist() == list(range(6))
    assert found["op"].to_pylist()[:3] == [None, None, "dot.1"]
    assert found["end_ns"].to_pylist()[:3] == [None, None, 6000]
    assert found["flops"].to_pylist()[:3] == [None, None, 48.0]


def foreign(path, metadata: dict | None = None, **columns) -> None:
    table = pa.table(columns or {"a": [1, 2]})
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_other_parquet_files_are_refused(tmp_path):
    summary = pq.read_metadata(write(tmp_path)).metadata[b"benchmarker"]
    for metadata in (
        None,
        {b"pandas": b"{}"},
        {b"benchmarker": b"{}"},
        {b"benchmarker": b"\xff"},
        {b"benchmarker": summary},
    ):
        foreign(tmp_path / "other", metadata)
        with pytest.raises(UserError, match=r"other: not an event table of this version: ") as caught:
            profile_files.load(tmp_path / "other")
        assert "\n" not in str(caught.value)


def test_columns_of_other_types_are_refused(tmp_path):
    path = write(tmp_path)
    table = pq.read_table(path)
    for name, values in (("name", [1] * 6), ("ts_ns", ["x"] * 6), ("flops", ["x"] * 6), ("kind", [None] * 6)):
        at = table.column_names.index(name)
        pq.write_table(table.set_column(at, name, pa.array(values)), path)
        with pytest.raises(UserError, match="not an event table of this version"):
            profile_files.load(path)


@pytest.mark.parametrize("name", ["ts_ns", "end_ns", "dur_ns", "self_ns", "busy_ns", "waiting_ns"])
@pytest.mark.parametrize("value", [(1 << 63) - 1, -2, -(1 << 63)])
def test_times_that_overflow_or_are_negative_are_refused(tmp_path, name, value):
    path = write(tmp_path)
    table = pq.read_table(path)
    values = [*table[name].to_pylist()[1:], value]
    pq.write_table(table.set_column(table.column_names.index(name), name, pa.array(values, pa.int64())), path)
    with pytest.raises(UserError, match="not an event table of this version: its times are not those of a trace"):
        profile_files.load(path)


def test_memory_events_without_their_sizes_are_refused(tmp_path):
    path = write(tmp_path)
    table = pq.read_table(path)
    kinds = pa.array(["memory"] * table.num_rows).dictionary_encode()
    pq.write_table(table.set_column(table.column_names.index("kind"), "kind", kinds), path)
    with pytest.raises(UserError, match="memory events lack their sizes"):
        profile_files.load(path)


def write(tmp_path):
    path = tmp_path / "table"
    path.write_bytes(profile_files.encode(made(tmp_path, profiles.small_cpu_space())))
    return path


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path):
    path = write(tmp_path)
    content = path.read_bytes()
    for cut in [*range(1, 40), *range(40, len(content), 199), *range(len(content) - 20, len(content))]:
        path.write_bytes(content[:cut])
        with pytest.raises(UserError, match=re.escape(str(path))) as caught:
            profile_files.load(path)
        assert "\n" not in str(caught.value)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        profile_files.load(tmp_path / "nowhere")


def test_the_summary_is_the_record_of_the_trace(tmp_path):
    summary = msgspec.json.decode(pq.read_metadata(write(tmp_path)).metadata[b"benchmarker"])
    assert summary["trace"]["kernels"] == 4
    assert [each["scope"] for each in summary["scopes"]] == ["attn", "mlp"]
