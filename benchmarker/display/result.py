"""What commands and functions give: tables and sentences in order, and the values behind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.files.atomic import as_json
from benchmarker.formatting import clean
from benchmarker.page import plots
from benchmarker.tables import terminal
from benchmarker.tables.formats import html_table
from benchmarker.tables.table import Table

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from benchmarker.page.page_model import Figure


@dataclass(frozen=True, slots=True)
class Text:
    """A sentence; on a terminal it wraps, with an indent of the lines after the first, and may have a colour.

    With `err`, it is printed on standard error in one line.
    """

    text: str
    indent: str = ""
    colour: str = ""
    err: bool = False


Part = Table | Text | str
"""What is printed of a result: a table, a sentence, or lines as they are."""


class Result(ABC):
    """What a function of the library returns: the tables, sentences and values that the command of its name prints."""

    most: ClassVar[int] = 0
    """Rows that are printed of a table that has an order; 0: all."""
    drawn: ClassVar[int] = 2
    """Figures that a notebook shows, the first ones."""

    @property
    @abstractmethod
    def data(self) -> Any:
        """The value that the command prints as JSON."""

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """Yield the tables and sentences that the command prints, in order."""

    @abstractmethod
    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each trial, comparison or score."""

    def to_dict(self) -> Any:
        """Return what the command prints with `--json`: dictionaries, lists, numbers and texts."""
        data = self.data
        return msgspec.json.decode(as_json(list(data) if isinstance(data, Iterator) else data))

    @property
    def notes(self) -> Sequence[Text]:
        """What the command prints below."""
        return ()

    @property
    def tables(self) -> list[Table]:
        """The tables that the command prints."""
        return [part for part in self.parts() if isinstance(part, Table)]

    def __repr__(self) -> str:
        """Return the tables and sentences as text."""
        return "\n".join(chain.from_iterable(map(lines, self._printed())))

    @property
    def figures(self) -> Sequence[Figure]:
        """The figures of these values, as the page of a report has them."""
        return ()

    def save_figure(self, path: str | PathLike[str], key: str = "") -> str:
        """Write the figure with this key as .svg, .pdf or .png, and its data beside it as .csv.

        It is as wide as a column of a paper, 3.5 inches. Returns the names of the files, and the caption. Raises
        `UserError` if there is no such figure, if there are several and no key is given, if a file cannot be written,
        or if the extra `plot` is missing.
        """
        chosen = [figure for figure in self.figures if key in ("", figure.key)]
        if len(chosen) != 1:
            known = ", ".join(figure.key for figure in self.figures) or "none, as nothing has values to draw"
            raise UserError(f"{f'no figure is named {key!r}' if key else 'name one figure'}; there are: {known}")
        return plots.save(chosen[0], Path(path))

    def _repr_html_(self) -> str:
        """Return the tables, sentences and figures as HTML for a notebook, which needs no network."""
        return in_notebook(self._printed(), self.figures[: self.drawn])

    def _printed(self) -> Iterator[Part]:
        """Yield the tables, with their first rows, the sentences and the notes."""
        for part in chain(self.parts(), self.notes):
            if isinstance(part, Table):
                table, more = part.first(self.most, "`.to_pandas()` has")
                yield table
                if more:
                    yield more
            else:
                yield part


def in_notebook(parts: Iterable[Part], figures: Sequence[Figure]) -> str:
    """Return tables, sentences and figures as HTML; without the extra `plot`, the reason stands in place of figures."""
    pieces = []
    for part in parts:
        if isinstance(part, Table):
            pieces.append(html_table(part))
        elif text := _words(part).strip():
            pieces.append(f"<p>{escape(text)}</p>\n")
    try:
        pieces += map(plots.inline, figures)
    except UserError as error:
        pieces.append(f"<p>{escape(clean(str(error)))}</p>\n")
    return "".join(pieces)


def lines(part: Part) -> list[str]:
    """Return the lines of a part, which fit a terminal."""
    if isinstance(part, Table):
        made = terminal.lines(part, terminal.width())
        notes = (terminal.sentence(f"  {note}", "    ") for note in part.remarks(terminal.MARK))
        whole = [
            *terminal.sentence(part.title, ""),
            *made.headings,
            *made.rows,
            made.more,
            *(line for note in notes for line in note),
        ]
        return [line for line in whole if line]
    return terminal.sentence(part.text, part.indent) if isinstance(part, Text) else [_words(part)]


def _words(part: Text | str) -> str:
    return clean(part.text) if isinstance(part, Text) else "\n".join(map(clean, part.splitlines()))
