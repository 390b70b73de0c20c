"""Training on several devices in PyTorch, each with a process: DistributedDataParallel, FSDP2 and DTensor.

Their modules take half a second to import: only a process that is in a process group does so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from benchmarker import Parallel, Workload
from benchmarker_plugins.frameworks.torch import TorchFramework
from benchmarker_problems.parallel import COLUMNS, ROWS

NO_LOSS_SCALING = ({"parallel": "tp", "precision": "mixed_fp16"},)
"""PyTorch's loss scaling does not take divided gradients and whole ones together."""

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def divide(
    model: nn.Module, blocks: Iterable[nn.Module], parallel: Parallel, mesh: "DeviceMesh | None"
) -> Callable[[Tensor, Tensor], Tensor]:
    """Divide the weights of a model on the meta device among the devices of a mesh, if the strategy divides them.

    Returns the function from a weight, which every rank has, and that of the model to the share of this rank. The
    weights of fused layers must be ordered `by_device`.
    """
    if parallel not in ("fsdp", "tp"):
        return lambda whole, _: whole

    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if parallel == "fsdp":
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        plan = {**dict.fromkeys(COLUMNS, ColwiseParallel()), **dict.fromkeys(ROWS, RowwiseParallel())}
        for block in blocks:
            parallelize_module(block, mesh, plan, src_data_rank=None)

    def share_of(whole: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor):
            return whole
        where = (like.device_mesh, like.placements)
        share = distribute_tensor(whole, *where, src_data_rank=None).to_local().clone()  # a view would keep the whole
        return DTensor.from_local(share, *where, shape=like.shape, stride=like.stride())

    return share_of


def averaging(model: nn.Module, parallel: Parallel, framework: TorchFramework) -> nn.Module:
    """Return the model as it is run; if data parallel, gradients are averaged as the backward pass goes on.

    A rank that sends nothing keeps its own gradients.
    """
    if parallel != "dp" or not framework.sends:
        return model
    return nn.parallel.DistributedDataParallel(model, device_mesh=framework.mesh)


def gathered(gradient: Tensor) -> Tensor:
    """Return a whole gradient, for which all ranks give their shares if it is divided."""
    from torch.distributed.tensor import DTensor

    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def whole(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that are not divided, as this rank has them."""
    from torch.distributed.tensor import DTensor

    found = {}
    for name, weight in weights.items():
        if not isinstance(weight, DTensor):
            found[name] = weight
        elif all(placement.is_replicate() for placement in weight.placements):
            found[name] = weight.to_local()
    return found


def with_local(made: Workload, framework: TorchFramework, build: Callable[[TorchFramework], Workload]) -> Workload:
    """Return the workload of a rank with the step that `build` makes for the same rank of a group that sends none."""
    return made if framework.ranks == 1 else replace(made, local=lambda: [build(framework.silent()).step])
