"""The machine as rows of a table."""

from __future__ import annotations

import msgspec

from benchmarker.cli.display.sensors import amount
from benchmarker.records.record import Machine


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
