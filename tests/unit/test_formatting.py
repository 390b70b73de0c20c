import pytest

from benchmarker.formatting import decimals, every, part, scale, sentence, si, some, spreadsheet_text, with_interval


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", " =1", "\t1", "\rx", "\t=1"])
def test_what_a_spreadsheet_would_execute_gets_an_apostrophe(text):
    assert spreadsheet_text(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "gemm", "1-1", "a=b", "1", "x\t=1"])
def test_other_text_stays(text):
    assert spreadsheet_text(text) == text


def test_all_of_several_are_told_with_an_and_before_the_last():
    assert [every(list("abc")[:number]) for number in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_part_of_a_number_of_things_has_the_plural_and_the_verb_of_the_whole():
    assert part(1, 1, "trial") == "1 of 1 trial"
    assert part(1, 1, "trial", "was", "were") == "1 of 1 trial was"
    assert part(1, 3, "trial", "was", "were") == "1 of 3 trials was"


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.0123, "s", (1e-3, "ms")),
        (2.5e12, "FLOP/s", (1e12, "TFLOP/s")),
        (3 * 2**30, "B", (2.0**30, "GiB")),
        (0.0, "s", (1.0, "s")),
        (0.4, "1", (1.0, "1")),
        (12345.0, "1/s", (1.0, "1/s")),
    ],
)
def test_the_prefix_of_a_unit_suits_the_value(value, unit, expected):
    assert scale(value, unit) == expected


@pytest.mark.parametrize(("half", "expected"), [(3.0, 0), (1.5, 1), (0.2, 1), (0.19, 2), (0.02, 2), (25.0, 0)])
def test_an_interval_leaves_one_digit_of_its_half_or_two_if_the_first_is_one(half, expected):
    assert decimals(half) == expected


@pytest.mark.parametrize(
    ("ends", "unit", "text"),
    [
        ((9.8e-6, 1.1e-5), "s", "10 [9.8, 11] µs"),
        ((None, None), "s", "10 µs"),
        ((9.8e-6, None), "s", "10 [9.8, ?] µs"),
    ],
)
def test_a_value_and_its_interval_have_one_unit(ends, unit, text):
    assert with_interval(1e-5, *ends, unit) == text


def test_a_number_with_an_interval_has_its_prefix_alone():
    assert with_interval(71_234, 70_000, 72_301, "") == "71.2 [70, 72.3] k"
    assert with_interval(0.0, 0.0, 1e-6, "s") == "0 [0, 1e-06] s"


def test_a_number_has_no_more_digits_than_the_others_however_large_it_is():
    assert [si(value, "1/s") for value in (9_999.7, 12_345.6, 1_439_030.0)] == ["10000", "12350", "1439000"]


def test_of_many_texts_the_first_are_told_and_the_others_counted():
    assert [some("abc"[:number], 2) for number in range(4)] == ["", "a", "a, b", "a, b and 1 more"]
    assert some("abcd", 1, "; ") == "a; and 3 more"
    assert some("abc", 2, " | ") == "a | b and 1 more"


def test_a_sentence_begins_with_a_capital_letter_unless_with_a_name():
    assert sentence("trials scatter") == "Trials scatter."
    assert sentence("n1: did not end") == "n1: did not end."
