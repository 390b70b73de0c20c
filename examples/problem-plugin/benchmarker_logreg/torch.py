"""Logistic regression in PyTorch."""

from itertools import cycle

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_logreg import LEARNING_RATE
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope


@hookimpl
def describe_workload() -> Support:
    """Train only in types in which rounding does not swallow the update of a weight."""
    return Support({"inference": ("fp64", "fp32", "bf16", "fp16"), "training": ("fp64", "fp32")})


@hookimpl
def build_workload(framework: TorchFramework, case: Case, data: Data) -> Workload:
    """Build a step: the probabilities of one batch, or its loss and a descent step with autograd's gradients."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    weights = [framework.put(data.weights[name], dtype).requires_grad_(case.mode == "training") for name in ("w", "b")]
    batches = cycle([(framework.put(batch["x"], dtype), framework.put(batch["labels"])) for batch in data.batches])

    def forward(x_BD: Tensor, labels_B: Tensor, w_DC: Tensor, b_C: Tensor) -> Tensor:
        with scope("logits"):
            logits_BC = x_BD @ w_DC + b_C
        if case.mode == "training":
            with scope("loss"):
                return F.cross_entropy(logits_BC, labels_B)
        with scope("softmax"):
            return torch.softmax(logits_BC, dim=1)

    compiled = framework.compiled(forward, case.compile)

    def inference() -> Tensor:
        with torch.inference_mode():
            return compiled(*next(batches), *weights)

    def training() -> Tensor:
        loss = compiled(*next(batches), *weights)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(gradient, alpha=LEARNING_RATE)
        return loss.detach()

    if case.mode == "training":
        return Workload(training, lambda loss: {"loss": loss.cpu().double().numpy()})
    return Workload(inference, lambda result_BC: {"probabilities": result_BC.cpu().double().numpy()})
