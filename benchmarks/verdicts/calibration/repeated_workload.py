"""The repeated problem in any framework that implements the problem which is repeated."""

from __future__ import annotations

from typing import Any

import msgspec
from repeated import SIZES, RepeatedParams, inner

from benchmarker import Case, Data, Framework, Support, Workload, hookimpl
from benchmarker.hooks import registry


@hookimpl
def describe_workload() -> Support:
    """What both JAX and PyTorch do."""
    return Support({"inference": ("fp32",)})


@hookimpl
def build_workload(framework: Framework, case: Case, params: RepeatedParams, data: Data) -> Workload:
    """Take the framework's own workload, and its step several times; all results are kept, to be waited for."""
    problem, size = inner(params)
    plain = msgspec.structs.replace(case, problem=params.work, params=SIZES[params.work])
    once: Workload = registry.load([f"workload.{params.work}.{case.framework}"]).hook.build_workload(
        framework=framework, problem=problem, case=plain, params=size, data=data
    )
    take, repeats = once.step, range(params.repeats)

    def step() -> list[Any]:
        return [take() for _ in repeats]

    return Workload(step, lambda results: once.outputs(results[0]))
