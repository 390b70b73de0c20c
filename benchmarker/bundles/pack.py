"""Pack a run for submission: all its files, its environment, and a manifest with checksums.

<run id>/<every file of the run>
<run id>/ceilings.json       the measured ceilings of its devices, if known on this machine
<run id>/source/...          the user's files that were measured, if asked for
<run id>/environment.json    the machines, the software and the devices in the records, each with its trials
<run id>/manifest.json       the files in the bundle, with size and SHA-256, and the files left out

Packing the same run again yields the same bytes.
"""

import fcntl
import hashlib
import os
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from benchmarker.api.case import Case
from benchmarker.api.errors import UserError, attempt
from benchmarker.bundles import signature
from benchmarker.bundles.manifest import FORMAT_VERSION, MAX_FILES, Manifest, Packed, Remark, name_trouble
from benchmarker.bundles.redact import Pseudonyms, Redactor
from benchmarker.bundles.run_files import ANNOTATED, in_folder, read_run
from benchmarker.files import atomic, regular
from benchmarker.hooks import parameters, registry
from benchmarker.records import ceilings, store
from benchmarker.records.ceilings import Ceiling, DeviceKey, key_of
from benchmarker.records.factors import DIGITS
from benchmarker.records.record import Record
from benchmarker.version import __version__

_CHANGING = {"load_average_1min", "steal_percent", "swap_used_bytes"}
"""Properties of a machine that change from trial to trial."""


class Environment(Struct, frozen=True):
    """The distinct machines, software and devices of a run, each with the trials that ran on it."""

    machine: list[dict[str, Any]] = []
    software: list[dict[str, Any]] = []
    device: list[dict[str, Any]] = []

    def add(self, record: Record) -> None:
        """Add what a trial ran on, without properties such as load, which change from trial to trial."""
        for part, groups in (("machine", self.machine), ("software", self.software), ("device", self.device)):
            value = msgspec.to_builtins(getattr(record, part))
            if value is None:
                continue
            if part == "machine":
                value = {name: content for name, content in value.items() if name not in _CHANGING}
                value["gpus"] = [
                    {n: content for n, content in gpu.items() if n != "processes"} for gpu in value["gpus"]
                ]
            for group in groups:
                if group[part] == value:
                    group["trials"].append(record.trial_id)
                    break
            else:
                groups.append({"trials": [record.trial_id], part: value})


