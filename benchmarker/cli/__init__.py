"""The command line interface: one module per command, imported only when the command is called."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from typing import Any

import click

from benchmarker.api.errors import UserError
from benchmarker.formatting import clean
from benchmarker.version import __version__

COMMANDS = {
    "run": "Measure a problem in one or more frameworks; store records and print a table.",
    "sweep": "Measure every combination of parameter values, given as axes, zips or a list of cases.",
    "suite": "List the built-in benchmark suites, or run one.",
    "plan": "Show what a plan file would run and how long it would take.",
    "run-plan": "Run a plan file.",
    "ab": "Compare two configurations in alternating trials until the verdict is clear.",
    "compare": "Compare stored records: faster, slower, same or undecided.",
    "pareto": "Find the Pareto-optimal configurations.",
    "score": "Score two results over all cases: weighted geometric mean per metric, success ratio.",
    "ceilings": "Measure the peak FLOP/s (matrix products) and bytes/s (copies) of the device.",
    "roofline": "Place steps, scopes and kernels on the measured roofline of their device.",
    "report": "Write a self-contained HTML report: verdicts, figures and the data behind them.",
    "kernels": "Show what ran in a profile, grouped by name, category, scope, op, phase or device.",
    "scopes": "Show the time of each scope in a profile; compare several profiles side by side.",
    "ops": "Show the HLO instructions or aten ops of a profile.",
    "sql": "Query a profile in Perfetto SQL.",
    "trace": "Export a profile, including its scopes, for the Perfetto viewer.",
    "ingest": "Import profiler traces that were recorded by other tools.",
    "check": "Check every implementation against its float64 reference and the others.",
    "list": "List the registered plugins, their packages, and whether they can be used here.",
    "describe": "Describe a problem: options, cost, scopes, and what each framework supports.",
    "power": "Show the power sensors here and their readings, or why there are none.",
    "telemetry": "Show the time series of everything the meters read during a trial.",
    "env": "Describe this machine and what will make its timings noisy.",
    "show": "Show records as a table.",
    "accept": "Check records against the bounds of a reference: PASS or FAIL for each case.",
    "bundle": "Pack a run with checksums for hand-in.",
    "unbundle": "Verify a packed run and unpack it.",
    "validate": "Validate records against the JSON Schema.",
}


REFUSALS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM),
    *(errno.EACCES, errno.EPERM),
}
"""What a system refuses: no space, no resources, no permission. Any other OSError is a bug."""


class Commands(click.Group):
    """A group that imports a command's module only when it is called; the default command is `run`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the command with this name, or None if there is none."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"benchmarker.cli.commands.{name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their short descriptions without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Pass options that follow no command to `run`; print the help if there are no arguments."""
        args = args or ["--help"]
        if args[0].startswith("-") and args[0] not in ("--help", "-h", "--version"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("_", "-"),
        "max_content_width": 100,
    },
)
@click.version_option(__version__, prog_name="benchmarker")
def group() -> None:
    """Measure how fast machine-learning work runs, on which hardware and in which framework.

    Without a command, the options are passed to `run`:

      python -m benchmarker --framework=jax --problem=gpt2 --preheat
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 1 a trial or a check failed, 2 user error, 130 interrupted.

    With --strict, 3 is a provisional verdict.
    """
    try:
        status: Any = group.main(args, prog_name="benchmarker", standalone_mode=False)
    except UserError as error:
        _fail(f"error: {error}", 2)
    except click.ClickException as error:
        _fail(f"error: {' '.join(error.format_message().split())}", 2)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of the pipe has closed it; the status is that of a program that SIGPIPE ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        what = "cannot write " if error.errno == errno.ENOSPC else ""
        where = error.filename or ("the output" if what else "")
        _fail(f"error: {what}{where}{': ' if where else ''}{error.strerror or error}", 2)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(text: str, status: int) -> None:
    """Print the text without control characters, so that a name in it cannot control the terminal, and exit."""
    click.echo("benchmarker: " + "\n".join(clean(line) for line in text.split("\n")), err=True)
    sys.exit(status)
