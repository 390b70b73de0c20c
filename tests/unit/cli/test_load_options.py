"""Rates, lengths and objectives on the command line."""

import click
import pytest

from benchmarker.cli.commands.serve_load import Objective, Range, Rates, TokenCounts
from benchmarker.records.load import Lengths, Slo


def convert(kind, text):
    return kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "rates"),
    [("4", [4.0]), ("0.5,1,2", [0.5, 1.0, 2.0]), ("0.5..1.5", Range(0.5, 1.5))],
)
def test_rates(text, rates):
    assert convert(Rates(), text) == rates


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e10", "fast", "1,,2", "1..", "..2", "1..2..3"])
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(click.BadParameter, match=r"is not a rate in requests/s: write 4, 1,2,4 or 1\.\.20"):
        convert(Rates(), text)


@pytest.mark.parametrize("text", ["20..1", "4..4"])
def test_a_range_begins_with_the_lower_rate(text):
    with pytest.raises(click.BadParameter, match="the lower rate comes first"):
        convert(Rates(), text)


@pytest.mark.parametrize(("text", "lengths"), [("512", Lengths(512, 512)), ("128..1024", Lengths(128, 1024))])
def test_lengths(text, lengths):
    assert convert(TokenCounts(), text) == lengths


@pytest.mark.parametrize("text", ["", "0", "1.5", "5..3", "0..3", "many", "1..", "99999999999"])
def test_what_is_no_length_is_refused(text):
    with pytest.raises(click.BadParameter, match=r"is not a number of tokens: write 512 or 128\.\.1024"):
        convert(TokenCounts(), text)


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=500ms,tpot=50ms", Slo(ttft_s=0.5, tpot_s=0.05)),
        (" e2e = 2 ", Slo(e2e_s=2.0)),
        ("ttft=1m", Slo(ttft_s=60.0)),
    ],
)
def test_objectives(text, slo):
    assert convert(Objective(), text) == slo


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"'' is not a latency with its limit \(ttft, tpot, e2e\): write ttft=500ms,tpot=50ms"),
        ("ttft", "'ttft' is not a latency with its limit"),
        ("itl=5ms", "'itl=5ms' is not a latency with its limit"),
        ("ttft=500ms,", "'' is not a latency"),
        ("ttft=500ms;tpot=50ms", "ttft: '500ms;tpot=50ms' is not a time"),
        ("ttft=soon", "ttft: 'soon' is not a time: write 250ms"),
        ("ttft=", "ttft: '' is not a time"),
        ("ttft=0ms", "ttft: 0ms is not a time above 0"),
        ("ttft=-1s", "ttft: -1s is not a time above 0"),
        ("ttft=1s,ttft=2s", "ttft has two limits; leave one out"),
    ],
)
def test_what_is_no_objective_is_refused(text, words):
    with pytest.raises(click.BadParameter, match=words):
        convert(Objective(), text)
