"""Loads on the page, against what `show` prints of them."""

import json
import re

import pytest
from support.records import make_record
from support.serving import Queue, load, outcome, outcomes, step

from benchmarker.files import atomic
from benchmarker.page import loads as section_of
from benchmarker.page.page_model import Figure, Listing
from benchmarker.page.render import specification
from benchmarker.records import load as loads
from benchmarker.records.load import Lengths, RequestFailure, Slo
from benchmarker.serving.arrivals import draw
from benchmarker.serving.doubts import doubts
from benchmarker.serving.latency import Figures

SLO = Slo(ttft_s=0.5, e2e_s=2.0)
TIMEOUT = RequestFailure("timeout", "no whole answer")


def queue(*rates, service_s=0.1, seconds=30.0, **fields):
    """A load of a server that answers one request at a time."""
    steps = [
        step(
            outcomes(Queue(service_s), draw(rate, seconds, Lengths(64, 64), Lengths(2, 2), 1, 1), 5.0),
            float(rate),
            seconds,
        )
        for rate in rates
    ]
    return load(steps, **fields)


def figures_of(found):
    return {each.key: each for each in found.parts if isinstance(each, Figure)}


def test_a_point_is_a_percentile_with_its_interval_over_the_tokens_that_arrived():
    made = queue(8, 2, 4, slo=SLO)
    drawn = figures_of(section_of.section([made]))
    assert set(drawn) == {"ttft-load-0", "tpot-load-0", "e2e-load-0", "goodput-load"}
    expected = [Figures(each, SLO) for each in sorted(made.steps, key=lambda each: each.rate_per_s)]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        figure = drawn[f"{name[:-2]}-load-0"]
        for mark, percent in zip(figure.marks, (50, 99), strict=False):
            estimates = [each.percentiles[name][percent] for each in expected]
            assert mark.name == f"p{percent}"
            assert mark.x == tuple(each.tokens_per_s for each in expected)
            assert mark.y == tuple(each.value for each in estimates)
            assert (mark.low, mark.high) == tuple(
                tuple(getattr(each, end) for each in estimates) for end in ("low", "high")
            )
    ttft, tpot = drawn["ttft-load-0"], drawn["tpot-load-0"]
    assert [(mark.name, set(mark.y)) for mark in ttft.marks[2:]] == [("SLO ≤ 500 ms", {0.5})]
    assert len(tpot.marks) == 2  # the SLO does not limit it
    mark = specification(ttft)["marks"][0]
    assert (mark["low"], mark["high"]) == (list(ttft.marks[0].low), list(ttft.marks[0].high))


def test_goodput_is_that_of_the_terminal_beside_the_rate_at_which_requests_came():
    made = queue(2, 12, slo=SLO)
    figure = figures_of(section_of.section([made]))["goodput-load"]
    mark, every = figure.marks
    for at, each in enumerate(made.steps):
        figures = Figures(each, SLO)
        assert (mark.x[at], mark.y[at]) == (each.planned / 30, pytest.approx(figures.goodput_per_s))
        assert mark.low[at] == pytest.approx(figures.met.low * each.planned / 30)
    assert every.x == every.y
    assert "goodput-load" not in figures_of(section_of.section([queue(2)]))


def test_a_percentile_of_failures_is_left_out_and_told():
    failing = [outcome(float(at), 0.1, 0.2) for at in range(60)]
    failing += [outcome(60.0 + at, failure=TIMEOUT, answer_tokens=None, prompt_tokens=None) for at in range(3)]
    made = load([step(failing, 1.0, 63.0)])
    found = section_of.section([made])
    figure = figures_of(found)["ttft-load-0"]
    assert [mark.name for mark in figure.marks] == ["p50"]
    assert figure.left_out == "A percentile that falls on a failed request has no time and is not drawn."
    (table,) = [each for each in found.parts if isinstance(each, Listing)]
    row = dict(zip([each.name for each in table.table.columns], table.table.rows[0], strict=True))
    assert (row["requests"], row["answered"], row["ttft_p50_s"], row["ttft_p99_s"]) == (
        63,
        60,
        pytest.approx(0.1),
        None,
    )
    assert found.points[0] == "3 of 63 requests failed (3 timeout); they count as slower than all others."
    json.dumps([specification(each) for each in figures_of(found).values()], allow_nan=False)


def test_several_loads_share_a_figure_and_have_names_of_their_own():
    one, two = queue(2, 4), queue(2, 4, service_s=0.2, model="other", slo=SLO)
    found = section_of.section([one, two])
    figure = figures_of(found)["ttft-load-0"]
    names = ["toy p50", "toy p99", "other p50", "other p99", "SLO ≤ 500 ms"]
    assert [mark.name for mark in figure.marks] == names
    assert [mark.series for mark in figure.marks[:4]] == [0, 0, 1, 1]
    assert found.lead[:2] == (
        "toy at http://server.example:8000/v1: 64 prompt tokens, 2 new tokens, Poisson arrivals.",
        "other at http://server.example:8000/v1: 64 prompt tokens, 2 new tokens, Poisson arrivals; SLO: TTFT ≤ 500 ms, "
        "end to end ≤ 2 s.",
    )
    again = section_of.section([one, queue(2, 4, run_id="20260102T030405.000000-00000001")])
    assert [mark.name.split()[-2][-1] for mark in figures_of(again)["ttft-load-0"].marks] == ["0", "0", "1", "1"]


