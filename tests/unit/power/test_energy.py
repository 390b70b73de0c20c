import math
from functools import partial

import pytest
from support.cards import Constant, Ramp, Wave

from benchmarker.api.meter import Channel, Unavailable
from benchmarker.power.energy import Timed, compute_energy
from benchmarker.power.sampler import Sample
from benchmarker.power.samplers import Sampled

S = 1_000_000_000
REST, BEGIN, END = (0, 2 * S), 5 * S, 45 * S
ON_CARD = Timed("cuda", "GPU-aa", None, steps=400, samples=800, step_s=0.1437)
ON_CPU = Timed("cpu", None, None, steps=400, samples=800, step_s=0.1)


def channel(quantity="energy_J", uuid="GPU-aa", domain="gpu", **more):
    return partial(Channel, id=uuid, domain=domain, quantity=quantity, **more)


def sampled(readings, *, meter="nvml", every_s=0.05, end_s=47.0, marks=(BEGIN, END), unavailable=()):
    """What a sampler read until `end_s`: of each channel what it always reads, or a function of the time (s)."""
    values = [value if callable(value) else (lambda _, value=value: value) for value in readings.values()]
    times = {round(at * every_s * S): "" for at in range(round(end_s / every_s))}
    times |= dict(zip(marks, ("begin", "end"), strict=False))
    samples = [
        Sample(time_ns, 0, mark, tuple(value(time_ns / S) for value in values))
        for time_ns, mark in sorted(times.items())
    ]
    return Sampled(meter, tuple(made() for made in readings), tuple(unavailable), samples)


def account(*of, timed=ON_CARD):
    return compute_energy(of, timed, REST, 0.05)


def rising(curve, update_s=0.02):
    """A counter of a curve's energy, with a new value every `update_s`."""
    return lambda t: curve.energy(math.floor(t / update_s + 1e-9) * update_s)


CURVES = [Constant(100.0), Ramp(50.0, 450.0, 60.0), Wave(80.0, 400.0, 0.7, 0.3), Wave(90.0, 700.0, 5.0, 0.05)]


@pytest.mark.parametrize("curve", CURVES, ids=["constant", "ramp", "square", "spikes"])
def test_energy_by_counter_is_the_integral(curve):
    (sensor,) = account(sampled({channel(): rising(curve)})).energy.sensors
    assert sensor.method == "counter"
    assert sensor.energy_J == pytest.approx(curve.energy(45.0) - curve.energy(5.0), rel=1e-3)


@pytest.mark.parametrize(("curve", "bound"), list(zip(CURVES, [1e-9, 0.005, 0.02, 0.1], strict=True)))
def test_energy_by_polling_is_near_the_integral(curve, bound):
    """A sensor that sees all of the time is off by its lag; one that is blind for a part is not promised anything."""

    def seen(t):
        return (curve.energy(math.floor(t * 10) / 10) - curve.energy(math.floor(t * 10) / 10 - 0.1)) / 0.1

    (sensor,) = account(sampled({channel("power_instant_W", update_ms=100, window_ms=100): seen})).energy.sensors
    assert sensor.method == "polled"
    assert sensor.energy_J == pytest.approx(curve.energy(45.0) - curve.energy(5.0), rel=bound)


def test_one_window_gives_all_figures():
    found = account(sampled({channel(): rising(Constant(100.0)), channel("power_average_W"): 100.0}))
    energy = found.energy
    assert (energy.duration_s, energy.steps, energy.samples, energy.domains) == (40.0, 400, 800, ["gpu"])
    assert energy.energy_J == pytest.approx(4000, rel=1e-3)
    (sensor,) = energy.sensors
    assert sensor.ratio == pytest.approx(1, rel=1e-3)
    assert (sensor.p50_W, sensor.p95_W, sensor.peak_W, sensor.idle_W) == (100.0, 100.0, 100.0, 100.0)
    assert (sensor.n, sensor.coverage, sensor.gaps) == (801, 1.0, 0)
    assert energy.flags == []


def test_idle_power_is_of_the_rest_before():
    found = account(sampled({channel("power_instant_W"): lambda t: 30.0 if t < 3 else 300.0}))
    assert found.energy.idle_W == 30.0
    assert found.energy.energy_J == pytest.approx(300 * 40)


