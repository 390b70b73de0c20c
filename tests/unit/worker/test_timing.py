import itertools
import random
import statistics
import time

import pytest
from scipy import stats

from benchmarker import Measuring
from benchmarker.power.sampler_client import Gauge
from benchmarker.stats import median_interval
from benchmarker.worker import timing


class Clock:
    """A clock that stands still but for what a step adds to it."""

    def __init__(self, monkeypatch, step_s):
        self.now = 0.0
        self.steps = itertools.cycle(step_s)
        monkeypatch.setattr(time, "perf_counter_ns", lambda: round(self.now * 1e9))
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def step(self):
        self.now += next(self.steps)

    def stepper(self, sync_s=0.0):
        def synchronize(result):
            self.now += sync_s

        return timing.Stepper(self.step, synchronize)


def quiet(done, step_s):
    pass


def test_a_block_lasts_from_synchronisation_to_synchronisation(monkeypatch):
    stepper = Clock(monkeypatch, [0.25]).stepper(sync_s=0.5)
    assert stepper.block(4) == 1_500_000_000


def test_block_synchronises_on_the_last_result():
    seen = []
    results = itertools.count()
    timing.Stepper(lambda: next(results), seen.append).block(3)
    assert seen == [2]


@pytest.mark.parametrize(("step_s", "sync_s", "expected"), [(0.5, 0.0, 1), (0.001, 0.0, 10), (0.001, 0.0001, 91)])
def test_steps_per_block_make_a_block_long(monkeypatch, step_s, sync_s, expected):
    # 10 ms at least, and 1000 synchronisations: 0.1 s where one costs 0.1 ms
    assert timing.steps_per_block(Clock(monkeypatch, [step_s]).stepper(sync_s)) == pytest.approx(expected, rel=0.11)


def test_a_late_step_does_not_make_blocks_short_if_several_must_be_long(monkeypatch):
    late = itertools.chain([0.001, 0.05], itertools.repeat(0.001))  # the first is for the synchronisation
    assert timing.steps_per_block(Clock(monkeypatch, late).stepper()) == 1
    late = itertools.chain([0.001, 0.05], itertools.repeat(0.001))
    assert timing.steps_per_block(Clock(monkeypatch, late).stepper(), tries=3) == 10


def test_warm_up_is_a_fixed_count(monkeypatch):
    clock = Clock(monkeypatch, [0.5])
    preheat = timing.preheat(clock.stepper(), Measuring(warmup_steps=4), quiet)
    assert (preheat.outcome, preheat.steps, preheat.duration_s) == ("fixed", 4, 2.0)


def test_no_warm_up_takes_no_step(monkeypatch):
    clock = Clock(monkeypatch, [0.5])
    preheat = timing.preheat(clock.stepper(), Measuring(warmup_steps=0), quiet)
    assert (preheat.outcome, preheat.steps, preheat.duration_s) == ("fixed", 0, 0.0)


def test_preheat_stops_at_a_plateau(monkeypatch):
    # one step a window; the rate still rises over the first four, then stands
    steps = itertools.chain([2.0, 1.6, 1.3, 1.1], itertools.repeat(1.0))
    clock = Clock(monkeypatch, steps)
    preheat = timing.preheat(clock.stepper(), Measuring(preheat=True), quiet)
    assert preheat.outcome == "plateau"
    assert preheat.window_steps_per_s == pytest.approx([1 / 2.0, 1 / 1.6, 1 / 1.3, 1 / 1.1, 1.0, 1.0])


def test_preheat_gives_up_where_there_is_no_plateau(monkeypatch):
    clock = Clock(monkeypatch, [1.0, 1.5])
    preheat = timing.preheat(clock.stepper(), Measuring(preheat=True, preheat_max_s=7), quiet)
    assert preheat.outcome == "timeout"
    assert preheat.duration_s == 7.5


