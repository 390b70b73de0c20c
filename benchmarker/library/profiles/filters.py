"""Options that choose among the work of a profile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from benchmarker.api.errors import UserError
from benchmarker.comparing.profiled_parts import OUTSIDE

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN = "unknown"
Phase = Literal["forward", "backward", "remat", "unknown"]
Step = Annotated[int, Meta(ge=0)]


class Filters(Struct, frozen=True, kw_only=True):
    """What the work that a table shows must be; None: anything."""

    name: str | None = None
    category: str | None = None
    scope: str | None = None
    phase: Phase | None = None
    device: str | None = None
    stream: str | None = None
    step: Step | None = None

    def events(self, events: pd.DataFrame, column: str = "name") -> pd.DataFrame:
        """Return the event table in which only the chosen rows are work; `--name` is searched in `column`.

        No row is removed, so that rows can still be found by their number; if nothing is chosen, the table is empty.
        """
        from benchmarker.traces.attribution.categories import categories
        from benchmarker.traces.events import words
        from benchmarker.traces.statistics import work

        if self.category not in (None, *categories()):
            raise UserError(f"--category={self.category}: the categories are {', '.join(categories())}")
        rows = work(events)
        chosen = rows["kind"] != ""
        for name, wanted in (("category", self.category), ("device", self.device), ("step", self.step)):
            if wanted is not None:
                chosen &= rows[name] == wanted
        if self.scope is not None:
            chosen &= rows["leaf"] == ("" if self.scope == OUTSIDE else self.scope)
        if self.phase is not None:
            chosen &= rows["phase"] == ("" if self.phase == UNKNOWN else self.phase)
        if self.stream is not None:
            chosen &= rows["track"].isin([self.stream, f"stream {self.stream}"])
        if self.name is not None:
            chosen &= rows[column].astype(object).str.contains(_pattern(self.name))
        if chosen.all():
            return events
        if not chosen.any():
            return events.iloc[:0]
        kinds = [*events["kind"].cat.categories, ""]
        number = events["kind"].cat.codes.to_numpy().copy()
        number[rows.index[~chosen]] = len(kinds) - 1
        return events.assign(kind=words(number, kinds))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise UserError(f"--name={text}: not a regular expression: {error}; put \\ before a bracket or a dot") from None
