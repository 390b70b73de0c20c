"""A verdict as a sentence: exact about the direction, and about what a percentage is of."""

import pytest

from benchmarker.comparing.formatting import SCORE, SPEED, VALUE, Change, Terms, gist, measure, sentence, short
from benchmarker.comparing.results import GeometricMean


def judged(ratio, low, high, verdict, better="lower", sides=("framework=jax", "framework=torch"), doubt=None):
    return GeometricMean(
        baseline=sides[0],
        contender=sides[1],
        cases=2,
        better=better,
        method="",
        ratio=ratio,
        low=low,
        high=high,
        level=0.95,
        p_adjusted=None,
        verdict=verdict,
        provisional=doubt,
        enough=None,
        runs=(2, 2),
        notes=[],
    )


TIME = Terms("step_time_median_s", SPEED, 0.02)
RATE = Terms("samples_per_s", SPEED, 0.02)
MEMORY = Terms("host_peak_rss_bytes", VALUE, 0.02)


@pytest.mark.parametrize(
    ("each", "terms", "expected"),
    [
        # 1 / 1.27 of the time is 1.27 times the rate; 1 / 1.3 and 1 / 1.24 of the time are ±3% around it
        (judged(1 / 1.27, 1 / 1.3, 1 / 1.24, "faster"), TIME, "torch is 27% faster than jax (±3%)"),
        (judged(1.27, 1.24, 1.3, "faster", "higher"), RATE, "torch is 27% faster than jax (±3%)"),
        (judged(1.25, 1.22, 1.28, "slower"), TIME, "torch takes 25% longer than jax (±3%)"),
        (judged(1.44, 1.4, 1.6, "slower"), TIME, "torch takes 44% longer than jax (40% to 60%)"),
        (judged(2.5, 2.4, 2.6, "slower"), TIME, "torch takes 2.50x as long as jax (±0.10)"),
        (judged(0.8, 0.77, 0.83, "slower", "higher"), RATE, "torch is 20% slower than jax (±3%)"),
        (judged(1.27, 1.1, 1.6, "faster", "higher"), RATE, "torch is 27% faster than jax (10% to 60%)"),
        (judged(0.6, 0.55, 0.7, "slower", "higher"), RATE, "torch is 40% slower than jax (30% to 45%)"),
        (judged(1.0234, 1.0222, 1.0246, "faster", "higher"), RATE, "torch is 2.34% faster than jax (±0.12%)"),
        (judged(2.31, 2.26, 2.36, "faster", "higher"), RATE, "torch is 2.31x as fast as jax (±0.05)"),
        (judged(99, 92, 109, "faster", "higher"), RATE, "torch is 99x as fast as jax (92x to 110x)"),
        (judged(0.1, 0.08, 0.14, "slower", "higher"), RATE, "torch is 0.10x as fast as jax (0.08x to 0.14x)"),
        (judged(2.92, 2.915, 2.935, "faster", "higher"), RATE, "torch is 2.92x as fast as jax (2.9x)"),
        (
            judged(1.004, 0.998, 1.01, "same", "higher"),
            RATE,
            "no difference: torch is within ±2% of jax (0.2% slower to 1% faster)",
        ),
        (judged(0.995, 0.99, 1.01, "same"), TIME, "no difference: torch is within ±2% of jax (1% longer to 1% faster)"),
        (judged(1, 1, 1, "same"), TIME, "no difference: torch is within ±2% of jax (0% faster)"),
        (
            judged(0.95, 0.88, 1.09, "undecided", "higher"),
            RATE,
            "undecided: torch may be 12% slower or 9% faster than jax",
        ),
        (judged(0.95, 0.8, 1.09, "undecided"), TIME, "undecided: torch may take 9% longer or be 25% faster than jax"),
        (judged(1.05, 0.8, 1.09, "undecided"), TIME, "undecided: torch may be 25% faster or take 9% longer than jax"),
        (judged(0.95, 0.4, 3.2, "undecided", "higher"), RATE, "undecided: torch may be 0.4x to 3.2x as fast as jax"),
        (judged(1.1, 0.4, 3.2, "undecided"), TIME, "undecided: torch may take 0.4x to 3.2x as long as jax"),
        (
            judged(1.04, 1.01, 1.07, "undecided"),
            TIME,
            "undecided, corrected for all that is compared; alone, torch takes 4% longer than jax (±3%)",
        ),
        (
            judged(1.04, 0.9, 1.2, "undecided"),
            MEMORY,
            "undecided: the host peak rss of torch may be 10% lower or 20% higher than that of jax",
        ),
        (
            judged(0.8, None, None, "undecided"),
            TIME,
            "undecided: too few trials for a test; in these, torch is 25% faster than jax",
        ),
        (
            judged(None, None, None, "undecided"),
            TIME,
            "undecided: torch and jax cannot be compared, because a side has no step time (median)",
        ),
        (
            judged(0.73, 0.7, 0.76, "better"),
            MEMORY,
            "the host peak rss of torch is 27% lower than that of jax (±3%): better",
        ),
        (judged(5.36, 5.31, 5.41, "worse"), MEMORY, "the host peak rss of torch is 5.36x that of jax (±0.05): worse"),
        (
            judged(1.1, 1.07, 1.13, "better", "higher"),
            Terms("samples_per_J", SCORE, 0.02),
            "torch is 10% better than jax (±3%)",
        ),
    ],
)
def test_a_verdict_is_a_plain_sentence(each, terms, expected):
    assert sentence(each, terms) == expected


