"""Each reason to doubt the figures of a load is told, and only then."""

import msgspec
import pytest
from support.serving import load, outcome, step

from benchmarker.records.load import Slo
from benchmarker.serving.doubts import doubts

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


def test_that_a_rate_too_high_for_the_slo_is_not_stable_goes_without_saying():
    rising = [outcome(float(at), 0.1 + at / 30, 9.0) for at in range(60)]
    assert told(rising, slo=Slo(ttft_s=0.5)) == []
    assert len(told(rising, slo=Slo(ttft_s=5.0))) == 1


def test_a_trace_has_no_rate_to_name():
    late = [outcome(float(at), 0.1, 0.2, sent_s=at + 0.05) for at in range(60)]
    (doubt,) = doubts(load([step(late, None)]))
    assert doubt.startswith("the client was late: 1% of")
