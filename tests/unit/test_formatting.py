import pytest

from benchmarker.formatting import spreadsheet_text


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", " =1", "\t1", "\rx", "\t=1"])
def test_what_a_spreadsheet_would_execute_gets_an_apostrophe(text):
    assert spreadsheet_text(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "gemm", "1-1", "a=b", "1", "x\t=1"])
def test_other_text_stays(text):
    assert spreadsheet_text(text) == text
