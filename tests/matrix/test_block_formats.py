"""Products of numbers whose blocks share a scale, which are emulated: their error is measured, never their speed."""

import math

import msgspec
import numpy as np
import pytest
from support.records import make_record

from benchmarker import PRECISIONS, Case, UserError, run
from benchmarker.comparing.pareto import by_work, front
from benchmarker.hooks import registry
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.library.judging import pairs_of
from benchmarker.library.ladder import described
from benchmarker.records.consistency import contradictions
from benchmarker.records.record import EMULATED
from benchmarker.roofline.prediction import predict
from benchmarker.roofline.roofs import Roof
from benchmarker.worker.correctness import check
from benchmarker.worker.draws import drawn
from benchmarker_problems import fp8

ELEMENT = {"mxfp8_e4m3": "float8_e4m3fn", "mxfp8_e5m2": "float8_e5m2", "mxfp4": "float4_e2m1fn"}
"""The types of ml_dtypes of the microscaling formats."""
WORST = {"mxfp8_e4m3": 1 / 8, "mxfp8_e5m2": 1 / 8, "mxfp4": 1 / 4}
"""How far off a number of a block may be that is normal in the format.

It is half the distance between two numbers, 2^-4, 2^-3 and 2^-2 of the smaller; or what saturates: up to the next power
of two, 512, 65,536 or 8, which is (512 - 448) / 512, (65536 - 57344) / 65536 or (8 - 6) / 8 off.
"""


def scaled(values, precision, axis=-1):
    """The numbers times their scales, in float64."""
    numbers, scale = fp8.scaled(np.asarray(values), PRECISIONS[precision], axis)
    return numbers.astype(np.float64) * scale


def test_the_scales_of_microscaling_are_all_powers_of_two_of_e8m0():
    """All its 255 numbers, from the least and almost the largest magnitude that have them; its last code is NaN."""
    pytest.importorskip("ml_dtypes")
    scales = np.arange(255, dtype=np.uint8).view("float8_e8m0fnu").astype(np.float64)
    for precision, largest_power in {"mxfp8_e4m3": 8, "mxfp8_e5m2": 15, "mxfp4": 2}.items():
        types = PRECISIONS[precision]
        for most in (1.0, 2 - 2**-20):
            np.testing.assert_array_equal(fp8.block_scale(scales * most * 2.0**largest_power, types), scales)
        assert fp8.block_scale(np.array([1e-300, 1e300]), types).tolist() == [2.0**-127, 2.0**127]
        assert np.isnan(fp8.block_scale(np.array([np.nan, np.inf]), types)).all()
        assert np.isnan(np.array([255], np.uint8).view("float8_e8m0fnu").astype(np.float64)).all()


def test_the_scales_of_nvfp4_are_all_numbers_of_e4m3():
    pytest.importorskip("ml_dtypes")
    scales = np.arange(127, dtype=np.uint8).view("float8_e4m3fn").astype(np.float64)
    np.testing.assert_array_equal(fp8.block_scale(6 * scales, PRECISIONS["nvfp4"]), scales)


def in_microscaling(values, precision):
    """A row by ml_dtypes, block by block and number by number."""
    import ml_dtypes

    element = np.dtype(ELEMENT[precision])
    largest = float(ml_dtypes.finfo(element).max)
    found = []
    for start in range(0, len(values), 32):
        block = [float(value) for value in values[start : start + 32]]
        most = max(map(abs, block))
        power = math.floor(math.log2(most)) - math.floor(math.log2(largest)) if most else -127
        scale = float(np.array([2.0**power]).astype("float8_e8m0fnu").astype(np.float64)[0])
        for value in block:
            inside = min(max(value / scale, -largest), largest)
            found.append(float(np.array([inside]).astype(element).astype(np.float64)[0]) * scale)
    return found


