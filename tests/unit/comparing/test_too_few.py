"""A verdict on all cases beside undecided cases says why, and how many rounds would decide."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from support.records import make_record

from benchmarker.comparing import matching
from benchmarker.comparing.judge import compare
from benchmarker.comparing.results import Rules
from benchmarker.hooks.metrics import load_metrics
from benchmarker.planning import suites
from benchmarker.planning.factors import expand
from benchmarker.stats.shift import fewest, paired
from benchmarker.stats.verdict import deciding, holm

ALPHA = 0.05


def judged(cases, rounds, *, ratio=1.5, noise=0.001, together=True):
    """Cases of frameworks x and y, in one run, or each framework in a run of its own."""
    rng = np.random.default_rng(5)
    records = [
        make_record(
            ratio**number * math.exp(rng.normal(0, noise)),
            run="run" if together else name,
            trial=trial,
            case={"framework": name, "seed": case},
            design={"case_number": 2 * case + number},
        )
        for case in range(cases)
        for number, name in enumerate("xy")
        for trial in range(rounds)
    ]
    family = compare(matching.by(records, "framework", "x").matches, Rules(), load_metrics())
    return family.geometric_means[0], [each.verdict for each in family.comparisons]


@pytest.mark.parametrize(("cases", "rounds"), [(1, 6), (2, 7), (3, 7), (6, 8), (7, 9), (12, 9), (23, 10), (26, 11)])
def test_the_rounds_that_n_cases_need_by_exact_arithmetic_and_by_the_formula(cases, rounds):
    assert math.ceil(1 + math.log2(cases / ALPHA)) == fewest(ALPHA / cases, is_paired=True) == rounds
    for n, decided in ((rounds - 1, False), (rounds, True)):
        p_values = [paired(np.ones(n) * (1 + case)).p_different for case in range(cases)]
        assert (max(holm(p_values)) <= ALPHA) == decided


def test_the_table_of_rounds_on_the_page_is_the_formula():
    page = (Path(__file__).parents[3] / "docs/comparing.md").read_text()
    cases, rounds = (re.findall(r"\d+", line) for line in re.findall(r"^ *\| (?:comparisons|rounds) \|.*$", page, re.M))
    assert [fewest(ALPHA / int(number), is_paired=True) for number in cases] == list(map(int, rounds))
    assert len(cases) == 5


@pytest.mark.parametrize("name", ["procurement-quick", "procurement"])
def test_the_suites_run_the_rounds_that_decide_between_two_frameworks(name):
    plan = suites.find(name).plan
    assert plan.trials >= fewest(ALPHA / (len(expand(plan)) // 2), is_paired=True)


def test_a_mean_above_undecided_cases_says_why_and_how_many_rounds_would_do():
    mean, verdicts = judged(6, 6)
    assert (mean.verdict, set(verdicts)) == ("slower", {"undecided"})
    assert mean.notes == [
        "6 of 6 cases are undecided: 6 rounds cannot reach p < 0.0083, as 6 comparisons together require; "
        "at least 8 are needed"
    ]
    mean, verdicts = judged(6, 8)
    assert (mean.verdict, set(verdicts), mean.notes) == ("slower", {"slower"}, [])


def test_trials_that_are_not_paired_are_counted_per_side():
    mean, _ = judged(6, 4, together=False)
    assert mean.notes == [
        "6 of 6 cases are undecided: 4 and 4 trials cannot reach p < 0.0083, as 6 comparisons together require; "
        "at least 5 per side are needed"
    ]


def test_blocks_that_took_turns_in_one_process_are_counted_in_pairs():
    records = [
        make_record(
            [1 + side] * 4,
            case={"framework": name},
            design={"case_number": side, "in_process": True, "partner": f"run-0000-{1 - side}"},
        )
        for side, name in enumerate("xy")
    ]
    (found,) = compare(matching.by(records, "framework", "x").matches, Rules(), load_metrics()).comparisons
    assert "4 pairs of blocks cannot reach p < 0.05 whatever their values; at least 6 are needed" in found.notes


def test_cases_that_are_undecided_for_their_scatter_say_so():
    mean, verdicts = judged(2, 8, ratio=1.02, noise=0.03)
    assert "undecided" in verdicts
    (note,) = [note for note in mean.notes if "cases" in note]
    assert note.startswith(f"{verdicts.count('undecided')} of 2 cases are undecided; ")
    assert note.endswith(" would likely decide all of them")


def test_an_undecided_mean_says_how_many_rounds_would_decide_it():
    few, _ = judged(2, 4)
    assert few.verdict == "undecided"
    assert few.notes[0] == "4 rounds cannot reach p < 0.05 whatever their values; at least 6 are needed"
    assert few.enough == 6
    noisy, _ = judged(2, 8, ratio=1.02, noise=0.03)
    assert (noisy.verdict, noisy.enough > 8) == ("undecided", True)
    assert noisy.notes[0] == f"the mean is undecided; {noisy.enough} rounds would likely decide"
    apart, _ = judged(2, 8, ratio=1.02, noise=0.06, together=False)
    assert apart.notes[0] == f"the mean is undecided; {apart.enough} trials per side would likely decide"
    single, _ = judged(2, 1, together=False)
    assert (single.enough, single.notes[0]) == (None, "a side has a single trial; at least 2 per side are needed")
    equal, _ = judged(2, 3, noise=0.0, together=False)
    assert (equal.enough, equal.low) == (None, None)
    assert equal.notes[0] == "all trials have the same value, so there is no interval and no test"


def test_the_rounds_that_decide_are_those_with_four_chances_in_five():
    """Of a true shift of 10% with a spread of 20%: (1.96 + 0.84)^2 * (0.2 / 0.1)^2 = 31.4 values."""
    assert deciding(0.1, 0.2, 0.0, ALPHA, 2) == 32
