"""Measure how fast machine-learning work runs, on what and in which framework.

The names below are the public ones: what a plugin, a problem or a notebook imports.
"""

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
    Support,
    Workload,
)
from benchmarker.errors import UserError
from benchmarker.hookspecs import hookimpl
from benchmarker.precision import PRECISIONS, Precision
from benchmarker.record import Record

__version__ = "0.1.0"

__all__ = [
    "MODES",
    "PRECISIONS",
    "Case",
    "Cost",
    "Data",
    "Device",
    "Framework",
    "FrameworkInfo",
    "Measuring",
    "Metric",
    "Mode",
    "Precision",
    "Problem",
    "Record",
    "Support",
    "UserError",
    "Workload",
    "hookimpl",
]
