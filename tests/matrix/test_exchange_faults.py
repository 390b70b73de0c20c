"""A broken exchange between devices that train is found by the check of a trial, in every precision.

Each fault is planted where the framework exchanges.
"""

from collections import namedtuple
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from support.ranks import on_devices

from benchmarker import Case
from benchmarker.hooks import registry
from benchmarker.records.record import Check
from benchmarker.worker.bench import Bench
from benchmarker.worker.correctness import worst_of
from benchmarker.worker.process_group import RankRunner
from benchmarker.worker.trial import _check_one
from benchmarker_problems.gpt2 import Gpt2

PARAMS = Gpt2(n_layer=1, seq_len=8)
DEVICES = 2
PRECISIONS = ("fp32", "bf16", "fp64", "mixed_bf16")
FAULTS = {
    "dp": ("not averaged", "summed"),
    "fsdp": ("not averaged", "summed"),
    "tp": ("product not summed", "gradient summed twice"),
}
"""`tp` sums products of row-parallel layers, and gradients of the inputs of column-parallel ones."""
Found = namedtuple("Found", ["outputs", "gradients"])


class Opened(Bench):
    """A case on a framework that is open."""

    def __init__(self, case, framework):
        names = (f"problem.{case.problem}", f"workload.{case.problem}.{case.framework}")
        self.case, self.framework = case, framework
        self.hooks = registry.load(names).hook
        self.problem = PARAMS.on(case.devices, case.parallel)


def case_of(name, way, precision):
    return Case(
        problem="gpt2",
        framework=name,
        device="cpu",
        precision=precision,
        mode="training",
        params={},
        devices=DEVICES,
        parallel=way,
    )


def compared(framework, name, way, wanted):
    """What a rank finds for each precision and fault; gradients, in fp64 for any precision, once for each fault."""
    found, gradients = {}, {}
    for precision, fault in wanted:
        runner = RankRunner(Opened(case_of(name, way, precision), framework), samplers=None)
        with framework.fp64() if precision == "fp64" else ExitStack(), planted(name, way, fault, framework):
            outputs = runner.compare()
            if fault not in gradients:
                gradients[fault] = runner.compare_gradients()
            found[precision, fault] = Found(outputs, gradients[fault])
    return found


def planted(name, way, fault, framework):
    """A context in which a fault is planted."""
    if not fault:
        return ExitStack()
    plant = {"torch": {"dp": torch_dp, "fsdp": torch_fsdp, "tp": torch_tp}, "jax": {"dp": jax_dp, "fsdp": jax_fsdp}}
    return plant[name].get(way, jax_tp)(fault, framework)


def torch_dp(fault, framework):
    import torch
    import torch.distributed as dist

    from benchmarker_problems.generation import torch as generation

    averaging = generation.averaging

    def exchange(_, bucket):
        if fault == "summed":
            dist.all_reduce(bucket.buffer())
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def broken(*args):
        model = averaging(*args)
        model.register_comm_hook(None, exchange)
        return model

    return patch.object(generation, "averaging", broken)


def torch_fsdp(fault, framework):
    import torch.distributed as dist
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

    exchange = DefaultReduceScatter.__call__

    def broken(self, output_tensor, input_tensor, group, op, **options):
        if fault == "summed":
            exchange(self, output_tensor, input_tensor, group, op, **options)
            output_tensor *= DEVICES
        else:
            output_tensor.copy_(input_tensor.chunk(DEVICES)[group.rank()])
            output_tensor *= 1 if op == dist.ReduceOp.AVG else DEVICES  # FSDP itself divides a sum

    return patch.object(DefaultReduceScatter, "__call__", broken)


def torch_tp(fault, framework):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    if fault == "product not summed":

        def own(layouts, local, module, outputs, mesh):
            return outputs.to_local()

        return patch.object(RowwiseParallel, "_prepare_output_fn", staticmethod(own))

    prepare = ColwiseParallel._prepare_input_fn

    def broken(layouts, wanted, module, inputs, mesh):
        inputs[0].register_hook(lambda gradient: DEVICES * gradient)
        return prepare(layouts, wanted, module, inputs, mesh)

    return patch.object(ColwiseParallel, "_prepare_input_fn", staticmethod(broken))


