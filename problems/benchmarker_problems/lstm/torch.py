"""LSTM in PyTorch: `nn.LSTM`, with its second bias zero."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import torch
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, UserError, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.lstm import PRECISIONS_DONE, Lstm

PARAMETERS = {"w_x": "weight_ih", "w_h": "weight_hh", "b": "bias_ih"}
"""PyTorch's name of a layer's weight, to which the number of the layer is added; its matrices are [outputs, inputs]."""


@hookimpl
def describe_workload() -> Support:
    """Return every floating-point type."""
    return Support(PRECISIONS_DONE)


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Lstm, data: Data) -> Workload:
    """Build a step: the outputs of one batch; in `forward_backward` also the gradients of inputs and weights."""
    if case.compile:  # Dynamo would run it eagerly, without a word.
        raise UserError("torch.compile does not compile nn.LSTM; omit --compile")
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    model = make_model(framework, problem, data, dtype)
    weights = {f"d_{name}": model.get_parameter(parameter_name(name)) for name in data.weights}
    names = ("x",) if case.mode == "inference" else ("x", "d_out")
    batches = cycle([tuple(framework.put(batch[name], dtype) for name in names) for batch in data.batches])

    def lstm(x_TBI: Tensor) -> Tensor:
        with scope("lstm"):
            out_TBH: Tensor = model(x_TBI)[0]
            return out_TBH

    def forward() -> dict[str, Tensor]:
        with torch.inference_mode():
            return {"out": lstm(*next(batches))}

    def forward_backward() -> dict[str, Tensor]:
        x_TBI, d_out_TBH = next(batches)
        x_TBI = x_TBI.detach().requires_grad_()
        out_TBH = lstm(x_TBI)
        d_x_TBI, *gradients = torch.autograd.grad(out_TBH, (x_TBI, *weights.values()), d_out_TBH)
        return {"out": out_TBH.detach(), "d_x": d_x_TBI, **dict(zip(weights, gradients, strict=True))}

    def outputs(result: dict[str, Tensor]) -> Mapping[str, np.ndarray]:
        values = {name: value.cpu().double().numpy() for name, value in result.items()}
        return {name: value.T if value.ndim == 2 else value for name, value in values.items()}

    return Workload(forward if case.mode == "inference" else forward_backward, outputs)


def make_model(framework: TorchFramework, problem: Lstm, data: Data, dtype: torch.dtype) -> nn.LSTM:
    """Return the stack with the given weights, on the device."""
    p = problem
    model = nn.LSTM(p.input_size, p.hidden_size, p.layers, device=framework.device, dtype=dtype)
    # Copied into the module's own memory, in which cuDNN wants all weights together.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("bias_hh"):
                parameter.zero_()
        for name, weight in data.weights.items():
            model.get_parameter(parameter_name(name)).copy_(framework.put(weight.T))
    return model


def parameter_name(name: str) -> str:
    """Return the name of a weight in PyTorch's module."""
    layer, _, own = name.partition(".")
    return f"{PARAMETERS[own]}_l{layer}"
