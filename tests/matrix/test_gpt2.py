import dataclasses
import re

import numpy as np
import pytest

from benchmarker import MODES, Case, UserError
from benchmarker.hooks import parameters, registry

problem = registry.load(["problem.gpt2"]).hook.make_problem()
IMPLS = ("einsum", "matmul", "fused")
EVERY_SCOPE = {scope for impl in IMPLS for mode in MODES for scope in problem.scopes(problem.params(impl=impl), mode)}


@pytest.mark.parametrize("size", ["small", "medium", "large", "xl"])
def test_a_longer_sequence_adds_positions(size):
    given, longer = (problem.params(size=size, seq_len=seq_len) for seq_len in (1024, 1030))
    assert problem.parameter_count(given) == problem.parameter_count(problem.params(size=size))
    assert problem.parameter_count(longer) == problem.parameter_count(given) + 6 * longer.d_model


def test_params_come_from_the_size_and_reproduce():
    assert problem.params(size="2.7b").n_layer == 32
    given = problem.params(size="medium", d_model=96, seq_len=7)
    assert (given.n_layer, given.d_model, given.n_head, given.d_ff, given.vocab_size) == (24, 96, 16, 384, 50257)
    assert parameters.convert(problem.params, dataclasses.asdict(given)) == given
    assert parameters.resolve(problem, {}, "cuda")["seq_len"] == 1024


def test_width_must_be_a_multiple_of_the_heads():
    with pytest.raises(UserError, match="d_model=100 is not a multiple of n_head=12"):
        parameters.convert(problem.params, {"d_model": 100})
    with pytest.raises(UserError, match="--n-layer=0"):
        parameters.convert(problem.params, {"n_layer": 0})


def test_cost_by_hand():
    given = problem.params(n_layer=2, d_model=4, n_head=2, d_ff=3, vocab_size=5, seq_len=6, batch_size=7)
    forward = problem.cost(given, "inference", "mixed_bf16")
    tokens = 6 * 7
    linear, scores, head = 2 * tokens * (4 * 16 + 2 * 12), 2 * 2 * tokens * 6 * 4, 2 * tokens * 20
    assert forward.flops == 2 * (linear + scores) + head
    assert (forward.samples, forward.tokens) == (7, tokens)
    weights = 5 * 4 + 1024 * 4 + 2 * (4 * 4 + (4 * 12 + 12) + (16 + 4) + (12 + 3) + (12 + 4)) + 8
    assert forward.bytes == 4 * weights + 4 * tokens + 2 * tokens * 5
    assert problem.cost(given, "forward_backward", "bf16").bytes == 2 * (2 * weights) + 2 * 4 * tokens
    training = problem.cost(given, "training", "fp32")
    assert (training.flops, training.bytes) == (3 * forward.flops, 7 * 4 * weights + 2 * 4 * tokens)


def test_data_can_be_learned():
    given = dataclasses.replace(problem.small(problem.params()), seq_len=200, batch_size=20)
    data = problem.data(given, "fp32", np.random.default_rng(3), 2)
    again = problem.data(given, "fp32", np.random.default_rng(3), 2)
    tokens, targets = data.batches[0]["tokens"], data.batches[0]["targets"]
    assert tokens.shape == targets.shape == (20, 200)
    np.testing.assert_array_equal(tokens[:, 1:], targets[:, :-1])
    np.testing.assert_array_equal(tokens, again.batches[0]["tokens"])
    assert not np.array_equal(tokens, data.batches[1]["tokens"])
    assert set(tokens.ravel()) == set(range(given.vocab_size))
    follower = {}
    for token in range(given.vocab_size):
        follower[token] = np.bincount(targets[tokens == token]).argmax()
    assert sorted(follower.values()) == list(range(given.vocab_size))
    for batch in data.batches:
        follows = np.vectorize(follower.get)(batch["tokens"]) == batch["targets"]
        assert 0.88 < follows.mean() < 0.93


