import numpy as np
import pytest
import scipy.fft

from benchmarker.hooks import registry
from benchmarker.worker.bench import open_bench

problem = registry.problem("fft")


def test_cost_by_hand():
    """8 × 4 × 2 = 64 points, log2 = 6; a complex number has 8 bytes in fp32 and 16 in fp64."""
    size = problem(nx=8, ny=4, nz=2, batch_size=3)
    cost = size.cost("inference", "fp32")
    assert (cost.flops, cost.bytes, cost.samples, cost.tokens) == (3 * 5 * 64 * 6, 3 * 2 * 64 * 8, 3, None)
    assert size.cost("inference", "fp64").bytes == 3 * 2 * 64 * 16
    assert problem(nx=3, ny=5, nz=7).cost("inference", "fp32").flops == 3525  # 5·105·6.7142


@pytest.mark.parametrize(("direction", "scipys"), [("forward", scipy.fft.fftn), ("inverse", scipy.fft.ifftn)])
def test_the_reference_is_the_transform_of_scipy(direction, scipys):
    size = problem(nx=6, ny=5, nz=4, batch_size=2, direction=direction)
    data = size.data("fp64", np.random.default_rng(0), 2)
    for batch, expected in zip(data.batches, size.reference(data, "inference"), strict=True):
        assert batch["x"].shape == (2, 6, 5, 4)
        np.testing.assert_allclose(expected["y"], scipys(batch["x"], axes=(1, 2, 3)), rtol=0, atol=1e-13)


def test_data_is_complex_in_the_precision_and_both_parts_are_drawn():
    size = problem(nx=20, ny=20, nz=20)
    for precision, dtype in (("fp32", np.complex64), ("fp64", np.complex128)):
        (batch,) = size.data(precision, np.random.default_rng(0), 1).batches
        assert batch["x"].dtype == dtype
        assert batch["x"].real.std() == pytest.approx(1, abs=0.05)
        assert batch["x"].imag.std() == pytest.approx(1, abs=0.05)
        assert abs(np.corrcoef(batch["x"].real.ravel(), batch["x"].imag.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("framework", ["jax", "torch", "numpy"])
def test_a_step_keeps_single_precision(framework):
    size = {"nx": 8, "ny": 6, "nz": 5}
    bench = open_bench("fft", framework, "cpu", **size)
    workload = bench.build(bench.problem, bench.data(bench.problem, 1))
    result = workload.step()
    y_BXYZ = result["y"] if framework == "numpy" else result
    assert str(y_BXYZ.dtype).removeprefix("torch.") == "complex64"
