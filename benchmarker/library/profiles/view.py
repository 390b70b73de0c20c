"""A view of one or several profiles: the frame behind it, and what is printed of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarker.api.errors import UserError
from benchmarker.display.profiles import notes_on, plain
from benchmarker.display.result import Part, Result, Text

if TYPE_CHECKING:
    import pandas as pd

    from benchmarker.tables.table import Table
    from benchmarker.traces.ingest import Ingested

TOP = 30
"""Rows of a table of a profile that are printed unless another number is asked for."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Profiled(Result):
    """A view of profiles.

    `frame` is the whole table, of which at most 30 rows are printed; `notes` say what the profiles lack. The views
    `idle`, `path` and `memory` have several tables: `frame` is the main one, and `frames` has all by name.
    """

    most: ClassVar[int] = TOP
    frame: pd.DataFrame
    notes: Sequence[Text] = ()

    @property
    def data(self) -> Any:
        """The rows; of several tables, the rows of each by its name."""
        return self.rows()

    def rows(self, top: int = 0) -> Any:
        """Return what the command prints as JSON, with at most `top` rows of its table; 0: all."""
        return plain(self.frame[: top or None])

    @abstractmethod
    def parts(self, *, wide: bool = False, top: int = 0) -> Iterator[Part]:
        """Yield the tables and sentences; `wide` has every column, `top` limits a table without an order."""

    def table(self, *, wide: bool = False) -> Table | None:
        """Return the table that CSV has, if that is not the first."""
        return None

    def to_pandas(self) -> pd.DataFrame:
        """Return the whole table."""
        return self.frame.copy()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Tables(Profiled):
    """A view whose tables are printed as they are, and which may have several of them.

    In JSON, `values` stand before the rows of the `frames`, of which only those of `limited` can be fewer. `csv` is the
    table that CSV has.
    """

    values: Mapping[str, Any]
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    limited: str = ""
    printed: Sequence[Part]
    csv: Table | None = None

    def rows(self, top: int = 0) -> dict[str, Any]:
        """Return the values and the rows of every table."""
        shown = {name: frame[: top or None] if name == self.limited else frame for name, frame in self.frames.items()}
        return {**self.values, **{name: plain(frame.astype(object)) for name, frame in shown.items()}}

    def parts(self, *, wide: bool = False, top: int = 0) -> Iterator[Part]:
        """Yield the tables and sentences."""
        yield from self.printed

    def table(self, *, wide: bool = False) -> Table | None:
        """Return the table that CSV has, if that is not the first."""
        return self.csv


def the_only(results: Sequence[Path]) -> Path:
    """Return the only result; raises `UserError` if there are several."""
    if len(results) > 1:
        raise UserError(f"{len(results)} results are given; this view shows one")
    return results[0]


def opened(results: Sequence[Path]) -> tuple[Ingested, list[Text]]:
    """Return the trace of the only result, and what it lacks."""
    from benchmarker.traces.profile_files import open_trace

    ingested = open_trace(the_only(results))
    return ingested, notes_on([ingested.trace], [""])


def nothing(reason: str, names: Sequence[str], notes: Sequence[Text]) -> Tables:
    """Return a view without a table, whose values are null for a reason."""
    import pandas as pd

    values = {"reason": reason, **dict.fromkeys(names)}
    return Tables(frame=pd.DataFrame(), values=values, printed=[reason], notes=notes)