def test_weights_are_the_same_numbers_in_each_precision_and_none_is_trivial():
    small = problem.small(problem.params())
    short, long = (problem.data(small, name, np.random.default_rng(0), 1).weights for name in ("bf16", "fp64"))
    for name, weight in short.items():
        assert (weight.dtype, long[name].dtype) == (np.float32, np.float64)
        np.testing.assert_array_equal(weight, long[name])
        assert weight.std() > 0.005
    assert short["h.0.mlp_fc.kernel"].std() == pytest.approx(0.02, rel=0.05)
    assert short["h.0.mlp_proj.kernel"].std() == pytest.approx(0.02 / 2, rel=0.05)
    assert short["ln_f.scale"].mean() == pytest.approx(1, abs=0.02)


@pytest.fixture
def x64():
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", before)


def test_gradients_of_the_reference_are_those_of_jax(x64):
    from benchmarker_problems.gpt2.jax import functions

    small = problem.small(problem.params())
    data = problem.data(small, "fp64", np.random.default_rng(0), 1)
    (expected,) = problem.reference(small, data, "forward_backward")
    _, loss_of = functions(small, "float64", "xla")
    loss, gradients = x64.jit(x64.value_and_grad(loss_of))(dict(data.weights), **data.batches[0])
    assert float(loss) == pytest.approx(float(expected["loss"]), rel=1e-14)
    assert {f"d_{name}" for name in gradients} | {"loss"} == set(expected)
    for name, gradient in gradients.items():
        exact = expected[f"d_{name}"]
        assert np.linalg.norm(gradient - exact) < 1e-13 * np.linalg.norm(exact), name


def torch_workload(size, mode, precision="fp32"):
    hooks = registry.load(["framework.torch", "workload.gpt2.torch"]).hook
    return hooks.build_workload(
        framework=hooks.make_framework(device="cpu", precision=precision, threads=None, profiling="no"),
        problem=problem,
        case=Case(problem="gpt2", framework="torch", device="cpu", mode=mode, precision=precision, params={}),
        params=size,
        data=problem.data(size, precision, np.random.default_rng(0), 1),
    )


def cpu_kernels():
    """The counter knows the fused kernels of GPUs; those of the CPU are counted by the same formulas of PyTorch."""
    import torch
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    aten = torch.ops.aten
    return {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda d_out, q, k, v, *_, **__: (
            sdpa_backward_flop_count(d_out, q, k, v)
        ),
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("impl", IMPLS)
def test_flops_and_scopes_in_pytorch(impl, mode):
    pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.flop_counter import FlopCounterMode

    size = problem.small(problem.params(impl=impl))
    workload = torch_workload(size, mode)
    with FlopCounterMode(display=False, custom_mapping=cpu_kernels()) as counter:
        workload.step()
    assert counter.get_total_flops() == problem.cost(size, mode, "fp32").flops + workload.recomputed_flops
    assert (workload.recomputed_flops > 0) == (impl == "fused" and mode != "inference")
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        workload.step()
    assert {event.name for event in profiler.events()} & EVERY_SCOPE == set(problem.scopes(size, mode))


def lowered(size, mode):
    """A step of JAX at a size, lowered and not compiled."""
    import jax

    from benchmarker_problems.gpt2 import weight_shapes
    from benchmarker_problems.gpt2.jax import forward_backward, functions, initial_state, training

    weights = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in weight_shapes(size).items()}
    tokens = jax.ShapeDtypeStruct((size.batch_size, size.seq_len), "int32")
    logits_of, loss_of = functions(size, "float32", "xla")
    if mode == "inference":
        return jax.jit(logits_of).lower(weights, tokens)
    if mode == "forward_backward":
        return jax.jit(forward_backward(loss_of, 1.0, 1.0)).lower(weights, tokens, tokens)
    state = jax.eval_shape(lambda weights: initial_state(weights, "fp32"), weights)
    step = jax.jit(training, static_argnames="loss_of")
    return step.lower(state, tokens, tokens, loss_of=loss_of)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("impl", IMPLS)
