"""A wrong value is refused in plain words, never in those of a library."""

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from benchmarker import UserError
from benchmarker.files.toml import take

SHORT = Annotated[str, Meta(min_length=1, max_length=3)]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (int, "x", 'm="x": not a whole number'),
        (int | None, 1.5, "m=1.5: not a whole number"),
        (int | float, "x", 'm="x": not a number'),
        (str, True, "m=true: not text"),
        (bool, "maybe", 'm="maybe": not true or false'),
        (bool | int | float | str, [1], "m: not a number, text, true or false"),
        (list[int], 3, "m=3: not a list"),
        (list[int], [1, "x"], "m: a value is not a whole number"),
        (dict[str, Any], [1], "m: not a table"),
        (Annotated[int, Meta(ge=1)], 0, "m=0: must be at least 1"),
        (Annotated[float, Meta(gt=0, le=1)], 0.0, "m=0.0: must be greater than 0"),
        (Annotated[float, Meta(gt=0, le=1)], 2, "m=2: must be at most 1"),
        (SHORT, "", 'm="": must not be empty'),
        (SHORT, "four", 'm="four": must have at most 3 characters'),
        (Literal["a", "b"] | None, "c", 'm="c": not one of a, b'),
        (Literal[1, 2], 3, "m=3: not one of 1, 2"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_wrong(kind, value, message):
    with pytest.raises(UserError) as caught:
        take("m", value, kind)
    assert str(caught.value) == message


def test_a_long_value_is_shortened():
    with pytest.raises(UserError) as caught:
        take("m", "x" * 1000, int)
    assert len(str(caught.value)) < 100
