"""Verify a bundle and unpack it; its content is untrusted.

The shape of the zip is checked first, then names and sizes, then every file against its checksum, then every record
against the schema and the plan. Only JSON files are parsed, and nothing is executed. The run is unpacked completely or
not at all.
"""

import hashlib
import math
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from pathlib import Path

from benchmarker.api.errors import UserError, attempt
from benchmarker.bundles import signature
from benchmarker.bundles.manifest import MAX_FILES, Manifest, Packed, Remark, folded, name_trouble
from benchmarker.bundles.pack import sha256_of
from benchmarker.bundles.run_files import MAX_JSON_BYTES, read_run, too_large
from benchmarker.bundles.untrusted_zip import Archive, DamagedError, Entry
from benchmarker.files import regular
from benchmarker.files.atomic import Fault
from benchmarker.records import store
from benchmarker.records.plan import Plan
from benchmarker.records.record import Record

_MAX_BYTES = 10 * 2**30
_EASY_BYTES, _EASY_RATIO = 2**30, 100


@dataclass(frozen=True, slots=True)
class Unbundled:
    """The manifest of a bundle, its plan, the faults found, where its run was unpacked, and who signed it.

    `folder` is None if the run was not unpacked, `signer` if the signature was not verified.
    """

    manifest: Manifest
    plan: Plan | None
    faults: tuple[Remark, ...]
    folder: Path | None = None
    signer: str | None = None


def unbundle(
    path: Path,
    to: Path | None,
    *,
    sha256: str | None = None,
    signers: Path | None = None,
    max_bytes: int | None = None,
    seen: Callable[[Record], None] | None = None,
) -> Unbundled:
    """Verify the bundle at `path`, then unpack its run into the folder `to`; with None, only verify it.

    Nothing is written before everything is verified. `sha256` is the expected hash of the zip; `signers` are the public
    keys of which one must have signed it. Bundles of more than `max_bytes` unpacked are refused; the default is a
    hundred times the size of the zip, but at least 1 GiB and at most 10 GiB. `seen` is called with each record. Raises
    `UserError` if the file is not a bundle, is too large, has another hash or no such signature, if its run exists
    already, or if `to` cannot be written.
    """
    with _opened(path) as file:
        if sha256 and (found := sha256_of(file)) != sha256.lower():
            raise UserError(
                f"{path} is not the expected file: its SHA-256 is {found}; check the hash or request the bundle again"
            )
        signer = signature.verify(file, path, signers) if signers else None
        try:
            archive = Archive(file, MAX_FILES)
        except DamagedError as error:
            raise UserError(f"{path} {error}; request the bundle again") from error
        manifest, content = _manifest(path, archive)
        if to is not None and os.path.lexists(to / manifest.run_id):
            raise UserError(f"{to / manifest.run_id} exists already; move it away, or name another folder with --to")
        _refuse_bomb(path, manifest, archive, max_bytes)
        files, faults = _verified(manifest, archive)
        named = {fault.path for fault in faults}
        plan, wrong = _read(manifest, archive, files, seen)
        faults += [fault for fault in wrong if fault.path not in named]
        if faults or to is None:
            return Unbundled(manifest, plan, tuple(faults), signer=signer)
        return Unbundled(manifest, plan, (), _unpack(archive, manifest, content, files, to), signer)


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    with attempt(f"cannot read {path}", "name a bundle"):
        file = regular.opened(path)
    with file:
        yield file


