"""What makes a comparison doubtful is told, and nothing is told without cause."""

import re
from typing import get_args

import msgspec
import numpy as np
import pytest
from support.records import QUIET, make_energy, make_record

from benchmarker import Measuring
from benchmarker.comparing import diagnosis
from benchmarker.comparing import disturbances as disturbing
from benchmarker.comparing.disturbances import disturbances
from benchmarker.records.energy import Conditions, EnergyFlag
from benchmarker.records.record import DeviceTime, Failure, Inputs

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(3).bit_generator.state


def with_witnesses(**changed):
    return make_record(interference=msgspec.structs.replace(QUIET, **changed))


def test_quiet_trials_are_not_disturbed():
    records = [make_record(trial=trial) for trial in range(5)]
    assert diagnosis.disturbed(records) == []
    assert diagnosis.differences(records, records) == []
    assert diagnosis.unsteady(records) == []


def test_a_mean_far_from_the_median_is_told():
    records = [make_record([1.0, 1.0, 1.0, 1.16]), make_record([1.0, 1.0, 1.0, 1.4])]
    assert diagnosis.skewed(records[:1]) == []
    assert (
        diagnosis.skewed(
            [msgspec.structs.replace(records[1], status="failed", error=Failure("check", "wrong", "verify"))]
        )
        == []
    )
    (note,) = diagnosis.skewed(records)
    assert note.startswith("the mean step time differs from the median in 1 of 2 trials (worst +10%); samples/s")
    assert diagnosis.doubts([records])["skewed"] == note


def test_each_interference_counter_is_named():
    peers = [make_record()] * 5
    cases = {
        "busy": ({"other_busy_cores": 80.0}, "other processes kept 80.0 cores busy"),
        "steal": ({"steal_percent": 12.0}, "the hypervisor stole 12% of the time"),
        "throttled": ({"throttled_s": 0.5}, "its cgroup throttled it for 0.5 s"),
        "pressure": ({"pressure_percent": 40.0}, "CPU pressure 40%"),
        "clock": ({"frequency_MHz": 1500.0}, "the clock fell to 1500 MHz"),
    }
    for kind, (changed, text) in cases.items():
        assert disturbances([with_witnesses(**changed), *peers])[0] == {kind: text}
    heat = msgspec.structs.replace(make_record().preheat, outcome="timeout")
    assert disturbances([make_record(preheat=heat), *peers])[0] == {"preheat": "no steady rate before timing"}


def test_pressure_and_clock_count_beside_the_other_trials_of_the_case():
    busy = with_witnesses(pressure_percent=60.0, frequency_MHz=1000.0)
    assert disturbances([busy] * 5) == [{}] * 5


def test_what_is_usual_for_a_case_is_computed_once(monkeypatch):
    asked = []
    monkeypatch.setattr(disturbing, "median", lambda values: asked.append(values) or values[0])
    disturbances([make_record(trial=trial) for trial in range(20)])
    assert [len(values) for values in asked] == [20, 20]


def test_a_timed_part_shorter_than_the_ticks_is_not_judged():
    assert disturbances([with_witnesses(other_busy_cores=2.0, duration_s=0.1), make_record()]) == [{}, {}]


def test_a_timed_part_too_short_to_tell_is_told():
    records = [make_record(), with_witnesses(duration_s=0.1)]
    assert diagnosis.disturbed(records) == [
        "1 of 2 trials was timed for less than 0.5 s, too short to detect disturbances"
    ]


def test_disturbed_trials_are_counted():
    bad = with_witnesses(steal_percent=9.0)
    assert diagnosis.disturbed([make_record(), bad], [bad, make_record()]) == [
        "2 of 4 trials were disturbed, for instance: the hypervisor stole 9% of the time (2 trials)"
    ]


