"""Metrics of a record made by hand, worked out by hand."""

import msgspec
import numpy as np
import pytest
from support.records import make_energy, make_record

from benchmarker import Record
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records.record import CostPart


@pytest.fixture(scope="module")
def derive():
    return load_metrics()


@pytest.fixture
def plain(recorded):
    (record,) = recorded("--blocks=1")
    record["blocks"] = {"steps_per_block": 2, "duration_ns": [4_000_000_000, 2_000_000_000, 6_000_000_000]}
    record["blocks"]["stopped_by"] = "blocks"
    record["cost"] = {"flops": 600, "recomputed_flops": 100, "bytes": 8, "samples": 3, "tokens": 12}
    record["compile_s"] = 1.5
    del record["reasons"]["cost.tokens"]
    return record


def values(derive, plain):
    return {name: metric.value for name, metric in derive(msgspec.convert(plain, Record)).items()}


def test_rates_are_all_work_over_all_time(derive, plain):
    found = values(derive, plain)  # 6 steps in 12 s
    assert found["samples_per_s"] == pytest.approx(1.5)
    assert found["tokens_per_s"] == pytest.approx(6.0)
    assert found["flop_per_s"] == pytest.approx(300.0)  # without what is done again


def test_step_times_are_over_blocks(derive, plain):
    found = values(derive, plain)  # 2, 1 and 3 s a step
    assert found["step_time_median_s"] == pytest.approx(2.0)
    assert found["step_time_mad_s"] == pytest.approx(1.0)
    assert found["step_time_p5_s"] == pytest.approx(1.1)
    assert found["step_time_p95_s"] == pytest.approx(2.9)
    assert found["compile_s"] == 1.5


@pytest.mark.parametrize("number", [1, 2, 7, 100])
def test_percentiles_are_those_of_numpy(derive, number):
    times = np.random.default_rng(number).lognormal(size=number)
    found = derive(make_record(times))
    times_s = np.round(times * 1e9) / 1e9
    for name, percent in (("min", 0), ("p5", 5), ("p10", 10), ("median", 50), ("p95", 95)):
        assert found[f"step_time_{name}_s"].value == pytest.approx(np.percentile(times_s, percent), rel=1e-12)
    mad = np.median(np.abs(times_s - np.median(times_s)))
    assert found["step_time_mad_s"].value == pytest.approx(mad, rel=1e-9)


def test_what_is_null_has_a_reason(derive, plain):
    metrics = derive(msgspec.convert(plain, Record))
    assert metrics["device_peak_bytes"].value is None
    assert metrics["device_peak_bytes"].reason == "toy counts no allocations on cpu"
    assert metrics["host_peak_rss_bytes"].value > 1e6


def test_a_failed_trial_has_no_figures_but_reasons(recorded, derive):
    (record,) = recorded("--fault=wrong")
    metrics = dict(derive(msgspec.convert(record, Record)))
    assert metrics.pop("numeric_error").value == pytest.approx(0.5)  # it is what the trial failed for
    assert all(metric.value is None for metric in metrics.values())
    assert all(metric.reason for metric in metrics.values())


def test_every_metric_has_a_direction_and_a_unit(derive, plain):
    shares = {"mfu", "mfu_measured", "roof_share"}
    for name, metric in derive(msgspec.convert(plain, Record)).items():
        assert (metric.unit == "1") == (name in {*shares, "numeric_error"})
        higher = name in shares or metric.unit.endswith(("/s", "/J"))
        assert metric.better == ("higher" if higher else "lower"), name


def test_work_per_joule_and_joules_per_step(derive):
    cost = CostPart(flops=600, recomputed_flops=100, bytes=8, samples=2, tokens=8)
    derived = derive(make_record(cost=cost, energy=make_energy(4000.0)))  # 100 steps in 40 s
    found = {name: metric.value for name, metric in derived.items()}
    assert found["samples_per_J"] == pytest.approx(0.05)
    assert found["tokens_per_J"] == pytest.approx(0.2)
    assert found["flop_per_J"] == pytest.approx(15.0)
    assert found["energy_per_step_J"] == pytest.approx(40.0)
    assert found["mean_power_W"] == pytest.approx(100.0)
    assert (found["energy_J"], found["total_energy_J"], found["idle_power_W"]) == (4000.0, 4000.0, 30.0)
    assert derived["samples_per_J"].headline


def test_without_energy_the_records_reason_stands(derive):
    reasons = {"energy": "rapl: permission: for root alone"}
    known = {path: why for path, why in make_record().reasons.items() if path != "energy"}
    for record in (
        make_record(energy=None, reasons=known | reasons),
        make_record(energy=make_energy(None), reasons=known | {"energy.energy_J": reasons["energy"]}),
    ):
        for name in ("samples_per_J", "tokens_per_J", "flop_per_J", "energy_per_step_J", "mean_power_W"):
            metric = derive(record)[name]
            assert (metric.value, metric.reason, metric.headline) == (None, reasons["energy"], False)
    assert derive(make_record(energy=make_energy(0.0)))["samples_per_J"].reason == "the window has no energy"