def test_chunks_that_no_server_counted_are_not_drawn_as_tokens():
    uncounted = load([step([outcome(float(at), 0.1, 0.2, answer_tokens=None) for at in range(30)])], model="other")
    drawn = figures_of(section_of.section([queue(2), uncounted]))
    assert [drawn[f"ttft-load-{at}"].x.title for at in (0, 1)] == ["tokens/s", "chunks/s"]
    assert {mark.name.split()[0] for mark in drawn["ttft-load-1"].marks} == {"other"}


def test_loads_beyond_the_colours_are_in_the_table_alone():
    answers = [outcome(float(at), 0.1, 0.2) for at in range(20)]
    found = section_of.section([load([step(answers)], model=f"m{number}") for number in range(9)])
    figure = figures_of(found)["ttft-load-0"]
    assert len({mark.series for mark in figure.marks}) == 8
    assert len(figure.data.rows) == 18
    assert figure.left_out == "Only the first 8 of 9 loads are drawn; the data table has all."


def test_what_came_at_once_or_not_at_all_has_no_rate_and_no_point():
    at_once = section_of.section([load([step([outcome(0.0, 0.1)], None, 0.0)], arrivals="trace")])
    assert figures_of(at_once) == {}
    (table,) = at_once.parts
    row = dict(zip([each.name for each in table.table.columns], table.table.rows[0], strict=True))
    assert (row["requests_per_s"], row["tokens_per_s"], row["ttft_p50_s"]) == (None, None, pytest.approx(0.1))
    assert section_of.section([load([])]).parts[0].table.rows == ()
    assert section_of.section([]) is None


def test_the_answer_of_a_search_and_the_doubts_stand_on_the_page(tmp_path):
    made = queue(2, 12, slo=SLO, searched=True, endpoint="http://127.0.0.1:8000/v1")
    page = section_of.page([made], [], None)
    (card,) = page.cards
    assert card.figure == "2 requests/s"
    assert card.sentence.endswith(": highest rate found at which 90% of requests meet the SLO.")
    assert any("Highest rate that holds the SLO" in text for text in page.sections[0].lead)
    texts = [each.text for each in page.doubts]
    assert "Client and server shared one machine, and may have slowed each other." in texts
    assert [text for text in page.sections[0].points if "shared one machine" in text]
    assert len(texts) == len(doubts(made)) + any("failed" in text for text in texts)
    assert page.title == "toy, latency under load"


def test_the_command_reports_a_load_alone_and_beside_records(command, tmp_path):
    answers = [outcome(float(at), 0.1, 0.2) for at in range(60)]
    path = loads.write(tmp_path / "served", load([step(answers)]))
    for result in ("served", str(path), str(path.parent)):
        done = command("report", result)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        page = (tmp_path / "report.html").read_text("utf-8")
        assert "Latency under load" in page
        assert "No doubt was found" in page
        assert "No trial" not in page
    records = tmp_path / "measured" / "run"
    records.mkdir(parents=True)
    (records / "one.json").write_bytes(atomic.encode(make_record()))
    done = command("report", "served", "measured")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text("utf-8")
    assert re.search('<section id="loads".*<section id="method"', page, re.S)
    assert "<h1>nap, inference, fp32</h1>" in page


def test_what_concerns_records_is_refused_and_a_damaged_load_is_told(command, tmp_path):
    path = loads.write(tmp_path / "served", queue(2))
    done = command("report", "served", "--by=framework")
    assert (done.returncode, "loads are not judged: leave --by out" in done.stderr) == (2, True)
    (tmp_path / "served" / "cut").mkdir()
    (tmp_path / "served" / "cut" / "load.json").write_text("{")
    done = command("report", "served")
    assert (done.returncode, "cannot read served/cut/load.json" in done.stderr) == (1, True)
    assert "served/cut/load.json" in (tmp_path / "report.html").read_text("utf-8")
    path.unlink()
    done = command("report", "served")
    assert (done.returncode, "no record was read from served" in done.stderr) == (2, True)


def test_a_load_without_a_search_has_the_highest_rate_that_held_or_its_latency():
    (held,) = section_of.cards([queue(2, 4, 20, slo=SLO)])
    assert (held.word, held.figure) == ("highest rate", "4 requests/s")
    assert held.sentence.endswith(": highest of the rates tried at which 90% of requests meet the SLO.")
    assert held.detail == "95% sure that 4 holds and 20 does not."
    (plain,) = section_of.cards([queue(2, 4)])
    assert plain.word == "TTFT p99"
    assert plain.sentence.endswith(": at 4 requests/s, the highest rate.")
