"""The command line interface: its entry point, and how each kind of error ends the program."""

import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from benchmarker.api.errors import TerminatedError, UserError, terminate
from benchmarker.cli.groups import Group
from benchmarker.formatting import clean, one_line, shortened
from benchmarker.version import __version__

REFUSALS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
    *(errno.EACCES, errno.EPERM),
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EFBIG, errno.EIO, errno.ESTALE),
}
"""What a system refuses: no space, no resources, no permission, no such name, no answer.

Any other OSError is a bug.
"""
LONGEST_ERROR = 2000
"""Most characters of an error, for those that repeat what someone else wrote."""


@click.group(
    cls=Group,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="benchmarker")
def group() -> None:
    """Measure how fast machine-learning work runs, on which hardware and in which framework.

    Without a command, the options are passed to `run`:

      python -m benchmarker --framework=jax --problem=gpt2 --preheat
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit.

    The status is 0 for success, 1 if a trial or a check failed, 2 for an error of the user, 3 if a verdict is
    provisional with --strict, 130 if interrupted, and 143 if terminated.
    """
    _open_standard_files()
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        _refuse_undecodable(sys.argv[1:] if args is None else args)
        status: Any = group.main(args, prog_name="benchmarker", standalone_mode=False)
    except UserError as error:
        _fail(f"error: {error}", 2)
    except click.MissingParameter as error:
        usage = f"; `{error.ctx.command_path} --help` shows how it is given" if error.ctx else ""
        _fail(f"error: {one_line(error.format_message()).rstrip('.')}{usage}", 2)
    except click.NoSuchOption as error:
        usage = "" if error.possibilities or not error.ctx else f"; `{error.ctx.command_path} --help` lists the options"
        _fail(f"error: {one_line(error.format_message()).rstrip('.')}{usage}", 2)
    except click.ClickException as error:
        _fail(f"error: {one_line(error.format_message())}", 2)
    except (click.Abort, KeyboardInterrupt) as error:  # Click raises Abort from whatever interrupt it was
        if isinstance(error.__cause__ or error, TerminatedError):
            _fail("terminated", 128 + signal.SIGTERM)
        _fail("interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of the pipe has closed it; the status is that of a program that SIGPIPE ends
        _drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        _drop_output()
        what = "cannot write " if error.errno == errno.ENOSPC else ""
        where = error.filename or ("the output" if what else "")
        _fail(f"error: {what}{where}{': ' if where else ''}{error.strerror or error}", 2)
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(status if isinstance(status, int) else 0)


def _refuse_undecodable(args: Sequence[str]) -> None:
    """Raise `UserError` for a name that is not UTF-8, because no record, JSON or page could hold it."""
    with suppress(OSError):  # the current folder may be gone
        args = [*args, str(Path.cwd())]
    for name in (*args, os.environ.get("TMPDIR", "")):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UserError(f"{name} is not valid UTF-8; rename it") from None


def _open_standard_files() -> None:
    """Open those of the three standard files that are closed: otherwise a record would get their number.

    What their encoding cannot express is escaped, such as the name of a file that is not UTF-8.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Discard what standard output holds if it cannot be written: at the end, that would fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, status: int) -> None:
    """Print the text on one line, without control characters: a name in it cannot control the terminal; and exit."""
    click.echo(f"benchmarker: {shortened(clean(text), LONGEST_ERROR)}", err=True)
    sys.exit(status)
