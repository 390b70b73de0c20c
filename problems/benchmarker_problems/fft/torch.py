"""FFT in PyTorch."""

from itertools import cycle

import torch
from torch import Tensor

from benchmarker import Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import TorchFramework, scope
from benchmarker_problems.fft import AXES, Fft


@hookimpl
def describe_workload() -> Support:
    """Return the types of which PyTorch's transforms have complex numbers."""
    return Support({"inference": ("fp64", "fp32")})


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Fft, data: Data) -> Workload:
    """Build a step: the transforms of one batch."""
    transform = torch.fft.fftn if problem.direction == "forward" else torch.fft.ifftn
    batches = cycle([framework.put(batch["x"]) for batch in data.batches])

    def transformed(x_BXYZ: Tensor) -> Tensor:
        with scope("fft"):
            y_BXYZ: Tensor = transform(x_BXYZ, dim=AXES)
            return y_BXYZ

    function = framework.compiled(transformed, case.compile)

    def step() -> Tensor:
        return function(next(batches))

    return Workload(step, lambda y_BXYZ: {"y": y_BXYZ.cpu().to(torch.complex128).numpy()})
