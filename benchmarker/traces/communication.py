"""How much time devices spend on communication, and how much of it is hidden behind computation."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from benchmarker.traces.attribution.nesting import union_ns

COMMUNICATION = "communication"
"""The category of collectives and of data sent from device to device."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The time in which a device communicated, in which it did other work, and in which it did either, in ns."""

    moving_ns: int
    computing_ns: int
    either_ns: int

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Overlap:
        """Of the work of one device."""
        begin, end = rows["ts_ns"].to_numpy(), (rows["ts_ns"] + rows["dur_ns"]).to_numpy()
        moves = (rows["category"] == COMMUNICATION).to_numpy()
        return cls(union_ns(begin[moves], end[moves]), union_ns(begin[~moves], end[~moves]), union_ns(begin, end))

    @property
    def hidden_ns(self) -> int:
        """The time in which the device did both."""
        return self.moving_ns + self.computing_ns - self.either_ns
