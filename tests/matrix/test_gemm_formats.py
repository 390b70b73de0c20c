"""Products of fp8 with scales and of fp64 by slices of int8: formats, conversions, and what a check tells apart."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from benchmarker import PRECISIONS, Case, UserError
from benchmarker.hooks import registry
from benchmarker.worker.correctness import check
from benchmarker.worker.draws import drawn
from benchmarker_problems import fp8
from benchmarker_problems.fp8 import SCALED
from benchmarker_problems.gemm import SLICED, slices

GEMM = registry.problem("gemm")
CODES = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
ALL_CODES = CODES | {"fp4_e2m1": "float4_e2m1fn"}
HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
"""Every number of fp16, which has all of both formats, all halves between two of them, and more."""
HALVES = HALVES[np.isfinite(HALVES)]


@pytest.mark.parametrize("name", ALL_CODES)
def test_each_number_of_a_format_is_itself(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    codes = np.arange(16 if name == "fp4_e2m1" else 256, dtype=np.uint8)
    numbers = codes.view(ALL_CODES[name]).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    assert len(finite) == {"fp8_e4m3": 254, "fp8_e5m2": 248, "fp4_e2m1": 16}[name]
    np.testing.assert_array_equal(fp8.rounded(finite, name), finite)
    assert fp8.FORMATS[name].largest == finite.max() == float(ml_dtypes.finfo(ALL_CODES[name]).max)
    assert np.isnan(fp8.rounded(np.array([np.nan]), name)).all()


@pytest.mark.parametrize("name", ALL_CODES)
def test_numbers_are_rounded_as_ml_dtypes_does_or_saturate(name):
    pytest.importorskip("ml_dtypes")
    found = fp8.rounded(HALVES, name)
    theirs = HALVES.astype(ALL_CODES[name]).astype(np.float64)
    inside = np.isfinite(theirs)
    np.testing.assert_array_equal(found[inside], theirs[inside])
    largest = fp8.FORMATS[name].largest
    assert set(np.abs(found[~inside])) == (set() if name == "fp4_e2m1" else {largest})  # theirs of E2M1 saturates too
    assert set(np.abs(found[np.abs(HALVES) >= largest])) == {largest}


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_frameworks_store_the_codes_of_ml_dtypes(framework, name):
    pytest.importorskip(framework)
    pytest.importorskip("ml_dtypes")
    numbers = np.unique(fp8.rounded(HALVES, name)).astype(np.float32)
    codes = numbers.astype(CODES[name]).view(np.uint8)
    if framework == "torch":
        import torch

        from benchmarker_plugins.frameworks.torch import DTYPES

        stored = torch.tensor(numbers, dtype=DTYPES[name]).view(torch.uint8).numpy()
    else:
        import jax

        from benchmarker_plugins.frameworks.jax import DTYPES

        stored = np.asarray(jax.numpy.asarray(numbers, DTYPES[name])).view(np.uint8)
    np.testing.assert_array_equal(stored, codes)


def test_a_scale_is_that_of_a_matrix_or_of_a_row():
    """The largest magnitude becomes 448; −6/8·448 = −336 lies between 320 and 352, and 1/8·448 is 56."""
    values = np.array([[8.0, -6.0], [1.0, 0.0]], np.float32)
    numbers, scale = fp8.scaled(values, PRECISIONS["fp8_e4m3"], -1)
    assert scale == np.float32(8 / 448)
    np.testing.assert_array_equal(numbers, [[448, -320], [56, 0]])
    numbers, scale = fp8.scaled(values, PRECISIONS["fp8_e4m3_row"], -1)
    np.testing.assert_array_equal(scale, np.float32([[8 / 448], [1 / 448]]))
    np.testing.assert_array_equal(numbers, [[448, -320], [448, 0]])
    numbers, scale = fp8.scaled(0 * values, PRECISIONS["fp8_e5m2_row"], -2)
    assert (numbers.any(), scale.tolist()) == (False, [[1, 1]])


@cache
def opened(framework):
    pytest.importorskip(framework)
    hooks = registry.load([f"framework.{framework}"]).hook
    return hooks.make_framework(device="cpu", precision="fp64", threads=None, profiling="no", devices=1)


def found(framework, precision, held_to="", problem="gemm", **options):
    """The check of a product in a precision, which may be held to another."""
    size = registry.problem(problem)(**options).small()
    data = drawn(size, precision, 0, 1)
    case = Case(problem=problem, framework=framework, device="cpu", params={}, precision=precision)
    hooks = registry.load([f"workload.{problem}.{framework}"]).hook
    workload = hooks.build_workload(framework=opened(framework), problem=size, case=case, data=data)
    return check(workload, data, size, msgspec.structs.replace(case, precision=held_to or precision))


LAYOUTS = [
    {},
    {"transpose_a": True, "transpose_b": True, "batch_size": 2, "m": 17, "k": 33},
    {"m": 1, "n": 7, "k": 5, "range": "wide"},
]


@pytest.mark.parametrize("options", LAYOUTS, ids=["plain", "transposed", "tiny"])
@pytest.mark.parametrize("precision", [*SCALED, "fp64_int8x6", "fp64_int8x8"])
@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_products_are_within_their_bounds(framework, precision, options, request):
    if framework == "jax":
        request.getfixturevalue("x64")
    assert found(framework, precision, **options).ok


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("precision", SCALED)
@pytest.mark.parametrize("framework", ["torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_attention_in_fp8_is_as_its_emulation(framework, precision, causal):
    """Numbers of fp8 are exact, and sums and the softmax in fp32 nearly."""
    check = found(framework, precision, problem="attention", causal=causal)
    assert fp8.MARGIN * check.error == pytest.approx(check.bound, rel=1e-3)


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("precision", SCALED)
def test_frameworks_scale_as_the_reference_does(framework, precision):
    pytest.importorskip(framework)
    implementation = import_module(f"benchmarker_problems.fp8.{framework}")
    dtypes = import_module(f"benchmarker_plugins.frameworks.{framework}").DTYPES
    values = np.random.default_rng(0).standard_normal((3, 8, 5)).astype(np.float32)
    values[1, 2] = 0
    types = PRECISIONS[precision]
    on_device = opened(framework).put(values)
    numbers, scale = implementation.scaled(on_device, types, dtypes[types.parameter], -1)
    expected = fp8.scaled(values, types, -1)
    np.testing.assert_array_equal(np.asarray(implementation_float(numbers)), expected[0])
    np.testing.assert_array_equal(np.asarray(scale), expected[1])


def implementation_float(numbers):
    """Numbers of fp8 of a framework in fp32."""
    return numbers.float() if hasattr(numbers, "float") else numbers.astype("float32")


@pytest.mark.parametrize(("problem", "options"), [("gemm", {}), ("gemm", {"transpose_a": True}), ("attention", {})])
def test_layouts_of_fp8_that_cannot_be_compiled_are_refused(problem, options):
    size = registry.problem(problem)(**options).small()
    case = Case(problem=problem, framework="torch", device="cpu", params={}, precision="fp8_e4m3", compile=True)
    hooks = registry.load([f"workload.{problem}.torch"]).hook
    data = drawn(size, "fp8_e4m3", 0, 1)
    with pytest.raises(UserError, match="omit --compile"):
        hooks.build_workload(framework=opened("torch"), problem=size, case=case, data=data)


@pytest.mark.parametrize("precision", ["int8", "fp64_int8x8"])
@pytest.mark.parametrize("size", [{"m": 16}, {"n": 20}, {"k": 20}])
def test_sizes_that_cublas_does_not_take_are_refused(precision, size):
    torch = pytest.importorskip("torch")
    case = Case(problem="gemm", framework="torch", device="cuda", params={}, precision=precision)
    hooks = registry.load(["workload.gemm.torch"]).hook
    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    problem = GEMM(**size)
    with pytest.raises(UserError, match=f"m={problem.m}, n={problem.n}, k={problem.k} are not"):
        hooks.build_workload(framework=on_gpu, problem=problem, case=case, data=None)


def test_scales_by_row_are_better_where_rows_differ():
    by_tensor, by_row = (found("torch", f"fp8_e4m3{way}", range="wide") for way in ("", "_row"))
    assert 2 * by_row.error < by_tensor.error


@pytest.mark.parametrize("precision", SLICED)
def test_wide_data_tells_slices_from_fp64(precision):
    """Normal data, or the error in the norm, does not."""
    check = found("torch", precision, "fp64", range="wide")
    assert not check.ok
    assert check.componentwise.error > 10 * check.componentwise.bound
    if precision not in ("fp64_int8x6", "fp64_int8x7"):
        assert check.error <= check.bound
        assert found("torch", precision, "fp64").ok


def test_the_table_of_slices_in_formats_md_is_what_a_check_finds():
    """Bounds to its digits, errors but for the rounding of another BLAS."""
    page = (Path(__file__).parents[2] / "docs/formats.md").read_text()
    rows = [list(map(float, line.strip("| ").split("|"))) for line in re.findall(r"^\| \d+ \|.*", page, re.MULTILINE)]
    assert [row[0] for row in rows] == [6, 7, 8, 9, 10]
    for slices_, *figures in rows:
        checks = [found("torch", f"fp64_int8x{slices_:.0f}", range=which) for which in ("normal", "wide")]
        pairs = [(each.error, each.bound) for check in checks for each in (check, check.componentwise)]
        assert figures[1::2] == pytest.approx([bound for _, bound in pairs], rel=0.03)
        assert figures[::2] == pytest.approx([error for error, _ in pairs], rel=0.5)


def test_the_table_of_errors_in_formats_md_is_what_a_check_finds():
    """To its two digits, but for the rounding of another BLAS, which matters to fp32 alone."""
    page = (Path(__file__).parents[2] / "docs/formats.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|((?: [\d.e+-]* \|){4})$", page, re.MULTILINE)
    assert len(rows) == 11
    for precision, cells in rows:
        framework = "numpy" if PRECISIONS[precision].is_emulated else "torch"
        figures = [float(cell or "nan") for cell in map(str.strip, cells.split("|")[:4])]
        for at, which in enumerate(("normal", "wide")):
            if figures[2 * at] == figures[2 * at]:
                check = found(framework, precision, range=which)
                pair = check.error, check.componentwise.error
                assert figures[2 * at : 2 * at + 2] == pytest.approx(pair, rel=0.5 if precision == "fp32" else 0.06)


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_wide_data_passes_what_is_fp64(framework):
    check = found(framework, "fp64", range="wide")
    assert check.ok
    assert check.componentwise.error < 1e-15


@pytest.mark.parametrize("precision", SLICED[2:])
def test_two_slices_too_few_are_found(precision):
    fewer = f"fp64_int8x{PRECISIONS[precision].slices - 2}"
    assert not found("torch", fewer, precision, range="wide").ok


def arithmetic():
    pytest.importorskip("torch")
    from benchmarker_problems.gemm.torch import ARITHMETIC

    return ARITHMETIC


def digits(value, count):
    """The digits of a number below 1 in base 128, as often as asked, with its sign."""
    whole = int(abs(value) * 2 ** (7 * count)) if abs(value) < 1 else pytest.fail("not below 1")
    return [(1 if value > 0 else -1) * (whole >> 7 * (count - 1 - at) & 127) for at in range(count)]


def test_slices_are_digits_in_base_128_and_their_products_are_exact():
    """By integers of Python; of the products of digits, those from the (s + 2)th place on are left out."""
    torch = pytest.importorskip("torch")
    count, rng = 6, np.random.default_rng(0)
    a, b = rng.standard_normal((3, 5)) * 2.0**40, rng.standard_normal((5, 2)) * 2.0**-30
    alpha = [2.0 ** np.frexp(np.abs(row).max())[1] for row in a]
    beta = [2.0 ** np.frexp(np.abs(column).max())[1] for column in b.T]
    exact = np.zeros((3, 2))
    for i, j in np.ndindex(3, 2):
        total = 0
        for k in range(5):
            left, right = digits(a[i, k] / alpha[i], count), digits(b[k, j] / beta[j], count)
            total += sum(left[p] * right[q] << 7 * (2 * count - p - q) for p in range(count) for q in range(count - p))
        exact[i, j] = total / 2 ** (7 * (2 * count + 2)) * alpha[i] * beta[j]

    def int8(values):
        assert values.abs().max() <= 127
        return values.to(torch.int8)

    found = slices.product(torch.tensor(a), torch.tensor(b), count, arithmetic()._replace(to_int8=int8))
    np.testing.assert_allclose(found.numpy(), exact, rtol=4e-16)


@pytest.mark.parametrize("count", [6, 8])
def test_what_is_cut_off_is_within_the_bound_of_slices(count):
    """Against exact sums of fractions in 113 bits or, where the platform has none, 64."""
    torch = pytest.importorskip("torch")
    data = GEMM(m=20, n=20, k=40, range="wide").data("fp64", np.random.default_rng(1), 1).batches[0]
    a, b = data["a"], data["b"]
    found = slices.product(torch.tensor(a), torch.tensor(b), count, arithmetic())
    off = np.abs(found.numpy() - a.astype(np.longdouble) @ b.astype(np.longdouble))
    bound = slices.truncation(a, b, count)
    rounding = 8 * 2.0**-53 * np.abs(a) @ np.abs(b)
    assert (off <= bound + rounding).all()
    assert (off / bound).max() > 0.001


def test_sums_that_fit_into_int32_are_those_in_fp64(monkeypatch):
    torch = pytest.importorskip("torch")
    a, b = torch.randn(17, 40, dtype=torch.float64), torch.randn(40, 9, dtype=torch.float64)
    in_int32 = slices.product(a, b, 8, arithmetic())
    monkeypatch.setattr(slices, "MOST_K", 40)
    assert torch.equal(slices.product(a, b, 8, arithmetic()), in_int32)


def test_a_row_of_zeros_has_slices_of_zeros():
    torch = pytest.importorskip("torch")
    parts, scale = slices.split(torch.zeros(2, 3, dtype=torch.float64), 2, -1, arithmetic())
    assert scale.tolist() == [[1.0], [1.0]]
    assert not any(part.any() for part in parts)


def test_sums_that_do_not_fit_into_int32_are_refused():
    GEMM(k=slices.MOST_K).numerics("inference", "fp64_int8x8")
    assert slices.MOST_K * 127**2 < 2**31 <= (slices.MOST_K + 1) * 127**2
    with pytest.raises(UserError, match="use k of at most 133144"):
        GEMM(k=slices.MOST_K + 1).numerics("inference", "fp64_int8x8")
    GEMM(k=slices.MOST_K + 1).numerics("inference", "int8")


def test_the_memory_of_stored_types():
    """A and B in one byte and C in four; products by slices read and write fp64."""
    small = GEMM(m=2, n=3, k=5)
    assert small.cost("inference", "fp8_e4m3_row").bytes == 10 + 15 + 4 * 6
    assert small.cost("inference", "fp64_int8x8") == small.cost("inference", "fp64")
