"""The roof of a device, as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.cli.display.output import print_text
from benchmarker.formatting import si

if TYPE_CHECKING:
    from benchmarker.roofline.roofs import Roof


def print_roof(roof: Roof) -> None:
    """Print the limits of a device and their source below the work that they apply to."""
    print_text(
        f"  under {roof.name}: {si(roof.flop_per_s, 'FLOP/s')}, {si(roof.bytes_per_s, 'B/s')}, "
        f"ridge at {roof.ridge:.3g} FLOP/byte; {roof.source}",
        "    ",
    )
