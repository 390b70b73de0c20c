"""MLP in PyTorch."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.layers.torch import product
from benchmarker_problems.mlp import PRECISIONS_DONE, Mlp


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type."""
    return Support(PRECISIONS_DONE)


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Mlp, data: Data) -> Workload:
    """Build a step: the outputs of a batch; in `forward_backward` also the gradients of inputs and weights."""
    dtype, turned = DTYPES[PRECISIONS[case.precision].parameter], problem.by_output
    stored = (np.ascontiguousarray(w.T) if turned else w for w in (data.weights[name] for name in problem.names))
    weights = [framework.put(w, dtype) for w in stored]
    batches = cycle([(framework.put(batch["x"], dtype), framework.put(batch["d_y"], dtype)) for batch in data.batches])

    def mlp(x_BC: Tensor, weights: list[Tensor]) -> Tensor:
        for w in weights:
            with scope("layer"):
                x_BC = (product(x_BC, w) if turned else x_BC @ w).tanh()
        return x_BC

    compiled = framework.compiled(mlp, case.compile)

    def forward() -> tuple[Tensor, ...]:
        with torch.inference_mode():
            return (compiled(next(batches)[0], weights),)

    def forward_backward() -> tuple[Tensor, ...]:
        x_BC, d_y_BC = next(batches)
        leaves = [each.detach().requires_grad_() for each in (x_BC, *weights)]
        y_BC = compiled(leaves[0], leaves[1:])
        return (y_BC.detach(), *torch.autograd.grad(y_BC, leaves, d_y_BC))

    def outputs(result: tuple[Tensor, ...]) -> Mapping[str, np.ndarray]:
        y, *gradients = (each.cpu().double().numpy() for each in result)
        names = ["d_x", *(f"d_{name}" for name in problem.names)]
        turn = [False, *problem.layers * [turned]]
        found = {
            name: each.T if is_turned else each for name, each, is_turned in zip(names, gradients, turn, strict=False)
        }
        return {"y": y, **found}

    return Workload(forward if case.mode == "inference" else forward_backward, outputs)
