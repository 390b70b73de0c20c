"""The rows of an archive: what is in the columns of a trial, and how records are read back."""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import msgspec
import msgspec.inspect as types
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from msgspec import Struct

from benchmarker.api.errors import UserError
from benchmarker.files.atomic import Fault
from benchmarker.records import archive
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import factors_of, text
from benchmarker.records.profile import Kernel, Scope
from benchmarker.records.record import Record

GROUP = 1024
"""Rows of a row group: that of a record is read up to it; more and smaller groups cost every other question time."""
AT_ONCE = 64
"""Rows of a part with their records that are in memory together."""
MOST_BYTES = 64 << 20
"""Bytes of records that are read before they are added to an archive."""
_MOST_KNOWN = 1 << 14
"""Different factors of trials of which it is kept whether they fit."""
DIGITS = 16
"""Digits of the digest by which a case is known."""
_TRIES = 5
"""How often reading begins again because parts were merged meanwhile."""
_T = TypeVar("_T")


class UnreadableError(UserError):
    """The files of an archive cannot be read, or what was asked of them took too much memory."""


class Trial(Struct, frozen=True, kw_only=True):
    """The row of a trial in an archive."""

    trial_id: str  #: the trial
    run_id: str  #: its run
    trial: int  #: its number among the trials of the same case in the run, from 0
    started_s: int  #: its start, seconds since 1970 in UTC
    status: str  #: `ok` or `failed`
    error: str | None  #: kind of the failure
    suite: str | None  #: the suite that it was run from, with its version
    case_id: str  #: the same for all trials with the same factors, and for no others
    problem: str  #: name of the problem
    framework: str  #: name of the framework
    execution: str  #: how the framework ran a step: `eager`, `compiled`, `jitted`
    mode: str  #: `inference`, `forward_backward` or `training`
    precision: str  #: name of the precision
    device: str  #: platform: `cpu`, `cuda`, ...
    devices: int  #: number of devices
    nodes: int  #: number of nodes
    node: str  #: names of its nodes, separated by commas; of a trial outside any allocation, `host`
    host: str  #: host name of the first node
    device_name: str | None  #: name of the device; null on a CPU
    processor: str  #: model of the processor
    driver: str | None  #: version of the driver of the GPUs that `nvidia-smi` lists
    kernel: str  #: kernel of the operating system
    python: str  #: version of Python
    benchmarker: str  #: version of benchmarker
    commit: str | None  #: its git commit; of a user's file, the commit of that
    #: every factor of the case and every property of its environment, what `--where` and `--by` know: a JSON object of
    #: texts by name, as reading a column of maps would take twenty times as long
    factors: str
    steps_per_block: int | None  #: steps in a timed block
    duration_ns: list[int]  #: duration of each timed block
    step_time_median_s: float | None  #: median over the timed blocks of the step time
    flops: int | None  #: floating-point operations of a step
    bytes: int | None  #: minimum memory traffic of a step
    samples: int | None  #: samples of a step
    tokens: int | None  #: tokens of a step
    energy_J: float | None  #: energy of the window, of the domains in the record
    device_peak_bytes: int | None  #: peak memory on the device
    host_peak_rss_bytes: int | None  #: peak memory of the process
    scopes: list[Scope]  #: its profile by scope and phase; empty without a profile
    kernels: list[Kernel]  #: its profile by kernel; empty without a profile
    sha256: str  #: digest of the record
    record: str  #: the record itself: the content of its file
    part: str  #: the part of the archive that has this row
    row: int  #: its place in this part


class RunFile(Struct, frozen=True, kw_only=True):
    """The row of a file of a run that is no record: its plan, or the ceilings that it measured."""

    run_id: str  #: the run: the name of its folder
    name: str  #: name of the file
    sha256: str  #: digest of its content
    content: str  #: its content
    part: str  #: the part of the archive that has this row
    row: int  #: its place in this part


_PLAIN = {types.StrType: pa.string(), types.IntType: pa.int64(), types.FloatType: pa.float64()}
_LONG = ("record", "content")
"""Columns with more than 2 GB in a part that is merged."""


