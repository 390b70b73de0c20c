"""Densities, medians and quantiles of step times, against other ways to compute them."""

import statistics

import numpy as np
import pytest
from support.records import make_record

from benchmarker.page.distributions import MOST_BLOCKS, MOST_CASES, density
from benchmarker.page.page_model import BELOW

RNG = np.random.default_rng(3)
A = RNG.lognormal(np.log(0.01), 0.02, (4, 30))
B = RNG.lognormal(np.log(0.011), 0.05, (4, 40))


def records(*sides, seed=0):
    return [
        make_record(
            steps.tolist(),
            run=f"run-{seed}",
            trial=trial,
            case={"framework": name, "seed": seed},
            design={"case_number": number},
        )
        for number, (name, trials) in enumerate(zip(("one", "two", "three"), sides, strict=False))
        for trial, steps in enumerate(trials)
    ]


def by_hand(values, x):
    """The mean of Gaussian curves around the values, as wide as Silverman's rule says."""
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    spread = min(statistics.stdev(values), (quartiles[2] - quartiles[0]) / 1.34)
    normal = statistics.NormalDist(0.0, 0.9 * spread * len(values) ** -0.2)
    return [statistics.fmean(normal.pdf(at - value) for value in values) for at in x]


@pytest.mark.parametrize("log", [False, True])
def test_a_density_is_the_mean_of_gaussian_curves_of_silvermans_width(log):
    values = A.ravel()
    x, heights = density(values, 0.008, 0.013, log=log)
    scale = np.log if log else np.asarray
    assert np.diff(scale(x)) == pytest.approx(np.full(len(x) - 1, np.diff(scale(x)).mean()))
    assert heights[::10] == pytest.approx(by_hand(scale(values).tolist(), scale(x)[::10].tolist()), rel=1e-6, abs=1e-9)
    assert np.trapezoid(heights, scale(x)) == pytest.approx(1.0, abs=0.01)


def test_equal_values_have_no_density_and_equal_quartiles_do_not_break_it():
    assert density(np.full(30, 0.01), 0.009, 0.011, log=False) is None
    values = np.array([*[0.01] * 40, 0.02])
    x, heights = density(values, 0.005, 0.025, log=False)
    assert np.trapezoid(heights, x) == pytest.approx(1.0, abs=0.01)
    sharp = np.array([0.01, 0.010001] * 20)  # closer than the points of the curve
    x, heights = density(sharp, 0.005, 0.025, log=False)
    assert np.trapezoid(heights, x) == pytest.approx(1.0, abs=0.01)


def test_of_very_many_blocks_quantiles_stand_for_them():
    values = RNG.normal(1.0, 0.1, 20 * MOST_BLOCKS)
    x, heights = density(values, 0.5, 1.5, log=False)
    bandwidth = 0.9 * 0.1 * MOST_BLOCKS**-0.2
    expected = statistics.NormalDist(1.0, (0.1**2 + bandwidth**2) ** 0.5)
    assert heights == pytest.approx([expected.pdf(at) for at in x], abs=0.03 * max(heights))


def test_a_compared_case_has_curves_of_equal_area_and_the_medians_of_its_trials(page_of, place, parts):
    figure = parts(page_of(place(records(A, B))))["density-0"]
    one, two = ({type(mark).__name__: mark for mark in figure.marks if mark.series == series} for series in (0, 1))
    assert figure.rows == ("one", "two")
    for of, trials, row in ((one, A, 0), (two, B, 1)):
        assert of["Ridge"].at == row
        assert of["Points"].x == pytest.approx([statistics.median(each) for each in trials.tolist()], rel=1e-5)
        assert {*of["Points"].y} == {row + BELOW}
    areas = [np.trapezoid(of["Ridge"].heights, of["Ridge"].x) for of in (one, two)]
    assert areas[0] == pytest.approx(areas[1], rel=0.03)
    assert max(*one["Ridge"].heights, *two["Ridge"].heights) == 1.0
    assert [row[3] for row in figure.data.rows] == [*one["Points"].x, *two["Points"].x]


def test_widely_spread_times_have_a_logarithmic_axis(page_of, place, parts):
    figure = parts(page_of(place(records(A, 20 * B))))["density-0"]
    assert figure.x.log == "always"
    steps = np.diff(np.log(figure.marks[0].x))
    assert steps == pytest.approx(np.full(len(steps), steps.mean()), rel=1e-3)
    assert "on the logarithmic axis" in figure.caption


def test_quantiles_are_those_of_both_sides_in_seconds(page_of, place, parts):
    figure = parts(page_of(place(records(A, B))))["quantiles-0"]
    equal, two = figure.marks
    assert equal.x == equal.y
    assert two.x == pytest.approx(statistics.quantiles(A.ravel(), n=100, method="inclusive"), rel=1e-5)
    assert two.y == pytest.approx(statistics.quantiles(B.ravel(), n=100, method="inclusive"), rel=1e-5)
    assert [two.labels[at] for at in (48, 49, 89, 98)] == ["", "50%", "90%", "99%"]
    assert figure.data.rows[49] == (0.5, two.x[49], two.y[49])
    assert (figure.x.title, figure.y.title) == ("step time, one", "step time, contender")


def test_several_contenders_share_the_figures(page_of, place, parts):
    made = parts(page_of(place(records(A, B, 1.1 * B))))
    assert made["density-0"].rows == ("one", "two", "three")
    assert [mark.name for mark in made["quantiles-0"].marks] == ["equal", "two", "three"]


def test_a_case_alone_or_with_few_blocks_is_not_drawn_and_many_are_bounded(page_of, place, parts):
    alone, few = (parts(page_of(place(each, name))) for each, name in ((records(A), "a"), (records(A, B[:, :4]), "b")))
    assert not any(key.startswith(("density", "quantiles")) for key in (*alone, *few))
    many = page_of(place([each for seed in range(MOST_CASES + 1) for each in records(A[:1], B[:1], seed=seed)], "c"))
    assert sum(key.startswith("density") for key in parts(many)) == MOST_CASES
    lead = next(each for each in many.sections if each.key == "times").lead
    assert lead == (f"Distributions are drawn for the first {MOST_CASES} of {MOST_CASES + 1} cases.",)
