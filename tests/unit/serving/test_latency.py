"""Latencies by their definitions, worked out by hand."""

import math

import msgspec
import pytest
from support.serving import load, outcome, step

from benchmarker.records.load import RequestFailure, Slo
from benchmarker.serving.doubts import doubts
from benchmarker.serving.latency import Figures, e2e_s, meets, tpot_s, ttft_s

FAILED = RequestFailure("cut", "gone")


def test_the_definitions():
    each = outcome(10.0, 0.5, 0.6, 0.8, 1.1, sent_s=10.3)
    assert ttft_s(each) == pytest.approx(0.5)
    assert e2e_s(each) == pytest.approx(1.1)
    assert tpot_s(each) == pytest.approx(0.2)
    assert Figures(step([each]), None).values("itl_s") == pytest.approx([0.1, 0.2, 0.3])


def test_tokens_count_where_the_server_tells_them():
    assert tpot_s(outcome(0.0, 0.5, 1.1, answer_tokens=7)) == pytest.approx(0.1)
    assert tpot_s(outcome(0.0, 0.5, 1.1, answer_tokens=None)) == pytest.approx(0.6)
    assert tpot_s(outcome(0.0, 0.5)) is None


def test_a_failure_is_slower_than_everything():
    each = outcome(0.0, 0.5, 0.6, failure=FAILED)
    assert (ttft_s(each), tpot_s(each), e2e_s(each)) == (math.inf,) * 3
    figures = Figures(step([each, outcome(1.0, 0.5, 0.6)]), None)
    assert figures.values("itl_s") == pytest.approx([0.1])
    assert (figures.answered, figures.failures) == (1, {"cut": 1})
    assert figures.percentiles["ttft_s"][50].value == pytest.approx(0.5)
    assert figures.percentiles["ttft_s"][90].value == math.inf


@pytest.mark.parametrize(
    ("slo", "met"),
    [
        (Slo(ttft_s=0.5), True),
        (Slo(ttft_s=0.4), False),
        (Slo(ttft_s=0.5, tpot_s=0.05), False),
        (Slo(tpot_s=0.1, e2e_s=0.8), True),
        (Slo(e2e_s=0.7), False),
    ],
)
def test_the_whole_slo_must_be_met(slo, met):
    each = outcome(0.0, 0.5, 0.625, 0.75, answer_tokens=4)
    assert meets(each, slo) == met


def test_an_answer_of_one_token_has_no_tpot_to_exceed_and_a_failure_meets_nothing():
    assert meets(outcome(0.0, 0.5), Slo(tpot_s=0.01))
    assert not meets(outcome(0.0, 0.5, failure=FAILED), Slo(ttft_s=1.0))


def test_goodput_counts_requests_that_meet_the_slo_for_each_second_of_arrivals():
    outcomes = [outcome(float(at), 0.1 if at % 4 else 0.9) for at in range(40)]
    figures = Figures(step(outcomes, seconds=40.0), Slo(ttft_s=0.5))
    assert figures.met.value == 0.75
    assert figures.goodput_per_s == pytest.approx(0.75)
    assert Figures(step(outcomes), None).goodput_per_s is None
    assert Figures(step(outcomes[:1], seconds=0.0), Slo(ttft_s=0.5)).goodput_per_s is None


def test_tokens_that_arrive_after_the_last_request_are_not_in_the_rate():
    figures = Figures(step([outcome(0.0, 1.0, 2.0, 3.0, 4.0, answer_tokens=8)], seconds=2.0), None)
    assert figures.tokens_per_s == pytest.approx(2.0)


def test_lateness_is_what_the_client_adds():
    assert Figures(step([outcome(1.0, 0.5, sent_s=1.25)]), None).lateness_s == pytest.approx([0.25])


def test_a_server_that_no_request_reached_is_gone():
    refused = outcome(0.0, failure=RequestFailure("refused", "no"))
    assert not Figures(step([refused]), None).reached
    assert Figures(step([refused, outcome(1.0, 0.5)]), None).reached
    assert Figures(step([refused, outcome(1.0, failure=FAILED)]), None).reached


QUIET = [outcome(float(at), 0.1, 0.2) for at in range(60)]


def told(outcomes=QUIET, **fields):
    return doubts(load([step(outcomes)], **fields))


def changed(**fields):
    return [msgspec.structs.replace(each, **fields) for each in QUIET]


def test_there_may_be_none():
    assert told() == []


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        (
            [outcome(float(at), 0.1, 0.2, sent_s=at + 0.05) for at in range(60)],
            "the client was late: 1% of",
        ),
        ([outcome(float(at), 0.1 + at / 30, 9.0) for at in range(60)], "latency was still rising at the end"),
        (
            changed(answer_tokens=4),
            "60 of 60 answers came in fewer chunks than tokens (2 tokens a chunk): ",
        ),
        (changed(answer_tokens=1, new_tokens=1), "60 of 60 answers came in more chunks than the server counted tokens"),
        (changed(answer_tokens=None), "60 of 60 answers came without a count of tokens: chunks were counted"),
        (changed(new_tokens=128), "60 of 60 answers were shorter than requested"),
        (changed(prompt_tokens=70), "the server counted 70 to 70 tokens in 60 of 60 prompts"),
    ],
)
def test_a_doubt_about_answers_is_told(outcomes, words):
    (doubt,) = told(outcomes)
    assert doubt.startswith(words)


def test_a_client_on_the_machine_of_the_server_is_told():
    (doubt,) = told(endpoint="http://localhost:8000/v1")
    assert "shared one machine" in doubt


def test_an_interrupted_step_is_told():
    part = msgspec.structs.replace(step(QUIET), planned=100)
    (doubt,) = doubts(load([part]))
    assert doubt == "interrupted: only 60 of 100 requests finished, so the slowest are missing"


def test_with_several_rates_each_doubt_names_its_own():
    rising = [outcome(float(at), 0.1 + at / 30, 9.0) for at in range(60)]
    (doubt,) = doubts(load([step(QUIET, 1.0), step(rising, 4.0)]))
    assert doubt.startswith("latency was still rising at the end at 4 requests/s: ")
    (doubt,) = doubts(load([step(QUIET, 1.0), step(rising, 4.0), step(rising, 5.0)]))
    assert doubt.startswith("latency was still rising at the end at 4 and 5 requests/s: ")


def test_that_a_rate_too_high_for_the_slo_is_not_stable_goes_without_saying():
    rising = [outcome(float(at), 0.1 + at / 30, 9.0) for at in range(60)]
    assert told(rising, slo=Slo(ttft_s=0.5)) == []
    assert len(told(rising, slo=Slo(ttft_s=5.0))) == 1


def test_a_trace_has_no_rate_to_name():
    late = [outcome(float(at), 0.1, 0.2, sent_s=at + 0.05) for at in range(60)]
    (doubt,) = doubts(load([step(late, None)]))
    assert doubt.startswith("the client was late: 1% of")
