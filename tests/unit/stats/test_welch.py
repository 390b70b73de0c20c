"""The t test of few values, against SciPy."""

import numpy as np
import pytest
from scipy import stats

from benchmarker.stats.verdict import enough
from benchmarker.stats.welch import welch

ONE, TWO = np.array([0.1, 0.3, 0.2]), np.array([0.5, 0.9, 0.6, 0.8])


def test_it_is_welchs_test_where_both_have_several_values():
    found, known = welch(ONE, TWO), stats.ttest_ind(TWO, ONE, equal_var=False)
    assert found.p_different == pytest.approx(known.pvalue)
    assert found.interval(0.95) == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert found.freedom == pytest.approx(known.df)
    assert found.p_within(0.7) == pytest.approx(
        max(
            stats.ttest_ind(TWO - limit, ONE, equal_var=False, alternative=side).pvalue
            for limit, side in ((-0.7, "greater"), (0.7, "less"))
        )
    )


def test_a_single_value_is_taken_to_scatter_as_the_others_do():
    for one, two in ((ONE[:1], TWO), (ONE, TWO[:1])):
        found, known = welch(one, two), stats.ttest_ind(two, one, equal_var=True)
        assert found.interval(0.95) == pytest.approx(tuple(known.confidence_interval(0.95)))
        assert found.p_different == pytest.approx(known.pvalue)


def test_values_that_do_not_scatter_show_nothing():
    found = welch(np.zeros(2), np.ones(2))
    assert (found.estimate, found.interval(0.95), found.p_different, found.p_within(9.0)) == (1.0, None, 1.0, 1.0)


def test_few_values_need_more_than_the_normal_distribution_tells():
    """With 2 runs a side that differ by three of their deviations, 4 a side decide four times in five; normal: 2."""
    found = welch(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    assert enough(found, 0.02, 0.05) == 4
