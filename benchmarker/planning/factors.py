"""Expand the description of an experiment into one flat table of settings for each combination to measure.

A description has base settings and factors. Each axis is a factor, each zip is a factor, and the listed cases together
are one factor. The settings are all combinations of the factors, each added to the base.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from benchmarker.api.errors import UserError
from benchmarker.records.plan import refuse_too_many
from benchmarker.records.record import DesignKind

Settings = Mapping[str, Any]
"""Values by name, typed or as text."""
CASE_NAME = "name of the case"
"""Key of the name of a case among its settings; no setting is spelt like this."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a plan file or a command line requests; names are spelt as `setting` returns them.

    A plan file has a `name`, and perhaps a `version`; each of its `cases` may have a name too, as CASE_NAME.
    """

    base: Settings
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    zips: Sequence[Mapping[str, Sequence[Any]]] = ()
    cases: Sequence[Settings] = ()
    trials: int = 10
    design: DesignKind = "rounds"
    order_seed: int | None = None
    name: str | None = None
    version: str | None = None


def expand(description: Description) -> list[dict[str, Any]]:
    """The settings of everything to measure; later factors vary fastest.

    Raises `UserError` if a factor is empty, if the lists of a zip differ in length, if a name is in two factors, or if
    the plan has too many trials.
    """
    factors = [_axis(name, values) for name, values in description.axes.items()]
    factors += [_zip(lists) for lists in description.zips]
    factors += [description.cases] if description.cases else []
    taken: set[str] = set()
    for factor in factors:
        names = {name for choice in factor for name in choice}
        if twice := sorted(names & taken):
            raise UserError(f"{twice[0]} is varied twice (axes, zips and cases are multiplied); leave one out")
        taken |= names
    refuse_too_many(prod(map(len, factors)), description.trials)
    return [
        {name: value for part in (description.base, *choices) for name, value in part.items()}
        for choices in product(*factors)
    ]


def _axis(name: str, values: Sequence[Any]) -> Sequence[Settings]:
    if not values:
        raise UserError(f"the axis {name} has no values; give it some, or leave it out")
    return [{name: value} for value in values]


def _zip(lists: Mapping[str, Sequence[Any]]) -> Sequence[Settings]:
    if not any(lists.values()):
        raise UserError(f"a zip ({', '.join(lists) or 'empty'}) has no values; give it some, or leave it out")
    (first, values), *others = lists.items()
    for name, more in others:
        if len(more) != len(values):
            raise UserError(
                f"the lists of a zip must be equally long, but {first} has {len(values)} values and {name} {len(more)}"
            )
    return [dict(zip(lists, choice, strict=True)) for choice in zip(*lists.values(), strict=True)]
