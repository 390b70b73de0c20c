"""SQL over event tables in DuckDB, and over any trace in Perfetto's engine.

The first engine of Perfetto that is available is used: the requested program; `trace_processor_shell` or
`trace_processor` on PATH; the one that the `perfetto` package downloaded earlier; and a download, but only if it is
allowed.
"""

import http.client
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from benchmarker.api.errors import UserError
from benchmarker.hooks.registry import needing
from benchmarker.hooks.sql import Hint, Rows, over_tables
from benchmarker.traces import profile_files
from benchmarker.traces.formats.reading import Source
from benchmarker.traces.profile_files import Profile, names

_HINT = Hint("The table is events; --perfetto queries Perfetto's tables", "DESCRIBE events lists the columns")


def query(profiles: Sequence[Profile], statement: str) -> tuple[list[str], Rows]:
    """The columns and rows that a statement returns over the table `events`: the event tables of all profiles.

    The column `result` has the name of the profile. Unknown values are null. Integers are exact.
    """
    with needing("trace", "SQL over profiles"):
        return over_tables({"events": _events(profiles)}, statement, _HINT)


def _events(profiles: Sequence[Profile]) -> pa.Table:
    tables = [profile_files.table(profile.ingested.events) for profile in profiles]
    named = zip(tables, names(profiles), strict=True)
    return pa.concat_tables(table.append_column("result", pa.array([name] * len(table))) for table, name in named)


PROGRAMS = ("trace_processor_shell", "trace_processor")
_START_S = 60
_TAIL_BYTES = 64
_MESSAGE_CHARACTERS = 300
_SCRIPT = b"#!"
_TABLES = "https://perfetto.dev/docs/analysis/sql-tables lists the tables"

_DROPPED = """
    SELECT name, sum(value) AS number FROM stats
    WHERE severity IN ('data_loss', 'error') AND value > 0 GROUP BY name ORDER BY name
"""


def _silent(text: str) -> None:
    """Discard a message."""


class Trace:
    """A trace loaded in an engine, which can be queried while it is open."""

    def __init__(self, path: Path, backend: Any) -> None:
        self._path = path
        self._backend = backend

    def query(self, sql: str) -> pd.DataFrame:
        """The rows that a query returns.

        Integers stay exact; their type is Int64 if some are null. Texts and bytes are Python objects, None if null.
        """
        import pandas as pd
        from perfetto.common.query_result_iterator import QueryResultIterator

        with _stops(self._path):
            result = self._backend.execute_query(sql)
        if result.error:
            raise UserError(f"perfetto: {_sql_error(result.error)}; {_TABLES}")
        cells = QueryResultIterator(result.column_names, result.batch).cells
        width = len(result.column_names)
        columns = [_column(cells[place::width]) for place in range(width)]
        frame = pd.DataFrame(dict(enumerate(columns)))
        frame.columns = pd.Index([_text(name) for name in result.column_names], dtype=object)
        return frame

    def dropped(self) -> dict[str, int]:
        """What the engine could not import from the trace: statistics by name with their counts; empty if nothing."""
        rows = self.query(_DROPPED)
        return dict(zip(rows.name.tolist(), rows.number.tolist(), strict=True))


@contextmanager
def open_trace(
    path: Path, *, engine: Path | None = None, download: bool = False, tell: Callable[[str], None] = _silent
) -> Iterator[Trace]:
    """Load a trace of any format that Perfetto reads; `tell` is called before anything that takes long."""
    if not path.is_file():
        raise UserError(f"no trace at {path}; name a file")
    with closing(_backend(path, engine, download, tell)) as backend:
        yield load(path, backend)


def load(path: Path, backend: Any) -> Trace:
    """Load a trace into an engine that the `perfetto` package has started, and check that it was read."""
    with _stops(path):
        for chunk in _chunks(path):
            error = backend.parse(chunk).error
            if error:
                raise _unreadable(path, error)
        ended = backend.notify_eof()
        # The server does not report an error at the end of the file, but an incomplete trace has no tables.
        error = getattr(ended, "error", "") or backend.execute_query("SELECT 1 FROM slice LIMIT 0").error
    if error:
        raise _unreadable(path, f"{_sql_error(error)} (it may be cut off)")
    return Trace(path, backend)


def _backend(path: Path, program: Path | None, download: bool, tell: Callable[[str], None]) -> Any:
    """Start the first engine that is available."""
    with needing("trace", "Perfetto's SQL"):
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory
    if program and not program.is_file():
        raise UserError(f"no trace processor at {program}; --engine takes the path of one")
    delegate = PlatformDelegate()
    program = program or _on_path() or _downloaded() or (_fetched(delegate, tell) if download else None)
    if program is None:
        raise UserError(
            "no engine of Perfetto is found; give the path of a trace_processor_shell with --engine, or let "
            "Perfetto download one with --download; profile sql without --perfetto needs none"
        )
    with _stops(path):
        return _started(program, delegate, ProtoFactory(delegate))


