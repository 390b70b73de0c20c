"""Measure how fast machine-learning work runs, on what and in which framework.

The names below are the public ones: what a plugin, a problem or a notebook imports.
"""

from typing import TYPE_CHECKING, Any

from benchmarker.api import (
    MODES,
    Case,
    Cost,
    Data,
    Device,
    Framework,
    FrameworkInfo,
    Measuring,
    Metric,
    Mode,
    Problem,
    Profiling,
    StepMarker,
    Support,
    Work,
    Workload,
)
from benchmarker.errors import UserError
from benchmarker.hookspecs import hookimpl
from benchmarker.power.meter import Channel, Lack, Meter, NoMeterError
from benchmarker.precision import PRECISIONS, Precision
from benchmarker.record import Record

if TYPE_CHECKING:
    from benchmarker.frames import load, load_blocks, load_events, load_telemetry

__version__ = "0.1.0"

__all__ = [
    "MODES",
    "PRECISIONS",
    "Case",
    "Channel",
    "Cost",
    "Data",
    "Device",
    "Framework",
    "FrameworkInfo",
    "Lack",
    "Measuring",
    "Meter",
    "Metric",
    "Mode",
    "NoMeterError",
    "Precision",
    "Problem",
    "Profiling",
    "Record",
    "StepMarker",
    "Support",
    "UserError",
    "Work",
    "Workload",
    "hookimpl",
    "load",
    "load_blocks",
    "load_events",
    "load_telemetry",
]


def __getattr__(name: str) -> Any:
    """Import pandas only for those who load frames: it takes longer than all else."""
    if name in ("load", "load_blocks", "load_events", "load_telemetry"):
        from benchmarker import frames

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
