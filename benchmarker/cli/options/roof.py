"""The roof of a device: the option that chooses it, and its line."""

from collections.abc import Iterator
from typing import get_args

import click

from benchmarker.cli.options.types import Choice
from benchmarker.display.result import Part, Text
from benchmarker.formatting import si
from benchmarker.roofline.roofs import Roof, Source

roof_option = click.option(
    "--roof",
    "source",
    type=Choice(get_args(Source)),
    default="measured",
    help="Use the ceilings measured by `ceilings`, or the vendor's data sheet.",
)


def roof_output(roof: Roof) -> Iterator[Part]:
    """Yield the limits of a device and their source below the work that they apply to."""
    yield Text(
        f"  under {roof.name}: {si(roof.flop_per_s, 'FLOP/s')}, {si(roof.bytes_per_s, 'B/s')}, "
        f"ridge at {roof.ridge:.3g} FLOP/byte; {roof.source}",
        "    ",
    )
