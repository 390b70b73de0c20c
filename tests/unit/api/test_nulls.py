from typing import Annotated

import pytest
from msgspec import Struct

from benchmarker.api.fields import NULL_IS_AN_ANSWER, declared_reasons, null_because


class Part(Struct):
    count: Annotated[int | None, null_because("{case.problem} has none")]


class Whole(Struct):
    name: str
    note: Annotated[str | None, NULL_IS_AN_ANSWER]
    parts: list[Part]
    best: Annotated[Part | None, null_because("there were no parts")]


class Forgotten(Struct):
    count: int | None


class Deeper(Struct):
    parts: list[Forgotten]


def test_the_reason_for_each_null_is_found_by_its_path():
    assert declared_reasons(Whole) == {
        "note": None,
        "parts[].count": "{case.problem} has none",
        "best": "there were no parts",
        "best.count": "{case.problem} has none",
    }


@pytest.mark.parametrize("struct", [Forgotten, Deeper])
def test_a_field_that_may_be_null_without_a_reason_fails_at_import(struct):
    with pytest.raises(TypeError, match=r"Forgotten.count may be null: mark it with `null_because\(...\)`"):
        declared_reasons(struct)
