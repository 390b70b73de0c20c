"""Requests in virtual time: against queueing theory, against stalls, and what fails."""

import asyncio
import math

import numpy as np
import pytest
from support.serving import Queue, VirtualLoop, outcomes, virtually, waiting_cdf

from benchmarker.records.load import Lengths
from benchmarker.serving.arrivals import Request, draw
from benchmarker.serving.latency import e2e_s, ttft_s
from benchmarker.serving.open_loop import Overload, RequestError, Usage, drive
from benchmarker.stats.quantile_interval import quantile

LENGTHS = Lengths(64, 64), Lengths(2, 2)


@pytest.fixture(scope="module")
def waits():
    """The waiting times of 4000 requests at 70% of the capacity of a server that takes 0.1 s for each."""
    requests = draw(7.0, 4000 / 7, *LENGTHS, seed=1)
    found = outcomes(Queue(0.1), requests)
    return requests, np.array([ttft_s(each) for each in found]), found


def test_the_first_token_comes_when_those_before_are_served(waits):
    requests, found, _ = waits
    expected, free = [], 0.0
    for request in requests:
        start = max(request.arrival_s, free)
        expected.append(start - request.arrival_s)
        free = start + 0.1
    assert found == pytest.approx(expected, abs=2e-6)


def test_the_mean_wait_is_that_of_queueing_theory(waits):
    load, service_s = 0.7, 0.1
    _, found, _ = waits
    batches = found[: len(found) // 20 * 20].reshape(20, -1).mean(axis=1)
    assert abs(found.mean() - load * service_s / (2 * (1 - load))) < 2.1 * batches.std(ddof=1) / math.sqrt(20)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
def test_percentiles_of_waits_have_those_of_queueing_theory_in_their_interval(waits, share):
    estimate = quantile(waits[1], share)
    assert waiting_cdf(estimate.low, 7.0, 0.1) < share < waiting_cdf(estimate.high, 7.0, 0.1)
    assert estimate.high < 2 * estimate.value


def test_a_stall_of_the_server_is_in_the_latency_of_all_that_arrived_meanwhile():
    """A client that waits for answers would have one slow request in 600, and a p99 as without the stall."""
    requests = draw(20.0, 30.0, *LENGTHS, seed=0)
    found = outcomes(Queue(0.01, stall=(15.0, 1.0)), requests)
    meanwhile = [each for each in found if 15.0 < each.arrival_s < 16.0]
    assert len(meanwhile) > 12
    assert all(each.sent_s == each.arrival_s for each in found)
    assert all(ttft_s(each) >= 16.0 - each.arrival_s - 1e-5 for each in meanwhile)
    latencies = np.array([e2e_s(each) for each in found])
    assert quantile(latencies, 0.5).value < 0.015
    assert quantile(latencies, 0.99).value > 0.5


def test_a_stall_of_the_client_is_in_the_latency_too_and_is_told():
    class Blocking:
        async def answer(self, request, token):
            loop = asyncio.get_running_loop()
            if request.arrival_s == 1.0:
                loop._clock.now += 5.0  # what a busy processor does: nothing else runs
            token(loop.time())
            return Usage()

    late = outcomes(Blocking(), [Request(float(at), 64, 1) for at in range(10)])[2]
    assert (late.arrival_s, late.sent_s, ttft_s(late)) == (2.0, 6.0, 4.0)


def test_a_request_fails_after_the_timeout_and_keeps_what_came():
    slow, fast = outcomes(Queue(10.0), [Request(0.0, 64, 2), Request(1.0, 64, 2)], timeout_s=12.0)
    assert slow.failure is None
    assert (fast.failure.kind, fast.failure.message) == ("timeout", "no whole answer within 12 s")
    assert fast.chunks_s == [10.0]
    assert ttft_s(fast) == math.inf


@pytest.mark.parametrize(
    ("ends", "kind"), [(RequestError("cut", "gone"), "cut"), (TimeoutError(), "timeout"), (None, "invalid")]
)
def test_each_failure_is_an_outcome(ends, kind):
    class Failing:
        async def answer(self, request, token):
            if ends:
                raise ends
            return Usage()

    (found,) = outcomes(Failing(), [Request(0.5, 64, 2)])
    assert found.failure.kind == kind


def test_a_bug_in_a_server_is_no_outcome():
    class Wrong:
        async def answer(self, request, token):
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        outcomes(Wrong(), [Request(0.0, 64, 2)])


def test_what_is_in_flight_when_cancelled_has_no_outcome():
    found = []

    async def interrupted():
        async with asyncio.timeout(2.5):
            await drive(
                Queue(1.0),
                [
                    Request(0.0, 64, 2),
                    Request(0.1, 64, 2),
                    Request(9.0, 64, 2),
                ],
                60.0,
                found.append,
            )

    with pytest.raises(TimeoutError):
        virtually(interrupted())
    assert [each.arrival_s for each in found] == [0.0, 0.1]


def test_virtual_time_takes_no_time():
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(asyncio.sleep(1e6))
        assert runner.get_loop().time() == pytest.approx(1e6)


@pytest.mark.parametrize(("rate", "ends"), [(7.0, False), (20.0, True)])
def test_a_load_that_is_ended_drops_what_is_in_flight(rate, ends):
    """A server of 10 requests/s; at 20, the queue grows by 10 requests/s, so those from 4 s on wait 2 s or more."""
    requests = draw(rate, 60.0, *LENGTHS, seed=3)
    found, timeouts = [], 0

    def done(outcome):
        nonlocal timeouts
        found.append(outcome)
        timeouts += outcome.failure is not None
        if timeouts > 0.1 * len(requests):
            raise Overload

    async def run():
        await drive(Queue(0.1), requests, 2.0, done)
        return asyncio.get_running_loop().time()

    end_s = virtually(run())
    kinds = [each.failure.kind for each in found if each.failure]
    assert ("dropped" in kinds) == ends
    assert (end_s < 0.5 * requests[-1].arrival_s) == ends
    assert kinds.count("timeout") == (int(0.1 * len(requests)) + 1 if ends else 0)
    assert all(each.arrival_s > end_s - 2.1 for each in found if each.failure and each.failure.kind == "dropped")
