"""The repeated problem in every framework that implements the underlying problem."""

from __future__ import annotations

from typing import Any

import msgspec
from repeated import SIZES, Repeated

from benchmarker import Case, Data, Framework, Support, Workload, hookimpl
from benchmarker.hooks import registry


@hookimpl
def describe_workload() -> Support:
    """Support what all frameworks support: inference in fp32."""
    return Support({"inference": ("fp32",)})


@hookimpl
def build_workload(framework: Framework, case: Case, problem: Repeated, data: Data) -> Workload:
    """Repeat the step of the framework's own workload; all results are returned so that all can be waited for."""
    plain = msgspec.structs.replace(case, problem=problem.work, params=SIZES[problem.work])
    once: Workload = registry.load([f"workload.{problem.work}.{case.framework}"]).hook.build_workload(
        framework=framework, problem=problem.once, case=plain, data=data
    )
    take, repeats = once.step, range(problem.repeats)

    def step() -> list[Any]:
        return [take() for _ in repeats]

    return Workload(step, lambda results: once.outputs(results[0]))