def _manifest(path: Path, archive: Archive) -> tuple[Manifest, bytes]:
    """Return the manifest and its bytes. Raises `UserError` if it is not valid: nothing else can be checked then."""
    manifests = [entry for entry in archive.entries if entry.name.split("/")[1:] == [store.MANIFEST]]
    if len(manifests) != 1:
        raise UserError(
            f"{path} is not a bundle: it contains {len(manifests)} files RUN/{store.MANIFEST}; "
            "request a file from `bundle create`"
        )
    try:
        content = archive.content(manifests[0], archive.most_bytes(Manifest.MAX_BYTES))
        manifest = Manifest.read(content)
    except (DamagedError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: {store.MANIFEST}: {error}; request the bundle again") from error
    trouble = "a slash" if "/" in manifest.run_id else name_trouble(manifest.run_id)
    if trouble or manifests[0].name != f"{manifest.run_id}/{store.MANIFEST}":
        raise UserError(
            f"{path}: {store.MANIFEST}: run_id: {trouble or 'not the name of the folder'}; request the bundle again"
        )
    return manifest, content


def _refuse_bomb(path: Path, manifest: Manifest, archive: Archive, max_bytes: int | None) -> None:
    """Raise `UserError` if the unpacked files would be too large."""
    total = sum(packed.size_bytes for packed in manifest.files)
    if total > (max_bytes or min(_MAX_BYTES, max(_EASY_BYTES, _EASY_RATIO * archive.size_bytes))):
        raise UserError(
            f"{path} would unpack to {total / 2**30:.3g} GiB, {total / archive.size_bytes:.3g} times its size; "
            f"--max-size={math.ceil(total / 2**30)} allows that"
        )


def _verified(manifest: Manifest, archive: Archive) -> tuple[dict[str, Entry], list[Remark]]:
    """Return the files whose name, size and bytes are as the manifest states, and the faults of all others."""
    there: dict[str, list[Entry]] = {}
    for entry in archive.entries:
        there.setdefault(entry.name, []).append(entry)
    del there[f"{manifest.run_id}/{store.MANIFEST}"]
    troubles = {packed.path: name_trouble(packed.path) for packed in manifest.files}
    listed = Counter(folded(packed.path) for packed in manifest.files)
    folders = {
        folded(path[:at])
        for path, trouble in troubles.items()
        if not trouble
        for at, sign in enumerate(path)
        if sign == "/"
    }
    good: dict[str, Entry] = {}
    faults: list[Remark] = []
    for packed in manifest.files:
        entries = there.pop(f"{manifest.run_id}/{packed.path}", [])
        trouble = troubles[packed.path]
        if listed[folded(packed.path)] > 1:
            trouble = trouble or "listed more than once, or under names that some systems treat as the same"
        elif folded(packed.path) in folders:
            trouble = trouble or "a file and a folder at once"
        elif len(entries) != 1:
            trouble = trouble or ("more than once in the zip" if entries else "missing from the zip")
        else:
            trouble = trouble or entries[0].trouble
            if entries[0].size_bytes != packed.size_bytes:
                trouble = trouble or f"{entries[0].size_bytes} bytes; the manifest states {packed.size_bytes}"
            trouble = trouble or _check(archive, entries[0], packed)
        if trouble:
            faults.append(Remark(packed.path, trouble))
        else:
            good[packed.path] = entries[0]
    return good, faults + [Remark(name, "not in the manifest") for name in there]


def _check(archive: Archive, entry: Entry, packed: Packed, sink: BufferedWriter | None = None) -> str | None:
    """Check a file against its checksum, write it to `sink` if given, and return its fault or None."""
    digest = hashlib.sha256()
    try:
        for chunk in archive.chunks(entry):
            digest.update(chunk)
            if sink:
                sink.write(chunk)
    except DamagedError as error:
        return f"damaged: {error}"
    return None if digest.hexdigest() == packed.sha256 else "changed: its SHA-256 differs from the manifest"


def _read(
    manifest: Manifest, archive: Archive, files: Mapping[str, Entry], seen: Callable[[Record], None] | None
) -> tuple[Plan | None, list[Remark]]:
    """Return the plan, and the faults of plan and records among these files, whose bytes are as the manifest states."""
    limit = archive.most_bytes(MAX_JSON_BYTES)

    def content(path: str) -> bytes | Fault:
        if files[path].size_bytes > limit:
            return too_large(path, limit)
        return archive.content(files[path], limit)

    run = read_run(files, content, seen)
    faults = list(run.faults)
    if run.plan and run.plan.run_id != manifest.run_id:
        faults.append(Remark(store.PLAN, f"belongs to run {run.plan.run_id}, not to {manifest.run_id}"))
    if run.plan and manifest.suite != (run.plan.suite and run.plan.suite.id):
        faults.append(Remark(store.MANIFEST, f"states suite {manifest.suite}, which is not that of the plan"))
    if len(files) == len(manifest.files) and not faults and run.trials != manifest.trials:
        faults.append(Remark(store.MANIFEST, f"states {manifest.trials}, but the files contain {run.trials}"))
    return run.plan, faults


def _unpack(archive: Archive, manifest: Manifest, content: bytes, files: Mapping[str, Entry], to: Path) -> Path:
    """Write the verified files and the manifest below `to`, completely or not at all; return the folder of the run."""
    target = to / manifest.run_id
    with _hidden(to) as hidden:
        folder = hidden / manifest.run_id
        folder.mkdir()
        for packed in manifest.files:
            destination = folder / packed.path
            destination.parent.mkdir(parents=True, exist_ok=True)
            with destination.open("xb") as sink:
                if reason := _check(archive, files[packed.path], packed, sink):
                    raise UserError(f"{packed.path}: {reason}, since it was verified; copy the bundle, and try again")
        (folder / store.MANIFEST).write_bytes(content)
        os.sync()  # a call for each of many thousand files would take minutes
        folder.rename(target)
    return target


@contextmanager
def _hidden(to: Path) -> Iterator[Path]:
    """Create a hidden folder in `to`, and remove it with everything in it at the end."""
    hidden = to / f".unbundle.{secrets.token_hex(8)}.tmp"
    with attempt(f"cannot write to {to}", "free some space, or name another folder with --to"):
        try:
            hidden.mkdir(parents=True)
            yield hidden
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
