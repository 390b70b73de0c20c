"""Benchmark machine-learning workloads across frameworks and devices.

The names below are the public API: everything that a plugin, a problem or a notebook imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarker.version import __version__

if TYPE_CHECKING:
    from benchmarker.api.case import MODES, Case, Measuring, Mode, Parallel, Profiling
    from benchmarker.api.errors import UserError
    from benchmarker.api.framework import Device, Framework, FrameworkInfo, Gang, StepMarker
    from benchmarker.api.launcher import Allocation, JobState, Launcher
    from benchmarker.api.meter import Channel, Domain, Meter, NoMeterError, Quantity, Reading, Reason, Unavailable
    from benchmarker.api.metric import Metric, Plot
    from benchmarker.api.precision import PRECISIONS, Precision
    from benchmarker.api.problem import (
        Collective,
        Cost,
        Data,
        Engine,
        Problem,
        Published,
        Support,
        Token,
        Work,
        Workload,
    )
    from benchmarker.frames import load, load_blocks, load_events, load_telemetry
    from benchmarker.hooks.specs import hookimpl
    from benchmarker.records.ceilings import Ceilings
    from benchmarker.records.record import Record
    from benchmarker.records.step_times import LocalTimes, local_times
    from benchmarker.roofline.formula import PredictedStep, predicted_step
    from benchmarker.roofline.roofs import Roof, measured_roof, vendor_roof
    from benchmarker.worker.bench import Bench, open_bench
    from benchmarker.worker.timing import Stepper, steps_per_block

__all__ = [
    "MODES",
    "PRECISIONS",
    "Allocation",
    "Bench",
    "Case",
    "Ceilings",
    "Channel",
    "Collective",
    "Cost",
    "Data",
    "Device",
    "Domain",
    "Engine",
    "Framework",
    "FrameworkInfo",
    "Gang",
    "JobState",
    "Launcher",
    "LocalTimes",
    "Measuring",
    "Meter",
    "Metric",
    "Mode",
    "NoMeterError",
    "Parallel",
    "Plot",
    "Precision",
    "PredictedStep",
    "Problem",
    "Profiling",
    "Published",
    "Quantity",
    "Reading",
    "Reason",
    "Record",
    "Roof",
    "StepMarker",
    "Stepper",
    "Support",
    "Token",
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
    "local_times",
    "measured_roof",
    "open_bench",
    "predicted_step",
    "steps_per_block",
    "vendor_roof",
]

_MODULES = {
    "benchmarker.api.case": (
        "Case",
        "MODES",
        "Measuring",
        "Mode",
        "Parallel",
        "Profiling",
    ),
    "benchmarker.api.errors": ("UserError",),
    "benchmarker.api.framework": (
        "Device",
        "Framework",
        "FrameworkInfo",
        "Gang",
        "StepMarker",
    ),
    "benchmarker.api.launcher": (
        "Allocation",
        "JobState",
        "Launcher",
    ),
    "benchmarker.api.meter": (
        "Channel",
        "Domain",
        "Meter",
        "NoMeterError",
        "Quantity",
        "Reading",
        "Reason",
        "Unavailable",
    ),
    "benchmarker.api.metric": ("Metric", "Plot"),
    "benchmarker.api.precision": (
        "PRECISIONS",
        "Precision",
    ),
    "benchmarker.api.problem": (
        "Collective",
        "Cost",
        "Data",
        "Engine",
        "Problem",
        "Published",
        "Support",
        "Token",
        "Work",
        "Workload",
    ),
    "benchmarker.frames": (
        "load",
        "load_blocks",
        "load_events",
        "load_telemetry",
    ),
    "benchmarker.hooks.specs": ("hookimpl",),
    "benchmarker.records.ceilings": ("Ceilings",),
    "benchmarker.records.step_times": (
        "LocalTimes",
        "local_times",
    ),
    "benchmarker.records.record": ("Record",),
    "benchmarker.roofline.formula": (
        "PredictedStep",
        "predicted_step",
    ),
    "benchmarker.roofline.roofs": (
        "Roof",
        "measured_roof",
        "vendor_roof",
    ),
    "benchmarker.worker.bench": (
        "Bench",
        "open_bench",
    ),
    "benchmarker.worker.timing": (
        "Stepper",
        "steps_per_block",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that a process imports only what it uses."""
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
