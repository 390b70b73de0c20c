from __future__ import annotations

import json

import msgspec
import pytest
from support.records import make_ceiling, make_record

from benchmarker import Work
from benchmarker.files import atomic
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.page.rooflines import Modelled, roofs_figure
from benchmarker.records import store
from benchmarker.records.ceilings import Ceilings, DeviceKey, File, keep, key_of, known, read
from benchmarker.records.machine import DeviceInfo
from benchmarker.records.profile import Kernel, Scope, Trace
from benchmarker.records.record import CostPart, Failure
from benchmarker.records.sides import Side
from benchmarker.roofline.model import beyond, point, rooflines
from benchmarker.roofline.roofs import Roof, measured_roof

A100 = Roof(312e12, 1555e9)
"""FP16 tensor cores and memory of an A100 with 40 GB (NVIDIA, A100 data sheet, 2020)."""


def test_a_square_product_on_an_a100_becomes_compute_bound_near_3300():
    """With one transfer of each operand in fp16 and I = n/16 FLOP/byte the ridge point lies at n = 16·π/β."""
    sides = [n for n in range(1000, 5000) if A100.bound(n / 16) == "compute"]
    assert sides[0] == pytest.approx(3300, rel=0.03)
    assert A100.ridge == pytest.approx(200.6, abs=0.1)
    assert A100.attainable(sides[0] / 16) == 312e12
    assert A100.attainable(100) == 155.5e12


def test_the_keys_and_values_of_a_new_token_are_memory_bound():
    """A product of a matrix with a vector in fp16 takes 2 FLOPs and 2 bytes a weight: I = 1."""
    d = 12288
    flops, bytes_ = 2 * d * d, 2 * (d * d + 2 * d)
    assert flops / bytes_ == pytest.approx(1, rel=1e-3)
    made = point("step", "kv", flops, bytes_, [1e-3], A100)
    assert made.bound == "memory"
    assert made.attainable == pytest.approx(1555e9, rel=1e-3)
    assert made.predicted_s == pytest.approx(2 * d * d / 1555e9, rel=1e-3)
    assert made.share == pytest.approx(made.predicted_s / 1e-3)


@pytest.mark.parametrize(("flops", "bytes_"), [(0, 100), (100, 1), (1, 100), (50, 5)])
def test_attainable_and_least_time_are_the_same_model(flops, bytes_):
    roof = Roof(10.0, 2.0)
    time_s = roof.time_s(flops, bytes_)
    assert time_s == max(flops / 10, bytes_ / 2)
    if flops:
        assert flops / time_s == pytest.approx(roof.attainable(flops / bytes_))


def test_ceilings_are_of_the_same_device_precision_and_threads():
    record = make_record()
    key = key_of(record)
    other = msgspec.structs.replace(key, cores=key.cores + 1)
    known_ones = Ceilings(
        (
            make_ceiling(5.0),
            make_ceiling(9.0, framework="other"),
            make_ceiling(99.0, device=other),
            make_ceiling(50.0, precision="bf16"),
            make_ceiling(7.0, "memory"),
        )
    )
    assert known_ones.compute(record).value == 9.0
    assert known_ones.memory(record).value == 7.0
    assert known_ones.compute(make_record(case={"precision": "mixed_bf16"})).value == 50.0
    assert known_ones.compute(make_record(case={"threads": 1})) is None
    assert known_ones.lacking(record) is None
    assert "`benchmarker ceilings --precision=fp64`" in known_ones.lacking(make_record(case={"precision": "fp64"}))
    assert known_ones.lacking(make_record(case={"threads": 1})).endswith(
        "`benchmarker ceilings --precision=fp32 --threads=1` (a few minutes)"
    )


def test_the_newest_ceiling_of_a_framework_counts():
    older = make_ceiling(9.0)
    newer = make_ceiling(4.0, measured_at="2026-02-01T00:00:00+00:00")
    for order in ((older, newer), (newer, older)):
        assert Ceilings(order).compute(make_record()).value == 4.0


def test_an_accelerator_is_known_by_its_name_alone():
    card = msgspec.structs.replace(make_record().device, platform="cuda", name="Card")
    record = make_record(device=card, case={"threads": 3, "device": "cuda"})
    assert key_of(record) == DeviceKey("cuda", "Card", None, None)
    assert key_of(make_record(device=None, reasons={**make_record().reasons, "device": "gone"})) is None