def _on_path() -> Path | None:
    """A trace processor on PATH; not the script of that name, which would download one."""
    for name in PROGRAMS:
        found = shutil.which(name)
        if found:
            with Path(found).open("rb") as file:
                if file.read(len(_SCRIPT)) != _SCRIPT:
                    return Path(found)
    return None


def _downloaded() -> Path | None:
    """The trace processor that the `perfetto` package downloaded for this machine earlier."""
    from perfetto.prebuilts.manifests.trace_processor_shell import TRACE_PROCESSOR_SHELL_MANIFEST as MANIFEST

    for entry in MANIFEST:
        if entry.get("platform") == sys.platform and platform.machine().lower() in entry.get("machine", ()):
            name = f"{entry['file_name']}-{entry['sha256'][:16]}"
            try:
                path = Path.home() / ".local/share/perfetto/prebuilts" / name
                return path if path.is_file() else None
            except (OSError, RuntimeError):  # a home that is unknown or cannot be entered
                return None
    return None


def _fetched(delegate: Any, tell: Callable[[str], None]) -> Path:
    """A trace processor, downloaded and checked by the `perfetto` package."""
    tell("downloading Perfetto's trace processor")
    try:
        with redirect_stdout(sys.stderr):
            return Path(delegate.get_shell_path(bin_path=None))
    except Exception as error:  # perfetto raises no narrower exception
        why = _shortened(error)
        raise UserError(
            f"perfetto's engine cannot be downloaded: {why}; --engine takes a trace_processor_shell"
        ) from error


def _started(program: Path, delegate: Any, protos: Any) -> Any:
    """Start a trace processor in a separate process."""
    from perfetto.trace_processor.api import TraceProcessorConfig
    from perfetto.trace_processor.shell import TraceProcessorHttpSubprocess

    try:  # perfetto's own start would wait long for a program that does not answer
        subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_START_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"cannot run {program}: {_shortened(error)}; --engine takes a trace_processor_shell") from error
    return TraceProcessorHttpSubprocess(TraceProcessorConfig(bin_path=str(program)), delegate, protos)


def _unreadable(path: Path, error: object) -> UserError:
    return UserError(f"perfetto cannot read {path}: {_shortened(error)}; record the trace again")


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield the decompressed bytes of a trace. Raises `UserError` if it is empty, or is JSON and cut off."""
    first = last = b""
    try:
        source = Source(path)
        for chunk in source.pieces():
            first = first or chunk.lstrip()[:1]
            last = (last + chunk[-_TAIL_BYTES:])[-_TAIL_BYTES:]
            yield chunk
    except UserError as error:
        raise _unreadable(path, str(error).removeprefix(f"{path}: ")) from error
    if source.cut_short:
        raise _unreadable(path, "the compressed file is cut short")
    if not first:
        raise _unreadable(path, "it is empty")
    closing = {b"{": b"}", b"[": b"]"}.get(first)
    if closing and not last.rstrip().endswith(closing):
        raise _unreadable(path, "it is cut off")


@contextmanager
def _stops(path: Path) -> Iterator[None]:
    """Report the failure of an engine as a `UserError`."""
    from perfetto.common.exceptions import PerfettoException

    try:
        yield
    except (PerfettoException, http.client.HTTPException, ConnectionError) as error:
        raise UserError(f"perfetto's engine stopped on {path}: {_shortened(error)}; try another --engine") from error


def _column(cells: Any) -> Any:
    """A column in the narrowest type that holds it exactly."""
    import pandas as pd

    kind = pd.api.types.infer_dtype(cells, skipna=True)
    if kind == "integer":
        return pd.array(cells, dtype="Int64" if pd.isna(cells).any() else "int64")
    if kind == "floating":
        return pd.array(cells, dtype="float64")
    return pd.Series(cells, dtype=object)


def _sql_error(error: str | bytes) -> str:
    """Perfetto's message in one line: what is wrong and where, without the query itself."""
    lines = [line.strip() for line in _text(error).splitlines() if line.strip()]
    carets = [place for place, line in enumerate(lines) if line == "^"]
    places = [line for line in lines if line.startswith("File ")]
    if not carets or not places:
        return " ".join(lines)
    where = places[-1].partition(" line ")[2]
    return f"{' '.join(lines[carets[-1] + 1 :])} (line {where})"


def _shortened(error: object) -> str:
    """The beginning of a message, which may quote megabytes of a broken trace, in printable characters."""
    text = " ".join(_text(error)[:_MESSAGE_CHARACTERS].split()).rstrip(".")
    return "".join(character if character.isprintable() else "?" for character in text)


def _text(error: object) -> str:
    """A message as text; it comes as bytes if it quotes invalid UTF-8."""
    return error.decode(errors="replace") if isinstance(error, bytes) else str(error)
