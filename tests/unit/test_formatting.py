import pytest

from benchmarker.formatting import part, spreadsheet_text


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", " =1", "\t1", "\rx", "\t=1"])
def test_what_a_spreadsheet_would_execute_gets_an_apostrophe(text):
    assert spreadsheet_text(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "gemm", "1-1", "a=b", "1", "x\t=1"])
def test_other_text_stays(text):
    assert spreadsheet_text(text) == text


def test_a_part_of_a_number_of_things_has_the_plural_and_the_verb_of_the_whole():
    assert part(1, 1, "trial") == "1 of 1 trial"
    assert part(1, 1, "trial", "was", "were") == "1 of 1 trial was"
    assert part(1, 3, "trial", "was", "were") == "1 of 3 trials were"
