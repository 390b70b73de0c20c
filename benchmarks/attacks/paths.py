"""Paths that are anything but plain, in every place where a command takes one."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import files
from tally import Tally, attack

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from support.commands import with_path

from benchmarker.cli.commands import LINES
from benchmarker.records import store

NAMES = {
    "not UTF-8": os.fsdecode(b"a\xff\xfe"),
    "surrogate": "a\ud800",
    "line break": "a\nbenchmarker: error: b",
    "escapes": "a\x1b[2J\x1b]0;b\x07\x9b",
    "invisible": "a\u202eb\u200b\u2028",
    "shell": "a; $(touch injected) `touch injected` '\" \\",
    "option": "--json",
    "long": "a" * 255,
    "too long": "a" * 300,
    "deep": "d/" * 3000,
}
STORABLE = ("not UTF-8", "line break", "escapes", "invisible", "shell", "option", "long")
"""Names that a file system takes."""
HEAVY = ("ceilings", "submit", "nodes run", "plan run", "suite run", "report")
"""Commands that would measure if all that they are given is sound, or write a page that takes 40 MB."""


def attacks(count: int, rng: random.Random) -> Tally:
    """Give so many of the paths to commands, in a folder that has the run `a`."""
    tally = Tally()
    known = [*_known()]
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        files.prepare()
        for kind, path, words in rng.sample(known, min(count, len(known))):
            before = {*Path().iterdir()}
            if is_there := kind in STORABLE and path == NAMES[kind]:
                shutil.copytree("a", path)
            attack(words, kind, tally)
            if Path("injected").exists():
                tally.bad("injection", f"{words}")
            if is_there and (faults := store.read([Path(path)])[1]):
                tally.bad("unreadable", f"{words}: {faults[0]}")
            for made in {*Path().iterdir()} - before:
                shutil.rmtree(made) if made.is_dir() else made.unlink()
    return tally


def _known() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each kind of name in each path of each command, where nothing is and where a run is."""
    for command in LINES:
        for kind, name in NAMES.items():
            for words in with_path(command, f"none/{name}", "none" if command in HEAVY else "a"):
                if command != "ceilings":
                    yield kind, f"none/{name}", words
            if command not in HEAVY:
                for words in with_path(command, name, "a"):
                    yield kind, name, words
