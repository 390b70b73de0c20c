"""How a kernel was launched, as text: `grid=132,1,1 block=384,1,1 registers=168 shared=231424 occupancy=25%`.

`registers` are those of a thread, `shared` is the shared memory of a block in bytes, and `occupancy` the profiler's
estimate.
"""

from __future__ import annotations

import re
from typing import Any

_PAIR = re.compile(r"(\w+):(\d[\d,.]{0,40})")
_OCCUPANCY = re.compile(r"\d{1,3}(\.\d+)?")
_SHARED = ("static_shared", "dynamic_shared", "group_mem")
"""Parts of the shared memory, by their names in XLA's details of a kernel; AMD's is in one part."""


def launch(*, grid: Any, block: Any, registers: Any = None, shared: Any = None, occupancy: Any = None) -> str:
    """The text of a launch; None is left out, and so is an occupancy of 0, which stands for an unknown one."""
    given = {"grid": grid, "block": block, "registers": registers, "shared": shared}
    texts = [f"{name}={value}" for name, value in given.items() if value is not None]
    return " ".join([*texts, f"occupancy={occupancy}%"] if occupancy else texts)


def of_xla(details: str) -> str:
    """The text of a launch that XLA's profiler describes: `regs:32 static_shared:0 grid:1,1,1 block:128,1,1`."""
    found = dict(_PAIR.findall(details))
    occupancy = _OCCUPANCY.fullmatch(found.get("occ_pct", ""))
    shared = [int(found[name]) for name in _SHARED if found.get(name, "").isdigit()]
    return launch(
        grid=found.get("grid"),
        block=found.get("block"),
        registers=found.get("regs"),
        shared=sum(shared) if shared else None,
        occupancy=f"{float(occupancy[0]):g}" if occupancy and float(occupancy[0]) else None,
    )
