"""Benchmark machine-learning workloads across frameworks and devices.

The names below are the public API: everything that a plugin, a problem or a notebook imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarker.api.case import MODES, Case, Measuring, Mode, Profiling
from benchmarker.api.claim import Claim, NotHereError, Outcome, Proof, Setting
from benchmarker.api.errors import UserError
from benchmarker.api.framework import Device, Framework, FrameworkInfo, StepMarker
from benchmarker.api.meter import Channel, Domain, Meter, NoMeterError, Quantity, Reading, Reason, Unavailable
from benchmarker.api.metric import Metric
from benchmarker.api.precision import PRECISIONS, Precision
from benchmarker.api.problem import Cost, Data, Problem, Support, Work, Workload
from benchmarker.hooks.specs import hookimpl
from benchmarker.records.record import Record
from benchmarker.version import __version__

if TYPE_CHECKING:
    from benchmarker.frames import load, load_blocks, load_events, load_telemetry
    from benchmarker.records.ceilings import Ceilings
    from benchmarker.roofline.model import Roof, measured_roof, vendor_roof
    from benchmarker.worker.bench import Bench, open_bench
    from benchmarker.worker.timing import Stepper, steps_per_block

__all__ = [
    "MODES",
    "PRECISIONS",
    "Bench",
    "Case",
    "Ceilings",
    "Channel",
    "Claim",
    "Cost",
    "Data",
    "Device",
    "Domain",
    "Framework",
    "FrameworkInfo",
    "Measuring",
    "Meter",
    "Metric",
    "Mode",
    "NoMeterError",
    "NotHereError",
    "Outcome",
    "Precision",
    "Problem",
    "Profiling",
    "Proof",
    "Quantity",
    "Reading",
    "Reason",
    "Record",
    "Roof",
    "Setting",
    "StepMarker",
    "Stepper",
    "Support",
    "Unavailable",
    "UserError",
    "Work",
    "Workload",
    "__version__",
    "hookimpl",
    "load",
    "load_blocks",
    "load_events",
    "load_telemetry",
    "measured_roof",
    "open_bench",
    "steps_per_block",
    "vendor_roof",
]

_LAZY = {
    **dict.fromkeys(("load", "load_blocks", "load_events", "load_telemetry"), "benchmarker.frames"),
    "Ceilings": "benchmarker.records.ceilings",
    **dict.fromkeys(("Roof", "measured_roof", "vendor_roof"), "benchmarker.roofline.model"),
    **dict.fromkeys(("Bench", "open_bench"), "benchmarker.worker.bench"),
    **dict.fromkeys(("Stepper", "steps_per_block"), "benchmarker.worker.timing"),
}
"""Names whose modules are slow to import; each is imported on first use."""


def __getattr__(name: str) -> Any:
    """Import a lazy name on first use."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
