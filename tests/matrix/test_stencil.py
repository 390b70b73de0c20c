import numpy as np
import pytest
from scipy import ndimage

from benchmarker.hooks import registry
from benchmarker.worker.bench import open_bench

problem = registry.problem("stencil")
SIZE = problem(nx=7, ny=6, nz=5)


def test_cost_by_hand():
    """7·6·5 points are read, 5·4·3 are written, with 8 operations for each of these."""
    cost = SIZE.cost("inference", "fp32")
    assert (cost.flops, cost.bytes, cost.samples, cost.tokens) == (8 * 60, 4 * (210 + 60), 1, None)
    assert SIZE.cost("inference", "fp64").bytes == 8 * (210 + 60)


def test_batches_share_the_boundary_only():
    first, second = (batch["u"] for batch in SIZE.data("fp32", np.random.default_rng(0), 2).batches)
    assert first.dtype == np.float32
    same = first == second
    assert not same[1:-1, 1:-1, 1:-1].any()
    same[1:-1, 1:-1, 1:-1] = True
    assert same.all()
    assert np.unique(first[0]).size == 30  # the boundary is not a constant


def test_the_reference_is_the_convolution_of_scipy():
    cross = ndimage.generate_binary_structure(3, 1) * 0.1
    cross[1, 1, 1] = 0.4
    data = SIZE.data("fp64", np.random.default_rng(0), 2)
    for batch, expected in zip(data.batches, SIZE.reference(data, "inference"), strict=True):
        inner = (slice(1, -1),) * 3
        exact = batch["u"].copy()
        exact[inner] = ndimage.convolve(batch["u"], cross)[inner]
        np.testing.assert_allclose(expected["v"], exact, rtol=0, atol=1e-15)


@pytest.mark.parametrize("framework", ["jax", "torch", "numpy"])
def test_every_step_writes_into_the_same_memory_and_leaves_the_inputs(framework):
    bench = open_bench("stencil", framework, "cpu", nx=65, ny=64, nz=63)
    data = bench.data(bench.problem, 2)
    workload = bench.build(bench.problem, data)
    expected = [each["v"] for each in bench.problem.reference(data, "inference")]
    pointer = {"jax": "unsafe_buffer_pointer", "torch": "data_ptr"}.get(framework)
    places = set()
    for number in range(6):
        result = workload.step()
        bench.framework.synchronize(result)
        places.add(getattr(result, pointer)() if pointer else result["v"].ctypes.data)
        np.testing.assert_allclose(workload.outputs(result)["v"], expected[number % 2], rtol=0, atol=2e-6)
    assert len(places) == 1


def test_jax_writes_only_the_inner_points():
    """Without a copy of the whole grid, there is no temporary memory."""
    jax = pytest.importorskip("jax")
    from benchmarker_problems.stencil.jax import sweep

    grid = jax.ShapeDtypeStruct((64, 64, 64), "float32")
    memory = jax.jit(sweep, donate_argnums=0).lower(grid, grid).compile().memory_analysis()
    assert memory.alias_size_in_bytes == 4 * 64**3
    assert memory.temp_size_in_bytes < 64**2
