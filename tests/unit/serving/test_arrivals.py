"""Drawn arrivals and lengths, and those of trace files."""

import numpy as np
import pytest

from benchmarker.api.errors import UserError
from benchmarker.records.load import Lengths
from benchmarker.serving.arrivals import Request, draw, read_trace

FIXED = Lengths(512, 512)


def drawn(rate=5.0, seconds=400.0, prompt=FIXED, new=FIXED, seed=0, **more):
    return draw(rate, seconds, prompt, new, seed, **more)


def test_gaps_are_exponential():
    gaps = np.diff([each.arrival_s for each in drawn()])
    assert len(gaps) == pytest.approx(2000, abs=3 * 2000**0.5)
    assert gaps.mean() == pytest.approx(0.2, rel=0.07)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)


def test_a_seed_gives_the_same_requests_and_another_rate_compresses_them():
    assert drawn() == drawn() != drawn(seed=1)
    fast = drawn(rate=10.0, seconds=200.0)
    assert [each.arrival_s * 2 for each in fast] == pytest.approx([each.arrival_s for each in drawn()])


def test_bursts_come_together_at_the_rate_of_requests():
    times = [each.arrival_s for each in drawn(burst_size=8)]
    assert len(times) == pytest.approx(2000, rel=0.2)
    assert {times.count(each) for each in times} == {8}


def test_lengths_are_drawn_between_their_ends():
    lengths = {each.prompt_len for each in drawn(prompt=Lengths(3, 6))}
    assert lengths == {3, 4, 5, 6}
    assert {each.new_tokens for each in drawn(prompt=Lengths(3, 6))} == {512}


@pytest.mark.parametrize(
    ("rate", "words"), [(1e-6, "no request arrives within 400 s .*raise --seconds"), (1e5, "lower --seconds")]
)
def test_none_or_too_many_are_refused(rate, words):
    with pytest.raises(UserError, match=words):
        drawn(rate=rate)


def test_a_trace_is_read_in_order_of_arrival(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("user,arrival_s,prompt_len,new_tokens\na,1.5,512,128\nb,0.25,64,8\n")
    assert read_trace(path) == [Request(0.25, 64, 8), Request(1.5, 512, 128)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("arrival_s,prompt_len\n1,2\n", "no column new_tokens; the first line names arrival_s,prompt_len,new_tokens"),
        ("", "no column arrival_s"),
        ("arrival_s,prompt_len,new_tokens\n", "no request"),
        ("arrival_s,prompt_len,new_tokens\n1,2,3\nsoon,2,3\n", "line 3: could not convert .*'soon'"),
        ("arrival_s,prompt_len,new_tokens\n1,2\n", "line 2"),
        ("arrival_s,prompt_len,new_tokens\n1,2.5,3\n", "line 2: invalid literal"),
        ("arrival_s,prompt_len,new_tokens\n-1,2,3\n", "line 2: an arrival is at 0 s or later"),
        ("arrival_s,prompt_len,new_tokens\nnan,2,3\n", "line 2: an arrival is"),
        ("arrival_s,prompt_len,new_tokens\n1,0,3\n", "line 2: .*lengths are 1 to 10,000,000 tokens"),
        ("arrival_s,prompt_len,new_tokens\n1,2,10000001\n", "line 2: .*lengths are 1 to 10,000,000 tokens"),
        ("\xff", "not CSV in UTF-8"),
    ],
)
def test_a_faulty_trace_is_refused_with_its_line(tmp_path, content, words):
    path = tmp_path / "trace.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=words):
        read_trace(path)


def test_a_trace_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*No such file"):
        read_trace(tmp_path / "none.csv")
