import numpy as np
import pytest
from support.checks import ability_of, checked
from support.models import profiled_names, torch_workload

from benchmarker import PRECISIONS, UserError
from benchmarker.api.case import CaseRequest
from benchmarker.hooks import registry
from benchmarker.planning.cases import make_case

problem = registry.problem("gemm")
PARAMS = problem(m=96, n=80, k=64, batch_size=3, transpose_a=True)


def test_cost_by_hand():
    small = problem(m=2, n=3, k=5)
    forward = small.cost("inference", "fp32")
    assert (forward.flops, forward.bytes, forward.samples, forward.tokens) == (60, 4 * (10 + 15 + 6), 1, None)
    assert small.cost("forward_backward", "fp64").flops == 180
    assert small.cost("forward_backward", "fp64").bytes == 8 * 2 * (10 + 15 + 6)
    assert small.cost("inference", "int8").bytes == 10 + 15 + 4 * 6


@pytest.mark.parametrize("framework", ["jax", "numpy", "onnxruntime", "torch"])
@pytest.mark.parametrize("m", [1, 8, 40])
def test_products_of_linear_layers_are_right(framework, m):
    pytest.importorskip(framework)
    ability = ability_of("gemm", framework)
    asked = CaseRequest(problem="gemm", device="cpu", params={"m": m, "transpose_b": True, "linear": True})
    checks, _ = checked(make_case(asked, problem, framework, ability), ["inference"])
    assert checks["inference"].ok, checks


def test_a_linear_layer_of_few_rows_packs_its_weights_before_the_first_step(monkeypatch):
    torch = pytest.importorskip("torch")
    if not torch.backends.mkl.is_available():
        pytest.skip("this PyTorch has no MKL")
    size = problem(m=8, n=24, k=16, transpose_b=True, linear=True)
    workload = torch_workload("gemm", size, "inference")
    names = profiled_names(workload)
    assert "mkl::_mkl_linear" in names
    assert "mkl::_mkl_reorder_linear_weight" not in names


def test_what_a_linear_layer_cannot_do_is_refused():
    with pytest.raises(ValueError, match="transpose_b=true"):
        problem(linear=True)
    linear = problem(transpose_b=True, linear=True)
    assert linear.title("inference") == "GEMM 1024×1024×1024 NT linear"
    with pytest.raises(UserError, match="--mode=inference"):
        linear.refuse("forward_backward")
    with pytest.raises(UserError, match="omit --linear"):
        linear.numerics("inference", "int8")


def test_backward_is_the_derivative():
    """Central differences of sum(C · dC); exact but for rounding, for the product is linear in each factor."""
    params = problem(m=3, n=4, k=2, transpose_b=True)
    data = params.data("fp64", np.random.default_rng(0), 1)
    (outputs,) = params.reference(data, "forward_backward")
    for name in ("a", "b"):
        numeric = np.zeros_like(data.batches[0][name])
        for index in np.ndindex(numeric.shape):
            values = []
            for sign in (1, -1):
                moved = {key: value.copy() for key, value in data.batches[0].items()}
                moved[name][index] += sign * 0.5
                (at,) = params.reference(type(data)({}, (moved,)), "inference")
                values.append(np.sum(at["c"] * moved["dc"]))
            numeric[index] = values[0] - values[1]
        np.testing.assert_allclose(outputs[f"d{name}"], numeric, rtol=1e-12, atol=1e-13)


def test_data_is_distinct_and_follows_the_seed():
    first, second = (PARAMS.data("fp32", np.random.default_rng(7), 2).batches for _ in range(2))
    assert first[0]["a"].shape == (3, 64, 96)
    assert first[0]["a"].dtype == np.float32
    np.testing.assert_array_equal(first[1]["b"], second[1]["b"])
    assert not np.array_equal(first[0]["a"], first[1]["a"])
    whole = PARAMS.data("int8", np.random.default_rng(7), 1).batches[0]["a"]
    assert (whole.min(), whole.max()) == (-128, 127)


def test_entries_of_a_wide_range_differ_by_many_powers_of_two():
    """log|x| has the standard deviation √(5² + Var log|N(0, 1)|), where that variance is π²/8."""
    params = problem(m=400, k=400, n=3, range="wide")
    for precision, dtype in (("fp64", np.float64), ("fp32", np.float32)):
        a = params.data(precision, np.random.default_rng(0), 1).batches[0]["a"]
        assert a.dtype == dtype
        assert np.log(np.abs(a.astype(np.float64))).std() == pytest.approx((25 + np.pi**2 / 8) ** 0.5, rel=0.01)
        assert abs((a > 0).mean() - 0.5) < 0.01
    assert params.title("inference") == "GEMM 400×3×400 wide"


def test_types_that_cannot_hold_a_wide_range_are_refused():
    for precision in ("fp16", "int8"):
        with pytest.raises(UserError, match=f"{precision} cannot hold entries of --range=wide"):
            problem(range="wide").numerics("inference", precision)
    assert problem(range="wide").numerics("inference", "bf16") == PRECISIONS["bf16"]
    largest = np.abs(problem(range="wide").data("fp32", np.random.default_rng(0), 1).batches[0]["a"]).max()
    assert largest > np.finfo(np.float16).max


@pytest.mark.parametrize("mode", ["inference", "forward_backward"])
def test_flops_as_pytorch_counts_them(mode):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    hooks = registry.load(["framework.torch", "workload.gemm.torch"]).hook
    workload = build(hooks, "torch", mode)
    with FlopCounterMode(display=False) as counter:
        workload.step()
    assert counter.get_total_flops() == PARAMS.cost(mode, "fp32").flops
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("mode", ["inference", "forward_backward"])
def test_flops_as_xla_counts_them(mode):
    jax = pytest.importorskip("jax")
    from benchmarker_problems.gemm.jax import step_function

    batch = {
        name: jax.ShapeDtypeStruct(value.shape, "float32")
        for name, value in PARAMS.data("fp32", np.random.default_rng(0), 1).batches[0].items()
    }
    names = ("a", "b") if mode == "inference" else ("a", "b", "dc")
    lowered = jax.jit(step_function(PARAMS, "fp32", mode)).lower(*(batch[name] for name in names))
    assert lowered.cost_analysis()["flops"] == pytest.approx(PARAMS.cost(mode, "fp32").flops, rel=0.01)
    assert "gemm" in lowered.as_text(debug_info=True)


def build(hooks, framework, mode):
    from benchmarker import Case

    case = Case(problem="gemm", framework=framework, device="cpu", mode=mode, params={})
    made = hooks.make_framework(device="cpu", precision="fp32", threads=None, profiling="no", devices=1)
    data = PARAMS.data("fp32", np.random.default_rng(0), 1)
    return hooks.build_workload(framework=made, problem=PARAMS, case=case, data=data)
