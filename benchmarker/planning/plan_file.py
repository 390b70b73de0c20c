"""A plan file: TOML that describes an experiment (docs/plans.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from benchmarker.api.case import Measuring
from benchmarker.api.errors import UserError, concerning
from benchmarker.files import toml
from benchmarker.files.toml import take
from benchmarker.planning.factors import CASE_NAME, Description
from benchmarker.records.factors import setting
from benchmarker.records.record import DesignKind

_Value = bool | int | float | str
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_OF_THE_PLAN: dict[str, Any] = {
    "trials": Annotated[int, Meta(ge=1)],
    "design": DesignKind,
    "order_seed": Annotated[int, Meta(ge=0)],
    "name": _Name,
    "version": _Name,
}
_TABLES = ("measuring", "axes", "zip", "case")


def read(path: Path, name: str | None = None) -> Description:
    """The description in a file; without a `name`, it is named after the file.

    Raises `UserError` with the file and the line or key if something is wrong.
    """
    document = toml.load(path)
    with concerning(path):
        return _describe({"name": name or path.stem, **document})


def _describe(document: Mapping[str, Any]) -> Description:
    base = {name: value for name, value in document.items() if name not in (*_OF_THE_PLAN, *_TABLES)}
    base = _table("", base, _Value)
    measuring = _table("measuring.", take("measuring", document.get("measuring", {}), dict[str, Any]), _Value)
    for name in base.keys() & set(Measuring.__struct_fields__):
        raise UserError(f"{name} is at the top level; move it to [measuring]")
    for name in measuring:
        if name not in Measuring.__struct_fields__:
            raise UserError(f"[measuring] has no {name}; there are: {', '.join(Measuring.__struct_fields__)}")
    return Description(
        base=base | measuring,
        axes=_table("axes.", take("axes", document.get("axes", {}), dict[str, Any]), list[_Value]),
        zips=[
            _table("zip.", table, list[_Value]) for table in take("zip", document.get("zip", []), list[dict[str, Any]])
        ],
        cases=[_case(table) for table in take("case", document.get("case", []), list[dict[str, Any]])],
        **{name: take(name, document[name], kind) for name, kind in _OF_THE_PLAN.items() if name in document},
    )


def _case(table: Mapping[str, Any]) -> dict[str, Any]:
    settings = _table("case.", table, _Value)
    if "name" in settings:
        settings[CASE_NAME] = take("case.name", settings.pop("name"), _Name)
    return settings


def _table(place: str, table: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """The settings of a table, each checked to be of one type."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        if setting(name) in values:
            raise UserError(f"{place}{name} is given twice, spelt differently")
        values[setting(name)] = take(f"{place}{name}", value, kind)
    return values
