"""Collectives in JAX: devices, of one process on each node, exchange the shards of an array."""

from collections.abc import Callable, Mapping
from itertools import cycle

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from benchmarker import PRECISIONS, Case, Data, Support, Workload, hookimpl
from benchmarker_plugins.frameworks.jax import AXIS, DTYPES, JaxFramework
from benchmarker_problems.collective import PRECISIONS_DONE, Collective, name, trouble


@hookimpl
def describe_workload() -> Support:
    """Return the precisions; XLA's CPU compiler has no broadcast."""
    return Support(PRECISIONS_DONE, exclusions=({"op": "broadcast", "device": "cpu"},), parallel=("none",))


@hookimpl
def build_workload(framework: JaxFramework, case: Case, problem: Collective, data: Data) -> Workload:
    """Build a step: one exchange between the shards of an array."""
    dtype = DTYPES[PRECISIONS[case.precision].parameter]
    devices = len(framework.devices)
    sharding = NamedSharding(framework.mesh, PartitionSpec(AXIS))

    def put(batch: Mapping[str, np.ndarray]) -> Array:
        shards = [framework.put(batch[name(number)], dtype, device) for number, device in framework.own.items()]
        return jax.make_array_from_single_device_arrays((devices * len(shards[0]),), sharding, shards)

    exchange = _operation(problem.op, devices)

    def collective(shard: Array) -> Array:
        with jax.named_scope("collective"):
            return exchange(shard)

    function = jax.jit(
        jax.shard_map(
            collective,
            mesh=sharding.mesh,
            in_specs=sharding.spec,
            out_specs=sharding.spec,
            check_vma=False,
        )
    )
    batches = cycle([(put(batch), batch) for batch in data.batches])
    last = data.batches[0]

    def step() -> Array:
        nonlocal last
        array, last = next(batches)
        return function(array)

    def outputs(result: Array) -> Mapping[str, np.ndarray]:
        here = {shard.device: shard.data for shard in result.addressable_shards}
        return {name(number): np.asarray(here[device], np.float64) for number, device in framework.own.items()}

    def verify(result: Array) -> str | None:
        found = outputs(result)
        texts = (trouble(problem.op, last, number, found[name(number)]) for number in framework.own)
        return next((text for text in texts if text), None)

    return Workload(step, outputs, verify=verify)


def _operation(op: str, devices: int) -> Callable[[Array], Array]:
    """Return the function of a device's shard."""
    ring = [(rank, (rank + 1) % devices) for rank in range(devices)]
    operations: dict[str, Callable[[Array], Array]] = {
        "all_reduce": lambda x: lax.psum(x, AXIS),
        "all_gather": lambda x: lax.all_gather(x, AXIS, tiled=True),
        "reduce_scatter": lambda x: lax.psum_scatter(x, AXIS, tiled=True),
        "all_to_all": lambda x: lax.all_to_all(x, AXIS, 0, 0, tiled=True),
        "broadcast": lambda x: lax.pbroadcast(x, (AXIS,), 0),
        "send_recv": lambda x: lax.ppermute(x, AXIS, ring),
    }
    return operations[op]
