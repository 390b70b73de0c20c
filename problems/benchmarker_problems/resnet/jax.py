"""ResNet in JAX with Flax, whose convolutions have the channels last.

In mixed precision, fp32 weights are cast for each convolution. In 16-bit types the statistics of a batch are computed
in fp32, and the loss is fp32. Flax creates a scope for each of its modules; the other scopes are set explicitly.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import flax.linen as nn
import jax
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import DTYPES, JaxFramework
from benchmarker_problems.layers.jax import cross_entropy
from benchmarker_problems.resnet import PRECISIONS_DONE, SETTINGS, Resnet, as_one_gradient
from benchmarker_problems.resnet.reference import MOMENTUM, NORM_EPS, Block, Conv
from benchmarker_problems.steps.jax import Weights, apart, workload


@hookimpl
def describe_workload() -> Support:
    """Return all precisions, with the channels last."""
    return Support(PRECISIONS_DONE, choices={"layout": ("channels_last",)})


def conv_norm(x_BXC: Array, conv: Conv, dtype: Any, train: bool) -> Array:
    """Convolve and normalise, as modules of the module that calls this."""
    padding = conv.kernel_size // 2
    x_BXC = nn.Conv(
        conv.outputs,
        (conv.kernel_size, conv.kernel_size),
        conv.stride,
        padding=padding,
        use_bias=False,
        dtype=dtype,
        name=conv.scope,
    )(x_BXC)
    return cast(
        "Array",
        nn.BatchNorm(not train, momentum=MOMENTUM, epsilon=NORM_EPS, dtype=dtype, name=conv.norm)(x_BXC),
    )


class Residual(nn.Module):
    """A residual block."""

    layers: Block
    dtype: Any
    train: bool

    @nn.compact
    def __call__(self, x_BXC: Array) -> Array:
        """Return relu(branch + shortcut)."""
        *inner, last = self.layers.convs
        h_BXC = x_BXC
        for conv in inner:
            h_BXC = conv_norm(h_BXC, conv, self.dtype, self.train)
            with jax.named_scope(conv.norm):
                h_BXC = nn.relu(h_BXC)
        h_BXC = conv_norm(h_BXC, last, self.dtype, self.train)
        if self.layers.shortcut:
            x_BXC = conv_norm(x_BXC, self.layers.shortcut, self.dtype, self.train)
        with jax.named_scope(last.norm):
            return nn.relu(h_BXC + x_BXC)


class ResnetModel(nn.Module):
    """The whole model."""

    problem: Resnet
    dtype: Any
    train: bool

    @nn.compact
    def __call__(self, images_BXC: Array) -> Array:
        """Return the logits of every image, [B, V]."""
        p = self.problem
        x_BXC = conv_norm(images_BXC, p.stem, self.dtype, self.train)
        with jax.named_scope(p.stem.norm):
            x_BXC = nn.relu(x_BXC)
        with jax.named_scope("stem_pool"):
            x_BXC = nn.max_pool(x_BXC, (3, 3), (2, 2), padding=((1, 1), (1, 1)))
        for layers in p.residual:
            x_BXC = Residual(layers, self.dtype, self.train, name=layers.name)(x_BXC)
        with jax.named_scope("pool"):
            x_BC = x_BXC.mean(axis=(1, 2))
        return nn.Dense(p.classes, dtype=self.dtype, name="fc")(x_BC)


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Resnet, data: Data) -> Workload:
    """Build a step: the logits; the loss and its gradients; or the loss and an update of weights and statistics."""
    logits_of, loss_of = functions(problem, DTYPES[PRECISIONS[case.precision].compute])
    made = workload(
        framework,
        case,
        data,
        "logits",
        logits_of,
        loss_of,
        terms=problem.batch_size,
        inputs=("images",),
        settings=SETTINGS,
    )
    return replace(made, outputs=lambda result: as_one_gradient(made.outputs(result)))


def functions(problem: Resnet, dtype: Any) -> tuple[Callable[..., Array], Callable[..., tuple[Array, Weights]]]:
    """Return (weights, images) to logits, and (weights, images, targets) to the loss and the updated statistics."""

    def logits_of(weights: Weights, images: Array) -> Array:
        return cast("Array", ResnetModel(problem, dtype, train=False).apply(collections(weights), images))

    def loss_of(weights: Weights, images: Array, targets: Array) -> tuple[Array, Weights]:
        model = ResnetModel(problem, dtype, train=True)
        logits_BV, updated = model.apply(collections(weights), images, mutable="batch_stats")
        statistics = {
            ".".join(path): value.astype(weights[".".join(path)].dtype)
            for path, value in flatten_dict(updated["batch_stats"]).items()
        }
        return cross_entropy(logits_BV, targets), statistics

    return logits_of, loss_of


def collections(weights: Weights) -> dict[str, Any]:
    """Return the weights and the running statistics as Flax's modules take them; a block's name contains a dot."""
    trained, statistics = apart(weights)
    return {
        kind: unflatten_dict({tuple(name.rsplit(".", 2)): weight for name, weight in each.items()})
        for kind, each in {"params": trained, "batch_stats": statistics}.items()
    }
