"""Types of options: durations and their bounds, wherever an option takes a time."""

import click
import pytest
from support.commands import named, parsed

from benchmarker.api.precision import PRECISIONS
from benchmarker.cli.commands import LINES
from benchmarker.cli.commands.serve_load import Objective, Range, Rates, TokenCounts
from benchmarker.cli.options.types import Duration, Number
from benchmarker.planning.build import from_description
from benchmarker.planning.factors import Description
from benchmarker.records.load import Lengths, Slo

RUN = ("run", "--framework=numpy", "--problem=gemm")
TIMES = [
    (RUN, "--seconds", "seconds"),
    (RUN, "--timeout", "timeout_s"),
    (RUN, "--preheat-max", "preheat_max_s"),
    (RUN, "--power-min", "power_min_s"),
    (RUN, "--power-idle", "power_idle_s"),
    (("sweep", "--framework=numpy", "--problem=gemm"), "--seconds", "seconds"),
    (("ab", "--problem=gemm"), "--budget", "budget"),
    (("power", "--watch"), "--seconds", "seconds"),
]


@pytest.mark.parametrize(("words", "option", "name"), TIMES)
@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5m", 300), ("1.5h", 5400), ("250ms", 0.25), (" 2 min ", 120), ("1e2s", 100), (".5s", 0.5)],
)
def test_every_option_that_takes_a_time_takes_a_unit(words, option, name, text, seconds):
    assert parsed(*words, f"{option}={text}").params[name] == pytest.approx(seconds)


@pytest.mark.parametrize(("words", "option", "name"), TIMES)
def test_a_bare_number_is_in_the_unit_of_the_option(words, option, name):
    assert parsed(*words, f"{option}=9").params[name] == (540 if option == "--minutes" else 9)


@pytest.mark.parametrize(("words", "option", "name"), TIMES)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", "={text}: not a time: write 250ms, 90s, 10m or 1.5h"),
        ("10d", "={text}: not a time"),
        ("nan", "={text}: not a time"),
        ("s", "={text}: not a time"),
        ("-1s", ": must be "),
        ("1e9h", ": must be at most 1e+09"),
        ("1e999", ": not a finite number"),
    ],
)
def test_a_time_that_is_none_or_out_of_bounds_is_refused(words, option, name, text, message):
    with pytest.raises(click.UsageError) as caught:
        parsed(*words, f"{option}={text}")
    assert f"{option}=" in caught.value.format_message()
    assert message.format(text=text) in caught.value.format_message()


@pytest.mark.parametrize("name", LINES)
def test_no_option_takes_a_time_as_a_mere_number(name):
    assert {param.name for param in named(name).params if type(param.type) is Number} <= {
        "power_hz",
        "median_precision",
        "memory_gb",
    }


def test_the_times_of_a_plan_take_a_unit():
    settings = {"problem": "gemm", "framework": "numpy", "seconds": "2m", "preheat_max_s": "500ms", "timeout_s": "1h"}
    (case,) = from_description(Description(base=settings)).cases
    assert (case.measuring.seconds, case.measuring.preheat_max_s, case.measuring.timeout_s) == (120, 0.5, 3600)


def test_a_bound_is_in_seconds():
    with pytest.raises(click.BadParameter, match="must be at least 1"):
        Duration(min=1).convert("250ms", None, None)
    assert Duration(min=1).convert("1000ms", None, None) == 1


@pytest.mark.parametrize("text", ["mixed_bf16", "mixed-bf16"])
def test_a_precision_has_one_name_however_it_is_typed(text):
    assert parsed(*RUN, f"--precision={text}").params["precision"] == ["mixed_bf16"]
    with pytest.raises(click.UsageError) as caught:
        parsed(*RUN, "--precision=bf17")
    assert caught.value.format_message() == f"--precision=bf17: not one of {', '.join(PRECISIONS)}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--trials=x", "--trials=x: not a whole number"),
        ("--trials=0", "--trials=0: must be at least 1"),
        ("--median-precision=2", "--median-precision=2: must be at most 1"),
        ("--mode=train", "--mode=train: not one of inference, forward_backward, training"),
    ],
)
def test_a_wrong_value_is_named_with_its_option(text, message):
    with pytest.raises(click.UsageError) as caught:
        parsed(*RUN, text)
    assert caught.value.format_message() == message


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
