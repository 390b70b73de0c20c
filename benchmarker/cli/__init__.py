"""The command line: one module for each command, imported when it is called."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from benchmarker.api.errors import UserError
from benchmarker.version import __version__

COMMANDS = {
    "run": "Measure a problem in one framework or several; store records and print a table.",
    "sweep": "Measure every combination of values: axes multiplied, zipped or listed.",
    "suite": "List the suites of the project, or run one.",
    "plan": "Show what a plan file would run, and how long it would take.",
    "run-plan": "Run a plan file.",
    "ab": "Run two configurations in turns until it is plain which is faster.",
    "compare": "Compare records: faster, slower, the same, or undecided.",
    "pareto": "Find the configurations that none beats in every metric.",
    "score": "Sum up two sides over all cases: weighted mean ratio, success ratio, per metric.",
    "ceilings": "Measure what this device can reach: FLOP/s by matrix products, bytes/s by copying.",
    "roofline": "Show records, scopes and kernels under the measured roof of their device.",
    "report": "Write a page that stands alone: verdicts, figures and the data behind them.",
    "kernels": "Show what ran in a profile, by name, category, scope, op, phase or device.",
    "scopes": "Show the time of each scope, of several profiles side by side.",
    "ops": "Show the HLO instructions or aten ops of a profile.",
    "sql": "Query a profile in the SQL of Perfetto.",
    "trace": "Write a profile, scopes and all, for the viewer of Perfetto.",
    "ingest": "Read traces that other tools took.",
    "check": "Hold every implementation of a problem against its reference and against each other.",
    "list": "List what is registered, from which distribution, and whether it can be used.",
    "describe": "Describe a problem: its options, its cost, and what each framework does.",
    "power": "Show the sensors of power here and what they read now, or why there is none.",
    "telemetry": "Show the time series of all that the meters read during a trial.",
    "env": "Describe this machine, and what will make its timings noisy.",
    "show": "Show records as a table.",
    "accept": "Hold records against the bounds of a reference: PASS or FAIL, case by case.",
    "bundle": "Pack a run with checksums, to hand it in.",
    "unbundle": "Verify a packed run and unpack it.",
    "validate": "Hold records against the schema.",
}


class Commands(click.Group):
    """Imports a command's module only when that command is called; without a command it is `run`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order that a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name."""
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"benchmarker.cli.commands.{name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands and what they do, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options with no command before them are those of `run`; nothing at all asks for help."""
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
    """Measure how fast machine-learning work runs, on what, and in which framework.

    Without a command, options are those of `run`:

      python -m benchmarker --framework=jax --problem=gpt2 --preheat
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a trial or a check failed, 2 the user's mistake, 130 interrupted."""
    try:
        status: Any = group.main(args, prog_name="benchmarker", standalone_mode=False)
    except UserError as error:
        _fail(f"error: {error}", 2)
    except click.ClickException as error:
        _fail(f"error: {' '.join(error.format_message().split())}", 2)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:  # the reader of a pipe has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"error: cannot write {error.filename or 'the output'}: {error.strerror}", 2)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(text: str, status: int) -> None:
    click.echo(f"benchmarker: {text}", err=True)
    sys.exit(status)
