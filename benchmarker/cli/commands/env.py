"""`benchmarker env`."""

import click

from benchmarker.cli.display.output import Output, output_options
from benchmarker.display.machine import machine_rows
from benchmarker.display.result import Text
from benchmarker.formatting import clean
from benchmarker.machine import description
from benchmarker.tables.table import Table


@click.command("env")
@output_options()
def command() -> Output:
    """Describe this machine as in a record, and report what will make its timings noisy."""
    here = description.describe()
    noise = description.noise(here)
    data = {
        "machine": here,
        "python": description.python_version(),
        "commit": description.commit(),
        "noise": noise,
    }
    title = "What will make timings noisy:" if noise else "Nothing was found that makes timings noisy."
    facts = Table.facts([*machine_rows(here), ["Python", description.python_version()]])
    return Output([facts, f"\n{title}", *(Text(f"  - {clean(sentence)}", "    ") for sentence in noise)], data)
