"""The cases of a table: what they share as a sentence, what tells them apart as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarker.cli.display.output import Text
from benchmarker.hooks.names import names
from benchmarker.records.factors import DEFAULTS, label, text, varying
from benchmarker.records.sides import SIDE

if TYPE_CHECKING:
    from benchmarker.records.factors import Factors


@dataclass(frozen=True, slots=True)
class CaseColumns:
    """The columns that name the cases of a table, the cells of each case, and a sentence on what the cases share."""

    headings: list[str]
    cells: list[list[str]]
    shared: list[Text]


def case_columns(cases: Sequence[Factors], *, wide: bool) -> CaseColumns:
    """Return what the cases share, and side, name and framework of each, and if `wide` all factors that differ.

    Frameworks that run their steps in unlike ways have the word for theirs beside them: `torch eager`.
    """
    differ = varying(cases)
    way = [name for name in differ if name in ("framework", "execution")] if "framework" in differ else []
    made = names(cases, [*way, SIDE])
    columns = {SIDE: [str(case[SIDE]) for case in cases]} if SIDE in differ else {}
    columns |= {"case": list(made.each)} if any(made.each) else {}
    if wide:
        columns |= {name: [text(case.get(name)) for case in cases] for name in differ if name != SIDE}
        alike = [name for name, value in cases[0].items() if name not in differ and value != DEFAULTS.get(name)]
        shared = label(cases[0], alike)
    else:
        columns |= {"framework": [" ".join(text(case[name]) for name in way) for case in cases]} if way else {}
        shared = made.shared
    cells = [list(row) for row in zip(*columns.values(), strict=True)] or [[] for _ in cases]
    return CaseColumns(list(columns), cells, [Text(shared)] if shared or wide else [])
