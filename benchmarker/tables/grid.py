"""Cases as the cells of a table: by the values of some factors in rows and of others in columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarker.api.errors import UserError
from benchmarker.formatting import nearest
from benchmarker.hooks.cases import Configuration
from benchmarker.hooks.names import common_words, names, telling, title, word
from benchmarker.records.environment import environment_of
from benchmarker.records.factors import Factors, Value, factors_of, setting, text, varying
from benchmarker.records.record import Record
from benchmarker.records.sides import SIDE

Key = tuple[Value, ...]
"""Values of the factors of an axis."""
Place = tuple[Key, Key]
"""A cell: the values of its row and of its column."""
MOST_VALUES = 4
"""Largest number of values of a factor that an error names."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The factors of rows and columns, their values in the order of the plans, and the trials of each cell.

    `executions` says how each framework runs its steps, if they do so in unlike ways that no axis tells.
    """

    row_factors: tuple[str, ...]
    column_factors: tuple[str, ...]
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    cells: Mapping[Place, tuple[Record, ...]]
    executions: Mapping[Value, Value]

    def told(self, name: str, value: Value, said: str) -> str:
        """Return what is said of the value of a factor; of a framework, also how it runs its steps: `torch eager`."""
        return f"{said} {self.executions[value]}" if name == "framework" and value in self.executions else said

    def words(self, column: Key) -> list[str]:
        """Return the heading of a column, a word or two for each factor."""
        named = zip(self.column_factors, column, strict=True)
        return [self.told(name, value, word(name, value)) for name, value in named]

    def name(self, place: Place) -> str:
        """Return the name of a cell by the headings of its row and its column: `small 128, jax fp32`."""
        row = [self.told(name, value, text(value)) for name, value in zip(self.row_factors, place[0], strict=True)]
        return ", ".join(filter(None, (" ".join(row), " ".join(self.words(place[1]))))) or "the only cell"

    @property
    def shared(self) -> str:
        """What all cases have in common, in words."""
        cases = [factors_of(records[0].case) for records in self.cells.values()]
        common = common_words(map(title, cases)).rstrip(",")
        return names(cases, (*self.row_factors, *self.column_factors), [common] * len(cases)).shared


def grid(groups: Sequence[Configuration], rows: str | None, columns: str | None) -> Grid:
    """Arrange the trials of configurations by the factors that two texts name, separated by commas.

    Without `columns`, these are the frameworks and the sides if there are several; without `rows`, the fewest factors
    that tell the other cases apart. Raises `UserError` if a name is unknown, or if cases that differ would share a
    cell.
    """
    cases = [each.factors for each in groups]
    environments = {
        record.trial_id: {**environment_of(record), **each.factors} for each in groups for record in each.records
    }
    known = list(dict.fromkeys(name for each in environments.values() for name in each))
    differ = varying(cases)
    above = None if columns is None else _named("--columns", columns, known)
    left = None if rows is None else _named("--rows", rows, known)
    if above is None:
        above = [name for name in ("framework", SIDE) if name in differ and name not in (left or ())]
    if left is None:
        told = [tuple(case.get(name) for name in above) for case in cases]
        left = telling(cases, told, [name for name in differ if name not in above])
    if twice := [name for name in left if name in above]:
        raise UserError(f"{twice[0]} is in --rows and in --columns; leave it out of one")
    cells: dict[Place, list[Record]] = {}
    for group in groups:
        for record in group.records:
            known_of = environments[record.trial_id]
            place = tuple(known_of.get(name) for name in left), tuple(known_of.get(name) for name in above)
            cells.setdefault(place, []).append(record)
    made = Grid(
        tuple(left),
        tuple(above),
        _in_order([row for row, _ in cells]),
        _in_order([column for _, column in cells]),
        {place: tuple(several) for place, several in cells.items()},
        _executions(cases) if "execution" not in (*left, *above) else {},
    )
    factors_of = {record.trial_id: each.factors for each in groups for record in each.records}
    for place, several in made.cells.items():
        _refuse_several(made, place, [factors_of[record.trial_id] for record in several])
    return made


def _executions(cases: Sequence[Factors]) -> dict[Value, Value]:
    """Return how each framework runs its steps; empty if all do so alike, or if one does so in several ways."""
    ways = {(case["framework"], case["execution"]) for case in cases}
    found = dict(ways)
    return found if len(found) == len(ways) and len(set(found.values())) > 1 else {}


def _refuse_several(made: Grid, place: Place, cases: Sequence[Factors]) -> None:
    """Raise `UserError` if cases that differ share a cell."""
    if differ := varying(cases):
        name = differ[0]
        values = list(dict.fromkeys(text(case.get(name)) for case in cases))
        more = f", and in {', '.join(differ[1:])}" if differ[1:] else ""
        shown = ", ".join(values[:MOST_VALUES]) + (", ..." if len(values) > MOST_VALUES else "")
        raise UserError(
            f"cases that differ in {name} ({shown}){more} would share a cell ({made.name(place)}); "
            f"add {name} to --rows or --columns, or select with --where={name}={values[0]}"
        )


def _named(option: str, given: str, known: Sequence[str]) -> list[str]:
    """Return the factors that an option names, as records spell them."""
    spelt = {setting(name): name for name in known}
    found = []
    for each in filter(None, map(str.strip, given.split(","))):
        if setting(each) not in spelt:
            raise UserError(f"{option}={each}: the records have no such factor; {nearest(setting(each), spelt)}")
        found.append(spelt[setting(each)])
    return list(dict.fromkeys(found))


def _in_order(keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return each key once, by their first value, then the second, each in the order in which it first occurs."""
    keys = list(dict.fromkeys(keys))
    places = [{value: at for at, value in enumerate(dict.fromkeys(values))} for values in zip(*keys, strict=True)]
    return tuple(sorted(keys, key=lambda key: [of[value] for of, value in zip(places, key, strict=True)]))


def described(of: Sequence[str], key: Key) -> dict[str, Value]:
    """Return the values of factors by name."""
    return dict(zip(of, key, strict=True))
