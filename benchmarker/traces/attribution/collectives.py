"""What PyTorch's host states of the collectives that an accelerator executes.

The kernel of a collective may say little: NCCL runs an all-to-all as `ncclKernel_SendRecv`, and some builds name every
kernel so. c10d's op (`record_param_comms`) and annotation (`nccl:all_to_all`), which enclose the launch, state kind,
size and group. Each is taken from the kernel itself, otherwise from the nearest row around its launch that states it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.communication import COMMUNICATION
from benchmarker.traces.events import codes, words
from benchmarker.traces.formats.collectives import INTEGERS, TEXTS


def with_collectives(events: pd.DataFrame, on_device: np.ndarray) -> pd.DataFrame:
    """The table in which each kernel of a collective has what the rows around its launch state of it."""
    moves = on_device & ((events["category"] == COMMUNICATION) & (events["opcode"] == "")).to_numpy()
    rows, parent = np.flatnonzero(moves), events["parent_id"].to_numpy()
    columns: dict[str, Any] = {}
    for name in (*TEXTS, *INTEGERS):
        is_text = name in TEXTS
        values = codes(events[name]) if is_text else events[name].to_numpy().copy()
        stated = (events[name] != "").to_numpy() if is_text else values >= 0
        source = _nearest(parent, rows, stated)
        values[rows[source >= 0]] = values[source[source >= 0]]
        columns[name] = words(values, list(events[name].cat.categories)) if is_text else values
    return events.assign(**columns)


def _nearest(parent: np.ndarray, rows: np.ndarray, has: np.ndarray) -> np.ndarray:
    """The nearest row that `has` something, from each of `rows` upwards, itself included; -1 if there is none."""
    found = rows.copy()
    lacking = np.flatnonzero(~has[found])
    while len(lacking):
        found[lacking] = parent[found[lacking]]
        lacking = lacking[found[lacking] >= 0]
        lacking = lacking[~has[found[lacking]]]
    return found
