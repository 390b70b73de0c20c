"""Metrics of a record made by hand, worked out by hand."""

import msgspec
import numpy as np
import pytest
from support.records import make_energy, make_record

from benchmarker import Record
from benchmarker.api.case import Measuring
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records.record import Blocks, CostPart, EventCount, Failure, TokenTimes


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


def test_work_without_flops_has_no_rate_of_them(derive, plain):
    plain["cost"]["flops"] = 0
    rate = derive(msgspec.convert(plain, Record))["flop_per_s"]
    assert (rate.value, rate.reason) == (None, "nap has no FLOPs")


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
    assert metrics.pop("error").value == pytest.approx(0.5)  # it is what the trial failed for
    assert all(metric.value is None for metric in metrics.values())
    assert all(metric.reason for metric in metrics.values())


def test_every_metric_has_a_direction_and_a_unit(derive, plain):
    shares = {"mfu", "mfu_measured", "mbu", "mbu_measured", "roof_share"}
    of_profile = {"communication_share", "waiting_share"}
    shares |= {"contention", "imbalance", "communication", "straggler_score"}
    for name, metric in derive(msgspec.convert(plain, Record)).items():
        errors = {"error", "componentwise_error", "effective_bits"}
        assert (metric.unit == "1") == (name in {*shares, *of_profile, *errors, "times_predicted"})
        higher = name in {*shares, "effective_bits"} or metric.unit.endswith(("/s", "/J"))
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


TEXT = CostPart(flops=600, recomputed_flops=0, bytes=8, samples=2, tokens=8, input_tokens=20, output_tokens=8)
"""A step that generates 4 tokens for each of 2 prompts of 10 tokens."""
TIMES = TokenTimes(
    first_ns=[500_000_000, 700_000_000, 600_000_000],
    gap_ns=[[10_000_000, 20_000_000, 30_000_000], [10_000_000, 10_000_000, 10_000_000], [10_000_000, 60_000_000] * 2],
)


def test_times_of_tokens_by_hand(derive):
    found = derive(make_record(cost=TEXT, token_times=TIMES))
    assert found["ttft_s"].value == pytest.approx(0.6)
    assert found["tpot_s"].value == pytest.approx(0.02)  # of the requests: 20, 10 and 35 ms
    assert found["e2e_s"].value == pytest.approx(0.73)  # 560, 730 and 740 ms
    assert found["itl_p50_s"].value == pytest.approx(0.01)  # of all 10 gaps, six are of 10 ms
    assert found["itl_p90_s"].value == pytest.approx(0.06)
    assert [name for name, metric in found.items() if metric.headline][:2] == ["ttft_s", "tpot_s"]


@pytest.mark.parametrize(("percent", "least"), [(90, 10), (95, 20), (99, 100)])
def test_a_percentile_needs_a_gap_above_it(derive, percent, least):
    def metric(gaps):
        times = TokenTimes([1], [[1_000_000 * (number + 1) for number in range(gaps)]])
        return derive(make_record(cost=TEXT, token_times=times))[f"itl_p{percent}_s"]

    few, enough = metric(least - 1), metric(least)
    assert (few.value, few.reason) == (None, f"there are {least - 1} gaps, and {least} are needed")
    assert enough.value == pytest.approx(np.percentile(np.arange(least) + 1, percent) / 1000)


def test_output_and_input_tokens_have_rates_apart(derive):
    found = derive(make_record(cost=TEXT, token_times=TIMES, blocks=Blocks(1, [500_000_000] * 3, "blocks")))
    assert found["output_tokens_per_s"].value == pytest.approx(16)
    assert found["output_tokens_per_s_per_user"].value == pytest.approx(8)
    assert found["input_tokens_per_s"].value == pytest.approx(40)


