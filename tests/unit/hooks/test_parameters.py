import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
from msgspec import Meta

from benchmarker import Problem, UserError
from benchmarker.hooks import parameters


@dataclass(frozen=True)
class Sample(Problem):
    accelerator: ClassVar = {"n_row": 4}
    scopes = cost = data = small = reference = None

    n_row: Annotated[int, Meta(ge=1, le=9, description="rows")] = 2
    ratio: Annotated[float, Meta(ge=0)] = 0.5
    kind: Literal["one", "two"] = "one"
    flip: bool = False
    width: Annotated[int | None, Meta(description="from rows")] = None

    def __post_init__(self):
        if self.width is None:
            object.__setattr__(self, "width", 10 * self.n_row)
        if self.width % 2:
            raise ValueError("the width must be even")


def test_fields_carry_all_that_a_user_needs():
    row, ratio, kind, flip, width = parameters.fields(Sample)
    assert (row.option, row.type, row.range, row.help, row.default, row.accelerator_default) == (
        "--n-row",
        "int",
        "≥ 1 and ≤ 9",
        "rows",
        2,
        4,
    )
    assert (ratio.type, ratio.range) == ("float", "≥ 0")
    assert kind.choices == ("one", "two")
    assert flip.type == "bool"
    assert (width.type, width.default, width.help) == ("int", None, "from rows")


def test_the_options_of_a_class_are_before_those_of_its_bases():
    @dataclass(frozen=True)
    class Wider(Sample):
        depth: int = 1
        flip: bool = True

    names = ["depth", "flip", "n_row", "ratio", "kind", "width"]
    assert parameters.names(Wider) == list(parameters.values(Wider())) == names
    assert [field.name for field in parameters.fields(Wider)] == names


def test_defaults_suit_the_platform_and_what_is_given_wins():
    assert parameters.resolve(Sample, {}, "cpu")["n_row"] == 2
    assert parameters.resolve(Sample, {}, "cuda") == {
        "n_row": 4,
        "ratio": 0.5,
        "kind": "one",
        "flip": False,
        "width": 40,
    }
    assert parameters.resolve(Sample, {"n_row": "3"}, "cuda")["n_row"] == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_row": "0"}, r"--n-row=0: must be at least 1"),
        ({"n_row": "many"}, r"--n-row=many: not a whole number$"),
        ({"n_row": "1.5"}, r"--n-row=1.5: not a whole number$"),
        ({"ratio": "nan?"}, r"--ratio=nan\?: not a number$"),
        ({"kind": "three"}, r"--kind=three: not one of one, two$"),
        ({"nrow": 1}, r"no option --nrow; did you mean --n-row"),
        ({"width": 3}, r"the width must be even"),
    ],
)
def test_bad_values_are_refused_by_name(given, message):
    with pytest.raises(UserError, match=message):
        parameters.resolve(Sample, given, "cpu")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", ["8"]),
        ("8,16,8", ["8", "16"]),
        ("1K..4K", ["1024", "2048", "4096"]),
        ("3..13,1M", ["3", "6", "12", "1M"]),
        ("7..7", ["7"]),
        ("1M..1G", [str(2**power) for power in range(20, 31)]),
        ("a..b", ["a..b"]),
        ("", [""]),
        (True, [True]),
    ],
)
def test_lists_and_ranges_of_values(text, values):
    assert parameters.values_of("--n-row", text) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,,2", "--n-row=1,,2: a value is missing between two commas"),
        ("8,4..2", "--n-row=8,4..2: in a range, the lower value comes first and is at least 1"),
        ("0..2", "--n-row=0..2: in a range, the lower value comes first and is at least 1"),
    ],
)
def test_lists_without_a_value_are_refused(text, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        parameters.values_of("--n-row", text)


def test_only_whole_numbers_have_units():
    assert parameters.resolve(Sample, {"width": "4K"}, "cpu")["width"] == 4096
    for name in ("ratio", "kind"):
        with pytest.raises(UserError, match=f"--{name}=4K: not "):
            parameters.resolve(Sample, {name: "4K"}, "cpu")
    with pytest.raises(UserError, match="--n-row is too large"):
        parameters.resolve(Sample, {"n_row": "999999999999999999G"}, "cpu")


def test_what_was_resolved_resolves_to_itself():
    once = parameters.resolve(Sample, {"n_row": 3}, "cpu")
    assert parameters.resolve(Sample, once, "cuda") == once


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [("n_row", 3, "--n-row=3"), ("flip", True, "--flip"), ("flip", False, "--no-flip"), ("kind", "one", "--kind=one")],
)
def test_assignment_is_a_word_of_the_command_line(name, value, word):
    assert parameters.assignment(name, value) == word
