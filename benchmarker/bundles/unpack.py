"""Verify a bundle and unpack it; its content is untrusted.

Names and sizes are checked first, then every file against its checksum, then every record against the schema and the
plan. Only JSON files are parsed, and nothing is executed. The run is unpacked completely or not at all.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from benchmarker.api.errors import UserError
from benchmarker.bundles.manifest import Manifest, Packed, Remark, folded, is_json, name_trouble, read_run
from benchmarker.bundles.pack import sha256_of
from benchmarker.bundles.untrusted_zip import Archive, DamagedError, Entry
from benchmarker.records import store

_MAX_BYTES = 10 * 2**30
_EASY_BYTES, _EASY_RATIO = 2**30, 100


@dataclass(frozen=True, slots=True)
class Unbundled:
    """The manifest of a bundle, the faults found, and where its run was unpacked (None if it was not)."""

    manifest: Manifest
    faults: tuple[Remark, ...]
    folder: Path | None = None


def unbundle(path: Path, to: Path | None, *, sha256: str | None = None, max_bytes: int | None = None) -> Unbundled:
    """Verify the bundle at `path` and unpack its run into the folder `to`; with None, only verify it.

    If there is a fault, nothing is unpacked. `sha256` is the expected hash of the zip. Bundles of more than `max_bytes`
    unpacked are refused; the default is a hundred times the size of the zip, but at least 1 GiB and at most 10 GiB.
    Raises `UserError` if the file is not a bundle, is too large or has another hash, if its run exists already, or if
    `to` cannot be written.
    """
    with _opened(path) as file:
        if sha256 and (found := sha256_of(file)) != sha256.lower():
            raise UserError(
                f"{path} is not the expected file: its SHA-256 is {found}; check the hash or request the bundle again"
            )
        try:
            archive = Archive(file)
        except DamagedError as error:
            raise UserError(
                f"{path} is not a zip file, or is truncated or damaged ({error}); request the bundle again"
            ) from error
        manifest = _manifest(path, archive)
        _refuse_bomb(path, manifest, archive, max_bytes)
        good, faults = _compare(manifest, archive.entries)
        with _destination(to, manifest.run_id) as folder:
            for packed, entry in good:
                kept = packed.path != store.ENVIRONMENT and (to is not None or is_json(packed.path))
                if reason := _unpack(archive, entry, packed, folder / packed.path if kept else None):
                    faults.append(Remark(packed.path, reason))
            faults += _read(manifest, folder, {fault.path for fault in faults})
            if faults or to is None:
                return Unbundled(manifest, tuple(faults))
            target = to / manifest.run_id
            folder.rename(target)
            return Unbundled(manifest, (), target)


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a bundle") from error
    with file:
        yield file


def _manifest(path: Path, archive: Archive) -> Manifest:
    """Read the manifest. Raises `UserError` if it is not valid, because nothing else can be checked then."""
    found = [entry for entry in archive.entries if entry.name.split("/")[1:] == [store.MANIFEST]]
    if len(found) != 1:
        raise UserError(
            f"{path} is not a bundle: it contains {len(found)} files RUN/{store.MANIFEST}; "
            "request a file from `bundle create`"
        )
    try:
        manifest = Manifest.read(archive.content(found[0], Manifest.MAX_BYTES))
    except (DamagedError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: {store.MANIFEST}: {error}; request the bundle again") from error
    trouble = "a slash" if "/" in manifest.run_id else name_trouble(manifest.run_id)
    if trouble or found[0].name != f"{manifest.run_id}/{store.MANIFEST}":
        raise UserError(
            f"{path}: {store.MANIFEST}: run_id: {trouble or 'not the name of the folder'}; request the bundle again"
        )
    return manifest


def _refuse_bomb(path: Path, manifest: Manifest, archive: Archive, max_bytes: int | None) -> None:
    """Raise `UserError` if the unpacked files would be too large."""
    total = sum(packed.size_bytes for packed in manifest.files)
    if total > (max_bytes or min(_MAX_BYTES, max(_EASY_BYTES, _EASY_RATIO * archive.size_bytes))):
        raise UserError(
            f"{path} would unpack to {total / 2**30:.3g} GiB, {total / archive.size_bytes:.3g} times its size; "
            f"--max-size={math.ceil(total / 2**30)} allows that"
        )


def _compare(manifest: Manifest, entries: Collection[Entry]) -> tuple[list[tuple[Packed, Entry]], list[Remark]]:
    """Return the files whose name and size agree with the manifest, and the faults of all others."""
    there: dict[str, list[Entry]] = {}
    for entry in entries:
        there.setdefault(entry.name, []).append(entry)
    del there[f"{manifest.run_id}/{store.MANIFEST}"]
    paths = [packed.path for packed in manifest.files]
    listed = Counter(map(folded, paths))
    folders = {folded(path[:at]) for path in paths for at, sign in enumerate(path) if sign == "/"}
    good: list[tuple[Packed, Entry]] = []
    faults: list[Remark] = []
    for packed in manifest.files:
        found = there.pop(f"{manifest.run_id}/{packed.path}", [])
        trouble = name_trouble(packed.path)
        if listed[folded(packed.path)] > 1:
            trouble = trouble or "listed more than once, or under names that some systems treat as the same"
        elif folded(packed.path) in folders:
            trouble = trouble or "a file and a folder at once"
        elif len(found) != 1:
            trouble = trouble or ("more than once in the zip" if found else "missing from the zip")
        else:
            trouble = trouble or found[0].trouble
            if found[0].size_bytes != packed.size_bytes:
                trouble = trouble or f"{found[0].size_bytes} bytes; the manifest states {packed.size_bytes}"
        if trouble:
            faults.append(Remark(packed.path, trouble))
        else:
            good.append((packed, found[0]))
    return good, faults + [Remark(name, "not in the manifest") for name in there]


@contextmanager
def _destination(to: Path | None, run_id: str) -> Iterator[Path]:
    """Create a hidden temporary folder with a folder for the run; it is inside `to`, if given, so it can be renamed."""
    if to is not None and os.path.lexists(to / run_id):
        raise UserError(f"{to / run_id} exists already; move it away, or name another folder with --to")
    try:
        if to is not None:
            to.mkdir(parents=True, exist_ok=True)
        hidden = Path(tempfile.mkdtemp(prefix=".unbundle.", suffix=".tmp", dir=to))
        try:
            (hidden / run_id).mkdir()
            yield hidden / run_id
        finally:
            shutil.rmtree(hidden)
    except OSError as error:
        remedy = "name another folder with --to" if to else "set TMPDIR"
        raise UserError(
            f"cannot write to {to or tempfile.gettempdir()}: {error.strerror or error}; free some space, or {remedy}"
        ) from error


def _unpack(archive: Archive, entry: Entry, packed: Packed, destination: Path | None) -> str | None:
    """Check a file against its checksum, write it to `destination` if given, and return its fault or None."""
    digest = hashlib.sha256()
    with ExitStack() as stack:
        sink = None
        if destination:
            destination.parent.mkdir(parents=True, exist_ok=True)
            sink = stack.enter_context(destination.open("xb"))
        try:
            for chunk in archive.chunks(entry):
                digest.update(chunk)
                if sink:
                    sink.write(chunk)
        except DamagedError as error:
            return f"damaged: {error}"
        if sink:
            sink.flush()
            os.fsync(sink.fileno())
    return None if digest.hexdigest() == packed.sha256 else "changed: its SHA-256 differs from the manifest"


def _read(manifest: Manifest, folder: Path, bad: Collection[str]) -> list[Remark]:
    """Return the faults of the plan and the records, leaving out the `bad` files."""
    paths = [packed.path for packed in manifest.files if packed.path not in bad and packed.path != store.ENVIRONMENT]
    run = read_run(folder, paths)
    faults = [fault for fault in run.faults if fault.path not in bad]
    if run.plan and run.plan.run_id != manifest.run_id:
        faults.append(Remark(store.PLAN, f"belongs to run {run.plan.run_id}, not to {manifest.run_id}"))
    if not bad and not faults and run.trials != manifest.trials:
        faults.append(Remark(store.MANIFEST, f"states {manifest.trials}, but the files contain {run.trials}"))
    return faults