def test_a_suspect_counter_is_published_with_what_contradicts_it():
    found = account(sampled({channel(): rising(Constant(80.0)), channel("power_instant_W"): 100.0}))
    (sensor,) = found.energy.sensors
    assert (sensor.flags, sensor.ratio) == (["counter_suspect"], pytest.approx(0.8, rel=1e-3))
    assert (sensor.energy_J, sensor.polled_J) == (pytest.approx(3200, rel=1e-3), pytest.approx(4000))
    assert "counter_suspect" in found.energy.flags


@pytest.mark.parametrize(
    ("counter", "flag"),
    [
        (lambda t: 100.0 * min(t, 20.0), "counter_stalled"),
        (8152136.0, "counter_stalled"),
        (lambda t: 100.0 * t if t < 20 else 100.0 * t - 14000, "counter_backwards"),
    ],
)
def test_a_counter_that_stands_still_or_runs_backwards_is_rejected(counter, flag):
    found = account(sampled({channel(): counter, channel("power_instant_W"): 100.0}))
    (sensor,) = found.energy.sensors
    assert (sensor.method, sensor.energy_J, sensor.flags) == ("polled", pytest.approx(4000), [flag])
    alone = account(sampled({channel(): counter}))
    assert alone.energy.energy_J is None
    assert "counter" in alone.reasons["energy.sensors[0].energy_J"]
    assert alone.reasons["energy.energy_J"].startswith("GPU-aa: the counter ")
    assert {alone.energy.sensors[0].p95_W, alone.energy.sensors[0].peak_W} == {None}
    assert alone.energy.flags == []


def test_a_counter_that_is_set_back_while_the_machine_rests_tells_no_idle_power():
    counters = {channel(wraps_at=262143.0): lambda t: 200_000 + 100 * t if t < 1 else 100 * t}
    found = account(sampled(counters))
    assert found.energy.energy_J == pytest.approx(4000)
    assert (found.energy.idle_W, found.energy.sensors[0].idle_W) == (None, None)
    assert "not correctly" in found.reasons["energy.idle_W"]


def test_a_counter_may_stand_still_where_no_power_is_taken():
    found = account(sampled({channel(): 5.0, channel("power_instant_W"): 0.0}))
    assert (found.energy.energy_J, found.energy.sensors[0].flags) == (0.0, [])


def test_a_counter_that_stands_still_is_no_energy_of_nothing_where_the_power_is_not_known():
    found = account(sampled({channel(): 5.0, channel("power_instant_W"): "lost"}))
    assert found.energy.energy_J is None
    assert found.energy.sensors[0].flags == ["counter_stalled"]


def test_a_wrapping_counter_that_falls_by_little_ran_backwards():
    """The other reading of it, a rise by nearly the whole range, would be a power of megawatts."""
    found = account(sampled({channel(wraps_at=65_000.0): lambda t: 100.0 * t - 10.0 * (t > 20)}))
    assert found.energy.sensors[0].flags == ["counter_backwards"]


def test_a_device_lost_in_the_middle_has_no_energy():
    gone = lambda of: lambda t: of if t < 20 else "lost"  # noqa: E731
    found = account(
        sampled({channel(): lambda t: 100.0 * t if t < 20 else "lost", channel("power_instant_W"): gone(9.0)})
    )
    assert found.energy.energy_J is None
    reason = found.reasons["energy.sensors[0].energy_J"]
    assert "lost: the counter gave no reading at an edge" in reason
    assert "lost: its readings cover 38% of the window" in reason


def test_readings_that_fail_for_a_moment_are_a_gap():
    found = account(sampled({channel("power_instant_W"): lambda t: "sentinel" if 20 < t < 21 else 100.0}))
    (sensor,) = found.energy.sensors
    assert (sensor.gaps, sensor.flags) == (1, ["gaps"])
    assert sensor.coverage == pytest.approx(0.98, abs=0.005)
    assert sensor.energy_J == pytest.approx(4000)


def test_a_sampler_that_never_saw_the_edges_says_so():
    found = account(sampled({channel("power_instant_W"): 100.0}, marks=(BEGIN,)))
    assert found.energy.energy_J is None
    assert found.reasons["energy.sensors[0].begin_ns"].endswith("no reading at the edges of the timed window")