def test_kept_ceilings_replace_those_of_the_same_kind():
    keep([make_ceiling(5.0), make_ceiling(7.0, "memory")])
    keep([make_ceiling(6.0), make_ceiling(8.0, framework="other")])
    found = known()
    assert not found.faults
    assert sorted((each.resource, each.framework, each.value) for each in found.known) == [
        ("compute", "other", 8.0),
        ("compute", "toy", 6.0),
        ("memory", "toy", 7.0),
    ]


def test_ceilings_beside_records_are_found_and_are_no_records(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    record = make_record()
    (run / "one.json").write_bytes(atomic.encode(record))
    (run / store.CEILINGS).write_bytes(atomic.encode(File(1, [make_ceiling(5.0)])))
    assert len(known([tmp_path]).known) == len(known([run / "one.json"]).known) == 1
    records, faults = store.read([tmp_path])
    assert (len(records), faults) == (1, [])
    assert store.read([run / store.CEILINGS])[1]


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": 2, "ceilings": []}', '{"schema_version": 1}'])
def test_a_damaged_file_of_ceilings_is_named(tmp_path, content):
    path = tmp_path / store.CEILINGS
    path.write_text(content)
    assert str(path) in str(read(path))
    found = known([tmp_path])
    assert [fault.path for fault in found.faults] == [path]
    assert str(path) in found.lacking(make_record())


def test_metrics_by_hand():
    """1000 FLOPs and 8 bytes in 2 s, under 1000 FLOP/s and 2 byte/s: the memory takes 4 s, which is a share of 2."""
    keep([make_ceiling(1000.0), make_ceiling(2.0, "memory")])
    derived = load_metrics()(make_record(2.0))
    assert derived["mfu_measured"].value == pytest.approx(0.5)
    assert derived["mbu_measured"].value == derived["roof_share"].value == pytest.approx(2.0)
    assert derived["bytes_per_s"].value == pytest.approx(4.0)
    assert derived["error"].value == 0.0
    assert derived["mfu"].value is None
    assert "vendor" in derived["mfu"].reason


def test_utilisation_of_the_vendors_peaks_by_hand():
    """An H200 has 4.8 TB/s and 989 TFLOP/s in bf16 (NVIDIA's data sheet); a step moves 2.4 TB and does 98.9 TFLOP."""
    record = make_record(
        1.0,
        case={"device": "cuda", "precision": "bf16"},
        device=DeviceInfo("cuda", "NVIDIA H200", None, None, None, None),
        cost=CostPart(98_900_000_000_000, 0, 2_400_000_000_000, 1, None),
    )
    derived = load_metrics()(record)
    assert derived["mbu"].value == pytest.approx(0.5)
    assert derived["mfu"].value == pytest.approx(0.1, rel=1e-3)


def test_metrics_without_a_ceiling_or_a_timed_block_are_null_with_a_reason():
    derived = load_metrics()(make_record())
    assert "benchmarker ceilings" in derived["mfu_measured"].reason
    assert derived["roof_share"].value is None
    failed = make_record(
        status="failed", error=FAILURE, blocks=None, cost=None, check=None, reasons=make_record().reasons | LACKING
    )
    for name in ("mfu", "mfu_measured", "mbu", "mbu_measured", "roof_share", "bytes_per_s", "error"):
        assert load_metrics()(failed)[name].value is None
        assert load_metrics()(failed)[name].reason


FAILURE = Failure("killed", "gone", "build")
TRACE = Trace("chrome", "toy", False, {}, *(4,) * 3, [], *(0,) * 12, [], [], [], True)
LACKING = dict.fromkeys(("blocks", "cost", "check", "memory.device_peak_bytes", "energy", "trace"), "gone")


def make_gemm(step_s: float, **fields):
    params = {"m": 8, "n": 8, "k": 8, "batch_size": 1, "transpose_a": False, "transpose_b": False}
    record = make_record(step_s, **fields)
    case = msgspec.structs.replace(record.case, problem="gemm", params=params)
    return msgspec.structs.replace(record, case=case, cost=CostPart(1024, 0, 768, 1, None))


def test_steps_scopes_and_kernels_under_the_roof():
    scope = Scope("gemm", "forward", 1, 1, 1, 10, 10, 10, 1.0, [round(1e9), round(3e9), round(2e9)])
    kernel = Kernel(*("k",) * 6, 4, *(round(8e9),) * 3, *(2e9,) * 4, 1, 1, 0.0, 4096.0, 3072.0)
    record = msgspec.structs.replace(make_gemm(4.0), scopes=[scope], kernels=[kernel])
    ceilings = Ceilings((make_ceiling(1024.0), make_ceiling(100.0, "memory")))
    (found,), reasons = rooflines(Cases.of([record, make_gemm(6.0, trial=1)]), ceilings)
    assert not reasons
    assert found.trials == 2
    assert found.model_s == pytest.approx(7.68)
    step, part = found.points
    assert (step.level, step.time_s, step.bound) == ("step", 5.0, "memory")
    assert step.intensity == pytest.approx(4 / 3)
    assert step.predicted_s == pytest.approx(7.68)
    assert (part.level, part.name, part.time_s, part.flops) == ("scope", "gemm", 2.0, 1024)
    assert measured_roof(record, ceilings).ridge == 10.24


def test_rates_have_the_interval_of_their_times_from_six_trials_on():
    """Of nine times, the 95% interval of the median is from the second to the eighth; the work has 1024 FLOPs."""
    ceilings = Ceilings((make_ceiling(1024.0), make_ceiling(100.0, "memory")))
    records = [make_gemm(float(time), trial=trial) for trial, time in enumerate((5, 2, 9, 4, 7, 1, 8, 3, 6))]
    for trials, ends in ((9, (1024 / 8, 1024 / 2)), (5, (None, None))):
        (found,), _ = rooflines(Cases.of(records[:trials]), ceilings)
        (step,) = found.points
        assert (step.achieved, step.achieved_low, step.achieved_high, step.trials) == (1024 / 5, *ends, trials)
        figure = roofs_figure([Modelled("gemm", found)])
        _, mark = figure.marks
        assert (mark.y, mark.low, mark.high) == ((1024 / 5,), ends[:1], ends[1:])
        assert "with its 95% interval if there are 6 trials or more" in figure.caption
        row = dict(zip(figure.data.data[0], figure.data.data[1][0], strict=True))
        assert (row["achieved_from"], row["achieved_to"], row["trials"]) == (*ends, trials)


def test_kernels_are_of_one_step():
    kernel = Kernel(*("k",) * 4, "", "", 4, *(round(8e9),) * 3, *(2e9,) * 4, 1, 1, 0.0, 4096.0, 3072.0)
    record = msgspec.structs.replace(make_gemm(4.0), kernels=[kernel], trace=TRACE)
    (found,), _ = rooflines(Cases.of([record]), Ceilings((make_ceiling(1024.0), make_ceiling(100.0, "memory"))))
    (each,) = [point for point in found.points if point.level == "kernel"]
    assert (each.flops, each.bytes, each.time_s) == (1024, 768, 2.0)
    assert each.name == "k"


def test_a_kernel_beside_others_is_timed_by_its_own_duration():
    kernel = Kernel(*("k",) * 6, 4, *(round(8e9),) * 2, round(4e9), *(2e9,) * 4, 1, 1, 0.0, 4096.0, 3072.0)
    record = msgspec.structs.replace(make_gemm(4.0), kernels=[kernel], trace=TRACE)
    (found,), _ = rooflines(Cases.of([record]), Ceilings((make_ceiling(1024.0), make_ceiling(100.0, "memory"))))
    assert [each.achieved for each in found.points if each.level == "kernel"] == [4096 / 8]


def test_kernels_of_one_name_and_scope_are_together_and_go_by_the_median_over_trials():
    def profiled(busy_s: float, trial: int):
        kernel = Kernel(*("k",) * 4, "mlp", "", 4, *(round(busy_s * 1e9),) * 3, *(2e9,) * 4, 1, 1, 0.0, 2048.0, 1536.0)
        return msgspec.structs.replace(make_gemm(4.0, trial=trial), kernels=[kernel, kernel], trace=TRACE)

    ceilings = Ceilings((make_ceiling(1024.0), make_ceiling(100.0, "memory")))
    (found,), _ = rooflines(Cases.of([profiled(4.0, 0), profiled(8.0, 1), profiled(40.0, 2)]), ceilings)
    (each,) = [point for point in found.points if point.level == "kernel"]
    assert (each.name, each.flops, each.bytes, each.time_s) == ("k (mlp)", 1024, 768, 4.0)
    assert each.share == pytest.approx(1.92)
    assert beyond([msgspec.structs.replace(found, points=[each])])
    assert not beyond([msgspec.structs.replace(found, points=[msgspec.structs.replace(each, share=1.04)])])


def test_a_failed_configuration_has_no_points_and_one_without_a_roof_a_reason():
    ceilings = Ceilings((make_ceiling(1024.0), make_ceiling(100.0, "memory")))
    fp64 = make_gemm(1.0, trial=1, case={"precision": "fp64"})
    found, reasons = rooflines(Cases.of([make_gemm(4.0), fp64]), ceilings)
    assert len(found) == 1
    assert len(reasons) == 1
    assert "fp64" in reasons[0]
    assert rooflines(Cases.of([make_gemm(1.0)]), ceilings, "vendor")[1][0].startswith(
        "the vendor data file has no fp32 peak for"
    )


def test_a_problem_that_is_not_installed_has_no_parts():
    record = make_record(1.0, case={"problem": "gone"})
    (found,), _ = rooflines(Cases.of([record]), Ceilings((make_ceiling(1024.0), make_ceiling(100.0, "memory"))))
    assert found.model_s is None
    assert [each.level for each in found.points] == ["step"]
    assert Work(1, 2).bytes == 2


def test_the_command_prints_a_table_and_draws(command, tmp_path):
    keep([make_ceiling(1024.0), make_ceiling(100.0, "memory")])
    (tmp_path / "one.json").write_bytes(atomic.encode(make_gemm(4.0)))
    done = command("roofline", "one.json", "-o", "roof.svg")
    assert done.returncode == 0
    assert "ridge at 10.2 FLOP/byte" in done.stdout
    assert "192.0%" in done.stdout  # 7.68 s allowed, 4 s taken
    assert "above its roof" in done.stdout
    assert (tmp_path / "roof.svg").read_text().startswith("<?xml")
    done = command("roofline", "one.json", "--json")
    (found,) = json.loads(done.stdout)["rooflines"]
    assert found["points"][0]["share"] == pytest.approx(1.92)
    (none,) = json.loads(command("roofline", "one.json", "--json", "--level=scope").stdout)["rooflines"]
    assert none["points"] == []
    done = command("roofline", "one.json", "-o", "roof.gif")
    assert done.returncode == 2
    assert "cannot draw roof.gif" in done.stderr


def test_the_command_prints_the_interval_of_rates_if_there_is_one(command, tmp_path):
    keep([make_ceiling(1024.0), make_ceiling(100.0, "memory")])
    for trial, time in enumerate((5, 2, 9, 4, 7, 1, 8, 3, 6)):
        (tmp_path / f"{trial}.json").write_bytes(atomic.encode(make_gemm(float(time), trial=trial)))
    assert "205 [128, 512] FLOP/s" in command("roofline", ".").stdout
    assert "256 FLOP/s" in command("roofline", "3.json").stdout


def test_the_command_without_a_ceiling_names_the_remedy(command, tmp_path):
    (tmp_path / "one.json").write_bytes(atomic.encode(make_gemm(4.0)))
    done = command("roofline", "one.json")
    assert done.returncode == 2
    assert "run `benchmarker ceilings --precision=fp32`" in done.stderr
    assert command("ceilings", "--known").stdout.startswith("no ceiling is known")


def test_sides_have_rooflines_of_their_own():
    sides = [Side(name, (make_gemm(step_s, trial=at),)) for at, (name, step_s) in enumerate((("a", 4.0), ("b", 8.0)))]
    found, _ = rooflines(Cases.of_sides(sides), Ceilings((make_ceiling(1024.0), make_ceiling(100.0, "memory"))))
    assert [(each.configuration.partition(":")[0], each.trials) for each in found] == [("a", 1), ("b", 1)]
    assert found[0].points[0].time_s * 2 == found[1].points[0].time_s
