"""The hooks that a plugin can implement.

Each entry point of the group `benchmarker` names one module. The entry point's name is the plugin's address:
`framework.torch`, `problem.gemm`, `meter.nvml`, `metric.throughput`. A module of a problem's package that is named for
a framework needs none: it is `workload.gemm.torch`. A process loads only the addresses that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from benchmarker.api.case import Case, Profiling
    from benchmarker.api.framework import Framework, FrameworkInfo
    from benchmarker.api.launcher import Launcher
    from benchmarker.api.meter import Meter
    from benchmarker.api.metric import Metric
    from benchmarker.api.problem import Data, Engine, Problem, Support, Workload
    from benchmarker.records.ceilings import Ceilings
    from benchmarker.records.record import Record

hookspec = pluggy.HookspecMarker("benchmarker")
hookimpl = pluggy.HookimplMarker("benchmarker")


@hookspec(firstresult=True)
def describe_framework() -> FrameworkInfo:
    """Describe the framework and the devices that it sees; called before anything is planned.

    Implemented by `framework.NAME`: `return FrameworkInfo("mylib", mylib.__version__, ...)`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def make_framework(device: str, precision: str, threads: int | None, profiling: Profiling, devices: int) -> Framework:
    """Open the framework on a device; called once in a trial's process, before anything else uses the framework.

    `profiling` states whether the process will be profiled, which may need special settings: `no`, `yes`, or
    `separable` (with settings that keep scopes separate that the framework would otherwise fuse). Raises `UserError`
    if the framework does not support that. `devices` is the number of devices that this process computes on.
    Implemented by `framework.NAME`: `return MyFramework(device, precision, threads)`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def find_library() -> str | None:
    """Return why a library that is no Python module cannot be used, in one line with the remedy; None if it can.

    May be implemented by `framework.NAME`, in a module that is quick to import: it is called in the process of the
    command line, to tell which frameworks can be used.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def define_problem(name: str, path: Path | None) -> type[Problem]:
    """Return the class of the problem, without importing a framework; called when a command names the problem.

    Implemented by `problem.NAME`: `return Gemm`; by `library.NAME` for the models of a library; and by `source.SUFFIX`
    for each file with this suffix that a user names as a problem, with its `name` as the user wrote it and its `path`,
    which is None for a plugin.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def write_example(name: str, framework: str) -> str | None:
    """Return the content of a commented example file to start from, of this name; None for an unknown framework.

    Implemented by `source.SUFFIX`; called by `new`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def lend_functions(
    functions: Mapping[str, Any], helpers: Mapping[str, Any], framework: str | None, any_result: bool
) -> AbstractContextManager[type[Problem]]:
    """Return the context of a problem made from functions of this process, which is afterwards as it was before.

    `helpers` are functions with the names and meanings that they have in a file. `framework` is None if the functions
    show for which it is. With `any_result`, what they return need not be arrays, because whoever gives them checks it.
    Implemented by `source.py`; called for functions that are given as values.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def describe_workload() -> Support:
    """Describe what this implementation supports, all of which must run; called before anything is planned.

    Implemented by `workload.PROBLEM.FRAMEWORK`: `return Support({"inference": ("fp32", "fp64")})`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def build_workload(framework: Framework, problem: Problem, case: Case, data: Data) -> Workload:
    """Build the case on the device, ready to run steps; called twice in a trial, for the check and for the timing.

    Implemented by `workload.PROBLEM.FRAMEWORK`: `return TorchGemm(framework, problem, case, data)`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def build_engine(framework: Framework, problem: Problem, case: Case, data: Data) -> Engine:
    """Build an engine that generates text on the device; called by `serve-load`, for its check and for the load.

    Implemented by `workload.PROBLEM.FRAMEWORK` if it has one; the options are those of `Generates.engine_options`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def make_meter(device: str | None) -> Meter:
    """Open the meter, in a separate process; `device` is the platform that the case runs on, None for all platforms.

    Raises `NoMeterError`, with the reason and the remedy, if it finds nothing relevant to such a case.
    Implemented by `meter.NAME`: `return MyMeter()`.
    """
    raise NotImplementedError


@hookspec
def derive_metrics(record: Record, ceilings: Ceilings) -> Mapping[str, Metric]:
    """Derive metrics from a stored record, without side effects; called whenever a record is shown.

    `ceilings` are the known ceilings of the measured devices; an implementation that does not need them omits them.

    Implemented by `metric.NAME`: `return {"samples_per_s": Metric(12.5, "1/s", "higher")}`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def make_launcher(options: Mapping[str, str]) -> Launcher:
    """Make the launcher, without importing a framework; called to submit a job, to ask for jobs, and by each run.

    `options` are those of `submit -o`, by name; a value is empty if none was given. There are none in a run, which asks
    only for its allocation. Raises `UserError` if it does not have an option.
    Implemented by `launcher.NAME`: `return MyLauncher(options)`.
    """
    raise NotImplementedError
