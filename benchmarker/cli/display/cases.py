"""The cases of a table: what they share as a sentence, what tells them apart as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarker.cli.display.output import print_text
from benchmarker.hooks.names import names
from benchmarker.records.factors import DEFAULTS, label, text, varying
from benchmarker.records.sides import SIDE

if TYPE_CHECKING:
    from benchmarker.records.factors import Factors


@dataclass(frozen=True, slots=True)
class CaseColumns:
    """The columns that name the cases of a table, and the cells of each case."""

    headings: list[str]
    cells: list[list[str]]


def case_columns(cases: Sequence[Factors], *, wide: bool) -> CaseColumns:
    """Print what the cases share; return side, name and framework of each, and if `wide` all factors that differ.

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
        print_text(label(cases[0], alike))
    else:
        columns |= {"framework": [" ".join(text(case[name]) for name in way) for case in cases]} if way else {}
        if made.shared:
            print_text(made.shared)
    return CaseColumns(list(columns), [list(row) for row in zip(*columns.values(), strict=True)] or [[] for _ in cases])
