"""Training on several devices in JAX, by `shard_map`: what each device exchanges is written out."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec, Sharding

from benchmarker import Parallel
from benchmarker_plugins.frameworks.jax import AXIS
from benchmarker_problems.parallel import COLUMNS, ROWS

Weights = dict[str, Array]
Loss = Callable[..., Array]
"""From the weights by name, and the arrays of a batch by name."""
NOT_DIVIDED = PartitionSpec()
"""Of an array that is whole on every device."""


class Division(NamedTuple):
    """The axes of weights that are divided among the devices, by name; those of each array of a batch; the loss.

    A weight that is not named is whole on every device.
    """

    weights: Mapping[str, PartitionSpec]
    batch: PartitionSpec
    loss_of: Loss


def division(
    parallel: Parallel, mesh: Mesh, loss_of: Loss, weights: Mapping[str, np.ndarray], block: str
) -> Division | None:
    """Return how the devices of a mesh divide a step; None if there is only one.

    Names of the weights of blocks begin with `block`. For `tp`, `loss_of` computes the share of a device, with sums
    over the axis of the mesh, and the weights of fused layers are ordered `by_device`.
    """
    shapes = {name: weight.shape for name, weight in weights.items()}
    match parallel:
        case "dp":  # XLA inserts the sums over the devices
            return Division({}, PartitionSpec(AXIS), loss_of)
        case "fsdp":
            return _fully_sharded(mesh, loss_of, shapes, block)
        case "tp":
            return _tensor_parallel(mesh, loss_of, shapes)
    return None


def _fully_sharded(mesh: Mesh, loss_of: Loss, shapes: Mapping[str, tuple[int, ...]], block: str) -> Division:
    """Divide the batch, and every weight along its longest axis that the number of devices divides."""
    axes = {
        name: max((size, axis) for axis, size in enumerate(shape) if size % mesh.size == 0)[1]
        for name, shape in shapes.items()
    }
    specs = {name: PartitionSpec(*[None] * axis, AXIS) for name, axis in axes.items()}

    def gathered(shares: Weights) -> Weights:
        return {name: lax.all_gather(share, AXIS, axis=axes[name], tiled=True) for name, share in shares.items()}

    def own_loss_of(shares: Weights, batch: dict[str, Array]) -> Array:
        again = {name: share for name, share in shares.items() if name.startswith(block)}
        kept = gathered({name: share for name, share in shares.items() if name not in again})

        @partial(jax.checkpoint, policy=_is_kept)
        def loss(again: Weights, kept: Weights) -> Array:
            return loss_of(gathered(again) | kept, **batch)

        return lax.pmean(loss(again, kept), AXIS)

    return _mapped(mesh, own_loss_of, specs, PartitionSpec(AXIS))


_NOT_KEPT = ("all_gather", "convert_element_type", "transpose", "reshape", "broadcast_in_dim")


def _is_kept(primitive: Any, *_: Any, **__: Any) -> bool:
    """Whether a result stays for the backward pass: all but gathered weights, and what is only another form of them."""
    return primitive.name not in _NOT_KEPT


def _tensor_parallel(mesh: Mesh, loss_of: Loss, shapes: Mapping[str, tuple[int, ...]]) -> Division:
    """Divide the layers of each block."""

    def spec(name: str) -> PartitionSpec:
        *_, layer, own = ["", *name.split(".")]
        if layer in COLUMNS:
            return PartitionSpec(AXIS) if own == "bias" else PartitionSpec(None, AXIS)
        return PartitionSpec(AXIS) if layer in ROWS and own == "kernel" else NOT_DIVIDED

    specs = {name: spec(name) for name in shapes}
    return _mapped(mesh, lambda weights, batch: loss_of(weights, **batch), specs, NOT_DIVIDED)


def _mapped(
    mesh: Mesh, own_loss_of: Callable[..., Array], specs: Mapping[str, PartitionSpec], batch: PartitionSpec
) -> Division:
    mapped = jax.shard_map(own_loss_of, mesh=mesh, in_specs=(specs, batch), out_specs=NOT_DIVIDED)
    return Division(specs, batch, lambda weights, **arrays: mapped(weights, arrays))


def whole(arrays: Weights, everywhere: Sharding) -> Weights:
    """Return arrays that every device has whole; where they are divided, the shares of all are gathered."""
    made: Weights = jax.jit(_same, out_shardings=everywhere)(arrays)
    return made


def _same(arrays: Weights) -> Weights:
    """Return the arrays: as one function for all calls, which JAX compiles once for arrays of the same shapes."""
    return arrays


def copies(arrays: Weights) -> list[Weights]:
    """Return the arrays that are not divided, as each device of this process has them."""
    shards = {name: array.addressable_shards for name, array in arrays.items() if array.is_fully_replicated}
    return [
        {name: shard.data for name, shard in zip(shards, of_device, strict=True)}
        for of_device in zip(*shards.values(), strict=True)
    ]
