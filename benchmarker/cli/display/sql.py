"""The answer of SQL as an output: a table, and exact values as JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarker.api.errors import UserError
from benchmarker.cli.display.output import Output
from benchmarker.tables.table import Column, Shown, Table

if TYPE_CHECKING:
    from benchmarker.hooks.sql import Rows


def answer_output(headings: Sequence[str], rows: Rows, **fields: Any) -> Output:
    """Return the columns and rows of an answer as an output, which has further `fields`."""

    def data() -> list[dict[str, Any]]:
        if twice := [name for at, name in enumerate(headings) if name in headings[:at]]:
            raise UserError(f"several columns are called {twice[0]}, which JSON cannot hold; name them with AS")
        return [dict(zip(headings, map(_json, row), strict=True)) for row in rows]

    columns = [Column(heading) for heading in headings]
    cells = [[Shown(_text(value), _cell(value)) for value in row] for row in rows]
    table = Table.of(columns, cells, drop=headings[:0:-1], cut=headings)
    return Output([table] if headings else [], data, **fields)


def _json(value: Any) -> Any:
    """Return a value of a query for JSON: numbers are exact, bytes become hexadecimal digits."""
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _json(item) for name, item in value.items()}
    if isinstance(value, Decimal) or type(value) is int:
        return msgspec.Raw(str(value).encode())
    return value.hex() if isinstance(value, bytes) else value


def _text(value: Any) -> Any:
    """Return a value of a query for CSV."""
    return value.hex() if isinstance(value, bytes) else value


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(_text(value))
