"""What the readers of trace files share: bytes of files, tables of databases, and the rows that they make of them."""

import re
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.traces.events import INTEGERS, Texts, frame, words
from benchmarker.traces.formats.hlo import Program
from benchmarker.traces.formats.notation import launch

DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)")
CPU = re.compile(r"cpu(:\d+)?$")
"""How the event table names a CPU, and each of the devices that it is divided into."""
STREAM = re.compile(r"Stream #(\d+)")
"""How JAX's profiler names a device and a stream, in all formats."""
COPY = re.compile(r"mem(cpy|set)|(copy|fill)Buffer", re.IGNORECASE)
"""Names of operations that copy or set memory."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows of a file; `parent_id`, the scopes and all shares are determined later.

    `forward_thread` is above 0 for backward rows: it is the thread of the forward row with the same `sequence_nr`.
    `graph_node` is the number of a device row's node in the graph that launched it, -1 for none.
    `lost` lists what should be in the rows but is missing; `notes` lists what is left out on purpose. `rank` is that of
    the process in a distributed program of `world_size` processes, and `device_names` are those of the accelerators,
    if the file states them.
    """

    format: Literal["xplane", "chrome", "nsys", "rocprof"]
    framework: str
    events: pd.DataFrame
    programs: Mapping[int, Program] = field(default_factory=dict)
    forward_thread: Any = None
    graph_node: Any = None
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    device_names: tuple[str, ...] = ()

    @property
    def is_of_xla(self) -> bool:
        """Whether programs of XLA tell the scope and the phase of each op, not the events around it."""
        return self.framework in ("jax", "tensorflow")


def divided_cpu(device: np.ndarray, ordinal: np.ndarray, ops: np.ndarray, interned: Texts) -> np.ndarray:
    """The device of each row, as the number of a text; the ops of a CPU that is divided are on `cpu:0`, `cpu:1`, ...

    JAX states an op's `ordinal`, -1 for none, because the devices share the threads. A single device remains `cpu`.
    """
    ops = ops & (ordinal >= 0)
    several = np.unique(ordinal[ops]).tolist()
    if len(several) < 2:
        return device
    return np.where(ops, interned.codes(ordinal, {each: f"cpu:{each}" for each in several}), device)


_GZIP = b"\x1f\x8b"
_READ = 1 << 20
PIECE = 1 << 22
"""Most bytes that are returned at once."""
BOMB_BYTES, BOMB_RATIO = 1 << 28, 200
"""A file that expands to more bytes than this, by more than this ratio, is no trace: traces compress 10- to 40-fold."""


class Source:
    """A file's bytes, uncompressed; after reading, `cut_short` states whether the compressed data ended too early."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_short = False
        try:
            with regular.opened(path) as file:
                self.compressed = file.read(2) == _GZIP
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes in order, at most `PIECE` at once. Raises `UserError` if they cannot be read."""
        try:
            with self.path.open("rb") as file:
                if self.compressed:
                    yield from self._unpacked(iter(lambda: file.read(_READ), b""))
                else:
                    yield from iter(lambda: file.read(PIECE), b"")
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}") from None
        except zlib.error as error:
            raise UserError(f"{self.path}: damaged gzip data: {error}") from None

    def _unpacked(self, packed: Iterator[bytes]) -> Iterator[bytes]:
        """Decompress every member of a gzip file, one after the other."""
        member = zlib.decompressobj(wbits=31)
        fed = given = 0
        for read in packed:
            data = read
            fed += len(data)
            while data:
                if member.eof:
                    member = zlib.decompressobj(wbits=31)
                piece = member.decompress(data, PIECE)
                given += len(piece)
                if given > max(BOMB_BYTES, BOMB_RATIO * fed):
                    raise UserError(
                        f"{self.path}: {fed} bytes expand to more than {given}: this is not a trace; "
                        "unpack it yourself if you trust it"
                    )
                data = member.unconsumed_tail or member.unused_data
                if piece:
                    yield piece
        if fed and not member.eof:
            rest = member.flush()
            self.cut_short = not member.eof
            if rest:
                yield rest


SQLITE = b"SQLite format 3\0"
"""How a database begins."""


