"""STREAM in PyTorch."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.stream import PRECISIONS_DONE, SCALAR, Stream


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; both operations are supported."""
    return Support(PRECISIONS_DONE)


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Stream, data: Data) -> Workload:
    """Build a step: one pass, into the array of its set of inputs."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    names = ("b",) if problem.op == "copy" else ("b", "c")

    def arrays(batch: Mapping[str, np.ndarray]) -> tuple[Tensor, ...]:
        a = torch.zeros(problem.n, dtype=dtype, device=framework.device)
        return (a, *(framework.put(batch[name], dtype) for name in names))

    sets = cycle([arrays(batch) for batch in data.batches])

    def copy(a: Tensor, b: Tensor) -> Tensor:
        with scope("stream"):
            return a.copy_(b)

    def triad(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        with scope("stream"):
            return torch.add(b, c, alpha=SCALAR, out=a)

    function = framework.compiled(copy if problem.op == "copy" else triad, case.compile)

    def step() -> Tensor:
        return function(*next(sets))

    def outputs(result: Tensor) -> Mapping[str, np.ndarray]:
        return {"a": result.cpu().double().numpy()}

    return Workload(step, outputs)
