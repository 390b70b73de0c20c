"""Collectives in PyTorch: NCCL between GPUs, gloo between processes on a CPU."""

from collections.abc import Callable, Mapping
from itertools import cycle

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.torch import DTYPES, TorchFramework, scope
from benchmarker_problems.collective import PRECISIONS_DONE, Collective, name, trouble

# PyTorch 2.13 renamed them.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; all operations are supported."""
    return Support(PRECISIONS_DONE, parallel=("none",))


@hookimpl
def build_workload(framework: TorchFramework, case: Case, problem: Collective, data: Data) -> Workload:
    """Build a step: one exchange. PyTorch reduces and broadcasts in place, so repeated sums overflow.

    The step therefore returns nothing; the result at full size is verified in an exchange of fresh inputs.
    """
    framework.communicate()
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    own = name(framework.rank)
    inputs = [framework.put(batch[own], dtype) for batch in data.batches]
    exchange, output = _operation(problem.op, framework, inputs[0])
    exchange = framework.compiled(exchange, case.compile)
    batches = cycle(inputs)
    last = inputs[0]

    def step() -> tuple[()]:
        nonlocal last
        last = next(batches)
        with scope("collective"):
            exchange(last)
        return ()

    def outputs(_: object) -> Mapping[str, np.ndarray]:
        return {own: _host(last if output is None else output)}

    def verify(_: object) -> str | None:
        fresh = framework.put(data.batches[0][own], dtype)
        exchange(fresh)
        framework.synchronize(None)
        return trouble(problem.op, data.batches[0], framework.rank, _host(fresh if output is None else output))

    return Workload(step, outputs, verify=verify)


def _host(value: Tensor) -> np.ndarray:
    found: np.ndarray = value.cpu().double().numpy()
    return found


def _operation(op: str, framework: TorchFramework, like: Tensor) -> tuple[Callable[[Tensor], object], Tensor | None]:
    """Return a function that exchanges a tensor, and where the result is; None if it is in place."""
    ranks, rank = framework.ranks, framework.rank
    match op:
        case "all_reduce":
            return dist.all_reduce, None
        case "broadcast":
            return lambda tensor: dist.broadcast(tensor, 0), None
        case "all_gather":
            gathered = like.new_empty(ranks * len(like))
            return lambda tensor: _all_gather(gathered, tensor), gathered
        case "reduce_scatter":
            share = like.new_empty(len(like) // ranks)
            return lambda tensor: _reduce_scatter(share, tensor), share
    received = torch.empty_like(like)
    if op == "all_to_all":
        return lambda tensor: dist.all_to_all_single(received, tensor), received

    def send_recv(tensor: Tensor) -> None:
        for request in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, tensor, (rank + 1) % ranks),
                dist.P2POp(dist.irecv, received, (rank - 1) % ranks),
            ]
        ):
            request.wait()

    return send_recv, received
