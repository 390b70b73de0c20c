"""What the kinds of attacks share: what is counted, and commands that run in this process."""

from __future__ import annotations

import contextlib
import io
import signal
from collections import Counter
from dataclasses import dataclass, field

import click

from benchmarker.cli import main

LONGEST_S = 60


@dataclass
class Tally:
    """What was tried, and what should never happen."""

    attacks: int = 0
    found: Counter[str] = field(default_factory=Counter)

    def bad(self, what: str, detail: str) -> None:
        """Count one, and print how it was found."""
        self.found[what] += 1
        click.echo(f"{what}: {detail}", err=True)


def call(words: tuple[str, ...]) -> tuple[int | str | None, str]:
    """Run a command in this process; return its status, and what it wrote."""
    written = io.BytesIO()
    said = io.TextIOWrapper(written, "utf-8", write_through=True)
    status: int | str | None = None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(list(words))
        except SystemExit as end:
            status = end.code
    return status, written.getvalue().decode()


def attack(words: tuple[str, ...], label: str, tally: Tally) -> str:
    """Run a command in this process, and count how it must not end; return what it wrote."""

    def too_long(*_: object) -> None:
        raise TimeoutError

    tally.attacks += 1
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST_S)
    try:
        status, said = call(words)
    except TimeoutError:
        tally.bad("hang", f"{words}: {label}")
    except BaseException as error:  # noqa: BLE001 - whatever it is, a user would see its traceback
        tally.bad("traceback", f"{words}: {label}: {error!r}")
    else:
        if status not in (0, 1, 2):
            tally.bad("status", f"{words}: {status}")
        return said
    finally:
        signal.alarm(0)
    return ""


def unprintable(said: str) -> str:
    """Return the first line that could control a terminal, empty if none could."""
    return next((line for line in said.split("\n") if not line.isprintable()), "")
