"""Random damage to the content of a file, and to what a path leads to."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NUMBERS = (0, -1, 1, 2**63, 10**400, 1e308, 5e-324)
VALUES: tuple[Any, ...] = (*NUMBERS, True, None, "", "x" * 300, "\x1b[2J", "../..", [], {}, [[]] * 9)
INSTEAD = ("pipe", "device", "folder", "dangling", "loop", "huge")


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return content with random damage: bytes changed, cut, doubled or inserted, or a value of JSON replaced."""
    how = rng.choice(("flip", "cut", "double", "insert", "value", "value", "value"))
    at = rng.randrange(len(content))
    if how == "value" and content[:1] == b"{":
        plain = json.loads(content)
        part, key = rng.choice([*places(plain)])
        part[key] = rng.choice(VALUES)
        return json.dumps(plain).encode()
    if how == "cut":
        return content[:at]
    if how == "double":
        return content[:at] + content[at // 2 :]
    if how == "insert":
        return content[:at] + rng.choice((b"\0", b"\xff" * 9, b"{", b"9" * 400, b"\n" * 9)) + content[at:]
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def places(part: object) -> Iterator[tuple[Any, str | int]]:
    """Yield each place of a value in JSON."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        yield part, key
        yield from places(value)


def put_instead(path: Path, kind: str) -> None:
    """Put what is no file of content in the place of a file."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 40)  # it takes no room on the disk
    else:
        path.symlink_to({"device": "/dev/zero", "dangling": "nowhere", "loop": path.name}[kind])


def take_away(path: Path) -> None:
    """Delete a file, or what `put_instead` put in its place."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
