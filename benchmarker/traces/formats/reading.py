"""What a trace file says, before anything is derived from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from benchmarker.traces.formats.hlo import Program

DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)")
STREAM = re.compile(r"Stream #(\d+)")
"""How JAX's profiler names a device and a stream, in whichever format."""
COPY = re.compile(r"mem(cpy|set)|(copy|fill)Buffer", re.IGNORECASE)
"""Names of what copies or sets memory."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows of a file, in which `parent_id`, the scopes and all shares are still to be found.

    `forward_thread` says of each row, where it is above 0, on which thread's row with its `sequence_nr` it follows.
    `lost` says what of the file is not in the rows although it should be; `notes` what is left out on purpose.
    """

    format: Literal["xplane", "chrome"]
    framework: str
    events: pd.DataFrame
    programs: Mapping[int, Program] = field(default_factory=dict)
    forward_thread: Any = None
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
