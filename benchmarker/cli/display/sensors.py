"""Sensors as text: names of quantities, and readings with units."""

from __future__ import annotations

from benchmarker.formatting import si

HEADINGS = {
    "temperature_C": "temperature",
    "memory_temperature_C": "memory temperature",
    "sm_clock_MHz": "SM clock",
    "memory_clock_MHz": "memory clock",
    "utilisation_percent": "utilisation",
    "memory_used_bytes": "memory used",
    "power_limit_W": "power limit",
    "throttle_mask": "throttled by",
}
"""Headings for the quantities of a device's state."""
_UNITS = {"C": "°C", "MHz": "MHz", "percent": "%"}


def amount(quantity: str, value: float | None) -> str:
    """Return a value of a quantity with its unit; `-` for None."""
    unit = quantity.rpartition("_")[2]
    if value is None:
        return "-"
    if unit in _UNITS:
        return f"{value:.0f}{'' if unit == 'percent' else ' '}{_UNITS[unit]}"
    return si(value, "B" if unit == "bytes" else unit)
