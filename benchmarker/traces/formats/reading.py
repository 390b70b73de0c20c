"""The content of a trace file, before anything is derived from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from benchmarker.traces.events import Texts
from benchmarker.traces.formats.hlo import Program

DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)")
CPU = re.compile(r"cpu(:\d+)?$")
"""How the event table names a CPU, and each of the devices that it is divided into."""
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
    the process in a distributed program of `world_size` processes, and `device_names` are those of the accelerators,
    if the file states them.
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
    device_names: tuple[str, ...] = ()


def divided_cpu(device: np.ndarray, ordinal: np.ndarray, ops: np.ndarray, interned: Texts) -> np.ndarray:
    """The device of each row, as the number of a text; the ops of a CPU that is divided are on `cpu:0`, `cpu:1`, ...

    JAX states an op's `ordinal`, -1 for none, because the devices share the threads. A single device remains `cpu`.
    """
    ops = ops & (ordinal >= 0)
    several = np.unique(ordinal[ops]).tolist()
    if len(several) < 2:
        return device
    return np.where(ops, interned.codes(ordinal, {each: f"cpu:{each}" for each in several}), device)