def jax_dp(fault, framework):
    """XLA inserts the exchange, so each device is given a gradient of its own instead."""
    import jax
    from jax.sharding import PartitionSpec

    from benchmarker_plugins.frameworks.jax import AXIS
    from benchmarker_problems.steps import jax as steps

    loss_and_gradients = steps.loss_and_gradients

    def broken(loss_of, loss_scale, microbatches, weights, batch):
        def own(weights, batch):
            loss, gradients, _ = loss_and_gradients(loss_of, loss_scale, microbatches, weights, batch)
            if fault == "summed":
                gradients = jax.lax.psum(gradients, AXIS)
            return jax.lax.pmean(loss, AXIS), gradients, {}

        whole, divided = PartitionSpec(), PartitionSpec(AXIS)
        mapped = jax.shard_map(own, mesh=framework.mesh, in_specs=(whole, divided), out_specs=whole, check_vma=False)
        return mapped(weights, batch)

    return patch.object(steps, "loss_and_gradients", broken)


def jax_fsdp(fault, framework):
    import jax
    from jax import lax

    all_gather = lax.all_gather

    def broken(share, name, *, axis, tiled):
        @jax.custom_vjp
        def gather(share):
            return all_gather(share, name, axis=axis, tiled=tiled)

        def backward(_, d_whole):
            if fault == "summed":
                return (DEVICES * lax.psum_scatter(d_whole, name, scatter_dimension=axis, tiled=True),)
            size = d_whole.shape[axis] // DEVICES
            return (DEVICES * lax.dynamic_slice_in_dim(d_whole, size * lax.axis_index(name), size, axis),)

        gather.defvjp(lambda share: (gather(share), None), backward)
        return gather(share)

    return patch.object(lax, "all_gather", broken)


def jax_tp(fault, framework):
    """JAX refuses a product of which each device goes on with its own part; so all go on with that of one device."""
    import jax
    from jax import lax

    psum = lax.psum

    def broken(part, name):
        if fault == "product not summed":
            return psum(part * (lax.axis_index(name) == 0).astype(part.dtype), name)

        @jax.custom_vjp
        def sums(part):
            return psum(part, name)

        sums.defvjp(lambda part: (sums(part), 0 * part), lambda zero, d_sum: (DEVICES * d_sum + zero,))
        return sums(part)

    return patch.object(lax, "psum", broken)


def verdict(case, ranks):
    """What the trial says of what all ranks found: why it failed, or nothing."""
    failures = []
    answers = {
        RankRunner.compare: [rank.outputs for rank in ranks],
        RankRunner.compare_gradients: [rank.gradients for rank in ranks],
    }
    stages = SimpleNamespace(send=lambda _: None, fail=lambda _, message: failures.append(message))
    ok = _check_one(SimpleNamespace(bench=SimpleNamespace(case=case), gather=answers.__getitem__), stages)
    assert ok == (not failures)
    return "".join(failures)


def with_right_outputs(ranks):
    """The same, but for what the check of outputs finds: that of the exchange is left."""
    right = Check(error=0.0, output="loss", bound=1.0, ok=True)
    return [rank._replace(outputs=replace(rank.outputs, worst=right)) for rank in ranks]


@pytest.mark.slow
def test_gradients_that_are_not_averaged_or_too_large_are_found():
    """By the weights, or by the gradients in fp64, also if all outputs were within the bounds of the precision."""
    wanted = [("bf16", "not averaged"), ("fp32", "summed")]
    ranks = on_devices("torch", DEVICES, "fp32", compared, "torch", "dp", wanted)
    alone, summed = (with_right_outputs([rank[of] for rank in ranks]) for of in wanted)
    assert "exchange between devices: after 3 steps, wte of device 1 is not that of device 0" in verdict(
        case_of("torch", "dp", "bf16"), alone
    )
    assert "exchange between devices: d_" in verdict(case_of("torch", "dp", "fp32"), summed)


@pytest.mark.slow
@pytest.mark.parametrize("way", FAULTS)
@pytest.mark.parametrize("name", ["jax", "torch"])
def test_every_fault_is_found_in_every_precision(name, way):
    """By the gradients alone, too; without a fault nothing is, for which `test_parallel` has the other precisions."""
    wanted = [("bf16", ""), *((precision, fault) for precision in PRECISIONS for fault in FAULTS[way])]
    found = on_devices(name, DEVICES, "fp32", compared, name, way, wanted)
    for precision, fault in wanted:
        ranks = [rank[precision, fault] for rank in found]
        message = verdict(case_of(name, way, precision), ranks)
        gradients = worst_of([rank.gradients for rank in ranks])
        assert bool(message) == bool(fault), (precision, fault, message)
        assert not fault or verdict(case_of(name, way, precision), with_right_outputs(ranks))
        assert gradients.ok == (not fault), (precision, fault, gradients)
