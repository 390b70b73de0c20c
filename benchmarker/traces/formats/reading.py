"""The content of a trace file, before anything is derived from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from benchmarker.traces.formats.hlo import Program

DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)")
STREAM = re.compile(r"Stream #(\d+)")
"""How JAX's profiler names a device and a stream, in all formats."""
COPY = re.compile(r"mem(cpy|set)|(copy|fill)Buffer", re.IGNORECASE)
"""Names of operations that copy or set memory."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows of a file; `parent_id`, the scopes and all shares are determined later.

    `forward_thread` is above 0 for backward rows: it is the thread of the forward row with the same `sequence_nr`.
    `graph_node` is the number of a device row's node in the graph that launched it, -1 for none.
    `lost` lists what should be in the rows but is missing; `notes` lists what is left out on purpose. `rank` is that of
    the process in a distributed program of `world_size` processes, if the file states it.
    """

    format: Literal["xplane", "chrome", "nsys", "rocprof"]
    framework: str
    events: pd.DataFrame
    programs: Mapping[int, Program] = field(default_factory=dict)
    forward_thread: Any = None
    graph_node: Any = None
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rank: int | None = None
    world_size: int | None = None
