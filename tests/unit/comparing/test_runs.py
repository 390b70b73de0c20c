"""Unpaired sides of several runs: the run is the unit, in a comparison and over all cases."""

import math

import numpy as np
import pytest
from scipy import stats
from support.records import make_record

from benchmarker.comparing import matching
from benchmarker.comparing.judge import compare
from benchmarker.comparing.results import Rules
from benchmarker.hooks.metrics import load_metrics

RNG = np.random.default_rng(4)


@pytest.fixture(scope="module")
def derive():
    return load_metrics()


def side(name, levels, *, cases=1, trials=3, spread=0.01, folders=False, lost=()):
    """A side whose runs have these levels (log s): sessions of one run, or runs of their own; `lost` are left out."""
    return [
        make_record(
            math.exp(level + spread * RNG.normal()),
            run=f"{name}{run}" if folders else name,
            trial=trial if folders else run * trials + trial,
            case={"seed": case, "framework": name},
            design={"case_number": case, "session": 0 if folders else run},
        )
        for run, level in enumerate(levels)
        for case in range(cases)
        for trial in range(trials)
        if (run, case) not in lost
    ]


def judged(derive, one, two, **rules):
    return compare(matching.between([("x", one), ("y", two)]).matches, Rules(**rules), derive)


def medians(records, runs, case=0):
    """The log median of each run of a side, by hand."""
    key = {(each.run_id, each.design.session): [] for each in records}
    for each in records:
        if each.case.seed == case:
            key[each.run_id, each.design.session].append(math.log(each.blocks.duration_ns[0] / 1e9))
    assert len(key) == runs
    return np.array([np.median(values) for values in key.values()])


@pytest.mark.parametrize("folders", [False, True])
def test_a_comparison_of_several_runs_is_welchs_over_runs(derive, folders):
    one, two = side("x", [0, 0.1, 0.05], folders=folders), side("y", [0.3, 0.5], folders=folders)
    (found,) = judged(derive, one, two).comparisons
    known = stats.ttest_ind(medians(two, 2), medians(one, 3), equal_var=False)
    assert (found.method, found.runs, found.trials) == ("unpaired by run", (3, 2), (9, 6))
    assert (math.log(found.low), math.log(found.high)) == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert found.p_value == pytest.approx(known.pvalue)
    assert found.provisional is None
    assert found.probability_lower == 0


def test_trials_of_a_run_do_not_narrow_the_interval(derive):
    """Runs that differ and trials that do not: thirty trials a run say no more than three."""
    widths = []
    for trials in (3, 30):
        one, two = (side(name, [0.0, 0.2, 0.1], trials=trials, spread=0.0) for name in "xy")
        (found,) = judged(derive, one, two).comparisons
        widths.append(found.high / found.low)
    assert widths[1] == pytest.approx(widths[0])
    assert widths[0] > 1.5


def test_cases_of_a_run_are_reduced_together(derive):
    """The runs move all cases alike, so ten cases are no better known than one; independent ones would be."""
    levels = [0.0, 0.2, 0.1]
    widths = []
    for cases in (2, 10):
        one, two = (side(name, levels, cases=cases, spread=1e-6) for name in "xy")
        (mean,) = judged(derive, one, two).geometric_means
        widths.append(math.log(mean.high / mean.low))
    expected = 2 * stats.t.ppf(0.975, 4) * math.sqrt(2 * 0.01 / 3)
    assert widths == pytest.approx([expected, expected], rel=1e-3)
    assert (mean.method, mean.runs) == ("unpaired by run: Welch-Satterthwaite", (3, 3))


def test_one_run_a_side_is_provisional_and_says_why(derive):
    (found,) = judged(derive, side("x", [0.0], trials=8), side("y", [0.7], trials=8)).comparisons
    assert (found.verdict, found.method, found.runs) == ("slower", "unpaired", (1, 1))
    assert found.provisional == "one run a side, not interleaved: changes between the runs are not in the interval"


def test_one_run_against_several_takes_their_scatter_and_is_provisional(derive):
    one, two = side("x", [0.0]), side("y", [0.3, 0.5, 0.4])
    (found,) = judged(derive, one, two).comparisons
    known = stats.ttest_ind(medians(two, 3), medians(one, 1), equal_var=True)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert found.provisional == "one run of a side: it is assumed to vary as the other side's runs do"
    assert found.provisional in found.notes


def test_runs_without_every_case_are_left_out_of_the_mean(derive):
    one = side("x", [0.0, 0.1, 0.05, 0.2], cases=2, lost={(3, 1)})
    two = side("y", [0.5, 0.4, 0.45], cases=2)
    family = judged(derive, one, two)
    (mean,) = family.geometric_means
    assert mean.runs == (3, 3)
    assert [each.runs for each in family.comparisons] == [(4, 3), (3, 3)]
    scattered = side("x", [0.0, 0.1], cases=2, lost={(0, 0), (1, 1)})
    (mean,) = judged(derive, scattered, side("y", [0.5], cases=2)).geometric_means
    assert mean.provisional == "no run has all cases: changes between the runs are not in the interval"


def test_undecided_runs_say_how_many_runs_would_decide(derive):
    found = judged(derive, side("x", [0.0, 0.3], cases=2), side("y", [0.3, 0.5], cases=2))
    assert found.geometric_means[0].verdict == "undecided"
    assert any("runs per side would likely decide" in note for note in found.geometric_means[0].notes)
