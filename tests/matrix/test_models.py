"""Models: their FLOPs and scopes as the frameworks themselves count them, and their gradients."""

import re

import numpy as np
import pytest
from support.models import counted_flops, jax_workload, lowered, problem_of, profiled_names, torch_workload

from benchmarker import MODES, UserError
from benchmarker.hooks import parameters

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


def on_gpt2(*names):
    """Values of `name` of which GPT-2 is tried on each change, and the others by the slow tests."""
    return [pytest.param(name, marks=[] if name == "gpt2" else pytest.mark.slow) for name in names]


@pytest.fixture
def problem(name):
    return problem_of(name)


def every_scope(problem):
    return {scope for impl in IMPLS for mode in MODES for scope in problem(impl=impl).scopes(mode)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "impl"), WAYS)
def test_flops_and_scopes_in_pytorch(name, problem, impl, mode):
    pytest.importorskip("torch")

    size = problem(**MODELS[name][0], impl=impl).small()
    workload = torch_workload(name, size, mode)
    assert counted_flops(workload) == size.cost(mode, "fp32").flops + workload.recomputed_flops
    assert (workload.recomputed_flops > 0) == (impl == "fused" and mode != "inference")
    assert profiled_names(workload).keys() & every_scope(problem) == set(size.scopes(mode))


@pytest.mark.parametrize("impl", ["matmul", "fused"])
@pytest.mark.parametrize("name", MODELS)
def test_flops_of_recomputed_blocks_and_of_microbatches_in_pytorch(name, problem, impl):
    pytest.importorskip("torch")

    size = problem(**MODELS[name][0], impl=impl, batch_size=2, recompute=True, microbatches=2).small()
    workload = torch_workload(name, size, "training")
    assert counted_flops(workload) == size.cost("training", "fp32").flops + workload.recomputed_flops
    assert workload.recomputed_flops > 0.15 * size.cost("training", "fp32").flops


@pytest.mark.parametrize("impl", ["matmul", pytest.param("fused", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", on_gpt2(*MODELS))
def test_flops_of_recomputed_blocks_in_xla(name, problem, impl):
    pytest.importorskip("jax")

    given, wide = MODELS[name]
    size = problem(**given, **wide, impl=impl, recompute=True)
    on_cpu = {"bert": {"kept": ("attn_qkv",)}, "dit": {"kept": ("modulation",)}}.get(name, {})
    repeated = size.recomputed_flops(scores=False, **on_cpu)
    flops = lowered(name, size, "forward_backward").compile().cost_analysis()["flops"]
    assert flops == pytest.approx(size.cost("forward_backward", "fp32").flops + repeated, rel=0.01)


@pytest.mark.parametrize("workload_of", [torch_workload, jax_workload])
@pytest.mark.parametrize("name", on_gpt2(*MODELS))
def test_gradients_of_recomputed_blocks_and_of_microbatches_are_those_of_the_reference(x64, problem, name, workload_of):
    pytest.importorskip("torch")
    small = problem(**MODELS[name][0], batch_size=2, recompute=True, microbatches=2).small()
    (expected,) = small.reference(small.data("fp64", np.random.default_rng(0), 1), "forward_backward")
    workload = workload_of(name, small, "forward_backward", "fp64")
    found = workload.outputs(workload.step())
    assert found.keys() == expected.keys()
    for output, exact in expected.items():
        assert np.linalg.norm(found[output] - exact) < 1e-13 * np.linalg.norm(exact), output


@pytest.mark.parametrize("name", MODELS)
def test_options_of_the_backward_pass_are_refused_in_inference(problem):
    for options, named in (
        ({"recompute": True}, "--recompute"),
        ({"batch_size": 2, "microbatches": 2}, "--microbatches=2"),
    ):
        with pytest.raises(UserError, match=f"{named} needs .*; leave it out, or give --mode=forward_backward"):
            problem(**options).refuse("inference")
        problem(**options).refuse("training")
    with pytest.raises(UserError, match="batch_size=3 is not a multiple of microbatches=2"):
        parameters.convert(problem, {"batch_size": 3, "microbatches": 2})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "impl"), WAYS)
def test_flops_and_scopes_in_xla(name, problem, impl, mode):
    pytest.importorskip("jax")
    given, wide = MODELS[name]
    size = problem(**given, **wide, impl=impl)
    step = lowered(name, size, mode)
    assert step.cost_analysis()["flops"] == pytest.approx(size.cost(mode, "fp32").flops, rel=0.01)
    found = set(re.findall(r"\w+", step.as_text(debug_info=True))) & every_scope(problem)
    assert found == set(size.scopes(mode))


@pytest.mark.parametrize("precision", ["fp32", pytest.param("mixed_fp16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", on_gpt2(*MODELS))
def test_training_in_jax_is_compiled_once(quick_xla, name, problem, precision):
    """A state that is of another kind than the one it becomes would be compiled for, too, in the second step."""
    jax = quick_xla
    compiled = []
    workload = jax_workload(name, problem(**MODELS[name][0]).small(), "training", precision)

    def note(event, *_, **__):
        compiled.append(event == "/jax/core/compile/backend_compile_duration")

    jax.monitoring.register_event_duration_secs_listener(note)
    counts = []
    try:
        for _ in range(3):
            workload.step()
            counts.append(sum(compiled))
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert counts == [1, 1, 1]


@pytest.mark.parametrize("name", on_gpt2(*MODELS))
def test_gradients_of_the_reference_are_those_of_jax(x64, name, problem):
    from importlib import import_module

    small = problem(**MODELS[name][0]).small()
    data = small.data("fp64", np.random.default_rng(0), 1)
    (expected,) = small.reference(data, "forward_backward")
    _, loss_of = import_module(f"benchmarker_problems.{name}.jax").functions(small, "float64", "xla")
    loss, gradients = x64.jit(x64.value_and_grad(loss_of))(dict(data.weights), **data.batches[0])
    assert float(loss) == pytest.approx(float(expected["loss"]), rel=1e-14)
    assert {f"d_{name}" for name in gradients} | {"loss"} == set(expected)
    for weight, gradient in gradients.items():
        exact = expected[f"d_{weight}"]
        assert np.linalg.norm(gradient - exact) < 1e-13 * np.linalg.norm(exact), weight