def test_trials_that_were_still_warming_up_are_counted_with_a_remedy():
    warm = np.r_[np.full(15, 1.2), np.ones(85)] * np.exp(RNG.normal(0, 0.005, 100))
    records = [make_record(list(warm)), make_record(list(np.exp(RNG.normal(0, 0.005, 100))))]
    (note,) = diagnosis.unsteady(records)
    assert re.fullmatch(r"1 of 2 trials was still warming up \(worst -1\d%, until block 15\): use --preheat", note)
    preheated = [make_record(list(warm), case={"measuring": Measuring(preheat=True)})]
    (note,) = diagnosis.unsteady(preheated)
    assert note.startswith("1 of 1 trial was still warming up (worst -1")
    assert note.endswith("until block 15): raise --blocks and --seconds")


def test_a_step_change_is_reported_with_its_block():
    slower = np.r_[np.ones(60), np.full(40, 1.2)] * np.exp(RNG.normal(0, 0.005, 100))
    (note,) = diagnosis.unsteady([make_record(list(slower))])
    assert re.fullmatch(r"step change in 1 of 1 trial \(worst \+[12]\d%, at block 60\)", note)


def test_another_environment_and_other_work_are_told():
    one, two = make_record(), make_record()
    two = msgspec.structs.replace(
        two,
        machine=msgspec.structs.replace(two.machine, host="elsewhere"),
        cost=msgspec.structs.replace(two.cost, flops=2000),
    )
    assert diagnosis.differences([one], [two], "flop_per_s") == [
        f"environments differ: host {one.machine.host} → elsewhere",
        "the work per step differs: 1000 and 2000 FLOP; --metric=flop_per_s compares rates",
    ]
    assert diagnosis.differences([one, two], [one])[0] == "the baseline's trials differ in host"


def test_sides_that_were_measured_differently_are_told():
    plain = make_record()
    longer = make_record(case={"measuring": Measuring(seconds=60.0, preheat=True)})
    assert diagnosis.differences([plain], [longer]) == [
        "the sides were measured differently: preheat false → true, seconds 30.0 → 60.0"
    ]


def test_inputs_that_stay_in_the_cache_and_those_that_do_not_are_told():
    def small(inputs, cache_bytes=2**20, **measuring):
        plain = make_record(case={"measuring": Measuring(**measuring)})
        device = msgspec.structs.replace(plain.device, cache_bytes=cache_bytes)
        return msgspec.structs.replace(plain, device=device, inputs=inputs)

    cold, hot = small(Inputs("rotate", 6, 2**18)), small(Inputs("hot", 1, 2**18), cache="hot")
    assert (
        diagnosis.caches([cold]) == "data smaller than the last-level cache; inputs rotate: steps read them from memory"
    )
    assert diagnosis.caches([hot]).endswith("; inputs stay in place: steps read them from the cache")
    assert diagnosis.caches([cold, hot]).endswith(
        "inputs rotate: steps read them from memory, or stay in place: steps read them from the cache"
    )
    limited = small(Inputs("rotate", 3, 2**18, "memory"))
    assert diagnosis.caches([limited]).endswith("; inputs rotate through too few sets to leave the cache")
    assert diagnosis.caches([small(Inputs(None, 4, 2**18))]) == ""
    assert diagnosis.caches([small(Inputs("rotate", 6, 2**18), cache_bytes=8)]) == ""  # a step moves 8 bytes
    assert diagnosis.caches([small(Inputs("rotate", 4, 2**18, "unknown_cache"), cache_bytes=None)]) == ""
    assert "the sides were measured differently: cache - → hot" in diagnosis.differences([cold], [hot])


@pytest.mark.parametrize(
    ("device_ms", "expected"),
    [
        ([985], ""),  # medians of two times differ by as much
        ([1010], ""),
        ([400], "60% of the step time is the host's, which launches work or waits, not the device's by its clock"),
        ([400, 985, 700], "30% to 60% of the step time"),
    ],
)
def test_what_the_host_adds_is_told_where_it_is_much(device_ms, expected):
    """Steps of 1 s on the host's clock, in blocks of two on the device's."""
    records = [make_record(1.0, device_time=DeviceTime(2, [2_000_000 * each] * 3)) for each in device_ms]
    note = diagnosis.host_shares([*records, make_record(1.0)])
    assert note.startswith(expected)
    assert note.endswith(f"({sum(each < 980 for each in device_ms)} of {len(records) + 1} trials)" if expected else "")


