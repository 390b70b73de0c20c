import dataclasses
from functools import partial

import numpy as np
import pytest
from support.models import torch_workload

from benchmarker import UserError
from benchmarker.hooks import parameters, registry

problem = registry.problem("gpt2")


@pytest.mark.parametrize("size", ["small", "medium", "large", "xl"])
def test_a_longer_sequence_adds_positions(size):
    given, longer = (problem(size=size, seq_len=seq_len) for seq_len in (1024, 1030))
    assert given.parameter_count() == problem(size=size).parameter_count()
    assert longer.parameter_count() == given.parameter_count() + 6 * longer.d_model


def test_params_come_from_the_size_and_reproduce():
    assert problem(size="2.7b").n_layer == 32
    given = problem(size="medium", d_model=96, seq_len=7)
    assert (given.n_layer, given.d_model, given.n_head, given.d_ff, given.vocab_size) == (24, 96, 16, 384, 50257)
    assert parameters.convert(problem, parameters.values(given)) == given
    assert parameters.resolve(problem, {}, "cuda")["seq_len"] == 1024


def test_width_must_be_a_multiple_of_the_heads():
    with pytest.raises(UserError, match="d_model=100 is not a multiple of n_head=12"):
        parameters.convert(problem, {"d_model": 100})
    with pytest.raises(UserError, match="--n-layer=0"):
        parameters.convert(problem, {"n_layer": 0})


def test_cost_by_hand():
    given = problem(n_layer=2, d_model=4, n_head=2, d_ff=3, vocab_size=5, seq_len=6, batch_size=7)
    forward = given.cost("inference", "mixed_bf16")
    tokens = 6 * 7
    linear, scores, head = 2 * tokens * (4 * 16 + 2 * 12), 2 * 2 * tokens * 6 * 4, 2 * tokens * 20
    assert forward.flops == 2 * (linear + scores) + head
    assert (forward.samples, forward.tokens) == (7, tokens)
    weights = 5 * 4 + 1024 * 4 + 2 * (4 * 4 + (4 * 12 + 12) + (16 + 4) + (12 + 3) + (12 + 4)) + 8
    assert forward.bytes == 4 * weights + 4 * tokens + 2 * tokens * 5
    assert given.cost("forward_backward", "bf16").bytes == 2 * (2 * weights) + 2 * 4 * tokens
    training = given.cost("training", "fp32")
    assert (training.flops, training.bytes) == (3 * forward.flops, 7 * 4 * weights + 2 * 4 * tokens)


def test_data_can_be_learned():
    given = dataclasses.replace(problem().small(), seq_len=200, batch_size=20)
    data = given.data("fp32", np.random.default_rng(3), 2)
    again = given.data("fp32", np.random.default_rng(3), 2)
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
    small = problem().small()
    short, long = (small.data(name, np.random.default_rng(0), 1).weights for name in ("bf16", "fp64"))
    for name, weight in short.items():
        assert (weight.dtype, long[name].dtype) == (np.float32, np.float64)
        np.testing.assert_array_equal(weight, long[name])
        assert weight.std() > 0.005
    assert short["h.0.mlp_fc.kernel"].std() == pytest.approx(0.02, rel=0.05)
    assert short["h.0.mlp_proj.kernel"].std() == pytest.approx(0.02 / 2, rel=0.05)
    assert short["ln_f.scale"].mean() == pytest.approx(1, abs=0.02)


def jax_training(size, data, batches):
    """The step that trains in JAX on the given batches."""
    jax = pytest.importorskip("jax")

    from benchmarker_problems.gpt2.jax import functions
    from benchmarker_problems.steps import ADAMW
    from benchmarker_problems.steps.jax import TrainingStep, adamw, initial_state, training

    optimizer = adamw(ADAMW)
    weights = {name: jax.numpy.asarray(weight) for name, weight in data.weights.items()}
    update = partial(training, functions(size, "float32", "xla")[1], optimizer, 1)
    return TrainingStep(update, initial_state(weights, optimizer, "fp32"), iter(batches))


def test_training_in_jax_leaves_the_weights_on_the_host_alone():
    small = problem().small()
    data = small.data("fp32", np.random.default_rng(0), 1)
    before = {name: weight.copy() for name, weight in data.weights.items()}
    step = jax_training(small, data, [data.batches[0]] * 3)
    losses = [float(step()["loss"]) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    for name, weight in data.weights.items():
        np.testing.assert_array_equal(weight, before[name])


@pytest.mark.slow
def test_loss_scale_in_jax():
    """It halves and nothing else changes where gradients overflow; it doubles with the 2000th step that does not."""
    jax = pytest.importorskip("jax")
    from benchmarker_problems.gpt2.jax import functions
    from benchmarker_problems.steps import ADAMW
    from benchmarker_problems.steps.jax import LossScale, adamw, initial_state, training

    size = dataclasses.replace(problem().small(), n_layer=1)
    data = size.data("fp32", np.random.default_rng(0), 1)
    optimizer = adamw(ADAMW)
    weights, moments, begun = initial_state(dict(data.weights), optimizer, "mixed_fp16")
    assert (float(begun.scale), int(begun.steps)) == (2.0**16, 0)
    loss_of = functions(size, "float16", "xla")[1]
    step = jax.jit(lambda state: training(loss_of, optimizer, 1, state, **data.batches[0]))
    for scale, steps, then in (2.0**100, 5, (2.0**99, 0)), (4.0, 1998, (4.0, 1999)), (4.0, 1999, (8.0, 0)):
        given = LossScale(jax.numpy.float32(scale), jax.numpy.int32(steps))
        (updated, _, changed), loss = step((weights, moments, given))
        assert (float(changed.scale), int(changed.steps)) == then
        moved = any(not np.array_equal(weight, weights[name]) for name, weight in updated.items())
        assert moved == (scale < 2**16)
        assert float(loss) == pytest.approx(4.6, abs=0.2)


@pytest.mark.slow
def test_the_loss_falls_and_both_frameworks_agree():
    pytest.importorskip("torch")
    small = dataclasses.replace(problem().small(), n_layer=1)
    data = small.data("fp32", np.random.default_rng(0), 1)
    workload = torch_workload("gpt2", small, "training")
    step = jax_training(small, data, [data.batches[0]] * 40)
    in_torch = [float(workload.step()["loss"]) for _ in range(40)]
    in_jax = [float(step()["loss"]) for _ in range(40)]
    assert in_torch[-1] < 0.75 * in_torch[0]
    np.testing.assert_allclose(in_jax, in_torch, rtol=1e-4)
