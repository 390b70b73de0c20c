"""A sheet: a table that is laid out, but not yet in a format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as text; `best` prints it in bold."""

    text: str
    best: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading by level, from the top down, and whether it holds numbers, which are aligned to the right.

    Columns that share the upper levels of their headings stand below one of each.
    """

    levels: tuple[str, ...]
    is_number: bool = True

    @property
    def heading(self) -> str:
        """The heading in one line: `jax inference, ms`."""
        *groups, last = self.levels
        return ", ".join(filter(None, [" ".join(groups), last]))


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table with its title and the notes under it; `labels` is how many columns name the rows.

    `bold` says what bold means, empty if no cell could be.
    `plain_headings` and `plain_rows` are its content for CSV: numbers in units without prefix.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    labels: int
    notes: tuple[str, ...]
    bold: str
    plain_headings: tuple[str, ...]
    plain_rows: tuple[tuple[Any, ...], ...]

    def remarks(self, mark: str = "bold:") -> list[str]:
        """Return what stands under the table: what the mark of the best cells means, and the notes."""
        return [*([f"{mark} {self.bold}"] if self.bold else []), *self.notes]

    @property
    def levels(self) -> int:
        """How many levels the headings have."""
        return max((len(column.levels) for column in self.columns), default=1)

    def spans(self, level: int) -> list[tuple[str, int]]:
        """Return the headings of a level, each with the number of columns that it spans; a level counts from the top.

        The heading of a column with fewer levels stands on the lowest one.
        """
        paths = [("",) * (self.levels - len(column.levels)) + column.levels for column in self.columns]
        found: list[tuple[str, int]] = []
        last: tuple[str, ...] | None = None
        for path in paths:
            here = path[: level + 1]
            if here == last and here[-1] and level < self.levels - 1:
                found[-1] = (here[-1], found[-1][1] + 1)
            else:
                found.append((here[-1], 1))
            last = here
        return found
