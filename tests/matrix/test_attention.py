import re

import numpy as np
import pytest
from support.checks import ability_of, checked
from support.models import counted_flops, problem_of, profiled_names, torch_workload

from benchmarker import Case, Data, UserError
from benchmarker.api.case import CaseRequest
from benchmarker.planning.cases import make_case

problem = problem_of("attention")
IMPLS = ("einsum", "matmul", "fused")
MODES = ("inference", "forward_backward")
EVERY_SCOPE = {"attn_q_k", "attn_softmax", "attn_att_v", "attn_fused"}


def batch_of(params, precision="fp32"):
    return params.data(precision, np.random.default_rng(0), 1).batches[0]


def test_cost_by_hand():
    params = problem(batch_size=2, heads=3, seq_len=5, head_dim=7)
    forward = params.cost("inference", "fp32")
    assert (forward.flops, forward.samples, forward.tokens) == (2 * 2 * 2 * 3 * 5 * 5 * 7, 2, 10)
    assert forward.bytes == 4 * 4 * (2 * 5 * 3 * 7)
    both = params.cost("forward_backward", "bf16")
    assert (both.flops, both.bytes) == (3 * forward.flops, forward.bytes)


@pytest.mark.parametrize("causal", [True, False])
def test_reference_against_a_loop(causal):
    params = problem(batch_size=2, heads=2, seq_len=4, head_dim=3, causal=causal)
    batch = batch_of(params, "fp64")
    (outputs,) = params.reference(Data({}, (batch,)), "inference")
    for b, t, h in np.ndindex(2, 4, 2):
        seen = t + 1 if causal else 4
        weights = np.exp(batch["k"][b, :seen, h] @ batch["q"][b, t, h] / 3**0.5)
        expected = weights / weights.sum() @ batch["v"][b, :seen, h]
        np.testing.assert_allclose(outputs["out"][b, t, h], expected, rtol=1e-12, atol=1e-13)


def test_cost_of_a_cache_by_hand():
    """One token of each of 2 sequences attends to 9 positions, with 4 heads of width 3 for 2 of keys and values."""
    params = problem(batch_size=2, heads=4, kv_heads=2, seq_len=16, depth=8, head_dim=3)
    cost = params.cost("inference", "fp32")
    assert (cost.flops, cost.samples, cost.tokens) == (2 * 2 * (2 * 4 * 9 * 3), 2, 2)
    assert cost.bytes == 4 * (2 * (2 * 4 * 3) + 2 * (2 * 9 * 2 * 3))
    assert params.title("inference") == "attention B=2 H=4/2 at 8 S=16 D=3 matmul"


