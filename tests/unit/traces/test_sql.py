"""Perfetto's SQL: its engines, what they dropped, and what is wrong with a trace or a query."""

import gzip
import json
import re
import sys
from pathlib import Path

import platformdirs
import pytest
from support import trace_processor

from benchmarker import UserError
from benchmarker.hooks.registry import installing
from benchmarker.traces import sql


def slices(*rows: tuple[str, float, float]) -> str:
    made = [{"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 5} for name, ts, dur in rows]
    return json.dumps({"traceEvents": made})


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No engine that is found, and no way to download one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(platformdirs.user_cache_path()))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def trace(tmp_path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(slices(("a", 0, 10), ("b", 2, 3)))
    return path


@pytest.fixture
def program(tmp_path) -> Path:
    path = tmp_path / "trace_processor_shell"
    trace_processor.write_program(path)
    return path


def test_a_query_gives_exact_values(trace):
    with trace_processor.open_trace(trace) as opened:
        found = opened.query(
            "SELECT 9223372036854775807 AS i, 1 AS n, 1.5 AS f, 'ü' AS t, x'00ff' AS b, 1 AS twice, 2 AS twice "
            "UNION ALL SELECT -9223372036854775807, NULL, NULL, NULL, NULL, 3, 4"
        )
        assert found.columns.tolist() == ["i", "n", "f", "t", "b", "twice", "twice"]
        assert [str(kind) for kind in found.dtypes] == [
            "int64",
            "Int64",
            "float64",
            "object",
            "object",
            "int64",
            "int64",
        ]
        assert found.i.tolist() == [9223372036854775807, -9223372036854775807]
        assert found.t.tolist() == ["ü", None]
        assert found.b.tolist() == [b"\x00\xff", None]
        assert opened.query("SELECT name, ts FROM slice WHERE dur = 7").shape == (0, 2)
        assert opened.query("CREATE PERFETTO TABLE mine AS SELECT 1 AS one").empty
        assert opened.query("SELECT one FROM mine").one.tolist() == [1]


def test_what_was_dropped_is_told(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(slices(("a", 0, 10), ("b", 5, 10)).encode()))
    with trace_processor.open_trace(path) as opened:
        assert opened.dropped() == {"slice_drop_overlapping_complete_event": 1}
        assert opened.query("SELECT name, dur FROM slice").values.tolist() == [["a", 10_000]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT foo FROM bar", r"no such table: bar \(line 1 col 1\)"),
        ("SELECT\n1 +\nFROM slice", r"syntax error \(line 3 col 1\)"),
        ("", "No valid SQL"),
        ("INCLUDE PERFETTO MODULE slices.slices", "unknown module"),
    ],
)
def test_a_wrong_query_is_told_in_one_line(trace, sql, message):
    with trace_processor.open_trace(trace) as opened:
        with pytest.raises(UserError, match=message) as caught:
            opened.query(sql)
        assert "\n" not in str(caught.value)
        assert len(opened.query("SELECT * FROM slice")) == 2


WHOLE = slices(*((f"slice {number}", 20.0 * number, 10.0) for number in range(100))).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n",
        b"{}",
        b"hello" * 100,
        bytes(range(256)) * 10,
        WHOLE[:-1],
        WHOLE[: len(WHOLE) // 2],
        WHOLE[: len(WHOLE) // 2] + b"}",
        b'[{"ph":"X","name":"a","ts":0,"dur":1,"pid":1,"tid":1},{"ph":"X","na',
        WHOLE.replace(b"}, {", b"},, {", 1),
        WHOLE.replace(b"slice 5", b"slice \xff\xfe\x00\\ud83d", 1).replace(b'"ts"', b"\xff\x1b\n" * 1000, 1),
        gzip.compress(WHOLE)[:-4],
        gzip.compress(WHOLE)[:200],
        gzip.compress(WHOLE)[:100] + b"\0" * 50,
        gzip.compress(b"", mtime=0),
        b"\x1f\x8b",
    ],
)
def test_a_broken_trace_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(UserError, match="perfetto cannot read") as caught, trace_processor.open_trace(path):
        pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_no_trace_there(tmp_path):
    with pytest.raises(UserError, match="no trace at"), sql.open_trace(tmp_path / "none"):
        pass


def test_after_a_crash_every_query_says_so(trace):
    with trace_processor.open_trace(trace) as opened:
        opened._backend.transport.close()
        with pytest.raises(UserError, match="it has stopped"):
            opened.query("SELECT 1")


def test_a_program_answers_as_an_engine_in_this_process_does(trace, program):
    with sql.open_trace(trace, engine=program) as opened:
        assert opened.query("SELECT name FROM slice").name.tolist() == ["a", "b"]
        assert opened.dropped() == {}
        with pytest.raises(UserError, match="no such table"):
            opened.query("SELECT 1 FROM nowhere")
        with pytest.raises(UserError, match="engine stopped"):
            opened.query("SELECT 'please crash'")


def test_a_program_that_got_half_a_trace(program, tmp_path):
    (tmp_path / "half").write_bytes(WHOLE[: len(WHOLE) // 2] + b"}")
    with pytest.raises(UserError, match="cannot read"), sql.open_trace(tmp_path / "half", engine=program):
        pass


@pytest.mark.parametrize("content", ["", "#!/nowhere/at/all\n", f"#!{sys.executable}\nraise SystemExit('no')\n"])
def test_a_program_that_is_none(trace, tmp_path, content):
    path = tmp_path / "program"
    path.write_text(content)
    path.chmod(0o755)
    with pytest.raises(UserError, match="cannot run"), sql.open_trace(trace, engine=path):
        pass
    with pytest.raises(UserError, match="no trace processor at"), sql.open_trace(trace, engine=tmp_path / "none"):
        pass


def test_engines_are_looked_for_in_order(tmp_path, program, monkeypatch):
    assert sql._on_path() is None  # a script of that name may download
    program.write_bytes(b"\x7fELF")
    assert sql._on_path() == program
    program.unlink()
    assert sql._on_path() is None
    assert sql._downloaded() is None
    from perfetto.prebuilts.manifests.trace_processor_shell import TRACE_PROCESSOR_SHELL_MANIFEST

    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("sys.platform", "linux")
    (entry,) = (each for each in TRACE_PROCESSOR_SHELL_MANIFEST if each["arch"] == "linux-amd64")
    cached = tmp_path / f".local/share/perfetto/prebuilts/trace_processor_shell-{entry['sha256'][:16]}"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert sql._downloaded() == cached


def test_a_missing_package_is_named(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "perfetto.trace_processor.platform", None)
    with pytest.raises(UserError, match=re.escape(installing("trace"))), sql.open_trace(trace):
        pass


def test_nothing_is_downloaded_unasked(trace, monkeypatch):
    asked = []

    def get_shell_path(*args, **kwargs):
        asked.append(kwargs)
        raise Exception("curl: no network\nat all")

    monkeypatch.setattr("perfetto.trace_processor.platform.PlatformDelegate.get_shell_path", get_shell_path)
    with pytest.raises(UserError, match=r"no engine .* --engine.* --download; .*without --perfetto needs none"):
        sql.open_trace(trace).__enter__()
    assert not asked
    with pytest.raises(UserError, match="cannot be downloaded: curl: no network at all"):
        sql.open_trace(trace, download=True).__enter__()
    assert asked == [{"bin_path": None}]