NO_PROFILES = "left out by --no-profiles"
_CHUNK_BYTES = 2**20
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date that a zip can store."""
_COMPRESSED = (".gz", ".parquet")
"""Endings of files that are already compressed."""
_OWN = (store.MANIFEST, store.ENVIRONMENT, store.CEILINGS)
"""Files that a bundle adds to those of the run."""


@dataclass(frozen=True, slots=True)
class Bundled:
    """A bundle that was written, and its signature if it was signed."""

    path: Path
    size_bytes: int
    sha256: str
    manifest: Manifest
    signature: Path | None = None


def bundle(
    folder: Path,
    output: Path | None = None,
    *,
    profiles: bool = True,
    source: bool = False,
    redact: Pseudonyms | None = None,
    key: Path | None = None,
) -> Bundled | tuple[Remark, ...]:
    """Pack the run in `folder` into a zip (by default RUN_ID.zip in the working directory), completely or not at all.

    Without `profiles`, event tables and profiler files are left out, and the manifest lists them. With `source`, the
    user's files that were measured are packed, which must be here as they were. With `redact`, hosts and graphics cards
    get these pseudonyms or new ones, which are added to them, and files that may name them in other ways are left out
    too. With `key`, an SSH key signs the zip.
    If the plan or a record is damaged, or a record belongs to another run, nothing is written and
    the faults are returned. Raises `UserError` if `folder` does not contain a run, if another process is using it, if
    the zip cannot be signed, or if it cannot be written.
    """
    if source and redact is not None:
        raise UserError("--with-source packs files as they are, which may contain names; leave it or --redact out")
    with still(folder):
        earlier = _earlier(folder)
        files, left_out = _survey(folder, profiles, earlier)
        if len(files) > MAX_FILES - len(_OWN):
            raise UserError(
                f"{folder} contains {len(files)} files; a bundle has at most {MAX_FILES}: "
                "--no-profiles leaves event tables and profiler files out"
            )
        environment, devices, redactor = (
            Environment(),
            set[DeviceKey | None](),
            Redactor(redact) if redact is not None else None,
        )
        own = dict[str, Case]()

        def seen(record: Record) -> None:
            environment.add(record)
            devices.add(key_of(record))
            if record.case.source:
                own[str((record.case.problem, record.case.source, record.case.params))] = record.case
            if redactor:
                redactor.learn(record)

        run = read_run(files, in_folder(folder), seen)
        if run.plan is None or run.faults:
            return run.faults
        top = run.plan.run_id
        if trouble := "it contains a slash" if "/" in top else name_trouble(top):
            return (Remark(store.PLAN, f"its run_id cannot be the name of a folder: {trouble}"),)
        output = output or Path(f"{top}.zip")
        if output.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{output} would be inside the folder of the run; name another file with -o")
        sources: dict[str, Path | bytes] = {path: folder / path for path in files}
        if store.CEILINGS not in files and (known := _ceilings(devices)):
            sources[store.CEILINGS] = ceilings.encode(known)
        if source:
            sources |= _own_files(own.values())
        sources[store.ENVIRONMENT] = atomic.encode(environment)
        if redactor:
            left_out = redactor.withhold(sources, left_out)
        with _whole(output) as file:
            with zipfile.ZipFile(file, "w") as archive:
                packed = [
                    _add(archive, top, path, redactor.content(source) if redactor else source)
                    for path, source in sources.items()
                ]
                manifest = Manifest(
                    format_version=FORMAT_VERSION,
                    benchmarker=__version__,
                    run_id=top,
                    trials=run.trials,
                    suite=run.plan.suite.id if run.plan.suite else None,
                    redacted=redactor.redacted if redactor else earlier.redacted if earlier else None,
                    left_out=sorted(left_out, key=lambda file: file.path),
                    files=packed,
                )
                _add(archive, top, store.MANIFEST, atomic.encode(manifest))
            size_bytes, sha256 = os.fstat(file.fileno()).st_size, sha256_of(file)
            if key:
                atomic.write(signature.path_of(output), signature.sign(file, key))
            return Bundled(output, size_bytes, sha256, manifest, signature.path_of(output) if key else None)


def sha256_of(file: BufferedReader | BufferedRandom) -> str:
    """Return the SHA-256 of a whole open file."""
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _ceilings(devices: Collection[DeviceKey | None]) -> list[Ceiling]:
    """Return the ceilings of these devices that are stored on this machine."""
    return [ceiling for ceiling in ceilings.known().known if ceiling.device in devices]


def _own_files(measured: Iterable[Case]) -> dict[str, Path | bytes]:
    """Return the user's files by their paths in the bundle; raises `UserError` if one is not as it was measured."""
    files: dict[str, Path | bytes] = {}
    libraries = registry.registered("library")

    def add(file: Path, content: bytes) -> None:
        files[f"{store.SOURCE}/{hashlib.sha256(content).hexdigest()[:DIGITS]}/{file.name}"] = content

    for case in measured:
        if f"library.{case.problem}" in libraries:
            for file in parameters.convert(registry.problem(case.problem), case.params).user_files():
                add(file, file.read_bytes())
            continue
        source = registry.source_file(case.problem)
        content = source.read_bytes() if source else b""
        if source is None or hashlib.sha256(content).hexdigest() != case.source:
            raise UserError(f"{case.problem} is not here as it was measured; leave --with-source out")
        add(source, content)
    if not files:
        raise UserError("the run measured no file of yours; leave --with-source out")
    return files


