import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

from benchmarker.hooks import registry
from benchmarker.worker.bench import open_bench

problem = registry.problem("cg")


def test_cost_by_hand():
    """24 rows, 280 entries, 3 iterations; a dot has 2 FLOPs a row, and so has an axpy."""
    size = problem(nx=4, ny=3, nz=2, iterations=3)
    cost = size.cost("inference", "fp64")
    assert cost.flops == 3 * (2 * 280 + 2 * 2 * 24 + 3 * 2 * 24) + 2 * 24
    vectors = 2 + (2 + 1) + 3 * 3  # of spmv, of two dots, of three axpys
    assert cost.bytes == 3 * (280 * 12 + vectors * 24 * 8) + 24 * 8
    assert (cost.samples, cost.tokens) == (1, None)
    assert size.scopes("inference")["spmv"] == 3


def test_the_reference_is_cg_of_scipy():
    size = problem(nx=7, ny=6, nz=5, iterations=8)
    data = size.data("fp64", np.random.default_rng(0), 2)
    matrix = scipy.sparse.csr_array(tuple(data.weights.values()))
    for batch, expected in zip(data.batches, size.reference(data, "inference"), strict=True):
        x, unconverged = scipy.sparse.linalg.cg(matrix, batch["b"], rtol=0, atol=0, maxiter=8)
        assert unconverged
        np.testing.assert_allclose(expected["x"], x, rtol=0, atol=1e-13)
        norm = np.linalg.norm(batch["b"] - matrix @ x)
        assert expected["residual_norm"] == pytest.approx(norm, rel=1e-12)


@pytest.mark.parametrize("framework", ["jax", "torch", "numpy"])
def test_iterations_reach_the_solution_and_stay_there(framework):
    """A residual that vanished must not become NaN."""
    bench = open_bench("cg", framework, "cpu", nx=3, ny=2, nz=1, iterations=60)
    data = bench.data(bench.problem, 2)
    workload = bench.build(bench.problem, data)
    matrix = scipy.sparse.csr_array(tuple(data.weights.values())).toarray().astype(np.float64)
    for batch in data.batches:
        result = workload.step()
        assert bench.framework.is_finite(result)
        exact = np.linalg.solve(matrix, batch["b"].astype(np.float64))
        np.testing.assert_allclose(workload.outputs(result)["x"], exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("framework", ["jax", "torch", "numpy"])
def test_a_step_leaves_its_right_hand_side(framework):
    bench = open_bench("cg", framework, "cpu", nx=4, ny=3, nz=5, iterations=2)
    data = bench.data(bench.problem, 2)
    workload = bench.build(bench.problem, data)
    first = workload.outputs(workload.step())["x"]
    workload.step()
    np.testing.assert_array_equal(workload.outputs(workload.step())["x"], first)


def test_jax_keeps_no_more_than_the_vectors_in_temporary_memory():
    """Neither the matrix nor its indices are copied."""
    jax = pytest.importorskip("jax")
    from benchmarker_problems.cg.jax import solver
    from benchmarker_problems.spmv.jax import ell_product

    rows = 20**3
    matrix = jax.ShapeDtypeStruct((27, rows), "float32"), jax.ShapeDtypeStruct((27, rows), "int32")
    lowered = jax.jit(solver(ell_product, 10)).lower(matrix, jax.ShapeDtypeStruct((rows,), "float32"))
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 6 * 4 * rows
