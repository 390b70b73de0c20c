import numpy as np
import pytest

from benchmarker.api.meter import Channel
from benchmarker.power.sampler import Sample
from benchmarker.power.series import aliases, gaps_s, integral, risen, series, still_s, update_s

S = 1_000_000_000


def one(values, *, every_s=0.05, quantity="power_instant_W", **channel):
    """A channel's series: a value each `every_s`, or the reason why there is none."""
    made = Channel(id="card", domain="gpu", quantity=quantity, **channel)
    samples = [Sample(round(at * every_s * S), 0, "", (value,)) for at, value in enumerate(values)]
    return series([made], samples)[0]


def test_each_value_is_held_until_the_next_and_the_ends_to_the_edges():
    assert integral(one([100.0, 300.0], every_s=1.0), 0, 3 * S) == pytest.approx(100 + 300 * 2)
    assert integral(one([100.0, 300.0], every_s=1.0), -S, S) == pytest.approx(200)


def test_a_constant_power_loses_nothing():
    """Dropping repeats and joining what is left by lines lost 9% of it."""
    assert integral(one([250.0] * 200), 0, 10 * S) == pytest.approx(2500)


@pytest.mark.parametrize("wraps", [0, 1, 5])
def test_a_counter_is_unwrapped_to_the_microjoule(wraps):
    range_uj = 65_532_610_987
    step_uj = range_uj * wraps // 40 + 1_234_567
    read = [(7 + step_uj * at) % (range_uj + 1) / 1e6 for at in range(41)]
    rises, found = risen(one(read, quantity="energy_J", wraps_at=(range_uj + 1) / 1e6))
    assert found == (7 + step_uj * 40) // (range_uj + 1)
    assert round(rises.sum() * 1e6) == step_uj * 40


def test_a_counter_without_a_range_is_not_mended():
    rises, wraps = risen(one([5.0, 3.0, 4.0], quantity="energy_J"))
    assert np.isnan(rises).tolist() == [True, False]
    assert wraps == 0


@pytest.mark.parametrize("before", [200_000.0, 1_000.0])
def test_a_counter_that_is_set_back_did_not_wrap(before):
    """To the wrap it would have been 62 kJ, or 261 kJ, in 50 ms."""
    rises, wraps = risen(one([before, 1.0], quantity="energy_J", wraps_at=262_143.0))
    assert np.isnan(rises).all()
    assert wraps == 0


def test_readings_that_are_missing_are_told_by_reason():
    found = one([1.0, "sentinel", "lost", "lost", 2.0])
    assert found.valid().values.tolist() == [1.0, 2.0]
    assert found.reason == "lost"


def test_update_period_is_that_of_the_changes():
    assert update_s(one([float(at // 4) for at in range(80)])) == pytest.approx(0.2)
    assert update_s(one([100.0] * 80)) is None


def test_gaps_are_counted_beyond_what_is_usual():
    times = [0.0, 0.05, 0.1, 1.1, 1.15]
    samples = [Sample(round(at * S), 0, "", (1.0,)) for at in times]
    found = series([Channel(id="x", domain="gpu", quantity="power_instant_W")], samples)[0]
    gaps, beyond = gaps_s(found, 0, round(1.2 * S), 0.25)
    assert (gaps, beyond) == (1, pytest.approx(0.75))


def test_the_longest_stand_still():
    assert still_s(one([1.0, 1.0, 2.0, 2.0, 2.0, 3.0], every_s=1.0)) == 2.0
    assert still_s(one([1.0], every_s=1.0)) == 0.0


@pytest.mark.parametrize(
    ("step_s", "window_ms", "expected"),
    [(0.1, 25, True), (0.2, 25, True), (0.205, 25, True), (0.15, 25, False), (0.1, 100, False), (0.01, 25, False)],
)
def test_aliasing_is_where_a_blind_sensor_keeps_step(step_s, window_ms, expected):
    channel = Channel(id="x", domain="gpu", quantity="power_instant_W", update_ms=100, window_ms=window_ms)
    assert aliases(step_s, channel, 0.05) is expected


def test_a_moving_part_is_taken_by_its_edges():
    found = one(list(np.arange(10.0)), every_s=1.0).within(2 * S, 4 * S)
    assert found.values.tolist() == [2.0, 3.0, 4.0]
