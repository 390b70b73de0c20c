"""The hooks: all that a plugin can implement.

Each entry point of the group `benchmarker` names one module, and its name is its address: `framework.torch`,
`problem.gemm`, `workload.gemm.torch`, `meter.nvml`, `metric.throughput`. A process loads only the addresses that it
needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarker.api.case import Case, Profiling
    from benchmarker.api.framework import Framework, FrameworkInfo
    from benchmarker.api.meter import Meter
    from benchmarker.api.metric import Metric
    from benchmarker.api.problem import Data, Problem, Support, Workload
    from benchmarker.records.ceilings import Ceilings
    from benchmarker.records.record import Record

hookspec = pluggy.HookspecMarker("benchmarker")
hookimpl = pluggy.HookimplMarker("benchmarker")


@hookspec(firstresult=True)
def describe_framework() -> FrameworkInfo:
    """Say what the framework is and which devices it sees; called before anything is planned.

    Implemented by `framework.NAME`: `return FrameworkInfo("mylib", mylib.__version__, ...)`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def make_framework(device: str, precision: str, threads: int | None, profiling: Profiling) -> Framework:
    """Open the framework on a device; called once in a trial's process, before anything else touches it.

    `profiling` says whether the process is there to be profiled, which may need settings of its own: `no`, `yes`, or
    `separable`, with what keeps the scopes apart that the framework would fuse. Raises `UserError` where it cannot.
    Implemented by `framework.NAME`: `return MyFramework(device, precision, threads)`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def make_problem() -> Problem:
    """Make the problem; called when a command names it. It must import no framework.

    Implemented by `problem.NAME`: `return Gemm()`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def describe_workload() -> Support:
    """Say what this implementation does; called before anything is planned, and what it lists must run.

    Implemented by `workload.PROBLEM.FRAMEWORK`: `return Support({"inference": ("fp32", "fp64")})`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def build_workload(framework: Framework, problem: Problem, case: Case, params: object, data: Data) -> Workload:
    """Put the case on the device, ready to step; called twice in a trial: for the check, and to be timed.

    Implemented by `workload.PROBLEM.FRAMEWORK`: `return TorchGemm(framework, case, params, data)`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def make_meter(device: str | None) -> Meter:
    """Open the meter, in a process of its own; `device` is the platform that the case runs on, None for all.

    Raises `NoMeterError`, with the reason and the remedy, where it finds nothing that such a case would want.
    Implemented by `meter.NAME`: `return MyMeter()`.
    """
    raise NotImplementedError


@hookspec
def derive_metrics(record: Record, ceilings: Ceilings) -> Mapping[str, Metric]:
    """Derive figures from a stored record, without side effects; called whenever a record is shown.

    `ceilings` are those that are known of the devices measured; an implementation that needs none leaves them out.

    Implemented by `metric.NAME`: `return {"samples_per_s": Metric(12.5, "1/s", "higher")}`.
    """
    raise NotImplementedError
