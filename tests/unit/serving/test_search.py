"""The search for the highest rate that holds an SLO."""

import math

import pytest
from scipy import optimize
from support.serving import Queue, load, outcomes, waiting_cdf

from benchmarker.records.load import Lengths, Slo
from benchmarker.serving.arrivals import draw
from benchmarker.serving.search import Highest, bisect, highest
from benchmarker.serving.session import Session
from benchmarker.stats.quantile_interval import Estimate

NARROW = 0.02


def share_of(value, half=NARROW):
    return Estimate(value, value - half, value + half)


def search(capacity, low=1.0, high=20.0, precision=0.05):
    tried = []

    def holds(rate):
        tried.append(rate)
        return rate <= capacity

    bisect(low, high, precision, holds)
    return tried


def test_it_ends_between_two_rates_that_differ_by_the_precision():
    tried = search(7.3)
    held, failed = max(rate for rate in tried if rate <= 7.3), min(rate for rate in tried if rate > 7.3)
    assert failed / held <= 1.05
    assert len(tried) == 2 + math.ceil(math.log2(math.log(20) / math.log(1.05)))
    assert tried[:3] == [1.0, 20.0, math.sqrt(20)]


@pytest.mark.parametrize(("capacity", "tried"), [(0.5, [1.0]), (25.0, [1.0, 20.0])])
def test_it_ends_at_once_if_the_limit_is_outside(capacity, tried):
    assert search(capacity) == tried


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ({1.0: 1.0, 4.0: 0.95, 5.0: 0.91, 6.0: 0.89, 8.0: 0.5}, Highest(5.0, 4.0, 8.0, is_bounded=True)),
        ({1.0: 0.5}, Highest(None, None, 1.0, is_bounded=True)),
        ({1.0: 1.0, 20.0: 0.96}, Highest(20.0, 20.0, None, is_bounded=False)),
        ({1.0: 0.91, 2.0: 0.89}, Highest(1.0, None, None, is_bounded=True)),
    ],
)
def test_the_limit_lies_between_rates_whose_whole_interval_is_on_one_side(shares, found):
    assert highest({rate: share_of(value) for rate, value in shares.items()}, 0.9) == found


def test_it_finds_the_capacity_that_queueing_theory_gives(tmp_path):
    """Of requests that take 0.1 s each, 90% wait 0.3 s at most up to 6.94 requests/s."""
    capacity = optimize.brentq(lambda rate: waiting_cdf(0.3, rate, 0.1) - 0.9, 4.0, 9.5)
    lengths, seconds = Lengths(64, 64), 100.0
    session = Session(
        load([], slo=Slo(ttft_s=0.3), searched=True),
        tmp_path,
        lambda requests, done: [done(each) for each in outcomes(Queue(0.1), requests)],
        show=str,
    )
    shares = {}

    def holds(rate):
        shares[rate] = session.step(rate, seconds, draw(rate, seconds, lengths, Lengths(2, 2), seed=2)).met
        return shares[rate].value >= 0.9

    bisect(4.0, 12.0, 0.1, holds)
    found = highest(shares, 0.9)
    assert found.low < capacity < found.high
    assert found.rate == pytest.approx(capacity, rel=0.15)
    assert len(session.load.steps) == len(shares)
