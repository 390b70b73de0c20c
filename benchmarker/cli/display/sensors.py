"""Sensors as people are shown them: their names, and what they read at the moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarker.formatting import si

if TYPE_CHECKING:
    pass

HEADINGS = {
    "temperature_C": "temperature",
    "memory_temperature_C": "memory temperature",
    "sm_clock_MHz": "SM clock",
    "memory_clock_MHz": "memory clock",
    "utilisation_percent": "utilisation",
    "memory_used_bytes": "memory used",
    "power_limit_W": "power limit",
    "throttle_mask": "held down by",
}
"""Quantities of a device's state, in the words of a table."""
_UNITS = {"C": "°C", "MHz": "MHz", "percent": "%"}


def amount(quantity: str, value: float | None) -> str:
    """A value of a quantity with its unit; `-` for None."""
    unit = quantity.rpartition("_")[2]
    if value is None:
        return "-"
    if unit in _UNITS:
        return f"{value:.0f}{'' if unit == 'percent' else ' '}{_UNITS[unit]}"
    return si(value, "B" if unit == "bytes" else unit)
