"""The roof of a device, as a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarker.cli.display.output import Part, Text
from benchmarker.formatting import si

if TYPE_CHECKING:
    from benchmarker.roofline.roofs import Roof


def roof_output(roof: Roof) -> Iterator[Part]:
    """Yield the limits of a device and their source below the work that they apply to."""
    yield Text(
        f"  under {roof.name}: {si(roof.flop_per_s, 'FLOP/s')}, {si(roof.bytes_per_s, 'B/s')}, "
        f"ridge at {roof.ridge:.3g} FLOP/byte; {roof.source}",
        "    ",
    )
