"""What is tried, and what should never happen: commands run in this process, within a time and with little memory."""

from __future__ import annotations

import contextlib
import io
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarker.cli import main

LONGEST_S = 60
MOST_MB = 200
LIBRARIES_MB = 100
"""What the libraries of all commands take beyond those of one: many commands run in one process."""


class TooLongError(BaseException):
    """What is attacked must not take it for an error of its own."""


@dataclass
class Tally:
    """What was tried, and what should never happen.

    An escape is an unprintable character in what is printed.
    """

    attacks: int = 0
    found: Counter[str] = field(default_factory=Counter)

    def bad(self, what: str, detail: str) -> None:
        """Count one, and print how it was found."""
        self.found[what] += 1
        click.echo(f"{what}: {detail}", err=True)


def call(words: tuple[str, ...]) -> tuple[int | str | None, str, str]:
    """Run a command in this process; return its status, and what it wrote to standard output and to standard error."""
    printed, said = io.BytesIO(), io.BytesIO()
    output, error = (io.TextIOWrapper(written, "utf-8", write_through=True) for written in (printed, said))
    status: int | str | None = None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
        try:
            main(list(words))
        except SystemExit as end:
            status = end.code
    return status, printed.getvalue().decode(), said.getvalue().decode()


def attack(words: tuple[str, ...], label: str, tally: Tally) -> tuple[int, str] | None:
    """Run a command; return its status and what it printed, None if it did not end as it should, which is counted."""
    tally.attacks += 1
    with guarded(f"{words}: {label}", tally):
        status, printed, said = call(words)
        if status not in (0, 1, 2):
            tally.bad("status", f"{words}: {status}")
        elif odd := {letter for letter in printed + said if not (letter.isprintable() or letter == "\n")}:
            tally.bad("escape", f"{words}: {odd}: {label}")
        else:
            assert isinstance(status, int)
            return status, printed
    return None


@contextlib.contextmanager
def guarded(what: str, tally: Tally) -> Iterator[None]:
    """Count what takes too long, and any exception: a user would see its traceback."""

    def too_long(*_: object) -> None:
        raise TooLongError

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST_S)
    try:
        yield
    except TooLongError:
        tally.bad("hang", what)
    except BaseException as error:  # noqa: BLE001 - whatever it is
        tally.bad("traceback", f"{what}: {error!r}")
    finally:
        signal.alarm(0)


def begin_peak() -> None:
    """Let the peak of this process's memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def end_peak(kind: str, tally: Tally) -> float:
    """Return the peak of this process's memory in MB since `begin_peak`, and count one that is high."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    peak = int(line.split()[1]) * 1024 / 1e6
    if peak > MOST_MB + LIBRARIES_MB:
        tally.bad("memory", f"{kind}: {peak:.0f} MB")
    return peak