@pytest.mark.parametrize(
    ("powers", "temperatures", "windows"),
    [
        ([90, 100, 100.5], [50, 50, 50], 3),
        ([100, 100, 100, 100], [50, 52, 54, 54.5], 4),
        ([None] * 2, [None] * 2, 2),
        ([None] * 3, [50, 52, 52], 3),
        ([0.0] * 2, [None] * 2, 2),
    ],
)
def test_preheat_waits_for_power_and_temperature(monkeypatch, powers, temperatures, windows):
    """The rate stands still from the first window on; the first look is before it."""
    looks = iter([Gauge(), *map(Gauge, powers, temperatures)])
    clock = Clock(monkeypatch, [1.0])
    preheat = timing.preheat(clock.stepper(), Measuring(preheat=True), quiet, lambda: next(looks))
    assert (preheat.outcome, len(preheat.window_steps_per_s)) == ("plateau", windows)
    assert preheat.window_power_W == [each for each in powers if each is not None]
    assert preheat.window_temperature_C == [each for each in temperatures if each is not None]


def test_blocks_go_on_as_long_as_energy_wants(monkeypatch):
    durations = []
    clock = Clock(monkeypatch, [0.5])
    measuring = Measuring(blocks=2, seconds=3.0, median_precision=0.5)
    stopped = timing.timed_blocks(clock.stepper(), 1, measuring, durations, quiet, least_s=10.0)
    assert (stopped, len(durations)) == ("power_min", 20)
    durations.clear()
    measuring = Measuring(blocks=1000, seconds=3.0)
    stopped = timing.timed_blocks(clock.stepper(), 1, measuring, durations, quiet, least_s=10.0)
    assert (stopped, len(durations)) == ("power_min", 20)
    durations.clear()
    stopped = timing.timed_blocks(clock.stepper(), 1, measuring, durations, quiet, least_s=1.0)
    assert (stopped, len(durations)) == ("seconds", 6)


def test_blocks_stop_at_their_count(monkeypatch):
    durations = []
    stopped_by = timing.timed_blocks(Clock(monkeypatch, [0.1]).stepper(), 2, Measuring(blocks=5), durations, quiet)
    assert stopped_by == "blocks"
    assert durations == [200_000_000] * 5


def test_blocks_stop_in_time(monkeypatch):
    durations = []
    stopped_by = timing.timed_blocks(Clock(monkeypatch, [1.0]).stepper(), 1, Measuring(seconds=2.5), durations, quiet)
    assert stopped_by == "seconds"
    assert len(durations) == 3


def test_blocks_stop_when_the_median_is_known(monkeypatch):
    durations = []
    measuring = Measuring(seconds=1000, blocks=1000, median_precision=0.01)
    clock = Clock(monkeypatch, [1.0, 1.001, 1.002])
    assert timing.timed_blocks(clock.stepper(), 1, measuring, durations, quiet) == "median_precision"
    assert len(durations) == 6


def test_an_error_loses_no_block_that_ended():
    results = iter([1, 2])
    durations = []
    with pytest.raises(StopIteration):
        timing.timed_blocks(timing.Stepper(lambda: next(results), id), 1, Measuring(), durations, quiet)
    assert len(durations) == 2


@pytest.mark.parametrize("n", [6, 7, 10, 25, 100, 999, 1000])
def test_interval_of_the_median_has_the_binomial_ranks(n):
    values = list(range(1_000_000, 1_000_000 + n))
    rank = int(stats.binom.ppf(0.025, n, 0.5)) - 1  # largest r with P(X <= r) <= 0.025
    while stats.binom.cdf(rank + 1, n, 0.5) <= 0.025:
        rank += 1
    expected = (values[n - 1 - rank] - values[rank]) / 2 / statistics.median(values)
    assert median_interval.median_half_width(values) == pytest.approx(expected)


def test_interval_of_the_median_of_many_values_is_the_normal_one():
    n = 100_000
    values = list(range(1, n + 1))
    assert median_interval.median_half_width(values) == pytest.approx(1.96 * n**0.5 / 2 / (n / 2), rel=0.01)


