import json

import numpy as np
import pytest
import scipy.linalg

from benchmarker.hooks import registry
from benchmarker.worker.bench import open_bench
from benchmarker_problems.lu import scaled_residual, verify

problem = registry.problem("lu")


def test_cost_is_that_of_hpl():
    """2/3·n³ - 1/2·n² and 2·n², for n = 6: 144 - 18 + 72."""
    cost = problem(n=6).cost("inference", "fp64")
    assert (cost.flops, cost.bytes, cost.samples, cost.tokens) == (198, 8 * (36 + 12), 1, None)
    refined = problem(n=6, factor="fp32").cost("inference", "fp64")
    assert refined == cost


def test_the_matrix_is_dominant_but_for_the_order_of_its_rows():
    a_NN = problem(n=50).data("fp64", np.random.default_rng(0), 1).weights["a"]
    _, pivots = scipy.linalg.lu_factor(a_NN)
    assert (pivots != np.arange(50)).sum() > 30
    largest = np.abs(a_NN).max(axis=1)
    np.testing.assert_allclose(largest, np.abs(a_NN).sum(axis=1) - largest, rtol=1e-12)
    assert sorted(np.abs(a_NN).argmax(axis=1)) == list(range(50))
    assert np.linalg.cond(a_NN) < 3


def test_the_reference_is_the_solution_of_scipy():
    size = problem(n=40)
    data = size.data("fp64", np.random.default_rng(0), 2)
    for batch, expected in zip(data.batches, size.reference(data, "inference"), strict=True):
        exact = scipy.linalg.solve(data.weights["a"], batch["b"])
        np.testing.assert_allclose(expected["x"], exact, rtol=1e-12)


def test_scaled_residual_by_hand():
    """A·x - b = (1, 0): ‖A‖∞ = 7, ‖x‖∞ = 2, ‖b‖∞ = 10, n = 2."""
    a_NN, x_N, b_N = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([2.0, 1.0]), np.array([3.0, 10.0])
    assert scaled_residual(a_NN, x_N, b_N) == 1 / (2.0**-53 * (7 * 2 + 10) * 2)
    assert scaled_residual(a_NN, x_N, b_N.astype(np.float32)) == 1 / (2.0**-24 * (7 * 2 + 10) * 2)
    assert "is 1.88e+14 at n = 2; it must be below 16" in verify(a_NN, x_N, b_N)
    assert verify(a_NN, np.array([4.0, -0.5]), b_N) is None


@pytest.mark.parametrize("framework", ["jax", "torch", "numpy"])
def test_a_result_is_verified_at_full_size(framework):
    bench = open_bench("lu", framework, "cpu", n=300)
    workload = bench.build(bench.problem, bench.data(bench.problem, 2))
    x_N, b_N = workload.step()
    assert workload.verify((x_N, b_N)) is None
    assert "scaled residual" in workload.verify((x_N * 1.01, b_N))


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["jax", "torch", "numpy"])
def test_refinement_reaches_fp64_at_a_size_at_which_fp32_does_not(framework):
    """Solved in fp32 alone, the residual is that of fp32."""
    residuals = {}
    for factor in ("same", "fp32"):
        bench = open_bench("lu", framework, "cpu", precision="fp64", n=800, factor=factor)
        data = bench.data(bench.problem, 1)
        workload = bench.build(bench.problem, data)
        result = workload.step()
        assert workload.verify(result) is None
        x_N = workload.outputs(result)["x"]
        residuals[factor] = scaled_residual(data.weights["a"], x_N, data.batches[0]["b"])
    assert max(residuals.values()) < 1
    once = scipy.linalg.solve(data.weights["a"].astype(np.float32), data.batches[0]["b"].astype(np.float32))
    assert scaled_residual(data.weights["a"], once, data.batches[0]["b"]) > 16


def test_factors_in_fp32_have_the_types_and_the_roof_of_fp32(cli):
    done = cli(
        "run",
        "--framework=numpy",
        "--problem=lu",
        "--precision=fp64",
        "--factor=fp32",
        "--n=64",
        "--blocks=2",
        "--json",
    )
    (record,) = json.loads(done.stdout)
    types = {name: record["types"][name] for name in ("parameter", "compute", "lowest")}
    assert types == {"parameter": "fp64", "compute": "fp32", "lowest": "fp32"}
    assert "in fp32 is known" in record["metrics"]["roof_share"]["reason"]


def test_fp32_has_nothing_to_refine(cli):
    done = cli("run", "--framework=numpy", "--problem=lu", "--factor=fp32", "--blocks=2")
    assert done.returncode == 2
    assert "lu in numpy does not support --factor=fp32 with --precision=fp32" in done.stderr


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_the_factors_are_computed_anew_in_each_step(framework):
    """The matrix is not overwritten by its factors."""
    bench = open_bench("lu", framework, "cpu", n=64)
    data = bench.data(bench.problem, 1)
    before = data.weights["a"].copy()
    workload = bench.build(bench.problem, data)
    first, second = (workload.outputs(workload.step())["x"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(data.weights["a"], before)