def test_flops_and_scopes_in_xla(impl, mode):
    pytest.importorskip("jax")
    # So wide, and of so many tokens, that elementwise work and the optimizer are less than 1% of the work.
    size = problem.params(n_layer=2, d_model=2048, n_head=8, seq_len=128, batch_size=16, vocab_size=4096, impl=impl)
    step = lowered(size, mode)
    assert step.cost_analysis()["flops"] == pytest.approx(problem.cost(size, mode, "fp32").flops, rel=0.01)
    assert set(re.findall(r"\w+", step.as_text(debug_info=True))) & EVERY_SCOPE == set(problem.scopes(size, mode))


def test_training_in_jax_leaves_the_weights_on_the_host_alone():
    jax = pytest.importorskip("jax")
    from benchmarker_problems.gpt2.jax import functions, initial_state, training_step

    small = problem.small(problem.params())
    data = problem.data(small, "fp32", np.random.default_rng(0), 1)
    before = {name: weight.copy() for name, weight in data.weights.items()}
    weights = {name: jax.numpy.asarray(weight) for name, weight in data.weights.items()}
    step = training_step(
        functions(small, "float32", "xla")[1], initial_state(weights, "fp32"), iter([data.batches[0]] * 3)
    )
    losses = [float(step()["loss"]) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    for name, weight in data.weights.items():
        np.testing.assert_array_equal(weight, before[name])


@pytest.mark.slow
def test_loss_scale_in_jax():
    """It halves and nothing else changes where gradients overflow; it doubles with the 2000th step that does not."""
    jax = pytest.importorskip("jax")
    from benchmarker_problems.gpt2.jax import functions, initial_state, training

    size = dataclasses.replace(problem.small(problem.params()), n_layer=1)
    data = problem.data(size, "fp32", np.random.default_rng(0), 1)
    weights, moments, scaler = initial_state(dict(data.weights), "mixed_fp16")
    assert (float(scaler.scale), scaler.growth_factor, scaler.backoff_factor) == (2.0**16, 2.0, 0.5)
    loss_of = functions(size, "float16", "xla")[1]
    step = jax.jit(lambda state: training(state, **data.batches[0], loss_of=loss_of))
    for scale, steps, then in (2.0**100, 5, (2.0**99, 0)), (4.0, 1998, (4.0, 1999)), (4.0, 1999, (8.0, 0)):
        given = scaler.replace(scale=jax.numpy.float32(scale), fin_steps=jax.numpy.int32(steps))
        (updated, _, changed), loss = step((weights, moments, given))
        assert (float(changed.scale), int(changed.fin_steps)) == then
        moved = any(not np.array_equal(weight, weights[name]) for name, weight in updated.items())
        assert moved == (scale < 2**16)
        assert float(loss) == pytest.approx(4.6, abs=0.2)


@pytest.mark.slow
def test_the_loss_falls_and_both_frameworks_agree():
    pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    from benchmarker_problems.gpt2.jax import functions, initial_state, training_step

    small = dataclasses.replace(problem.small(problem.params()), n_layer=1)
    data = problem.data(small, "fp32", np.random.default_rng(0), 1)
    workload = torch_workload(small, "training")
    weights = {name: jax.numpy.asarray(weight) for name, weight in data.weights.items()}
    batches = iter([data.batches[0]] * 40)
    step = training_step(functions(small, "float32", "xla")[1], initial_state(weights, "fp32"), batches)
    in_torch = [float(workload.step()["loss"]) for _ in range(40)]
    in_jax = [float(step()["loss"]) for _ in range(40)]
    assert in_torch[-1] < 0.75 * in_torch[0]
    np.testing.assert_allclose(in_jax, in_torch, rtol=1e-4)