def test_a_short_window_is_marked_and_a_very_short_one_is_refused():
    marks = (5 * S, 6 * S)
    short = account(sampled({channel("power_instant_W"): 100.0}, marks=marks)).energy
    assert (short.energy_J, short.flags) == (pytest.approx(100), ["energy_short"])
    marks = (5 * S, round(5.3 * S))
    found = account(sampled({channel("power_instant_W"): 100.0}, marks=marks))
    assert "fewer than 10 of its updates" in found.reasons["energy.sensors[0].energy_J"]
    found = account(sampled({channel(): rising(Constant(100.0), update_s=0.2)}, marks=(5 * S, 6 * S)))
    assert (
        found.reasons["energy.sensors[0].energy_J"]
        == "1 s contain fewer than 10 of its updates; use a longer timed part"
    )


def test_the_average_is_integrated_where_its_lag_is_small():
    powers = {
        channel("power_instant_W", window_ms=25): 90.0,
        channel("power_average_W", window_ms=1000): 100.0,
    }
    assert account(sampled(powers)).energy.energy_J == pytest.approx(4000)
    marks = (5 * S, 10 * S)
    assert account(sampled(powers, marks=marks)).energy.energy_J == pytest.approx(450)


@pytest.mark.parametrize(
    ("uuid", "pci", "expected"),
    [
        ("GPU-bb", None, 200),
        ("bb", None, 200),
        (None, "0000:01:00.0", 100),
        ("GPU-cc", None, None),
        (None, None, None),
    ],
)
def test_the_card_that_ran_the_case_is_found_by_uuid_or_address(uuid, pci, expected):
    of = {
        channel(uuid="GPU-aa", pci="0000:01:00.0"): rising(Constant(100.0)),
        channel(uuid="GPU-bb", pci="0000:02:00.0"): rising(Constant(200.0)),
    }
    found = account(sampled(of), timed=Timed("cuda", uuid, pci, 1, 1, 0.1))
    assert found.energy.energy_J == (None if expected is None else pytest.approx(40 * expected, rel=1e-3))
    if expected is None:
        assert found.reasons["energy.energy_J"] == "it is unknown which of 2 cards ran it"
    assert found.energy.total_J == pytest.approx(12_000, rel=1e-3)


def test_the_only_card_ran_it_even_where_the_framework_names_an_instance():
    found = account(
        sampled({channel(shared=True, scope="whole card"): rising(Constant(100.0))}),
        timed=Timed("cuda", "MIG-1", None, 1, 1, 0.1),
    )
    assert found.energy.sensors[0].measured
    assert found.energy.energy_J is None
    assert found.reasons["energy.energy_J"] == "the sensor covers more than what ran the case: whole card"
    assert found.energy.total_J == pytest.approx(4000, rel=1e-3)


def test_a_card_that_is_one_with_its_processor_is_seen_as_a_module():
    of = {channel(domain="module", pci="0000:01:00.0"): rising(Constant(500.0))}
    energy = account(sampled(of), timed=Timed("rocm", None, "0000:01:00.0", 1, 1, 0.1)).energy
    assert (energy.domains, energy.energy_J) == (["module"], pytest.approx(20_000, rel=1e-3))


def zone(name, domain):
    return channel(uuid=name, domain=domain, wraps_at=65_000.0)


def test_nothing_of_the_host_is_counted_twice():
    powers = {zone("package-0", "package"): 100, zone("dram-0", "dram"): 10, zone("psys", "psys"): 150}
    of = {each: Constant(watts).energy for each, watts in powers.items()}
    boards = {channel("power_average_W", uuid="socket", domain="package"): 99.0}
    energy = account(sampled(boards, meter="hwmon"), sampled(of, meter="rapl"), timed=ON_CPU).energy
    assert energy.domains == ["dram", "package"]
    assert energy.energy_J == energy.total_J == pytest.approx(110 * 40, rel=1e-3)
    assert len(energy.sensors) == 4
    energy = account(sampled(of, meter="rapl"), sampled({channel(): rising(Constant(300.0))})).energy
    assert (energy.domains, energy.total_domains) == (["gpu"], ["dram", "gpu", "package"])
    assert energy.total_J == pytest.approx(410 * 40, rel=1e-3)


def test_one_missing_part_makes_a_sum_null():
    found = account(
        sampled(
            {zone("package-0", "package"): lambda t: 100 * t, zone("dram-0", "dram"): "permission"},
            meter="rapl",
        ),
        timed=ON_CPU,
    )
    assert (found.energy.energy_J, found.energy.total_J) == (None, None)
    assert found.reasons["energy.total_J"] == "dram-0: permission: the counter gave no reading at an edge"


