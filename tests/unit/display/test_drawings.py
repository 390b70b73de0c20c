"""Drawings in text: each is compared with one that was worked out by hand."""

import io

import numpy as np
import pytest
from support.records import make_record

from benchmarker.display.drawings import ASCII, BLOCKS, STRIP, _bins, histogram, interval, marks_of, series, strips
from benchmarker.records.record import Failure

FAILED = make_record(
    blocks=None,
    status="failed",
    error=Failure("exception", "no", "open"),
    reasons=make_record().reasons | {"blocks": "it failed before"},
)
NOISE = np.exp(np.random.default_rng(1).normal(0, 0.02, 100)) / 100


def test_a_stream_gets_what_it_can_encode():
    def stream(encoding):
        return io.TextIOWrapper(io.BytesIO(), encoding=encoding)

    assert marks_of(stream("utf-8")) is BLOCKS
    assert marks_of(io.StringIO()) is BLOCKS
    assert marks_of(stream("ascii")) is ASCII
    assert marks_of(stream("latin-1")) is ASCII


@pytest.mark.parametrize("width", [40, 80])
def test_in_ascii_everything_is_ascii_and_fits(width):
    record = make_record(list(NOISE))
    drawn = [*histogram(NOISE, width, ASCII), series(NOISE, width, ASCII), *strips([record], ASCII)[1]]
    drawn.append(interval(1.02, (0.99, 1.05), 0.02, 0.1, width, ASCII))
    assert all(line.isascii() for line in drawn)
    assert max(map(len, drawn)) <= width


def test_a_series_rises_from_its_smallest_value_to_its_largest():
    assert series([1, 2, 3, 4, 5, 6, 7, 8], 8, BLOCKS) == "▁▂▃▄▅▆▇█"
    assert series([8, 1], 8, ASCII) == "#_"
    assert series([], 8, BLOCKS) == ""


def test_noise_is_flat_and_a_fifth_is_full_height():
    """The scale spans at least a fifth of the smallest value: 2% is a tenth of it, which is below an eighth."""
    assert series([1.0, 1.02, 1.0], 8, BLOCKS) == "▁▁▁"
    assert series([1.0, 1.2, 1.0], 8, BLOCKS) == "▁█▁"


def test_of_more_values_than_columns_each_is_a_mean():
    assert series([1, 3, 2, 2, 4, 4], 3, BLOCKS) == "▁▁█"


def test_a_histogram_by_hand():
    """Five blocks: NumPy's "auto" makes four bins of 9 columns, of 0.5 ms each, with 3, 1, 0 and 1 blocks."""
    assert histogram(np.array([1, 1, 1.1, 1.6, 3]) / 1000, 42, BLOCKS) == [
        "5 blocks by step time",
        "3 │█████████",
        "  │█████████",
        "  │█████████",
        "  │█████████▆▆▆▆▆▆▆▆▆         ▆▆▆▆▆▆▆▆▆",
        "  │██████████████████         █████████",
        "0 └─┴──────────────────────────────────",
        "   1 ms median 1.1 ms              3 ms",
    ]


def test_far_blocks_are_counted_and_not_drawn():
    lines = histogram(np.append(NOISE, [0.03, 0.05]), 80, BLOCKS)
    assert lines[0] == "102 blocks by step time"
    assert lines[-1] == "and 2 of up to 50 ms, not drawn"
    assert lines[-2].endswith(f" {1000 * NOISE.max():.3g} ms")


def test_many_far_blocks_are_no_stragglers():
    lines = histogram(np.append(NOISE, [0.03] * 10), 80, BLOCKS)
    assert not lines[-1].startswith("and")
    assert lines[-1].endswith("30 ms")


def test_bars_are_as_high_as_their_share_of_the_highest():
    """The columns of each bar, in eighths of a line, are the numbers of blocks over the highest, times 5 lines."""
    low = NOISE.min()
    numbers, _ = np.histogram(NOISE, "auto", (low, NOISE.max()))
    lines = histogram(NOISE, 80, BLOCKS)
    bars = [line.partition("│")[2].ljust(72) for line in lines[1:6]]
    each = (72 - 2 - 2) // len(numbers)
    heights = [sum(" ▁▂▃▄▅▆▇█".index(row[at * each]) for row in bars) for at in range(len(numbers))]
    assert heights == [int(np.ceil(40 * number / numbers.max())) for number in numbers]


@pytest.mark.parametrize("number", [2, 3, 10, 99])
def test_bins_are_those_of_two_rules(number):
    by_rule = [len(np.histogram_bin_edges(NOISE[:number], rule)) - 1 for rule in ("sturges", "fd")]
    assert _bins(NOISE[:number]) == max(by_rule[0], min(by_rule[1], int(np.ceil(2 * number**0.5))))


def test_a_narrow_middle_and_wide_tails_need_no_bin_for_each_nanosecond():
    times_s = np.concatenate([1 + np.arange(80) / 1e9, np.linspace(2, 3, 20)])
    lines = histogram(times_s, 80, BLOCKS)
    assert lines[1] == " 80 │███"
    assert lines[-1].endswith(" 3 s")


def test_equal_blocks_are_one_bar():
    lines = histogram(np.array([0.01, 0.01]), 40, BLOCKS)
    assert lines[1].startswith("2 │███")
    assert lines[-1].strip() == "10 ms"


def test_strips_share_a_scale():
    """The scale from 1 to 2 s has parts of 1/24 s; 1.5 s is in the thirteenth, 2 s in the last."""
    words, (one, two, none) = strips([make_record([1.0, 1.0, 1.5]), make_record([2.0, 1.5]), FAILED], BLOCKS)
    assert words == "blocks from 1 s to 2 s"
    assert one == "█" + "·" * 11 + "▅" + "·" * 11
    assert two == "·" * 12 + "█" + "·" * 10 + "█"
    assert none == ""


def test_trials_of_unlike_cases_have_a_logarithmic_scale():
    """From 1 ms to 1 s, 31.7 ms is just beyond the middle."""
    words, drawn = strips([make_record(0.001), make_record(0.0317), make_record(1.0)], BLOCKS)
    assert words == "blocks from 1 ms to 1 s, log scale"
    assert [text.index("█") for text in drawn] == [0, STRIP // 2, STRIP - 1]


def test_what_is_far_is_in_the_last_part_of_a_strip():
    words, (drawn,) = strips([make_record([*([1.0, 1.1, 1.2] * 10), 9.0])], BLOCKS)
    assert words == "blocks from 1 s to 1.2 s and more"
    assert drawn == "█" + "·" * 11 + "█" + "·" * 10 + "█"


def test_no_blocks_are_no_strips():
    assert strips([FAILED], BLOCKS) == ("", [""])


def test_an_interval_stands_where_its_ends_are():
    """Of 41 columns for logarithms from -0.1 to 0.1, each is 0.005: log 1.02 = 0.0198 is 4 from the middle."""
    drawn = interval(1.02, (0.97, 1.06), 0.02, 0.1, 41, BLOCKS)
    assert drawn.index("├") == 20 - 6
    assert drawn.index("┊") == 20 - 4
    assert drawn.index("│") == 20
    assert drawn.index("●") == 20 + 4
    assert drawn.index("┤") == 20 + 12
    assert drawn.count("─") == 32 - 14 + 1 - 5
    assert interval(1.02, None, 0.02, 0.1, 41, ASCII).strip() == ":   |   o"