def test_effects_of_order_and_time():
    n = 20
    noise, last = RNG.normal(0, 0.01, n), np.arange(n) % 2 == 0
    assert diagnosis.effects(noise, last, RNG.normal(0, 0.1, n)) == []
    assert diagnosis.effects(noise + 0.1 * last, last, RNG.normal(0, 0.1, n)) == [
        "the ratio depends on which of the two ran first in its round"
    ]
    ratio, level = diagnosis.effects(noise + np.linspace(0, 0.2, n), last, np.linspace(0, 1, n))
    assert ratio.startswith("the ratio drifts from trial to trial (+1")
    drift = f"{np.expm1(13 / 19):+.1%}"
    assert (
        level == f"the common level of both sides drifts from trial to trial ({drift} from the first third to the last)"
    )


def test_energies_by_different_sensors_are_told():
    ours = [make_record(energy=make_energy(100.0))] * 5
    assert diagnosis.energies(ours, ours) == []
    theirs = [make_record(energy=make_energy(110.0, id="GPU-b", method="polled"))] * 5
    different, way = diagnosis.energies(ours, theirs)
    assert different.startswith("the sides were measured by different sensors, each documented to be within ±5%")
    assert way == "the energies were obtained by different methods: counter, polled"
    short = make_record(energy=msgspec.structs.replace(make_energy(1.0), flags=["energy_short"]))
    assert diagnosis.energies([short], ours) == ["energy over less than 30 s (1 of 6 trials)"]
    assert diagnosis.energies([make_record()], [make_record()]) == []
    assert {*diagnosis.FLAGS} == {*get_args(EnergyFlag)}
    (dram,) = make_energy(9.0, domain="dram", method="polled").sensors
    both = make_record(energy=msgspec.structs.replace(make_energy(1.0), sensors=[*make_energy(1.0).sensors, dram]))
    assert diagnosis.energies([both], [both]) == []
    assert diagnosis.energies([both], [make_record(energy=make_energy(1.0))]) == [
        "the energies cover different parts of the machine: some gpu, others gpu and dram",
        "the energies were obtained by different methods: counter, counter and polled",
    ]


def test_a_device_that_holds_its_clocks_down_is_a_disturbance():
    hot = Conditions(
        meter="nvml", id="a", device="Card", measured=True, ranges={}, throttle={"thermal": 0.2}, throttle_s={}
    )
    record = make_record(telemetry=[hot])
    assert disturbances([record]) == [{"slowdown": "the device reduced its clocks: thermal"}]
    other = msgspec.structs.replace(hot, measured=False)
    assert disturbances([make_record(telemetry=[other])]) == [{}]


def test_a_power_cap_is_told_where_it_held_for_most_of_the_time():
    capped = Conditions(
        meter="nvml", id="a", device="Card", measured=True, ranges={}, throttle={"power cap": 0.9}, throttle_s={}
    )
    other = msgspec.structs.replace(capped, measured=False)
    brief = msgspec.structs.replace(capped, throttle={"power cap": 0.1, "idle": 1.0})
    records = [make_record(telemetry=[each]) for each in (capped, other, brief)]
    told = "a power cap held the device's clock back (1 of 3 trials)"
    assert (diagnosis.power_caps(records), told in diagnosis.conditions([records])) == (told, True)
    assert diagnosis.power_caps(records[1:]) == ""


def test_energies_of_a_short_time_are_told():
    long = make_energy(1.0)
    short = msgspec.structs.replace(long, flags=["energy_short"])
    records = [make_record(energy=each) for each in (short, long, None)]
    told = "energy over less than 30 s (1 of 3 trials): --power=auto measures longer"
    assert diagnosis.short_energies(records) == told
    assert diagnosis.short_energies(records[1:]) == ""
