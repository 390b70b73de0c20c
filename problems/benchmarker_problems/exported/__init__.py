"""Inference in a runtime: the implementation of a problem in PyTorch, exported."""

from importlib import import_module

import msgspec

from benchmarker import PRECISIONS, Case, Data, Framework, Problem, UserError, Workload, hookimpl
from benchmarker_plugins.frameworks.exporting import ExportingFramework


@hookimpl
def build_workload(framework: Framework, case: Case, problem: Problem, data: Data) -> Workload:
    """Build a step as PyTorch has it; where products are in a shorter type than results, the runtime shortens them."""
    assert isinstance(framework, ExportingFramework)
    implementation = import_module(f"{type(problem).__module__}.torch")
    types = PRECISIONS[case.precision]
    if types.is_mixed or types.quantizes:
        case = msgspec.structs.replace(case, precision=types.parameter)
    built: Workload = implementation.build_workload(framework=framework, case=case, problem=problem, data=data)
    if not framework.exports:
        raise UserError(f"{case.problem} has no step that can be exported")
    return built