@contextmanager
def still(folder: Path) -> Iterator[None]:
    """Lock the run so that no other process can resume it; several processes may read it."""
    with attempt(f"cannot read {folder / store.PLAN}", "name the folder of one run, such as results/RUN"):
        file = regular.opened(folder / store.PLAN)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder} is in use by another process; wait until the run has ended") from None
        yield


def _earlier(folder: Path) -> Manifest | None:
    """Return the manifest of the bundle that the run was unpacked from, if it was."""
    try:
        return Manifest.read(regular.content(folder / store.MANIFEST))
    except (OSError, ValueError, RecursionError):
        return None


def _survey(folder: Path, profiles: bool, earlier: Manifest | None) -> tuple[list[str], list[Remark]]:
    """Return the sorted paths of the files to pack, and those to leave out with the reason.

    What an earlier bundle left out stays left out.
    """
    files = list[str]()
    left_out = list(earlier.left_out) if earlier else []
    for path, trouble in sorted(_walk(folder, "")):
        if earlier and path in (store.MANIFEST, store.ENVIRONMENT):
            continue
        is_profile = path.endswith((".events.parquet", ANNOTATED)) or (".profile." in path and path.endswith(".gz"))
        reason = trouble or (NO_PROFILES if is_profile and not profiles else "")
        if reason:
            left_out.append(Remark(path.encode(errors="backslashreplace").decode(), reason))
        else:
            files.append(path)
    packed = set(files)
    return files, [file for file in left_out if file.path not in packed]


def _walk(folder: Path, below: str) -> Iterator[tuple[str, str]]:
    """Yield every file below a folder, with the reason why it cannot be packed, or an empty text."""
    with attempt(f"cannot read {folder}", "fix this first"):
        entries = list(os.scandir(folder))
    for entry in entries:
        path = below + entry.name
        if entry.is_symlink():
            yield path, "a link"
        elif path == store.WORK:
            yield path, "unfinished work of a process that was killed"
        elif path == store.CUT:
            yield path, "trials of rounds that were cut and repeated"
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{path}/")
        elif not entry.is_file(follow_symlinks=False):
            yield path, "not a regular file"
        elif entry.name.startswith(".") and entry.name.endswith(".tmp"):
            yield path, "a temporary file"
        elif path in (store.MANIFEST, store.ENVIRONMENT):
            yield path, "replaced by the bundle's own"
        else:
            yield path, name_trouble(path) or ""


def _add(archive: zipfile.ZipFile, top: str, path: str, source: Path | bytes) -> Packed:
    info = zipfile.ZipInfo(f"{top}/{path}", _FIRST_DATE)
    info.create_system = 3  # Unix, whose permissions follow
    info.external_attr = 0o100644 << 16
    info.compress_type = zipfile.ZIP_STORED if path.endswith(_COMPRESSED) else zipfile.ZIP_DEFLATED
    digest, size = hashlib.sha256(), 0
    with _opened(source) as (file, expected):
        info.file_size = expected
        with archive.open(info, "w") as sink:
            while chunk := file.read(_CHUNK_BYTES):
                sink.write(chunk)
                digest.update(chunk)
                size += len(chunk)
    return Packed(path, size, digest.hexdigest())


@contextmanager
def _opened(source: Path | bytes) -> Iterator[tuple[IO[bytes], int]]:
    if isinstance(source, bytes):
        yield BytesIO(source), len(source)
        return
    with attempt(f"cannot read {source}", "fix this first"):
        file = source.open("rb")
    with file:
        yield file, os.fstat(file.fileno()).st_size


@contextmanager
def _whole(path: Path) -> Iterator[BufferedRandom]:
    """Open a temporary file that replaces `path` at the end; nothing is left behind if this fails."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file; name another file with -o")
    with attempt(f"cannot write {path}", "name another file with -o"), atomic.whole(path) as file:
        yield file
