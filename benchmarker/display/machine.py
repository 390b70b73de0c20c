"""The machine as rows of a table, and readings of its sensors with units."""

import msgspec

from benchmarker.formatting import si
from benchmarker.records.machine import Machine


def machine_rows(here: Machine) -> list[list[str]]:
    """Return a machine as rows of (name, value)."""
    cpu = here.cpu
    rows = [
        ["host", here.host],
        ["model", here.model or "unknown"],
        ["system", f"{here.os}, {here.kernel}"],
        ["processor", cpu.model],
        [
            "cores",
            f"{cpu.usable_cores} usable of {cpu.logical_cores} logical, {cpu.physical_cores or '?'} physical",
        ],
        ["caches of a core", ", ".join(f"L{each.level} {si(each.bytes, 'B')}" for each in cpu.caches) or "unknown"],
        ["last-level cache", amount("cache_bytes", cpu.cache_bytes)],
        ["governor", cpu.governor or "unavailable"],
        ["memory", amount("memory_bytes", here.memory_bytes)],
        ["load average", f"{here.load_average_1min:.2f}"],
    ]
    for name in ("virtualization", "container", "cpu_quota_cores", "steal_percent"):
        value = getattr(here, name)
        if value is not None:
            rows.append([name.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else value])
    for gpu in here.gpus:
        known = {name: value for name, value in msgspec.structs.asdict(gpu).items() if value is not None}
        known |= {name: amount(name, known[name]) for name in ("memory_bytes", "power_limit_W") if name in known}
        words = (f"{name.removesuffix('_bytes').removesuffix('_W').replace('_', ' ')} {known[name]}" for name in known)
        rows.append([f"GPU {gpu.index}", ", ".join(words)])
    return rows


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
