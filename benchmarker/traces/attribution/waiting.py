"""How long the devices of a CPU wait for each other within a collective of XLA.

A collective on a CPU is a series of meetings (`Rendezvous`) of the threads of all devices. Until the last of them has
come, the others are in `Wait: pending_threads=...`. Everything else in a collective is exchange.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarker.traces.attribution.nesting import Nest, inherit
from benchmarker.traces.communication import COMMUNICATION
from benchmarker.traces.events import codes

_MEETING, _WAIT = "Rendezvous", "Wait: pending_threads"


def meetings_ns(events: pd.DataFrame, nested: Nest) -> np.ndarray:
    """How long each collective waited for other devices, in ns; -1 for rows in which no threads meet."""
    found = np.full(len(events), -1)
    collective = ((events["category"] == COMMUNICATION) & (events["kind"] == "op")).to_numpy()
    within = inherit(nested.parent, np.where(collective, np.arange(len(events)), -1))
    names, name = events["name"].cat.categories, codes(events["name"])
    meeting, wait = (
        np.array([each.startswith(begin) for each in names], bool)[name] & (within >= 0) for begin in (_MEETING, _WAIT)
    )
    found[within[meeting]] = 0
    np.add.at(found, within[wait & (found[within] >= 0)], events["dur_ns"].to_numpy()[wait & (found[within] >= 0)])
    return found