def _arrow(kind: types.Type) -> pa.DataType:
    if isinstance(kind, types.Metadata):
        return _arrow(kind.type)
    if isinstance(kind, types.UnionType):
        (kind,) = (each for each in kind.types if not isinstance(each, types.NoneType))
    if isinstance(kind, types.ListType):
        return pa.list_(_arrow(kind.item_type))
    if isinstance(kind, types.StructType):
        return pa.struct([(field.name, _arrow(field.type)) for field in kind.fields])
    return _PLAIN[type(kind)]


def _schema(struct: type[Struct]) -> pa.Schema:
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    return pa.schema(
        [(field.name, pa.large_string() if field.name in _LONG else _arrow(field.type)) for field in info.fields]
    )


SCHEMAS: Mapping[str, pa.Schema] = {archive.TRIALS: _schema(Trial), archive.RUNS: _schema(RunFile)}
SORTED = {
    archive.TRIALS: ("problem", "framework", "case_id", "started_s", "trial_id"),
    archive.RUNS: ("name", "run_id", "sha256"),
}
"""The columns by which the rows of a part are sorted: a case is read from few of its row groups."""


def started_s(record: Record) -> int:
    """Return the start of a trial, seconds since 1970; raises ValueError if the record states no time."""
    try:
        time = datetime.fromisoformat(record.started_at)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError) as error:
        raise ValueError(f"started_at: {record.started_at!r} is no time in ISO 8601") from error


def row_of(record: Record, content: bytes) -> dict[str, Any]:
    """Return the columns of a record, without its place; `content` is that of its file. Raises ValueError."""
    case, blocks, cost, memory = record.case, record.blocks, record.cost, record.memory
    factors = factors_of(case)
    found = environment_of(record)
    per_step = None if blocks is None else blocks.steps_per_block
    durations = [] if blocks is None else blocks.duration_ns
    return {
        "trial_id": record.trial_id,
        "run_id": record.run_id,
        "trial": record.trial,
        "started_s": started_s(record),
        "status": record.status,
        "error": record.error.kind if record.error else None,
        "suite": str(record.suite.id) if record.suite else None,
        "case_id": hashlib.sha256(msgspec.json.encode(factors, order="sorted")).hexdigest()[:DIGITS],
        **{name: getattr(case, name) for name in ("problem", "framework", "execution", "mode", "precision")},
        **{name: getattr(case, name) for name in ("device", "devices", "nodes")},
        "node": ",".join(record.node_names) or record.machine.host,
        **{name: found[name] for name in ("host", "device_name", "processor", "python", "benchmarker")},
        "driver": next((gpu.driver for gpu in record.machine.gpus if gpu.driver), None),
        "kernel": record.machine.kernel,
        "commit": record.source.commit if record.source else record.software.commit,
        "factors": msgspec.json.encode(
            {name: text(value) for name, value in {**found, **factors}.items() if value is not None}
        ).decode(),
        "steps_per_block": per_step,
        "duration_ns": durations,
        "step_time_median_s": median(durations) / per_step / 1e9 if durations and per_step else None,
        **{name: getattr(cost, name, None) for name in ("flops", "bytes", "samples", "tokens")},
        "energy_J": record.energy.energy_J if record.energy else None,
        **{name: getattr(memory, name, None) for name in ("device_peak_bytes", "host_peak_rss_bytes")},
        "scopes": msgspec.to_builtins(record.scopes),
        "kernels": msgspec.to_builtins(record.kernels),
        "sha256": hashlib.sha256(content).hexdigest(),
        "record": content.decode(),
    }


