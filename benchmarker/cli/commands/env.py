"""`benchmarker env`."""

from __future__ import annotations

import click

from benchmarker.cli.display.machine import machine_rows
from benchmarker.cli.display.output import json_option, print_json, print_table, print_text
from benchmarker.formatting import clean
from benchmarker.machine import description


@click.command("env")
@json_option
def command(as_json: bool) -> None:
    """Describe this machine as in a record, and report what will make its timings noisy."""
    here = description.describe()
    noise = description.noise(here)
    if as_json:
        print_json(
            {"machine": here, "python": description.python_version(), "commit": description.commit(), "noise": noise}
        )
        return
    print_table(None, [*machine_rows(here), ["Python", description.python_version()]])
    click.echo("\nWhat will make timings noisy:" if noise else "\nNothing was found that makes timings noisy.")
    for sentence in noise:
        print_text(f"  - {clean(sentence)}", "    ")