def in_nvfp4(matrix):
    """A matrix by ml_dtypes, block by block, in fp32 as the paper of NVFP4 has it."""
    of_matrix = np.abs(matrix).max() / np.float32(6 * 448)
    found = np.empty(matrix.shape)
    for row, start in np.ndindex(len(matrix), -(-matrix.shape[1] // 16)):
        block = matrix[row, 16 * start : 16 * start + 16]
        scale = (np.abs(block).max() / of_matrix / np.float32(6)).astype("float8_e4m3fn").astype(np.float32)
        quotients = block / of_matrix / scale if scale else 0 * block
        numbers = np.clip(quotients, -6, 6).astype("float4_e2m1fn").astype(np.float64)
        found[row, 16 * start : 16 * start + 16] = numbers * np.float64(scale) * np.float64(of_matrix)
    return found


def some(wide, shape=(6, 70)):
    rng = np.random.default_rng(1)
    values = rng.standard_normal(shape, dtype=np.float32)
    return values * np.exp(5 * rng.standard_normal(shape, dtype=np.float32)) if wide else values


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("precision", ELEMENT)
def test_blocks_of_microscaling_are_those_of_ml_dtypes(precision, wide):
    """Of 70 numbers in a row, the last block has 6."""
    pytest.importorskip("ml_dtypes")
    values = some(wide)
    expected = [in_microscaling(row, precision) for row in values]
    np.testing.assert_array_equal(scaled(values, precision), expected)
    np.testing.assert_array_equal(scaled(values.T, precision, axis=-2), np.transpose(expected))


@pytest.mark.parametrize("wide", [False, True])
def test_blocks_of_nvfp4_are_those_of_ml_dtypes(wide):
    """But for quotients in fp32 beside a half: reciprocals of 6 and of 2,688 round otherwise."""
    pytest.importorskip("ml_dtypes")
    values = some(wide)
    found, expected = scaled(values, "nvfp4"), in_nvfp4(values)
    same = np.isclose(found, expected, rtol=1e-6, atol=0)
    assert same.mean() > 0.99
    np.testing.assert_array_equal(scaled(values.T, "nvfp4", axis=-2), found.T)


def test_a_block_by_hand():
    """7 lies below 8, so the scale is 1: 7 saturates at 6, and 0.75, 2.5 and 5 go to the even of two neighbours."""
    block = np.float32([[7, 5, 2.5, 0.75, 0.25, -0.2, 0.0]])
    np.testing.assert_array_equal(scaled(block, "mxfp4"), [[6, 4, 2, 1, 0, -0.0, 0]])
    np.testing.assert_array_equal(scaled(0 * block, "mxfp4"), 0 * block)
    np.testing.assert_array_equal(scaled(np.append(block, np.float32([[np.nan]]), axis=1), "mxfp4"), [[np.nan] * 8])
    matrix = np.zeros((2, 32), np.float32)
    np.testing.assert_array_equal(scaled(matrix, "nvfp4"), matrix)
    matrix[0, 0], matrix[0, 16:] = 2688, 1
    matrix[1, 0] = 2.0**-10
    found = scaled(matrix, "nvfp4")
    assert found[0, 0] == 2688
    np.testing.assert_array_equal(found[0, 16:], 6 * 0.171875)  # the number of E4M3 next to 1/6
    assert found[1, 0] == 0  # its scale, 2^-10/6, is below the least of E4M3


@pytest.mark.parametrize("precision", WORST)
def test_no_number_is_farther_off_than_the_derivation_says(precision):
    values = some(wide=False, shape=(2000, 32))
    form = fp8.FORMATS[PRECISIONS[precision].parameter]
    scale = fp8.block_scale(np.abs(values).max(axis=-1, keepdims=True), PRECISIONS[precision])
    off, least = np.abs(scaled(values, precision) - values), 2.0**form.least_exponent * scale
    is_normal = np.abs(values) >= least
    share = (off / np.abs(values))[is_normal]
    assert 0.9 * WORST[precision] < share.max() <= WORST[precision]
    assert (off <= 2.0**-form.bits * least)[~is_normal].all()


def opened():
    hooks = registry.load(["framework.numpy"]).hook
    return hooks.make_framework(device="cpu", precision="fp32", threads=None, profiling="no", devices=1)


def found(problem, precision, held_to="", **options):
    """The check of a product in a precision, which may be held to another."""
    size = registry.problem(problem)(**options).small()
    data = drawn(size, precision, 0, 1)
    case = Case(problem=problem, framework="numpy", device="cpu", params={}, precision=precision)
    hooks = registry.load([f"workload.{problem}.numpy"]).hook
    workload = hooks.build_workload(framework=opened(), problem=size, case=case, data=data)
    return check(workload, data, size, msgspec.structs.replace(case, precision=held_to or precision))


@pytest.mark.parametrize("precision", fp8.EMULATED)
@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("gemm", {}),
        ("gemm", {"transpose_a": True, "transpose_b": True, "batch_size": 2, "m": 17, "k": 33}),
        ("gemm", {"range": "wide"}),
        ("attention", {}),
        ("attention", {"causal": False}),
    ],
)
def test_products_have_the_error_of_exact_sums_of_their_numbers(problem, precision, options):
    check = found(problem, precision, **options)
    assert check.ok
    assert fp8.EMULATED_MARGIN * check.error == pytest.approx(check.bound, rel=1e-3)


