"""Models: their FLOPs and scopes as the frameworks themselves count them, and their gradients."""

import re

import numpy as np
import pytest
from support.models import cpu_kernels, function_of, lowered, problem_of, torch_workload

from benchmarker import MODES

WIDE = {"n_layer": 2, "d_model": 2048, "n_head": 8, "batch_size": 16}
TEXT = {**WIDE, "seq_len": 128, "vocab_size": 4096}
MODELS = {
    "gpt2": ({}, TEXT),
    "llama": ({"size": "llama-3.2-1b"}, {**TEXT, "n_kv_head": 2, "d_ff": 4096}),
    "bert": ({}, TEXT),
    "moe": ({"capacity_factor": 1.0}, {**TEXT, "n_kv_head": 2, "d_ff": 1024}),
    "vit": ({}, WIDE),
    "dit": ({}, WIDE),
}
"""Options of the model, and those of a size so wide that elementwise work is less than 1% of the FLOPs."""
IMPLS = ("einsum", "matmul", "fused")
WAYS = [
    pytest.param(name, impl, marks=[] if name == "gpt2" or impl == "matmul" else pytest.mark.slow)
    for name in MODELS
    for impl in IMPLS
]
"""Implementations of each model. They differ in the attention, which the models share: all are tried on one."""


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def problem(name):
    return problem_of(name)


def every_scope(problem):
    return {scope for impl in IMPLS for mode in MODES for scope in problem.scopes(problem.params(impl=impl), mode)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "impl"), WAYS)
def test_flops_and_scopes_in_pytorch(name, problem, impl, mode):
    pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.flop_counter import FlopCounterMode

    size = problem.small(problem.params(**MODELS[name][0], impl=impl))
    workload = torch_workload(name, size, mode)
    with FlopCounterMode(display=False, custom_mapping=cpu_kernels()) as counter:
        workload.step()
    assert counter.get_total_flops() == problem.cost(size, mode, "fp32").flops + workload.recomputed_flops
    assert (workload.recomputed_flops > 0) == (impl == "fused" and mode != "inference")
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        workload.step()
    assert {event.name for event in profiler.events()} & every_scope(problem) == set(problem.scopes(size, mode))


@pytest.mark.parametrize("name", ["gpt2", "llama", "moe"])
@pytest.mark.parametrize("impl", ["matmul", "fused"])
def test_flops_of_recomputed_blocks_and_of_microbatches_in_pytorch(name, problem, impl):
    pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    size = problem.small(problem.params(**MODELS[name][0], impl=impl, batch_size=2, recompute=True, microbatches=2))
    workload = torch_workload(name, size, "training")
    with FlopCounterMode(display=False, custom_mapping=cpu_kernels()) as counter:
        workload.step()
    assert counter.get_total_flops() == problem.cost(size, "training", "fp32").flops + workload.recomputed_flops
    assert workload.recomputed_flops > 0.15 * problem.cost(size, "training", "fp32").flops


@pytest.mark.parametrize("name", ["gpt2", "llama", "moe"])
@pytest.mark.parametrize("impl", ["matmul", "fused"])
def test_flops_of_recomputed_blocks_in_xla(name, problem, impl):
    pytest.importorskip("jax")

    given, wide = MODELS[name]
    size = problem.params(**given, **wide, impl=impl, recompute=True)
    repeated = function_of(name, "recomputed_flops")(size, scores=False)
    flops = lowered(name, size, "forward_backward").compile().cost_analysis()["flops"]
    assert flops == pytest.approx(problem.cost(size, "forward_backward", "fp32").flops + repeated, rel=0.01)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "impl"), WAYS)
def test_flops_and_scopes_in_xla(name, problem, impl, mode):
    pytest.importorskip("jax")
    given, wide = MODELS[name]
    size = problem.params(**given, **wide, impl=impl)
    step = lowered(name, size, mode)
    assert step.cost_analysis()["flops"] == pytest.approx(problem.cost(size, mode, "fp32").flops, rel=0.01)
    found = set(re.findall(r"\w+", step.as_text(debug_info=True))) & every_scope(problem)
    assert found == set(problem.scopes(size, mode))


def test_gradients_of_the_reference_are_those_of_jax(x64, name, problem):
    from importlib import import_module

    small = problem.small(problem.params(**MODELS[name][0]))
    data = problem.data(small, "fp64", np.random.default_rng(0), 1)
    (expected,) = problem.reference(small, data, "forward_backward")
    _, loss_of = import_module(f"benchmarker_problems.{name}.jax").functions(small, "float64", "xla")
    loss, gradients = x64.jit(x64.value_and_grad(loss_of))(dict(data.weights), **data.batches[0])
    assert float(loss) == pytest.approx(float(expected["loss"]), rel=1e-14)
    assert {f"d_{name}" for name in gradients} | {"loss"} == set(expected)
    for weight, gradient in gradients.items():
        exact = expected[f"d_{weight}"]
        assert np.linalg.norm(gradient - exact) < 1e-13 * np.linalg.norm(exact), weight
