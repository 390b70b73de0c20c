"""Weighted mean ratios: by hand, and against SciPy."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from support.records import make_record

from benchmarker.comparing import matching, samples
from benchmarker.comparing.judge import compare, geometric_means
from benchmarker.comparing.results import Rules
from benchmarker.comparing.samples import Mean
from benchmarker.hooks.metrics import load_metrics

RNG = np.random.default_rng(11)
LOGS = RNG.normal(0, 0.05, (3, 2, 8)) + np.array([0.2, -0.1, 0.05])[:, None, None] * np.array([0, 1])[None, :, None]
"""Logarithms of step times: three cases, two sides, eight trials."""
WEIGHTS = [3.0, 1.0, 0.5]


@pytest.fixture(scope="module")
def derive():
    return load_metrics()


def compared(derive, *, paired, logs=LOGS):
    """Three cases of framework x and y, in one run or in a run of each."""
    places = [
        (
            name,
            [
                make_record(
                    math.exp(value),
                    run="run" if paired else name,
                    trial=trial,
                    case={"framework": name, "seed": case},
                    design={"case_number": 2 * case + side},
                )
                for case in range(3)
                for trial, value in enumerate(logs[case][side])
            ],
        )
        for side, name in enumerate("xy")
    ]
    made = matching.between(places)
    return made.matches, [samples.Tested(match, Rules(), derive) for match in made.matches]


def test_a_paired_mean_is_the_signed_rank_test_of_weighted_rounds(derive):
    _, group = compared(derive, paired=True)
    found = Mean.of(group, WEIGHTS)
    differences = LOGS[:, 1] - LOGS[:, 0]  # [case, round]
    rounds = np.array([(3 * a + 1 * b + 0.5 * c) / 4.5 for a, b, c in differences.T])
    walsh = sorted((x + y) / 2 for x, y in itertools.combinations_with_replacement(rounds, 2))
    assert found.method == "paired by round"
    assert found.shift == pytest.approx(np.median(walsh), abs=1e-8)
    assert found.p_different == pytest.approx(stats.wilcoxon(rounds, method="exact").pvalue)
    # Of 8 differences, P(signed rank <= 3) = 5/256 <= 0.025 < P(<= 4) = 7/256: the 4th Walsh average from either end.
    assert found.interval == pytest.approx((walsh[3], walsh[-4]), abs=1e-8)
    medians = [np.median([(x + y) / 2 for x, y in itertools.combinations_with_replacement(d, 2)]) for d in differences]
    assert math.log(found.ratio) == pytest.approx(np.dot([3, 1, 0.5], medians) / 4.5, abs=1e-8)


def test_an_unpaired_mean_is_welchs_with_weights(derive):
    _, group = compared(derive, paired=False)
    found = Mean.of(group, WEIGHTS)
    shares = np.array(WEIGHTS) / 4.5
    parts = [share**2 * logs.var(ddof=1) / 8 for share, sides in zip(shares, LOGS, strict=True) for logs in sides]
    shifts = [np.median(np.subtract.outer(sides[1], sides[0])) for sides in LOGS]
    mean = float(shares @ shifts)
    freedom = sum(parts) ** 2 / sum(part**2 / 7 for part in parts)
    low, high = stats.t.interval(0.95, freedom, mean, math.sqrt(sum(parts)))
    assert found.method == "unpaired: Welch-Satterthwaite"
    assert found.interval == pytest.approx((low, high), abs=1e-7)
    assert found.p_different == pytest.approx(2 * stats.t.sf(abs(mean) / math.sqrt(sum(parts)), freedom), rel=1e-5)


@pytest.mark.parametrize("paired", [True, False])
def test_a_case_alone_has_the_interval_and_the_p_value_of_its_comparison(derive, paired):
    matches, group = compared(derive, paired=paired)
    (comparison,) = compare(matches[:1], Rules(), derive).comparisons
    (mean,) = geometric_means([(group[:1], Mean.of(group[:1], [7.0]))])
    assert (mean.ratio, mean.low, mean.high) == (comparison.ratio, comparison.low, comparison.high)
    assert (mean.p_adjusted, mean.verdict) == (comparison.p_value, comparison.verdict)


@pytest.mark.parametrize("paired", [True, False])
def test_equal_weights_are_no_weights_and_only_shares_count(derive, paired):
    matches, group = compared(derive, paired=paired)
    (plain,) = compare(matches, Rules(), derive).geometric_means
    equal = Mean.of(group, [2.0, 2.0, 2.0])
    assert equal.ratio == pytest.approx(plain.ratio)
    assert [math.exp(end) for end in equal.interval] == pytest.approx([plain.low, plain.high])
    once, twice = (Mean.of(group, [factor * weight for weight in WEIGHTS]) for factor in (1, 2))
    assert once.interval == pytest.approx(twice.interval)
    assert once.ratio == pytest.approx(twice.ratio)


@pytest.mark.parametrize("paired", [True, False])
def test_swapping_the_sides_inverts_the_mean(derive, paired):
    _, group = compared(derive, paired=paired)
    _, swapped = compared(derive, paired=paired, logs=LOGS[:, ::-1])
    one, two = Mean.of(group, WEIGHTS), Mean.of(swapped, WEIGHTS)
    assert two.ratio == pytest.approx(1 / one.ratio)
    assert two.interval == pytest.approx((-one.interval[1], -one.interval[0]), abs=1e-8)


def test_a_single_trial_gives_no_interval(derive):
    _, group = compared(derive, paired=True, logs=LOGS[:, :, :1])
    found = Mean.of(group)
    assert found.interval is None
    assert found.ratio == pytest.approx(math.exp(np.mean(LOGS[:, 1, 0] - LOGS[:, 0, 0])), rel=1e-6)
