"""The MLP against its derivative, against a loop over elements, and in both layouts of the weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.models import counted_flops, problem_of, profiled_names, torch_workload

problem = problem_of("mlp")
MODES = ("inference", "forward_backward")


def test_cost_and_parts_by_hand():
    p = problem(batch_size=2, width=5, layers=3)
    forward, backward = (p.cost(mode, "fp32") for mode in MODES)
    assert (forward.flops, forward.bytes, forward.samples, forward.tokens) == (300, 4 * (75 + 20), 2, None)
    assert (backward.flops, backward.bytes) == (900, 4 * 2 * (75 + 20))
    first, second = (p.parts(mode, "fp32")["layer"] for mode in MODES)
    assert (first.bytes, first.weight_bytes) == (3 * 4 * (25 + 20), 3 * 4 * 25)
    assert (second.bytes, second.weight_bytes) == (3 * 4 * (25 + 20 + 2 * 25 + 30), 3 * 3 * 4 * 25)


def test_the_title_says_what_is_not_the_default():
    assert problem().title("inference") == "MLP 8×1024, B=64"
    p = problem(by_output=True, layers=2)
    assert p.title("forward_backward") == "MLP 2×1024, B=64 by output fwd+bwd"


def test_outputs_are_those_of_a_loop_over_elements_and_gradients_those_of_differences():
    p = problem(batch_size=2, width=4, layers=3)
    data = p.data("fp64", np.random.default_rng(3), 1)
    (found,) = p.reference(data, "forward_backward")

    def outputs(values):
        rows = [list(row) for row in values["x"]]
        for name in p.names:
            rows = [[math.tanh(sum(row[i] * values[name][i, o] for i in range(4))) for o in range(4)] for row in rows]
        return np.array(rows)

    values = {**data.weights, "x": data.batches[0]["x"]}
    np.testing.assert_allclose(found["y"], outputs(values), rtol=1e-13)
    for name, value in values.items():
        for index in np.ndindex(value.shape):
            sums = []
            for sign in (1, -1):
                moved = value.copy()
                moved[index] += sign * 1e-6
                sums.append(np.sum(outputs({**values, name: moved}) * data.batches[0]["d_y"]))
            assert found[f"d_{name}"][index] == pytest.approx((sums[0] - sums[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_outputs_of_many_layers_do_not_vanish():
    p = problem(batch_size=16, width=256, layers=500)
    (found,) = p.reference(p.data("fp32", np.random.default_rng(0), 1), "inference")
    assert np.mean(found["y"] ** 2) > 1e-4


@pytest.mark.parametrize("by_output", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_flops_scopes_and_layout_in_pytorch(mode, by_output):
    pytest.importorskip("torch")
    p = problem(batch_size=16, width=32, layers=3, by_output=by_output)
    workload = torch_workload("mlp", p, mode)
    assert counted_flops(workload) == p.cost(mode, "fp32").flops
    assert profiled_names(workload)["layer"] == 3


@pytest.mark.parametrize("by_output", [False, True])
@pytest.mark.parametrize("rows", [3, 40])
def test_gradients_in_jax_are_those_of_the_reference(x64, rows, by_output):
    from support.models import jax_workload

    p = problem(batch_size=rows, width=12, layers=3, by_output=by_output)
    workload = jax_workload("mlp", p, "forward_backward", "fp64")
    data = p.data("fp64", np.random.default_rng(0), 1)
    (expected,) = p.reference(data, "forward_backward")
    found = workload.outputs(workload.step())
    assert found.keys() == expected.keys()
    for name, exact in expected.items():
        assert np.linalg.norm(found[name] - exact) < 1e-13 * np.linalg.norm(exact), name


@pytest.mark.parametrize("shape", [(8, 12), (8, 1, 12), (2, 1, 12)])
def test_packed_weights_are_packed_again_when_they_change(shape):
    torch = pytest.importorskip("torch")
    from benchmarker_problems.layers.torch import product

    if not torch.backends.mkl.is_available():
        pytest.skip("PyTorch is without MKL here")
    x, weight, bias = torch.randn(shape), torch.randn(5, 12), torch.randn(5)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(product(x, weight, bias), torch.nn.functional.linear(x, weight, bias))
            weight.mul_(2)
    assert len(weight.packed) == 1


def test_weights_are_not_packed_for_prompts_gradients_or_other_types():
    torch = pytest.importorskip("torch")
    from benchmarker_problems.layers.torch import product

    weight = torch.randn(5, 12)
    product(torch.randn(8, 12), weight)
    with torch.inference_mode():
        product(torch.randn(2, 4, 12), weight)
        product(torch.randn(1, 12), weight)
        product(torch.randn(8, 12).double(), weight.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert product(torch.randn(8, 12), weight).dtype == torch.bfloat16
    assert "packed" not in weight.__dict__
