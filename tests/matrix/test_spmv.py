import numpy as np
import pytest
import scipy.sparse

from benchmarker.hooks import registry
from benchmarker.worker.bench import open_bench
from benchmarker_problems.spmv import apply_operator, csr_matrix, ell_matrix, entries

problem = registry.problem("spmv")
SIZE = problem(nx=4, ny=3, nz=2)


def operator(nx, ny, nz):
    """HPCG's operator as a product of Kronecker factors: 27·I − T⊗T⊗T, with T the adjacency of a line with itself."""
    lines = [scipy.sparse.diags_array([1.0, 1.0, 1.0], offsets=(-1, 0, 1), shape=(n, n)) for n in (nx, ny, nz)]
    neighbourhood = scipy.sparse.kron(scipy.sparse.kron(lines[0], lines[1]), lines[2])
    return (27 * scipy.sparse.eye_array(nx * ny * nz) - neighbourhood).toarray()


def test_cost_by_hand():
    """24 rows with 10·7·4 = 280 entries; each has a value and an index of 4 bytes."""
    cost = SIZE.cost("inference", "fp64")
    assert (cost.flops, cost.bytes, cost.samples, cost.tokens) == (560, 280 * (8 + 4) + 2 * 24 * 8, 1, None)
    assert SIZE.cost("inference", "fp32").bytes == 280 * (4 + 4) + 2 * 24 * 4


@pytest.mark.parametrize("grid", [(4, 3, 2), (2, 1, 3), (1, 1, 1), (3, 5, 3)])
def test_every_form_of_the_matrix_is_hpcgs_operator(grid):
    exact = operator(*grid)
    rows = len(exact)
    csr = csr_matrix(*grid, np.float32)
    assert (csr.values.dtype, csr.columns.dtype, csr.row_starts.dtype) == (np.float32, np.int32, np.int32)
    assert len(csr.values) == entries(*grid) == np.count_nonzero(exact)
    np.testing.assert_array_equal(scipy.sparse.csr_array(csr, shape=(rows, rows)).toarray(), exact)
    assert scipy.sparse.csr_array(csr, shape=(rows, rows)).has_sorted_indices
    values_KN, columns_KN = ell_matrix(csr._asdict())
    dense = np.zeros_like(exact)
    for values_N, columns_N in zip(values_KN, columns_KN, strict=True):
        np.add.at(dense, (np.arange(rows), columns_N), values_N)
    np.testing.assert_array_equal(dense, exact)
    np.testing.assert_allclose([apply_operator(unit, *grid) for unit in np.eye(rows)], exact, atol=1e-14)


def test_an_inner_row_has_26_neighbours_and_sums_to_zero():
    matrix = csr_matrix(5, 5, 5, np.float64)
    inner = scipy.sparse.csr_array(matrix)[[62]].toarray().ravel()
    assert (inner[62], np.count_nonzero(inner == -1), inner.sum()) == (26, 26, 0)


@pytest.mark.parametrize("form", ["csr", "ell"])
@pytest.mark.parametrize("framework", ["jax", "torch", "numpy"])
def test_every_format_gives_the_product_of_scipy(framework, form):
    if (framework, form) == ("numpy", "ell"):
        pytest.skip("SciPy has no ELL")
    bench = open_bench("spmv", framework, "cpu", nx=9, ny=8, nz=7, format=form)
    data = bench.data(bench.problem, 2)
    workload = bench.build(bench.problem, data)
    for batch in data.batches:
        exact = operator(9, 8, 7) @ batch["x"].astype(np.float64)
        np.testing.assert_allclose(workload.outputs(workload.step())["y"], exact, rtol=0, atol=1e-4)


def test_an_unsupported_format_is_refused_with_those_that_are_supported(cli):
    done = cli("run", "--framework=numpy", "--problem=spmv", "--format=ell", "--blocks=2")
    assert done.returncode == 2
    assert "spmv in numpy does not support --format=ell; it supports: auto, csr" in done.stderr
