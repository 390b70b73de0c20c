"""Models at a size, as steps of PyTorch and of JAX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
import pytest

from benchmarker import Case, Mode, Workload
from benchmarker.hooks import registry
from benchmarker_problems.steps import ADAMW


def problem_of(name: str) -> Any:
    """The class of the problem of a name."""
    return registry.problem(name)


def torch_workload(name: str, size: Any, mode: Mode, precision: str = "fp32", **options: bool) -> Workload:
    """A problem in PyTorch on the CPU, with random data; the options are those of `Case`."""
    hooks = registry.load(["framework.torch"]).hook
    framework = hooks.make_framework(device="cpu", precision=precision, threads=None, profiling="no", devices=1)
    return _workload(name, "torch", framework, size, mode, precision, **options)


def jax_workload(name: str, size: Any, mode: Mode, precision: str = "fp32") -> Workload:
    """A problem in JAX on the CPU, with random data; fp64 needs the fixture `x64`."""
    from benchmarker_plugins.frameworks.jax import JaxFramework

    return _workload(name, "jax", JaxFramework("cpu"), size, mode, precision)


def _workload(
    name: str, framework: str, opened: Any, size: Any, mode: Mode, precision: str, **options: bool
) -> Workload:
    made: Workload = registry.load([f"workload.{name}.{framework}"]).hook.build_workload(
        framework=opened,
        problem=size,
        case=Case(
            problem=name, framework=framework, device="cpu", mode=mode, precision=precision, params={}, **options
        ),
        data=size.data(precision, np.random.default_rng(0), 1),
    )
    return made


def cpu_kernels() -> dict[Any, Any]:
    """FLOPs of kernels of CPUs that PyTorch's counter does not know: fused attention, products with packed weights."""
    import torch
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda d_out, q, k, v, *_, **__: (
            sdpa_backward_flop_count(d_out, q, k, v)
        ),
        torch.ops.mkl._mkl_linear: lambda x, _, weight, *__, **___: 2 * prod(x) * weight[0],
    }


def counted_flops(workload: Workload) -> int:
    """FLOPs of a step as PyTorch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False, custom_mapping=cpu_kernels()) as counter:
        workload.step()
    flops: int = counter.get_total_flops()
    return flops


def profiled_names(workload: Workload) -> Counter[str]:
    """How often each name, such as that of a scope, occurs in PyTorch's profile of a step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        workload.step()
    return Counter(event.name for event in profiler.events())


def batch_shapes(name: str, size: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of each array of a batch; that of the targets is the last."""
    if name == "vit":
        return {
            "images": ((size.batch_size, size.image_size, size.image_size, 3), "float32"),
            "targets": ((size.batch_size,), "int32"),
        }
    if name == "dit":
        each = ((size.batch_size,), "int32")
        latents = ((size.batch_size, size.latent_size, size.latent_size, 4), "float32")
        return {"latents": latents, "timesteps": each, "labels": each, "noise": latents}
    tokens = ((size.batch_size, size.seq_len), "int32")
    if name == "bert":
        return {"tokens": tokens, "masked": ((size.masked,), "int32"), "targets": ((size.masked,), "int32")}
    return {"tokens": tokens, "targets": tokens}


def lowered(name: str, size: Any, mode: Mode) -> Any:
    """A step of a model in JAX, lowered and not compiled: its weights and batches exist only as shapes."""
    import jax

    from benchmarker_problems.steps.jax import adamw, forward_backward, initial_state, training

    shapes = size.weight_shapes()
    weights = {key: jax.ShapeDtypeStruct(shape, "float32") for key, shape in shapes.items()}
    batch = {key: jax.ShapeDtypeStruct(*shape) for key, shape in batch_shapes(name, size).items()}
    output_of, loss_of = import_module(f"benchmarker_problems.{name}.jax").functions(size, "float32", "xla")
    if mode == "inference":
        return jax.jit(output_of).lower(weights, *list(batch.values())[:-1])
    if mode == "forward_backward":
        return jax.jit(partial(forward_backward, loss_of, 1.0, 1.0, 1)).lower(weights, **batch)
    optimizer = adamw(ADAMW)
    state = jax.eval_shape(lambda weights: initial_state(weights, optimizer, "fp32"), weights)
    return jax.jit(partial(training, loss_of, optimizer, 1)).lower(state, **batch)


@contextmanager
def calls_of_jit() -> Iterator[list[Any]]:
    """The lowered function of each call of what `jax.jit` makes meanwhile."""
    import jax

    lowered: list[Any] = []
    jit = jax.jit

    def kept(function: Any, **options: Any) -> Any:
        compiled = jit(function, **options)

        def call(*args: Any) -> Any:
            lowered.append(compiled.lower(*args))
            return compiled(*args)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "jit", kept)
        yield lowered
