"""The option that chooses the roof."""

from __future__ import annotations

from typing import get_args

import click

from benchmarker.cli.options.types import Choice
from benchmarker.roofline.roofs import Source

roof_option = click.option(
    "--roof",
    "source",
    type=Choice(get_args(Source)),
    default="measured",
    show_default=True,
    help="Use the ceilings measured by `ceilings`, or the vendor's data sheet.",
)
