"""Models at a size, as steps of PyTorch and of JAX."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from benchmarker import Case, Mode, Workload
from benchmarker.hooks import registry


def problem_of(name: str) -> Any:
    """The problem of a name."""
    return registry.load([f"problem.{name}"]).hook.make_problem()


def torch_workload(name: str, size: Any, mode: Mode, precision: str = "fp32") -> Workload:
    """A model in PyTorch on the CPU, with random weights."""
    hooks = registry.load(["framework.torch", f"workload.{name}.torch"]).hook
    problem = problem_of(name)
    made: Workload = hooks.build_workload(
        framework=hooks.make_framework(device="cpu", precision=precision, threads=None, profiling="no"),
        problem=problem,
        case=Case(problem=name, framework="torch", device="cpu", mode=mode, precision=precision, params={}),
        params=size,
        data=problem.data(size, precision, np.random.default_rng(0), 1),
    )
    return made


def cpu_kernels() -> dict[Any, Any]:
    """FLOPs of the fused attention of CPUs, by PyTorch's own formulas: its counter knows only the kernels of GPUs."""
    import torch
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda d_out, q, k, v, *_, **__: (
            sdpa_backward_flop_count(d_out, q, k, v)
        ),
    }


def lowered(name: str, size: Any, mode: Mode) -> Any:
    """A step of a model in JAX, lowered and not compiled: its weights and batches exist only as shapes."""
    import jax

    from benchmarker_problems.steps import ADAMW
    from benchmarker_problems.steps.jax import adamw, forward_backward, initial_state, training

    shapes = import_module(f"benchmarker_problems.{name}").weight_shapes(size)
    weights = {key: jax.ShapeDtypeStruct(shape, "float32") for key, shape in shapes.items()}
    tokens = jax.ShapeDtypeStruct((size.batch_size, size.seq_len), "int32")
    logits_of, loss_of = import_module(f"benchmarker_problems.{name}.jax").functions(size, "float32", "xla")
    if mode == "inference":
        return jax.jit(logits_of).lower(weights, tokens)
    if mode == "forward_backward":
        return jax.jit(forward_backward(loss_of, 1.0, 1.0)).lower(weights, tokens=tokens, targets=tokens)
    optimizer = adamw(ADAMW)
    state = jax.eval_shape(lambda weights: initial_state(weights, optimizer, "fp32"), weights)
    step = jax.jit(training, static_argnames=("loss_of", "optimizer"))
    return step.lower(state, tokens=tokens, targets=tokens, loss_of=loss_of, optimizer=optimizer)
