"""`ab` says after each round how the ratio stands, with its interval drawn."""

import io

import pytest
from rich.console import Console
from support.records import make_record

from benchmarker.cli.display.rounds import Rounds
from benchmarker.comparing import matching
from benchmarker.comparing.judge import Referee, compare
from benchmarker.comparing.results import Rules
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records.record import Failure

RULES = Rules(delta=0.02)
LOOKS = [8, 11, 15]


def records(rounds, ratios=(1.03,), spread=0.02):
    """Rounds of pairs; the ratio of each round is off by the spread, in turns upwards and downwards."""
    return [
        make_record(
            ratios[number // 2] * (1 + spread * (-1) ** trial) if number % 2 else 1.0,
            trial=trial,
            case={"seed": number},
            design={"case_number": number, "looks": LOOKS},
        )
        for trial in range(rounds)
        for number in range(2 * len(ratios))
    ]


def family(*args, **more):
    return compare(matching.within(records(*args, **more)).matches, RULES, load_metrics()).comparisons


@pytest.fixture
def screen(monkeypatch):
    """A terminal of a number of columns as standard error, or a pipe without any; its file has what was written."""

    def make(columns=None):
        made = Console(file=io.StringIO(), width=columns or 1000, force_terminal=bool(columns), _environ={})
        monkeypatch.setattr("benchmarker.cli.display.progress.console", lambda **_: made)
        return made.file

    return make


def told(file, *rounds, pairs=1, **more):
    """What is written after these rounds, outside a live line."""
    shown = Rounds(pairs, RULES.delta)
    for number in rounds:
        shown.after_round(number, family(number, **more), number in LOOKS)
    return file.getvalue().splitlines()


def test_each_round_is_a_line_and_only_a_look_has_a_verdict(screen):
    fine, six, coarse, eight, nine = told(screen(), 6, 8, 9, spread=0.04)
    bounds = "┊ bounds of `same`, 0.980 and 1.020"
    assert fine == f"scale: 0.942 to 1.061; {bounds}"  # exp(1.5 * 2 * log(1.02)) is 1.0612
    assert coarse == f"scale: 0.902 to 1.109; {bounds}"  # 1.0712 ** 1.5, for the upper end, is 1.1087
    assert six.startswith("after 6 rounds: B/A 1.029 [no interval]   ")
    assert eight.startswith("after 8 rounds: B/A 1.029 [0.989, 1.071]  ")
    assert eight.endswith(" undecided")
    assert nine.endswith("┤")
    assert {line.index("│") for line in (six, eight, nine)} == {41 + 1 + 13}
    assert max(map(len, (six, eight, nine))) <= 80


def test_where_the_interval_closes_in_the_scale_follows(screen):
    file = screen()
    shown = Rounds(1, RULES.delta)
    for number, spread in ((8, 0.5), (9, 0.4), (10, 0.02)):
        shown.after_round(number, family(number, ratios=(1.0,), spread=spread), False)
    lines = file.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        *("scale", "after 8 rounds", "after 9 rounds"),
        *("scale", "after 10 rounds"),
    ]


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 200])
def test_lines_fit_the_terminal(screen, columns):
    lines = told(screen(columns), 8, 9)
    assert max(map(len, lines)) <= columns
    assert sum("●" in line for line in lines) == 2


def test_with_quiet_there_is_no_line(screen):
    file = screen()
    shown = Rounds(1, RULES.delta)
    shown._quiet = True
    shown.after_round(8, family(8), True)
    assert file.getvalue() == ""


def test_of_several_pairs_verdicts_are_counted_at_a_look(screen):
    two = {"ratios": (1.5, 0.5), "spread": 0.001, "pairs": 2}
    assert told(screen(), 7, 8, **two) == ["after 8 rounds: 1 slower, 1 faster"]


def test_a_side_without_a_value_has_no_interval_drawn(screen):
    failed = [
        make_record(
            trial=trial,
            case={"seed": number},
            design={"case_number": number, "looks": LOOKS},
            **({"status": "failed", "error": Failure("exception", "no", "timed")} if number else {}),
        )
        for trial in range(2)
        for number in range(2)
    ]
    file = screen()
    comparisons = compare(matching.within(failed).matches, RULES, load_metrics()).comparisons
    Rounds(1, RULES.delta).after_round(2, comparisons, False)
    assert file.getvalue() == "after 2 rounds: B/A -\n"


def test_on_a_terminal_a_round_stands_for_its_trials_but_not_for_one_that_failed(screen):
    file = screen(80)
    failed = make_record(status="failed", error=Failure("exception", "no", "timed"))
    with Rounds(1, RULES.delta) as shown:
        for record in (make_record(), failed):
            shown.begin("[1/30] a duet", record.case, None)
            shown.end([record])
    assert "done in" not in file.getvalue()
    assert "[1/30] a duet: FAILED in timed after 2.0 s: no" in file.getvalue()


def test_the_referee_tells_each_round_and_whether_it_looks():
    heard, said = [], []
    referee = Referee(RULES, load_metrics(), LOOKS, None, None, said.append, 1, lambda *told: heard.append(told))
    assert [referee(records(number, spread=0.04)) for number in (1, 7, 8, 9)] == [False] * 4
    assert [(rounds, len(comparisons), is_look) for rounds, comparisons, is_look in heard] == [
        *((1, 1, False), (7, 1, False)),
        *((8, 1, True), (9, 1, False)),
    ]
    assert said == []
    assert not referee(records(9, ratios=(2.0,)))  # plain as it is, 9 is no look
    assert referee(records(11, ratios=(2.0,)))
