"""Weights, and the factors that select cases."""

import pytest

from benchmarker import UserError
from benchmarker.procurement import weights
from benchmarker.records.factors import selects, why_none

GPT2 = {"problem": "gpt2", "seq_len": 128, "compile": True, "seconds": 30.0, "gpu": None, "torch-xla": "2.9"}
GEMM = {"problem": "gemm", "m": 1, "compile": False}


def read(tmp_path, text):
    path = tmp_path / "weights.toml"
    path.write_text(text)
    return weights.read(path)


def test_the_first_entry_that_matches_counts_and_the_rest_weigh_one(tmp_path):
    found = read(
        tmp_path,
        '[[weight]]\nmatch = {problem = "gpt2", seq-len = 128}\nweight = 3\n'
        '[[weight]]\nmatch = {problem = "gpt2"}\nweight = 2\n[[weight]]\nmatch = {problem = "atention"}\nweight = 0\n',
    )
    assert [found.of(factors) for factors in (GPT2, GPT2 | {"seq_len": 64}, GEMM)] == [3, 2, 1]
    assert weights.Weights().of(GPT2) == 1
    assert found.unused([GPT2, GEMM]) == [
        "the weight 2 applies to no case: an entry before it matches first",
        "the weight 0 applies to no case: no record has problem=atention; they have gpt2, gemm",
    ]


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        ({}, True),
        ({"seq_len": 128}, True),
        ({"seq_len": 128.0}, True),
        ({"seconds": 30}, True),
        ({"compile": True}, True),
        ({"compile": 1}, False),
        ({"seq_len": "128"}, False),
        ({"m": 1}, False),
        ({"torch_xla": "2.9"}, True),
    ],
)
def test_facts_are_held_by_name_and_value(wanted, selected):
    assert selects(wanted, GPT2) is selected


def test_true_is_no_number():
    assert not selects({"m": True}, GEMM)


def test_why_nothing_is_selected():
    assert why_none({"probelm": "gpt2"}, [GPT2]) == "no record has a probelm; did you mean problem?"
    assert why_none({"m": 2}, [GPT2, GEMM]) == "no record has m=2; they have 1"
    assert why_none({"m": 1, "seq_len": 128}, [GPT2, GEMM]) == "no record has all of these factors together"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no [[weight]]"),
        ("weights = 3", "weights is not a key of this file; write [[weight]] tables"),
        ("[weight]\nmatch = {}\nweight = 1", "weight: not a list"),
        ("[[weight]]\nmatch = {}", "weight 1 needs weight"),
        ("[[weight]]\nweight = 2", "weight 1 needs match"),
        ("[[weight]]\nmatch = {}\nweight = -1", "weight 1.weight=-1: must be at least 0"),
        ("[[weight]]\nmatch = {}\nweight = nan", "weight 1.weight=nan: not a finite number"),
        ("[[weight]]\nmatch = {m = [1]}\nweight = 1", "weight 1.match.m: not a number, text, true or false"),
        ("[[weight]]\nmatch = {m-n = 1, m_n = 1}\nweight = 1", "weight 1.match.m_n is given twice, spelt differently"),
        ("[[weight]]\nmatch = {}\nweight = 1\nname = 'x'", "weight 1 has no key name; there are: match, weight"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path, text, message):
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'weights.toml'}: {message}")