class Database:
    """The tables of an open database; names of tables and columns come from the database itself or from this code."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {str(name) for (name,) in found}

    def beginning(self, prefix: str) -> list[str]:
        """The tables whose name begins so, in order."""
        return sorted(name for name in self.tables if name.startswith(prefix))

    def select(self, table: str, columns: Sequence[str]) -> pd.DataFrame:
        """Columns of a table; without rows if there is no such table, and None where it lacks a column."""
        if table not in self.tables:
            return pd.DataFrame({name: [] for name in columns})
        has = {str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})")}
        chosen = ", ".join(_quoted(name) if name in has else f"NULL AS {_quoted(name)}" for name in columns)
        return pd.read_sql_query(f"SELECT {chosen} FROM {_quoted(table)}", self._connection)  # noqa: S608 (all quoted)

    def names(self, table: str, key: str, value: str) -> dict[object, str]:
        """The texts of a table by their number."""
        found = self.select(table, [key, value])
        return {number: str(text) for number, text in zip(found[key], found[value], strict=True) if text is not None}


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open a database of a profiler for reading only. Raises `UserError` if it cannot be read."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            yield Database(connection)
    except (sqlite3.Error, pd.errors.DatabaseError) as error:
        raise UserError(f"{path}: the database cannot be read: {error}; is it compressed or damaged?") from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_TEXTS = ("kind", "name", "device", "track", "launch")
_LATEST = float(1 << 62)
"""Later times do not fit int64 ns."""


def numbered(prefix: str, numbers: pd.Series) -> pd.Series:
    """Names such as `gpu:0` or `stream 7`, with a question mark for a number that is unknown."""
    values = pd.to_numeric(numbers, errors="coerce").astype(float)
    texts = [f"{prefix}{value:.0f}" if np.isfinite(value) else f"{prefix}?" for value in values]
    return pd.Series(texts, numbers.index, dtype=object)


def looked_up(keys: pd.Series, known: Mapping[Any, Any], otherwise: Any = "") -> pd.Series:
    """What is known of each key."""
    return pd.Series([known.get(key, otherwise) for key in keys], keys.index, dtype=object)


def launches(
    kernels: pd.DataFrame, grid: pd.DataFrame, block: Sequence[str], registers: str, shared: Sequence[str]
) -> pd.Series:
    """The text of each kernel's launch: its grid in blocks, and columns of the kernels; empty if a size is unknown."""
    beside = kernels.reindex(columns=[*block, registers, *shared])
    numbers = pd.concat([grid, beside], axis=1).apply(pd.to_numeric, errors="coerce").astype(float).fillna(-1)
    each, of = np.unique(numbers.to_numpy(), axis=0, return_inverse=True)
    texts = [_launch([int(number) for number in numbers]) for numbers in each]
    return pd.Series([texts[place] for place in of.ravel()], kernels.index, dtype=object)


def _launch(numbers: Sequence[int]) -> str:
    """The text of a launch: three sizes of the grid, three of the block, registers, parts of shared memory."""
    grid, block = (",".join(map(str, three)) for three in (numbers[:3], numbers[3:6]))
    registers, shared = numbers[6], [part for part in numbers[7:] if part >= 0]
    known = min(numbers[:6]) > 0
    return (
        launch(
            grid=grid,
            block=block,
            registers=registers if registers >= 0 else None,
            shared=sum(shared) if shared else None,
        )
        if known
        else ""
    )


def rows(pieces: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, int]:
    """One event table of pieces with `begin` and `end` in ns and any columns of the table; and how many rows are bad.

    A row is bad, and left out, if it has no valid times. Numbers that are none become unknown.
    """
    table = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame({"begin": [], "end": []})
    begin, end = (pd.to_numeric(table[name], errors="coerce").astype(float) for name in ("begin", "end"))
    good = ((begin >= 0) & (end >= begin) & (end < _LATEST)).to_numpy()
    table = table[good]
    begin, end = (pd.to_numeric(table[name]).astype(np.int64).to_numpy() for name in ("begin", "end"))
    columns: dict[str, object] = {"ts_ns": begin, "dur_ns": end - begin}
    for name in _TEXTS:
        if name in table:
            code, values = pd.factorize(table[name].fillna("").astype(str))
            columns[name] = words(code, list(values))
    for name in INTEGERS:
        if name in table:
            numbers = pd.to_numeric(table[name], errors="coerce").astype(float)
            columns[name] = numbers.where((numbers >= 0) & (numbers < _LATEST), -1).astype(np.int64).to_numpy()
    if "bytes" in table:
        columns["bytes"] = pd.to_numeric(table["bytes"], errors="coerce").astype(float).to_numpy()
    return frame(columns, len(table)), int((~good).sum())
