"""Step times of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarker.records.record import Record


STEP_TIME = "step_time_median_s"
"""The metric that is compared and shown first unless another one is named."""


def step_times(record: Record) -> np.ndarray:
    """Return the mean step time of each timed block, s."""
    assert record.blocks is not None
    times: np.ndarray = np.array(record.blocks.duration_ns) / record.blocks.steps_per_block / 1e9
    return times