def test_a_sensor_in_step_with_the_work_is_flagged():
    blind = {channel("power_instant_W", update_ms=100, window_ms=25): 100.0}
    assert account(sampled(blind)).energy.flags == []
    found = account(sampled(blind), timed=Timed("cuda", "GPU-aa", None, 1, 1, 0.2))
    assert found.energy.flags == ["aliasing"]


def test_the_state_of_the_device_and_what_held_it_down():
    bits = {4: "power cap", 32: "thermal", 64: "thermal"}
    of = {
        channel(): rising(Constant(100.0)),
        channel("temperature_C"): lambda t: 60.0 if t < 25 else 80.0,
        channel("throttle_mask", bits=bits): lambda t: 0.0 if t < 35 else 68.0,
        channel("throttle_time_s", what="thermal"): lambda t: max(0.0, t - 35),
    }
    found = account(sampled(of))
    (state,) = found.telemetry
    assert (state.ranges["temperature_C"].min, state.ranges["temperature_C"].max) == (60.0, 80.0)
    assert state.ranges["temperature_C"].mean == pytest.approx(70, abs=0.2)
    assert state.throttle == {"power cap": pytest.approx(0.25, abs=0.01), "thermal": pytest.approx(0.25, abs=0.01)}
    assert state.throttle_s == {"thermal": 10.0}
    assert state.slowdowns == ["thermal"]
    assert found.energy.flags == ["throttled"]


def test_a_power_cap_is_a_note():
    of = {channel(): rising(Constant(100.0)), channel("throttle_mask", bits={4: "power cap"}): 4.0}
    found = account(sampled(of))
    assert found.telemetry[0].throttle == {"power cap": 1.0}
    assert found.energy.flags == []


def test_without_a_sensor_the_reasons_stand_where_the_energy_would():
    unavailable = [Unavailable("", "permission", "energy_uj is for root alone")]
    found = account(
        Sampled("rapl", (), tuple(unavailable), []), Sampled("nvml", (), (Unavailable("", "driver", "none"),), [])
    )
    assert found.energy is None
    assert found.reasons["energy"] == "no sensor can be read (rapl: permission, nvml: driver)"
    alone = account(Sampled("rapl", (), tuple(unavailable), []))
    assert alone.reasons["energy"] == "rapl: permission: energy_uj is for root alone"
    assert account().reasons["energy"] == "no meter was read (--power=none)"


GROUP = Timed("cuda", "GPU-aa", None, steps=400, samples=800, step_s=0.1, devices=2, others=("GPU-cc",))


def test_energy_of_several_devices_is_that_of_their_cards_and_a_processor_counts_once():
    cards = sampled(
        {channel(uuid=f"GPU-{name}{name}"): rising(Constant(100.0 * at)) for at, name in enumerate("abc", 1)}
    )
    node = sampled({channel(uuid="package-0", domain="package"): rising(Constant(50.0))}, meter="rapl")
    energy = account(cards, node, timed=GROUP).energy
    assert [sensor.id for sensor in energy.sensors if sensor.measured] == ["GPU-aa", "GPU-cc"]
    assert energy.energy_J == pytest.approx(400 * 40, rel=1e-3)
    assert energy.total_J == pytest.approx((600 + 50) * 40, rel=1e-3)


def test_cards_that_cannot_be_read_leave_no_energy_of_several_devices():
    one = sampled({channel(): rising(Constant(100.0))})
    found = account(one, timed=GROUP)
    assert found.energy.energy_J is None
    assert found.reasons["energy.energy_J"] == "2 cards ran it, but only 1 can be read"
    missing = sampled({channel(): rising(Constant(100.0)), channel(uuid="GPU-cc"): math.nan})
    assert account(missing, timed=GROUP).energy.energy_J is None


def test_a_processor_that_is_divided_has_the_energy_of_its_packages():
    node = sampled({channel(uuid=f"package-{at}", domain="package"): rising(Constant(50.0)) for at in range(2)})
    divided = Timed("cpu", None, None, steps=400, samples=800, step_s=0.1, devices=4)
    assert account(node, timed=divided).energy.energy_J == account(node, timed=ON_CPU).energy.energy_J
    assert account(node, timed=divided).energy.energy_J == pytest.approx(100 * 40, rel=1e-3)
