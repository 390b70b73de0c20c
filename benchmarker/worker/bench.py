"""A case that is ready to be built at any size: its plugins are loaded and its framework is opened."""

import os
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarker.api.case import Case, Mode
from benchmarker.api.errors import UserError
from benchmarker.api.framework import Device, Framework, FrameworkInfo, ProcessGroup, StepMarker
from benchmarker.api.precision import PRECISIONS
from benchmarker.api.problem import Data, Problem, Workload, divided
from benchmarker.hooks import parameters, registry
from benchmarker.machine.description import last_cache_bytes, usable_cores
from benchmarker.records.machine import DeviceInfo
from benchmarker.records.record import Inputs, SetLimit, Types, sets_of_rotation
from benchmarker.worker.draws import drawn
from benchmarker.worker.protocol import RecordPart

BATCHES = 4
"""Batches of inputs that are drawn. That steps take them in turns does not keep small ones out of a cache."""
MOST_SETS = 2**12
"""Most sets of a rotation: each is an object of the framework too, which takes time to make."""
MEMORY_DIVISOR = 4
"""Share of the available memory that sets may take: on a CPU, they are there twice, as NumPy's and the framework's."""
MODULES = "LOADEDMODULES"
"""Where Environment Modules and Lmod list the modules that are loaded."""