def table_of(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table, sorted, with their place in a part that is named after their digests."""
    schema = SCHEMAS[table]
    plain = pa.schema([field for field in schema if field.name not in ("part", "row")])
    ordered = in_order(table, pa.Table.from_pylist(list(rows), plain))
    return placed(ordered, part_name(ordered["sha256"]))


def in_order(table: str, rows: pa.Table) -> pa.Table:
    """Return rows sorted as those of a part are."""
    return rows.sort_by([(name, "ascending") for name in SORTED[table]])


def part_name(digests: pa.ChunkedArray) -> str:
    """Return the name of the part that has the rows with these digests, in any order."""
    return hashlib.sha256("".join(sorted(digests.to_pylist())).encode()).hexdigest()[:32]


def placed(rows: pa.Table, part: str, start: int = 0) -> pa.Table:
    """Return sorted rows with their place in a part, from row `start` on."""
    rows = rows.append_column("part", pa.array([part] * len(rows), pa.string()))
    return rows.append_column("row", pa.array(range(start, start + len(rows)), pa.int64()))


def dataset(paths: Sequence[Path], table: str = archive.TRIALS) -> ds.Dataset:
    """Return these parts of a table as a dataset that checks what it reads against the checksums of its pages."""
    import pyarrow.dataset as ds  # imports pandas, which takes as long as many a question

    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    checked = ds.ParquetFileFormat(default_fragment_scan_options=options)
    return ds.dataset([str(path) for path in paths], format=checked, schema=SCHEMAS[table])


Places = Mapping[Path, Sequence[int]]
"""Rows of parts, by their numbers, in order."""


def places(paths: Iterable[Path], fits: Callable[[Mapping[str, str]], bool]) -> Places:
    """Return the trials of parts whose factors and environment fit; those that are the same are asked about once."""

    @lru_cache(_MOST_KNOWN)
    def is_wanted(factors: str) -> bool:
        return fits(msgspec.json.decode(factors, type=dict[str, str]))

    found: dict[Path, list[int]] = {}
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=["factors"], page_checksum_verification=True) as file:
            chunks = file.read(["factors"], use_threads=False)["factors"].chunks
        rows: list[int] = []
        try:
            for start, chunk in zip(accumulate(map(len, chunks), initial=0), chunks, strict=False):
                wanted = np.array([is_wanted(each) for each in chunk.dictionary.to_pylist()], bool)
                rows += (start + np.flatnonzero(wanted[np.from_dlpack(chunk.indices)])).tolist()
        except msgspec.DecodeError as error:
            raise UnreadableError(f"{path}: factors: {error}") from error
        if rows:
            found[path] = rows
    return found


def over(path: Path, table: str, ask: Callable[[list[Path]], _T]) -> tuple[_T, list[Fault]]:
    """Ask something of the parts of a table; those that are damaged are left out and returned as faults.

    `ask` raises OSError, pa.ArrowException or `UnreadableError` if it cannot read a part. Parts that are merged
    meanwhile are read where they are now.
    """
    archive.check(path)
    faults: dict[Path, Fault] = {}
    for _ in range(_TRIES):
        paths = [part for part in archive.parts(path, table) if part not in faults]
        try:
            return ask(paths), list(faults.values())
        except (OSError, pa.ArrowException, UnreadableError) as error:
            known = len(faults)
            faults |= {fault.path: fault for part in paths if (fault := damage(part))}
            if len(faults) == known and all(part.exists() for part in paths):
                raise UserError(f"{path}: {' '.join(str(error).split())}") from error
    raise UserError(f"{path} changes faster than it is read; try again")


def damage(part: Path) -> Fault | None:
    """Return what is wrong with a part, read whole; None if nothing is, or if it has been merged into another."""
    try:
        with pq.ParquetFile(part, page_checksum_verification=True) as file:
            for _ in file.iter_batches(AT_ONCE):
                pass
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        return Fault(
            part, f"damaged: {' '.join(str(error).split())}; put back a copy, or move it away and add its runs again"
        )
    return None


Contents = tuple[list[tuple[Path, bytes]], list[Fault]]
"""Contents of files with their paths, and every fault."""


def contents(path: Path, wanted: Callable[[Sequence[Path]], Places] | None = None) -> Contents:
    """Return the content of each record of an archive, with the path that names it, and every fault.

    `wanted` returns which trials of parts are; without it, all are.
    """

    def ask(parts: list[Path]) -> list[tuple[Path, bytes | Fault]]:
        if wanted is None:
            return [each for part in parts for each in _of_part(part, None)]
        return [each for part, rows in sorted(wanted(parts).items()) for each in _of_part(part, rows)]

    read, faults = over(path, archive.TRIALS, ask)
    good, wrong = _divided(read)
    return good, faults + wrong


def by_part(path: Path) -> Iterator[Contents]:
    """Yield the content of each record of an archive as `contents` returns it, few at a time, a run of a part whole."""
    parts, _ = over(path, archive.TRIALS, lambda parts: parts)
    for part in parts:
        if fault := damage(part):
            yield [], [fault]
        else:
            for rows in _by_run(part):
                yield _divided(_of_part(part, rows))


def _by_run(part: Path) -> Iterator[list[int]]:
    """Yield all rows of a part, those of a run together, at most `MOST_BYTES` at once unless a run has more."""
    with pq.ParquetFile(part, page_checksum_verification=True) as file:
        runs = file.read(["run_id"])["run_id"].to_pylist()
        most = len(runs) * MOST_BYTES // max(1, bytes_of(file.metadata))
    by_run: dict[str, list[int]] = {}
    for row, run in enumerate(runs):
        by_run.setdefault(run, []).append(row)
    rows: list[int] = []
    for of_run in by_run.values():
        if rows and len(rows) + len(of_run) > most:
            yield sorted(rows)
            rows = []
        rows += of_run
    yield sorted(rows)


def bytes_of(part: pq.FileMetaData) -> int:
    """Return the bytes of a part before it was compressed."""
    return sum(int(part.row_group(group).total_byte_size) for group in range(part.num_row_groups))


def _divided(read: Iterable[tuple[Path, bytes | Fault]]) -> Contents:
    good: list[tuple[Path, bytes]] = []
    faults = []
    for path, content in read:
        if isinstance(content, Fault):
            faults.append(content)
        else:
            good.append((path, content))
    return good, faults


def _of_part(part: Path, rows: Sequence[int] | None) -> Iterator[tuple[Path, bytes | Fault]]:
    """Yield the content of some records of a part, in order, or of all, with the path that names it."""
    with pq.ParquetFile(part, page_checksum_verification=True) as file:
        wanted = range(file.metadata.num_rows) if rows is None else rows
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        for group, start in enumerate(accumulate(sizes[:-1], initial=0)):
            for each in _of_group(file, group, _within(wanted, start, sizes[group])):
                path, content = part / each["trial_id"], each["record"].encode()
                right = hashlib.sha256(content).hexdigest() == each["sha256"]
                yield path, content if right else Fault(path, "changed: its SHA-256 is not that of when it was added")


def _of_group(file: pq.ParquetFile, group: int, rows: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    """Yield some rows of a row group, which is read up to the last of them."""
    if not rows:
        return
    columns = ["trial_id", "sha256", "record"]
    batches = file.iter_batches(AT_ONCE, row_groups=[group], columns=columns, use_threads=False)
    for start, batch in zip(range(0, rows[-1] + 1, AT_ONCE), batches, strict=False):
        for row in _within(rows, start, len(batch)):
            yield {name: batch[name][row].as_py() for name in columns}


def _within(rows: Sequence[int], start: int, size: int) -> list[int]:
    """Return those of sorted rows that are among so many from `start` on, counted from there."""
    ends = bisect_left(rows, start), bisect_left(rows, start + size)
    return [row - start for row in rows[slice(*ends)]]


def run_files(path: Path, name: str) -> Contents:
    """Return the content of each file of this name of all runs of an archive, with its path, and every fault."""

    def ask(parts: list[Path]) -> list[dict[str, Any]]:
        if not parts:
            return []
        import pyarrow.compute as pc

        wanted = dataset(parts, archive.RUNS).to_table(["run_id", "content"], filter=pc.field("name") == name)
        rows: list[dict[str, Any]] = wanted.to_pylist()
        return rows

    rows, faults = over(path, archive.RUNS, ask)
    return [(path / row["run_id"] / name, row["content"].encode()) for row in rows], faults