def test_reference_of_a_cache_against_a_loop():
    params = problem(batch_size=2, heads=4, kv_heads=2, seq_len=6, depth=3, head_dim=3)
    batch = batch_of(params, "fp64")
    (outputs,) = params.reference(Data({}, (batch,)), "inference")
    for b, h in np.ndindex(2, 4):
        weights = np.exp(batch["k"][b, :4, h // 2] @ batch["q"][b, 0, h] / 3**0.5)
        expected = weights / weights.sum() @ batch["v"][b, :4, h // 2]
        np.testing.assert_allclose(outputs["out"][b, 0, h], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("framework", ["jax", "numpy", "onnxruntime", "tensorflow", "torch"])
@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize(
    "options", [{"depth": 9}, {"heads": 4, "kv_heads": 2}, {"heads": 4, "kv_heads": 2, "depth": 9}]
)
def test_caches_and_groups_are_right(framework, impl, options):
    pytest.importorskip(framework)
    ability = ability_of("attention", framework)
    if impl not in ability.support.choices.get("impl", IMPLS):
        pytest.skip(f"{framework} has no {impl}")
    asked = CaseRequest(problem="attention", device="cpu", params={**options, "impl": impl})
    checks, _ = checked(make_case(asked, problem, framework, ability), ["inference"])
    assert checks["inference"].ok, checks


@pytest.mark.parametrize("impl", IMPLS)
def test_a_cache_in_pytorch_has_the_flops_of_its_room_and_its_scopes(impl):
    pytest.importorskip("torch")
    size = problem(impl=impl, heads=4, kv_heads=2, depth=19, seq_len=20, head_dim=16)
    workload = torch_workload("attention", size, "inference")
    assert counted_flops(workload) == size.cost("inference", "fp32").flops
    assert profiled_names(workload).keys() & EVERY_SCOPE == set(size.scopes("inference"))


def test_what_a_cache_cannot_do_is_refused():
    with pytest.raises(ValueError, match="no room for the 9 positions"):
        problem(depth=8, seq_len=8)
    with pytest.raises(ValueError, match="heads=12 is not a multiple of kv_heads=5"):
        problem(kv_heads=5)
    with pytest.raises(UserError, match="--mode=inference"):
        problem(depth=8).refuse("forward_backward")
    with pytest.raises(UserError, match="whole sequences"):
        problem(depth=8).numerics("inference", "fp8_e4m3")


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("causal", [True, False])
def test_backward_is_the_derivative(causal, kv_heads):
    params = problem(batch_size=1, heads=2, kv_heads=kv_heads, seq_len=3, head_dim=2, causal=causal)
    batch, step = batch_of(params, "fp64"), 1e-5
    (outputs,) = params.reference(Data({}, (batch,)), "forward_backward")
    for name in ("q", "k", "v"):
        numeric = np.zeros_like(batch[name])
        for index in np.ndindex(numeric.shape):
            values = []
            for sign in (1, -1):
                moved = {key: value.copy() for key, value in batch.items()}
                moved[name][index] += sign * step
                (at,) = params.reference(Data({}, (moved,)), "inference")
                values.append(np.sum(at["out"] * batch["d_out"]))
            numeric[index] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(outputs[f"d_{name}"], numeric, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("impl", IMPLS)
def test_flops_as_pytorch_counts_them(impl, mode):
    pytest.importorskip("torch")

    size = problem(impl=impl).small()
    workload = torch_workload("attention", size, mode)
    assert counted_flops(workload) == size.cost(mode, "fp32").flops + workload.recomputed_flops
    assert (workload.recomputed_flops > 0) == (impl == "fused" and mode == "forward_backward")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("impl", IMPLS)
def test_scopes_in_pytorch(impl, mode):
    pytest.importorskip("torch")

    size = problem(impl=impl).small()
    workload = torch_workload("attention", size, mode)
    assert profiled_names(workload).keys() & EVERY_SCOPE == set(size.scopes(mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("impl", IMPLS)
def test_flops_and_scopes_in_xla(impl, mode):
    jax = pytest.importorskip("jax")
    from benchmarker_problems.attention.jax import INPUTS, step_function

    # Heads so wide that the softmax, which XLA counts as well, is less than 1% of the work.
    size = problem(batch_size=2, heads=3, seq_len=64, head_dim=1024, impl=impl)
    shape = jax.ShapeDtypeStruct((2, 64, 3, 1024), "float32")
    lowered = jax.jit(step_function(size, mode, "xla")).lower(*(shape for _ in INPUTS[mode]))
    assert lowered.cost_analysis()["flops"] == pytest.approx(size.cost(mode, "fp32").flops, rel=0.01)
    assert set(re.findall(r"\w+", lowered.as_text(debug_info=True))) & EVERY_SCOPE == set(size.scopes(mode))


@pytest.mark.parametrize(
    ("device", "precision", "kernel"),
    [
        ("cuda", "bf16", "cudnn"),
        ("cuda", "mixed_fp16", "cudnn"),
        ("cuda", "tf32", "xla"),
        ("rocm", "bf16", "xla"),
        ("cpu", "mixed_bf16", "xla"),
    ],
)
def test_the_kernel_that_jax_is_asked_for(device, precision, kernel):
    pytest.importorskip("jax")
    from benchmarker_problems.attention.jax import fused_kernel

    assert (
        fused_kernel(Case(problem="attention", framework="jax", device=device, precision=precision, params={}))
        == kernel
    )
