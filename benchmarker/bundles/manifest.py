"""The manifest of a bundle, and which names its files may have."""

from __future__ import annotations

import unicodedata
from typing import ClassVar, Literal

import msgspec
from msgspec import Struct

from benchmarker.api.fields import Count
from benchmarker.formatting import count, part
from benchmarker.records.suite import Sha256, SuiteId

FORMAT_VERSION: Literal[1] = 1
"""Version 2 added `suite` and `redacted`."""

MAX_FILES = 100_000
"""Most files of a bundle: a run with all files of ten thousand profiled trials has fewer."""
_MAX_PATH_BYTES = 1000


class Remark(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a run or of a bundle, with a remark on it."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Packed(Struct, frozen=True, forbid_unknown_fields=True):
    """A file in a bundle: its path relative to the run's folder, its size, and its SHA-256 in hexadecimal."""

    path: str
    size_bytes: Count
    sha256: Sha256


class Trials(Struct, frozen=True, forbid_unknown_fields=True):
    """How many trials were planned, how many have a record, and how many of these failed."""

    planned: Count
    recorded: Count
    failed: Count

    def __str__(self) -> str:
        return f"{part(self.recorded, self.planned, 'trial')} recorded, {self.failed} failed"


class Redacted(Struct, frozen=True, forbid_unknown_fields=True):
    """How many hosts and graphics cards have pseudonyms, and how many messages and variables were changed."""

    hosts: Count
    cards: Count
    texts: Count

    def __str__(self) -> str:
        names = f"{count(self.hosts, 'host')} and {count(self.cards, 'card')}"
        return f"pseudonyms for {names}, {count(self.texts, 'message')} changed"


class _Versioned(Struct):
    format_version: int


class Manifest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The contents of a bundle, the suite of its run, the files that were left out, and whether it was redacted."""

    MAX_BYTES: ClassVar[int] = 2**25
    """More than the size of a manifest of MAX_FILES."""

    format_version: Literal[1]
    benchmarker: str
    run_id: str
    trials: Trials
    suite: SuiteId | None
    redacted: Redacted | None
    left_out: list[Remark]
    files: list[Packed]

    @classmethod
    def read(cls, content: bytes) -> Manifest:
        """Decode a manifest. Raises `ValueError` (such as `msgspec.DecodeError`) if it is not valid."""
        version = msgspec.json.decode(content, type=_Versioned).format_version
        if version > FORMAT_VERSION:
            raise ValueError(
                f"format {version} is newer than {FORMAT_VERSION}, which this benchmarker reads: update benchmarker"
            )
        return msgspec.json.decode(content, type=cls)


def name_trouble(path: str) -> str | None:
    """Return why a path is not a safe relative file path on every system, or None if it is."""
    parts = path.split("/")
    if not path.isprintable():
        return "a control character in its name"
    if "\\" in path or ":" in path:
        return "a backslash or a colon in its name"
    if path.startswith("/"):
        return "an absolute path"
    if any(part in ("", ".", "..") for part in parts):
        return "a path with an empty part, '.' or '..'"
    if any(part[-1] in ". " for part in parts):
        return "a name that ends in a dot or a space"
    if any(len(part.encode(errors="replace")) > 255 for part in parts):
        return "a name longer than 255 bytes"
    if len(path.encode(errors="replace")) > _MAX_PATH_BYTES:
        return f"a path longer than {_MAX_PATH_BYTES} bytes"
    return None


def folded(path: str) -> str:
    """Return a form that is equal for two paths that some systems treat as the same."""
    return unicodedata.normalize("NFC", path).casefold()
