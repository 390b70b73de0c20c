import re

import numpy as np
import pytest
from support.models import counted_flops, problem_of, profiled_names, torch_workload

from benchmarker import UserError

problem = problem_of("lstm")
MODES = ("inference", "forward_backward")
PARAMS = problem(layers=2, hidden_size=5, input_size=3, seq_len=4, batch_size=2)


def test_cost_by_hand():
    forward = PARAMS.cost("inference", "fp32")
    tokens = 2 * 4
    assert (forward.flops, forward.samples, forward.tokens) == (2 * tokens * 4 * 5 * ((3 + 5) + (5 + 5)), 2, tokens)
    weights = 4 * 5 * (3 + 5) + 4 * 5 + 4 * 5 * (5 + 5) + 4 * 5
    assert PARAMS.parameter_count() == weights
    assert forward.bytes == 4 * (weights + tokens * (3 + 5))
    both = PARAMS.cost("forward_backward", "bf16")
    assert (both.flops, both.bytes) == (3 * forward.flops, forward.bytes)


def test_title():
    assert problem().title("inference") == "LSTM L=2 H=256, B=16 T=64"
    assert PARAMS.title("forward_backward") == "LSTM L=2 H=5 I=3, B=2 T=4 fwd+bwd"


def test_one_cell_by_hand():
    """A single step from a state of zero: c = i·g, h = o·tanh(c); then f keeps a share of c."""
    one = problem(layers=1, hidden_size=1, input_size=1, seq_len=2, batch_size=1)
    data = one.data("fp64", np.random.default_rng(0), 1)
    (outputs,) = one.reference(data, "inference")
    (w_x,), (w_h,), b = data.weights["0.w_x"], data.weights["0.w_h"], data.weights["0.b"]
    first, second = data.batches[0]["x"].ravel()

    def gates(x, h):
        i, f, g, o = x * w_x + h * w_h + b
        return 1 / (1 + np.exp(-i)), 1 / (1 + np.exp(-f)), np.tanh(g), 1 / (1 + np.exp(-o))

    i, _, g, o = gates(first, 0)
    c = i * g
    h = o * np.tanh(c)
    i, f, g, o = gates(second, h)
    np.testing.assert_allclose(outputs["out"].ravel(), [h, o * np.tanh(f * c + i * g)], rtol=1e-14)


def test_gradients_of_the_reference_are_those_of_jax(x64):
    from benchmarker_problems.lstm.jax import step_function

    data = PARAMS.data("fp64", np.random.default_rng(0), 1)
    (expected,) = PARAMS.reference(data, "forward_backward")
    got = x64.jit(step_function(PARAMS, "forward_backward"))(dict(data.weights), **data.batches[0])
    assert got.keys() == expected.keys()
    for name, exact in expected.items():
        assert np.linalg.norm(got[name] - exact) < 1e-14 * np.linalg.norm(exact), name


def test_gradients_of_the_reference_are_those_of_the_cell_of_flax(x64):
    """Flax has one bias, on the side of the state; PyTorch's two add up to it."""
    nn = pytest.importorskip("flax.linen")
    one = problem(layers=1, hidden_size=5, input_size=3, seq_len=4, batch_size=2)
    data = one.data("fp64", np.random.default_rng(0), 1)
    (expected,) = one.reference(data, "forward_backward")
    parts = {name: np.split(data.weights[f"0.{name}"], 4, axis=-1) for name in ("w_x", "w_h", "b")}
    cell = {}
    for gate, w_x, w_h, b in zip("ifgo", *parts.values(), strict=True):
        cell |= {f"i{gate}": {"kernel": w_x}, f"h{gate}": {"kernel": w_h, "bias": b}}
    layer = nn.RNN(nn.OptimizedLSTMCell(5, dtype="float64", param_dtype="float64"), time_major=True)
    batch = data.batches[0]
    apply = x64.jit(lambda cell, x: layer.apply({"params": {"cell": cell}}, x))
    out, pullback = x64.vjp(apply, cell, batch["x"])
    gradients, d_x = pullback(batch["d_out"])
    np.testing.assert_allclose(out, expected["out"], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(d_x, expected["d_x"], rtol=1e-11, atol=1e-14)
    d_b = np.concatenate([gradients[f"h{gate}"]["bias"] for gate in "ifgo"])
    np.testing.assert_allclose(d_b, expected["d_0.b"], rtol=1e-11, atol=1e-14)


def test_pytorch_does_not_compile_it_and_says_so():
    pytest.importorskip("torch")
    with pytest.raises(UserError, match=r"does not compile nn.*; omit --compile"):
        torch_workload("lstm", PARAMS, "inference", "fp64", compile=True)


@pytest.mark.parametrize("mode", MODES)
def test_scope_and_products_in_pytorch(mode):
    pytest.importorskip("torch")

    workload = torch_workload("lstm", PARAMS, mode, "fp64")
    if mode == "inference":  # the counter's hooks fail where autograd.grad is asked for a leaf
        assert counted_flops(workload) == PARAMS.cost(mode, "fp64").flops
    assert profiled_names(workload)["lstm"] == 1


@pytest.mark.parametrize("mode", MODES)
def test_scope_and_products_in_jax(mode):
    """XLA counts the body of a loop once: with one position, that is the whole work."""
    jax = pytest.importorskip("jax")
    from benchmarker_problems.lstm.jax import step_function

    given = problem(layers=2, hidden_size=256, input_size=128, seq_len=1, batch_size=256)
    data = given.data("fp32", np.random.default_rng(0), 1)
    batch = data.batches[0]
    arrays = (batch["x"],) if mode == "inference" else (batch["x"], batch["d_out"])
    lowered = jax.jit(step_function(given, mode)).lower(dict(data.weights), *arrays)
    assert lowered.cost_analysis()["flops"] == pytest.approx(given.cost(mode, "fp32").flops, rel=0.03)
    assert "lstm" in re.findall(r"\w+", lowered.as_text(debug_info=True))
