"""Step times of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from benchmarker.records.record import Record


STEP_TIME = "step_time_median_s"
"""The metric that is compared and shown first unless another one is named."""
MEAN_STEP_TIME = "step_time_mean_s"
FIRST = (STEP_TIME, MEAN_STEP_TIME, "times_predicted", "predicted_s")
"""Metrics that stand first in a table: what was measured, and beside it what is predicted."""


def by_importance(metric: str) -> int:
    """Return the place of a metric in a table, for sorting; those that are not among the first keep their order."""
    return FIRST.index(metric) if metric in FIRST else len(FIRST)


def step_times(record: Record) -> np.ndarray:
    """Return the mean step time of each timed block, s."""
    assert record.blocks is not None
    times: np.ndarray = np.array(record.blocks.duration_ns) / record.blocks.steps_per_block / 1e9
    return times
