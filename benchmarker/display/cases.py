"""The cases of a table: what they share as a sentence, what tells them apart as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarker.display.result import Text
from benchmarker.hooks.names import names
from benchmarker.records.factors import DEFAULTS, Factors, label, text, varying
from benchmarker.records.sides import SIDE
from benchmarker.tables.table import Cell, Column, Filled, Shown, cell_text


@dataclass(frozen=True, slots=True)
class CaseColumns:
    """The columns that name the cases of a table, the words in them for each case, and what the cases share."""

    columns: list[Filled]
    words: list[str]
    shared: list[Text]


def case_columns(cases: Sequence[Factors], *, wide: bool) -> CaseColumns:
    """Return what the cases share, and side, name and framework of each, and if `wide` all factors that differ.

    Frameworks that run their steps in unlike ways have the word for theirs beside them: `torch eager`.
    """
    differ = varying(cases)
    way = [name for name in differ if name in ("framework", "execution")] if "framework" in differ else []
    made = names(cases, [*way, SIDE])
    columns: dict[str, Sequence[Cell]] = {SIDE: [case[SIDE] for case in cases]} if SIDE in differ else {}
    columns |= {"case": made.each} if any(made.each) else {}
    if wide:
        values = {name: [case.get(name) for case in cases] for name in differ if name != SIDE}
        columns |= {name: [Shown(value, text(value)) for value in of] for name, of in values.items()}
        alike = [name for name, value in cases[0].items() if name not in differ and value != DEFAULTS.get(name)]
        shared = label(cases[0], alike)
    else:
        columns |= {"framework": [" ".join(text(case[name]) for name in way) for case in cases]} if way else {}
        shared = made.shared
    filled = [(Column(name), cells) for name, cells in columns.items()]
    texts = [[cell_text(cell, column) for cell in cells] for column, cells in filled]
    words = list(map(" ".join, zip(*texts, strict=True))) or [""] * len(cases)
    return CaseColumns(filled, words, [Text(shared)] if shared or wide else [])
