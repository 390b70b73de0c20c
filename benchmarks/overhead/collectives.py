"""Check that a collective measured by the tool is as fast as in a bare loop of the same ranks.

In each of several fresh process groups, blocks of the tool's measuring loop alternate in random order with blocks of a
hand-written loop of the framework's own calls. Each block takes as long as its slowest rank. The ratio of each process
group is the median over its pairs; the interval is over process groups.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
from duet import play, ratio

from benchmarker import Case
from benchmarker.power.sampler_client import SamplerClient
from benchmarker.worker import timing
from benchmarker.worker.bench import Bench
from benchmarker.worker.channel import alone, connect_to_rank_0, listen_for_ranks
from benchmarker.worker.process_group import Group, RankRunner
from benchmarker.worker.protocol import Address
from benchmarker_plugins.metrics.collective import bus_factor

OPS = ("all_reduce", "all_gather", "reduce_scatter")
BUFFERS = 4


@click.command()
@click.option("--framework", default="torch,jax", show_default=True)
@click.option("--op", type=click.Choice(OPS), multiple=True, default=OPS, show_default=True)
@click.option("--bytes", "sizes", multiple=True, type=int, default=(1024, 2**20, 2**24), show_default=True)
@click.option("--devices", default=2, show_default=True)
@click.option("--groups", type=click.IntRange(min=6), default=6, show_default=True)
@click.option("--pairs", default=40, show_default=True)
def main(framework: str, op: tuple[str, ...], sizes: tuple[int, ...], devices: int, groups: int, pairs: int) -> None:
    """Print the step time, the bus bandwidth, and the tool's step time divided by the bare loop's."""
    print(
        f"{'collective':15} {'bytes':>9} {'framework':9} {'step':>10} {'bus':>11}   tool / bare, 95%, {groups} groups"
    )
    for each in framework.split(","):
        for name in op:
            for size in sizes:
                found = [of_group(each, name, size, devices, pairs, seed) for seed in range(groups)]
                step_s = statistics.median(group["step_s"] for group in found)
                bus = size * bus_factor(name, devices) / step_s / 1e9
                logs = [statistics.median(group["logs"]) for group in found]
                print(
                    f"{name:15} {size:>9} {each:9} {1e6 * step_s:7.1f} us {bus:6.3f} GB/s   {ratio(logs)}", flush=True
                )


def of_group(framework: str, op: str, size: int, devices: int, pairs: int, seed: int) -> dict[str, Any]:
    """Run the ranks of a process group; returns what rank 0 has measured."""
    ranks = devices if framework == "torch" else 1
    words = [sys.executable, __file__, "--rank", json.dumps([framework, op, size, devices, pairs, seed])]
    first = subprocess.Popen([*words, "0"], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    others: list[subprocess.Popen[Any]] = []
    if ranks > 1:
        address = first.stdout.readline()
        others = [subprocess.Popen([*words, str(rank), address]) for rank in range(1, ranks)]
    found: dict[str, Any] = json.loads(first.stdout.read())
    if any(process.wait() for process in (first, *others)):
        sys.exit("a rank has failed")
    return found


def one_rank(what: str, rank: int, address: str = "") -> None:
    """Measure both loops as rank 0, and print the log ratios as JSON; or do what rank 0 says."""
    framework, op, size, devices, pairs, seed = json.loads(what)
    ranks = devices if framework == "torch" else 1
    params = {"op": op, "bytes": size}
    case = Case(problem="collective", framework=framework, device="cpu", devices=devices, ranks=ranks, params=params)
    stages: Any = SimpleNamespace(current="timed")
    channel = alone()
    if ranks > 1:
        channel = (
            connect_to_rank_0(rank, ranks, Address(*json.loads(address))) if rank else listen_for_ranks(ranks, publish)
        )
    group = Group(Bench(case, group=channel if ranks > 1 else None), channel, stages, SamplerClient({}))
    bench = group.bench
    step = bare_step(bench, op, size, devices)

    def bare(self: RankRunner, steps: int) -> int:
        return bare_block(step, bench.framework.synchronize, steps)

    RankRunner.bare = bare  # type: ignore[attr-defined]
    group.coordinate(lambda: compare(group, bare, pairs, seed))


def compare(group: Group, bare: Callable[[RankRunner, int], int], pairs: int, seed: int) -> bool:
    """Measure both loops, and print the log ratios as JSON."""
    group.build()
    group.gather(RankRunner.block, 3)
    group.gather(bare, 3)
    steps = timing.steps_per_block(group.stepper, 3)
    durations: list[int] = []

    def tool() -> int:
        durations.append(group.stepper.block(steps))
        return durations[-1]

    logs = play(lambda: max(group.gather(bare, steps)), tool, pairs, seed)
    print(json.dumps({"logs": logs, "step_s": statistics.median(durations) / steps / 1e9}))
    return True


def publish(host: str, port: int, token: str) -> None:
    print(json.dumps([host, port, token]), flush=True)


def bare_block(step: Callable[[], Any], wait: Callable[[Any], None], steps: int) -> int:
    start = time.perf_counter_ns()
    for _ in range(steps):
        result = step()
    wait(result)
    return time.perf_counter_ns() - start


def bare_step(bench: Bench, op: str, size: int, devices: int) -> Callable[[], Any]:
    """The same exchange as calls of the framework, without anything of the tool."""
    elements = size // 4 // (devices if op == "all_gather" else 1)
    if bench.case.framework == "jax":
        return bare_jax(op, elements, devices)
    import torch
    import torch.distributed as dist

    buffers = cycle([torch.ones(elements) for _ in range(BUFFERS)])
    if op == "all_reduce":
        return lambda: dist.all_reduce(next(buffers))
    if op == "all_gather":
        whole = torch.empty(elements * devices)
        return lambda: dist.all_gather_single(whole, next(buffers))
    share = torch.empty(elements // devices)
    return lambda: dist.reduce_scatter_single(share, next(buffers))


def bare_jax(op: str, elements: int, devices: int) -> Callable[[], Any]:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    spec = PartitionSpec("i")
    mesh = Mesh(np.array(jax.devices("cpu")), ("i",))
    shards = [np.ones(elements * devices, np.float32) for _ in range(BUFFERS)]
    buffers = cycle([jax.device_put(each, NamedSharding(mesh, spec)) for each in shards])
    call = {
        "all_reduce": lambda x: jax.lax.psum(x, "i"),
        "all_gather": lambda x: jax.lax.all_gather(x, "i", tiled=True),
        "reduce_scatter": lambda x: jax.lax.psum_scatter(x, "i", tiled=True),
    }[op]
    function = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    return lambda: function(next(buffers))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        one_rank(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
        sys.stdout.flush()
        os._exit(0)  # gloo's threads abort a process that ends in order before they do
    else:
        main()