class Bench:
    """A case with its plugins loaded, its framework opened and the options of its problem converted.

    If there is a process `group`, the framework joins it. Processes of one node divide its cores among themselves. With
    a folder for its profile, the process gets settings for profiling, and `profiler`. A problem that no plugin defines
    is given as its class, `kind`. Raises `UserError`, also if the framework then has no profiler.
    """

    def __init__(
        self,
        case: Case,
        profile_into: Path | None = None,
        group: ProcessGroup | None = None,
        kind: type[Problem] | None = None,
    ) -> None:
        threads = case.threads
        if threads is None and case.ranks == case.devices > 1 and case.device == "cpu":
            threads = max(1, usable_cores() // case.ranks_per_node)
        self.case = case
        kind = kind or registry.problem(case.problem)
        if kind.source and kind.source.sha256 != case.source:
            raise UserError(f"{case.problem} changed after the run was planned; start a new run")
        self.hooks = registry.load([f"framework.{case.framework}", f"workload.{case.problem}.{case.framework}"]).hook
        self.framework: Framework = self.hooks.make_framework(
            device=case.device,
            precision=case.precision,
            threads=threads,
            profiling=case.measuring.profiling if profile_into else "no",
            devices=len(case.devices_of(0)),
        )
        if group:
            self.framework.join(group)
        self.threads = self.framework.threads()
        if case.threads not in (None, self.threads):
            actual = "cannot report its thread count here" if self.threads is None else f"computes with {self.threads}"
            raise UserError(f"--threads={case.threads} was set, but {case.framework} {actual}")
        self.profiler: AbstractContextManager[StepMarker] = (
            self.framework.profile(profile_into) if profile_into else nullcontext(nullcontext)
        )
        problem = parameters.convert(kind, case.params)
        self.problem = divided(problem, 1 if case.independent else case.devices, case.parallel)

    def data(self, problem: Problem, batches: int, precision: str | None = None) -> Data:
        """Weights and inputs from the case's seed, of its problem at a size."""
        return drawn(problem, precision or self.case.precision, self.case.seed, batches)

    def read(self, data: Data) -> Collection[str]:
        """Return the names of the inputs that a step reads."""
        return self.problem.reads.get(self.case.mode, data.batches[0])

    def draw(self) -> tuple[Data, Inputs]:
        """Draw weights and inputs at full size; tells how many sets of inputs steps are to take in turns."""
        case, cache = self.case, self.case.measuring.cache or self.problem.cache
        data = self.data(self.problem, 1 if cache == "hot" else BATCHES)
        item_bytes = PRECISIONS[case.precision].parameter_bytes
        first = data.batches[0]
        numbers = {"f": 1, "c": 2}  # real ones in an element of a kind; others are stored as they are
        arrays = [first[name] for name in self.read(data)]
        whole_bytes = sum(a.size * item_bytes * numbers.get(a.dtype.kind, 0) or a.nbytes for a in arrays)
        is_divided = case.devices > 1 and not case.independent and case.parallel != "tp"
        set_bytes = whole_bytes // (case.devices if is_divided else 1)
        inputs = Inputs(cache, len(data.batches), set_bytes)
        if cache != "rotate" or not set_bytes:
            return data, inputs
        device = self.describe().device
        assert isinstance(device, DeviceInfo)
        if device.cache_bytes is None:
            return data, msgspec.structs.replace(inputs, limited_by="unknown_cache")
        memory_bytes = psutil.virtual_memory().available // case.ranks_per_node
        if device.memory_bytes is not None and case.device != "cpu":
            memory_bytes = min(memory_bytes, device.memory_bytes)
        wanted = sets_of_rotation(device.cache_bytes, set_bytes)
        most = max(1, memory_bytes // (MEMORY_DIVISOR * whole_bytes))
        sets = min(wanted, most, MOST_SETS)
        limited_by: SetLimit | None = None if sets == wanted else "memory" if sets == most else "number"
        return data, Inputs(cache, sets, set_bytes, limited_by)

    def build(self, problem: Problem, data: Data, precision: str | None = None) -> Workload:
        """The workload of this case at a size of its problem; another precision than its own takes `Framework.fp64`."""
        case = msgspec.structs.replace(self.case, precision=precision or self.case.precision)
        workload: Workload = self.hooks.build_workload(framework=self.framework, problem=problem, case=case, data=data)
        return workload

    def describe(self) -> RecordPart:
        """What is known about the device, the types and the software."""
        info: FrameworkInfo = self.hooks.describe_framework()
        device: Device = next(device for device in info.devices if device.platform == self.case.device)
        precision = self.problem.numerics(self.case.mode, self.case.precision)
        return RecordPart(
            device=DeviceInfo(
                platform=device.platform,
                name=device.name,
                uuid=device.uuid,
                pci=device.pci,
                memory_bytes=device.memory_bytes,
                cache_bytes=last_cache_bytes() if device.platform == "cpu" else device.cache_bytes,
            ),
            types=Types(
                parameter=precision.parameter,
                compute=precision.compute,
                accumulate=precision.accumulate,
                lowest=precision.lowest,
                settings=dict(self.framework.settings()),
            ),
            libraries={**info.libraries, **{name: metadata.version(name) for name in self.problem.distributions}},
            variables=_variables(info.variables),
            threads=self.threads,
        )


def open_bench(
    problem: str,
    framework: str,
    device: str,
    *,
    precision: str = "fp32",
    mode: Mode = "inference",
    compiled: bool = False,
    seed: int = 0,
    **options: Any,
) -> Bench:
    """Open one case in this process, as a trial's process does: for notebooks, and for comparisons with other code.

    Options that are not given have their defaults for `device`. Frameworks keep some settings for a whole process,
    so open cases of different precisions one after the other. Raises `UserError`.
    """
    kind = registry.problem(problem)
    return Bench(
        Case(
            problem=problem,
            framework=framework,
            device=device,
            precision=precision,
            mode=mode,
            compile=compiled,
            seed=seed,
            params=parameters.resolve(kind, options, device),
            source=kind.source.sha256 if kind.source else "",
        )
    )


def with_sets(data: Data, sets: int, read: Collection[str]) -> Data:
    """Return the data with so many sets of inputs: those that were drawn, then copies of what is `read` of them."""
    drawn = data.batches[:sets]
    copied = (drawn[number % len(drawn)] for number in range(len(drawn), sets))
    copies = ({**one, **{name: one[name].copy() for name in read}} for one in copied)
    return replace(data, batches=(*drawn, *copies))


def _variables(names: tuple[str, ...]) -> dict[str, str]:
    """The environment variables that are set; paths in their values are replaced, as they do not belong in a record.

    Among them are the loaded modules of Environment Modules or Lmod: `gcc/12.2 cuda/12.8`.
    """
    variables = {
        name: " ".join("<path>" if "/" in word else word for word in os.environ[name].split())
        for name in names
        if name in os.environ
    }
    if modules := os.environ.get(MODULES):
        variables[MODULES] = " ".join("<path>" if module.startswith("/") else module for module in modules.split(":"))
    return variables