@pytest.mark.parametrize(
    ("each", "terms", "expected"),
    [
        (judged(1 / 1.27, 1 / 1.3, 1 / 1.24, "faster"), TIME, "27% faster (±3%)"),
        (judged(2.31, 2.26, 2.36, "faster", "higher"), RATE, "2.31x as fast (±0.05)"),
        (judged(1.004, 0.998, 1.01, "same", "higher"), RATE, "same within 2%"),
        (judged(0.95, 0.88, 1.09, "undecided", "higher"), RATE, "undecided (12% slower to 9% faster)"),
        (judged(0.95, 0.4, 3.2, "undecided", "higher"), RATE, "undecided (0.4x to 3.2x as fast)"),
        (judged(2.92, 2.91, 2.93, "undecided", "higher"), RATE, "undecided (alone: 2.9x as fast)"),
        (judged(0.995, 0.99, 1.001, "undecided"), TIME, "undecided (alone: 0.1% longer to 1% faster)"),
        (judged(1.44, 1.41, 1.47, "slower"), TIME, "takes 44% longer (±3%)"),
        (judged(0.8, None, None, "undecided"), TIME, "undecided: too few trials"),
        (judged(None, None, None, "undecided"), TIME, "undecided: no value"),
        (judged(0.73, 0.7, 0.76, "better"), MEMORY, "27% lower (±3%), better"),
    ],
)
def test_a_verdict_fits_a_cell(each, terms, expected):
    assert gist(each, terms) == expected


@pytest.mark.parametrize("ratio", [1.02, 1.44, 3.0])
def test_where_one_side_is_faster_the_other_takes_longer_by_the_same_figure(ratio):
    """The percentage is that of the ratio which is printed beside it, or of its inverse."""
    slower = Change.of(judged(ratio, 0.9 * ratio, 1.1 * ratio, "slower"), SPEED)
    faster = Change.of(judged(1 / ratio, 1 / (1.1 * ratio), 1 / (0.9 * ratio), "faster"), SPEED)
    assert (slower.ratio, slower.low, slower.high) == pytest.approx((faster.ratio, faster.low, faster.high))
    figure = slower.amount().partition(" ")[0]
    assert figure in (f"{100 * (ratio - 1):.0f}%", f"{ratio:.1f}x") and faster.amount().startswith(figure)


def test_names_lose_what_their_values_say():
    assert short("framework=jax precision=bf16 m=256") == "jax bf16 m=256"
    assert short("framework=jax compiled: 1 of 2 trials failed") == "jax compiled: 1 of 2 trials failed"
    assert short("impl=einsum host=a result=b") == "impl=einsum host=a b"


def test_metrics_in_words():
    assert [measure(name) for name in ("step_time_p10_s", "samples_per_s", "compile_s", "host_peak_rss_bytes")] == [
        "step time (p10)",
        "samples/s",
        "compile",
        "host peak rss",
    ]


@pytest.mark.parametrize(
    ("each", "terms", "told", "cell"),
    [
        (
            judged(1.27, 1.24, 1.3, "faster", "higher", doubt="disturbed"),
            RATE,
            "torch is 27% faster than jax (±3%) (provisional)",
            "27% faster (±3%) (provisional)",
        ),
        (
            judged(1.004, 0.998, 1.01, "same", "higher", doubt="disturbed"),
            RATE,
            "no difference (provisional): torch is within ±2% of jax (0.2% slower to 1% faster)",
            "same within 2% (provisional)",
        ),
    ],
)
def test_a_provisional_verdict_is_marked(each, terms, told, cell):
    assert (sentence(each, terms), gist(each, terms)) == (told, cell)