def test_too_few_values_have_no_interval():
    with pytest.raises(ValueError, match="6 are needed"):
        median_interval.median_half_width([1, 2, 3, 4, 5])


class Turn:
    """Whose turn it is in a duet; nobody is told."""

    def __init__(self):
        self.of = 0

    def report_progress(self, done, step_s):
        """Nothing."""


def duet(monkeypatch, measuring, seed=1):
    clock = Clock(monkeypatch, [0.0])
    order = []

    def stepper(number, step_s):
        def step():
            clock.now += step_s
            order.append(number)

        return timing.Stepper(step, id)

    durations, second_first = ([], []), []
    steppers = [stepper(0, 0.25), stepper(1, 0.5)]
    stopped_by = timing.duet_blocks(steppers, [2, 1], measuring, durations, second_first, random.Random(seed), Turn())
    return stopped_by, durations, second_first, order


def test_a_duet_times_both_in_turns_in_an_order_drawn_anew(monkeypatch):
    stopped_by, durations, second_first, order = duet(monkeypatch, Measuring(blocks=100, seconds=1000.0))
    assert stopped_by == "blocks"
    assert durations == ([500_000_000] * 100, [500_000_000] * 100)
    assert 30 <= sum(second_first) <= 70
    pairs = [order[start : start + 3] for start in range(0, 300, 3)]
    assert pairs == [[1, 0, 0] if second else [0, 0, 1] for second in second_first]


def test_a_duet_has_the_seconds_of_both(monkeypatch):
    stopped_by, durations, second_first, _ = duet(monkeypatch, Measuring(blocks=100, seconds=2.0))
    assert stopped_by == "seconds"
    assert len(second_first) == len(durations[0]) == len(durations[1]) == 4


def talk(clock, first_s, gaps_s):
    """Requests of a prompt and some tokens; each takes its time on the clock."""

    def tokens(tell):
        if first_s:
            clock.now += first_s
            tell("first")
        for gap_s in gaps_s:
            clock.now += gap_s
            tell("next")

    return tokens


@pytest.mark.parametrize(
    ("first_s", "gaps_s", "first_ns", "gap_ns"),
    [
        (0.5, [0.1, 0.2], [500_000_000] * 3, [[100_000_000, 200_000_000]] * 3),
        (0.5, [], [500_000_000] * 3, []),
        (0.0, [0.1, 0.2], [], [[100_000_000, 200_000_000]] * 3),
    ],
)
def test_intervals_are_one_fewer_than_tokens_and_begin_where_the_last_one_ended(
    monkeypatch, first_s, gaps_s, first_ns, gap_ns
):
    clock, found, told = Clock(monkeypatch, [0.0]), ([], []), []
    timing.token_times(talk(clock, first_s, gaps_s), Measuring(blocks=3), *found, lambda *each: told.append(each))
    assert found == (first_ns, gap_ns)
    tokens = bool(first_s) + len(gaps_s)
    assert told == [(done, pytest.approx((first_s + sum(gaps_s)) / tokens)) for done in (1, 2, 3)]


@pytest.mark.parametrize(
    ("gaps", "measuring", "requests"),
    [(399, Measuring(), 3), (4, Measuring(), 3), (4, Measuring(seconds=6.0), 2), (4, Measuring(blocks=1), 1)],
)
def test_requests_end_at_their_tokens_their_seconds_or_their_number(monkeypatch, gaps, measuring, requests):
    """400 tokens take 0.5 s, and 5 tokens take 4.5 s."""
    found = ([], [])
    tokens = talk(Clock(monkeypatch, [0.0]), 0.5, [1.0 if gaps == 4 else 0.0] * gaps)
    timing.token_times(tokens, measuring, *found, quiet)
    assert len(found[0]) == requests


def test_an_error_loses_no_request_that_ended():
    requests = iter([["first", "next"], ["first"]])
    found = ([], [])
    with pytest.raises(StopIteration):
        timing.token_times(lambda tell: [*map(tell, next(requests))], Measuring(), *found, quiet)
    assert [len(each) for each in found] == [2, 1]
