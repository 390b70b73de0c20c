"""ResNet in PyTorch. The channels are always the second axis; the layout is their place in memory.

Mixed precision is autocast over fp32 weights. In 16-bit types the statistics of a batch are computed in fp32, and the
loss is fp32.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.layers.torch import cross_entropy
from benchmarker_problems.resnet import PRECISIONS_DONE, SETTINGS, Resnet, as_one_gradient
from benchmarker_problems.resnet.reference import MOMENTUM, NORM_EPS, Block, Conv
from benchmarker_problems.steps.torch import load, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions."""
    return Support(PRECISIONS_DONE)


def add_modules(module: nn.Module, conv: Conv) -> None:
    """Give a module a convolution and its normalisation."""
    convolution = nn.Conv2d(
        conv.inputs, conv.outputs, conv.kernel_size, conv.stride, padding=conv.kernel_size // 2, bias=False
    )
    module.add_module(conv.scope, convolution)
    module.add_module(conv.norm, nn.BatchNorm2d(conv.outputs, eps=NORM_EPS, momentum=1 - MOMENTUM))


def conv_norm(module: nn.Module, x_BCX: Tensor, conv: Conv) -> Tensor:
    """Apply a convolution and its normalisation."""
    with scope(conv.scope):
        x_BCX = getattr(module, conv.scope)(x_BCX)
    with scope(conv.norm):
        normed_BCX: Tensor = getattr(module, conv.norm)(x_BCX)
        return normed_BCX


def conv_norm_relu(module: nn.Module, x_BCX: Tensor, conv: Conv, more_BCX: Tensor | None = None) -> Tensor:
    """Apply a convolution and its normalisation, add `more_BCX` if given, and apply ReLU."""
    with scope(conv.scope):
        x_BCX = getattr(module, conv.scope)(x_BCX)
    with scope(conv.norm):
        x_BCX = getattr(module, conv.norm)(x_BCX)
        return F.relu(x_BCX if more_BCX is None else x_BCX.add_(more_BCX), inplace=True)


class Residual(nn.Module):
    """A residual block."""

    def __init__(self, layers: Block) -> None:
        super().__init__()
        self.layers = layers
        for conv in (*layers.convs, *([layers.shortcut] if layers.shortcut else [])):
            add_modules(self, conv)

    def forward(self, x_BCX: Tensor) -> Tensor:
        """Return relu(branch + shortcut)."""
        *inner, last = self.layers.convs
        short_BCX = conv_norm(self, x_BCX, self.layers.shortcut) if self.layers.shortcut else x_BCX
        for conv in inner:
            x_BCX = conv_norm_relu(self, x_BCX, conv)
        return conv_norm_relu(self, x_BCX, last, short_BCX)


class ResnetModel(nn.Module):
    """The whole model."""

    def __init__(self, problem: Resnet) -> None:
        super().__init__()
        self.stem = problem.stem
        add_modules(self, problem.stem)
        stages = groupby(problem.residual, lambda layers: layers.name.partition(".")[0])
        self.stages = {stage: nn.Sequential(*map(Residual, blocks)) for stage, blocks in stages}
        for stage, blocks in self.stages.items():
            self.add_module(stage, blocks)
        self.fc = nn.Linear(problem.last.outputs, problem.classes)

    def forward(self, images_BCX: Tensor) -> Tensor:
        """Return the logits of every image, [B, V]."""
        x_BCX = conv_norm_relu(self, images_BCX, self.stem)
        with scope("stem_pool"):
            x_BCX = F.max_pool2d(x_BCX, 3, 2, padding=1)
        for blocks in self.stages.values():
            x_BCX = blocks(x_BCX)
        with scope("pool"):
            x_BC = x_BCX.mean(dim=(2, 3))
        with scope("fc"):
            logits_BV: Tensor = self.fc(x_BC)
            return logits_BV


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Resnet, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of weights and statistics."""
    p, is_last = problem, problem.layout == "channels_last"
    model = load(framework, lambda: ResnetModel(p), data, DTYPES[PRECISIONS[case.precision].parameter])
    if is_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.train(case.mode != "inference")
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats = case.mode != "forward_backward"
            module.num_batches_tracked = None  # not needed, as the momentum is fixed
    if not is_last:
        data = replace(data, batches=tuple(with_channels_first(batch) for batch in data.batches))

    def logits_of(images: Tensor) -> Tensor:
        logits_BV: Tensor = model(images.movedim(-1, 1) if is_last else images)
        return logits_BV

    made = workload(
        framework,
        case,
        data,
        model,
        "logits",
        logits_of,
        lambda images, targets: cross_entropy(logits_of(images), targets),
        terms=p.batch_size,
        inputs=("images",),
        settings=SETTINGS,
    )
    return replace(made, outputs=lambda result: as_one_gradient(made.outputs(result)))


def with_channels_first(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a batch whose images are [B, C, *X]."""
    return {**batch, "images": np.ascontiguousarray(np.moveaxis(batch["images"], -1, 1))}