def test_what_each_format_costs():
    """Fewer bits cost more; scales of 16 numbers and with bits of their own cost less than powers of two of 32."""
    errors = {precision: found("gemm", precision).error for precision in (*fp8.EMULATED, "fp32")}
    ascending = ["fp32", "mxfp8_e4m3", "mxfp8_e5m2", "nvfp4", "mxfp4"]
    assert sorted(errors, key=errors.__getitem__) == ascending
    assert errors["fp32"] < 1e-6
    assert errors["mxfp4"] < 0.25
    assert not found("gemm", "mxfp4", held_to="mxfp8_e5m2").ok
    assert not found("gemm", "mxfp8_e5m2", held_to="mxfp8_e4m3").ok


def emulated(**fields):
    """A record as a run stores it: nothing but the check was measured."""
    timed = make_record(1.0, design={"case_number": 1})
    plain = msgspec.to_builtins(timed)
    plain["case"]["precision"] = "mxfp4"
    lost = ("inputs", "build_s", "compile_s", "preheat", "blocks", "cost", "memory", "interference", "energy")
    plain |= dict.fromkeys(lost) | {"reasons": plain["reasons"] | dict.fromkeys(lost, EMULATED)} | fields
    return msgspec.convert(plain, type(timed))


def test_a_record_has_no_times_if_and_only_if_it_is_emulated():
    assert emulated().status == "ok"
    timed = msgspec.to_builtins(make_record(1.0))
    with pytest.raises(msgspec.ValidationError, match="mxfp4 is emulated: it must have no times and no energy"):
        emulated(blocks=timed["blocks"])
    with pytest.raises(msgspec.ValidationError, match="must contain at least one timed block"):
        msgspec.convert(timed | {"blocks": None, "reasons": timed["reasons"] | {"blocks": "lost"}}, type(emulated()))


def test_a_run_measures_the_error_alone(tmp_path):
    size = {"m": 16, "n": 16, "k": 16}
    found = run(problem="gemm", framework="numpy", precision="nvfp4", trials=1, results=tmp_path, **size)
    (record,) = found.records
    assert record.status == "ok"
    assert record.check.ok
    assert (record.blocks, record.reasons["blocks"], record.reasons["energy"]) == (None, EMULATED, EMULATED)
    assert [*record.harness.stages_s] == ["python", "open", "check"]
    assert not contradictions(record)
    assert f"note: {EMULATED} (nvfp4)" in str(found)


def test_all_metrics_of_speed_and_energy_are_null_with_the_reason():
    metrics = load_metrics()(emulated())
    assert metrics["error"].value is not None
    for name in ("step_time_median_s", "samples_per_s", "flop_per_s", "samples_per_J", "mfu", "compile_s"):
        assert (metrics[name].value, metrics[name].reason) == (None, EMULATED)
    assert not [name for name, metric in metrics.items() if metric.unit.endswith(("/s", "/J")) and metric.value]


def test_a_front_of_speed_leaves_them_out():
    groups = Cases.of([make_record(1.0), emulated()])
    (of_work,) = by_work(groups, ["samples_per_s", "error"])
    assert front(of_work, ["samples_per_s", "error"], load_metrics()).left_out == 1


def test_what_is_about_speed_refuses_them():
    settings = {"problem": "gemm", "framework": "numpy", "device": "cpu", "m": 8, "n": 8, "k": 8}
    sides = [(name, settings | {"precision": name}) for name in ("fp32", "mxfp4")]
    with pytest.raises(UserError, match="mxfp4 is emulated and has no speed; measure its error with `run`"):
        pairs_of(*sides)
    with pytest.raises(UserError, match="nvfp4 is emulated and has no speed"):
        described(settings | {"precision": "nvfp4"}, ["numpy"], 1)
    with pytest.raises(UserError, match="cannot be predicted"):
        predict(registry.problem("gemm")(), "inference", "mxfp4", Roof("x", "fp32", 1e9, 1e9, ()))
