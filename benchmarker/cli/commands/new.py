"""`benchmarker new`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output, output_options
from benchmarker.formatting import clean
from benchmarker.hooks import registry

PLAN = """\
# An experiment plan: every combination of the values in [axes] is a case.
#   benchmarker plan show {name}    what would run, and how long it would take
#   benchmarker plan run {name}     run it; --resume continues an interrupted run
problem = "gemm"                  # `benchmarker list problems`; `benchmarker describe gemm` lists its options
n = 512                           # options of the problem
k = 512
trials = 10                       # fresh processes for each case; a verdict needs at least 6

[measuring]
preheat = true                    # warm up until the rate is steady
preheat_max_s = 5                 # but no longer than this
seconds = 2                       # the timed part of each trial

[axes]
framework = {frameworks}
m = [256, 512]
"""
"""A plan for GEMM in the frameworks that are available here."""


@click.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@output_options(tables=False)
def command(file: Path) -> Output:
    """Write a short, commented plan file to start from: `benchmarker new plan.toml`.

    It measures a matrix product in the frameworks that are available here. An existing file is never replaced.
    """
    if file.suffix != ".toml":
        raise UserError(f"{file}: a plan is a TOML file; name it {file.with_suffix('.toml').name}")
    frameworks = [plugin.name for plugin in registry.registered("framework").values() if not registry.trouble(plugin)]
    plan = PLAN.format(name=clean(str(file)), frameworks=json.dumps(frameworks))
    try:
        with file.open("x", encoding="utf-8") as created:
            created.write(plan)
    except FileExistsError:
        raise UserError(f"{file} exists already; name another file") from None
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    return Output([clean(f"wrote {file}: `benchmarker plan show {file}` says what it would run")], {"path": str(file)})
