"""`benchmarker bundle verify`."""

from __future__ import annotations

from typing import Any

import click

from benchmarker.cli.commands.bundle.unpack import receive, verifying_options
from benchmarker.cli.display.output import Output


@click.command("verify")
@verifying_options
def command(**options: Any) -> Output:
    """Verify every byte and every record of a bundle; unpack nothing.

    If any check fails, all faults are listed and the exit status is 1. Checksums show that nothing changed in transit;
    they do not show that the measurements are genuine.
    """
    return receive(None, **options)