def test_a_phase_without_prompt_or_without_gaps_says_so(derive):
    decode = CostPart(flops=600, recomputed_flops=0, bytes=8, samples=2, tokens=2, output_tokens=2)
    found = derive(make_record(cost=decode, token_times=TokenTimes([], [[1_000_000] * 4])))
    assert found["ttft_s"].reason == "its requests have no prompt"
    assert found["e2e_s"].reason == "its requests have no prompt, or only one token"
    assert found["input_tokens_per_s"].reason == "its steps have no input tokens"
    assert found["tpot_s"].value == pytest.approx(0.001)
    prefill = CostPart(flops=600, recomputed_flops=0, bytes=8, samples=2, tokens=20, input_tokens=20)
    found = derive(make_record(cost=prefill, token_times=TokenTimes([1_000_000], [])))
    assert found["itl_p50_s"].reason == found["tpot_s"].reason == "its requests have one token each"
    assert found["output_tokens_per_s_per_user"].reason == "its steps have no output tokens"
    assert found["ttft_s"].value == pytest.approx(0.001)


def test_what_generates_no_text_has_no_times_of_tokens(derive):
    found = derive(make_record())
    for name in ("ttft_s", "tpot_s", "e2e_s", "itl_p50_s", "itl_p99_s", "output_tokens_per_s", "input_tokens_per_s"):
        assert (found[name].value, found[name].reason) == (None, "its steps generate no text"), name


@pytest.mark.parametrize("name", ["communication_share", "waiting_share"])
def test_without_a_profile_of_several_devices_there_is_no_share_of_communication(derive, name):
    assert derive(make_record())[name].reason == "it has one device"
    several = derive(make_record(case={"devices": 2, "ranks": 2}))[name]
    assert (several.value, several.reason) == (None, "it was not profiled; use --profile")


def counted(*counts: EventCount, **fields):
    """A record of 3 blocks of 2 steps with event counters."""
    names = ",".join(each.name for each in counts)
    return make_record(
        case={"measuring": Measuring(counters=names)},
        blocks=Blocks(2, [1, 1, 1], "blocks"),
        counters=list(counts),
        **fields,
    )


def test_event_counters_are_those_of_a_step(derive):
    record = counted(
        EventCount("cycles", 1200, 1.0),
        EventCount("instructions", 3000, 1.0),
        EventCount("llc_misses", 60, 0.5),
        EventCount("task_clock", 9_000_000_000, 1.0),
        EventCount("page_faults", 0, 1.0),
    )
    found = derive(record)
    assert {name: metric.value for name, metric in found.items() if "per_step" in name or "per_cycle" in name} == {
        "cycles_per_step": 200.0,
        "instructions_per_step": 500.0,
        "llc_misses_per_step": 10.0,
        "page_faults_per_step": 0.0,
        "task_clock_per_step_s": pytest.approx(1.5),
        "estimated_memory_bytes_per_step": 640.0,
        "instructions_per_cycle": 2.5,
        "energy_per_step_J": None,
    }
    assert (found["task_clock_per_step_s"].unit, found["estimated_memory_bytes_per_step"].unit) == ("s", "B")
    assert found["instructions_per_cycle"].better == "higher"


def test_what_was_not_counted_is_null_with_the_records_reason(derive):
    none = "the virtual machine hides it"
    reasons = make_record().reasons | {"counters[0].count": none, "counters[1].count": none}
    found = derive(
        counted(EventCount("llc_misses", None, 0.0), EventCount("cycles", None, 0.0), reasons=reasons),
    )
    for name in ("cycles_per_step", "llc_misses_per_step", "estimated_memory_bytes_per_step"):
        assert (found[name].value, found[name].reason) == (None, none)
    assert "instructions_per_cycle" not in found  # nobody asked for instructions


def test_no_instructions_in_no_cycles_are_no_ratio(derive):
    found = derive(counted(EventCount("cycles", 0, 1.0), EventCount("instructions", 0, 1.0)))
    assert (found["instructions_per_cycle"].value, found["instructions_per_cycle"].reason) == (
        None,
        "no cycle was counted",
    )


def test_a_trial_that_failed_before_has_no_counts_but_their_names(derive):
    failure = Failure("exception", "told to fail", "timed")
    found = derive(
        make_record(case={"measuring": Measuring(counters="cycles, instructions")}, status="failed", error=failure)
    )
    for name in ("cycles_per_step", "instructions_per_step", "instructions_per_cycle"):
        assert (found[name].value, found[name].reason) == (None, "the trial failed before it was counted")


def test_a_record_without_counters_has_no_metrics_of_them(derive):
    assert not [name for name in derive(make_record()) if "page_faults" in name or "cycle" in name]
