"""Selecting cases by factors, as users write them in TOML: `match = {problem = "gpt2", seq_len = 128}`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from benchmarker.api.errors import UserError
from benchmarker.files import toml

if TYPE_CHECKING:
    from benchmarker.records.configurations import Factors, Value


def take(name: str, table: Mapping[str, Any]) -> dict[str, Value]:
    """The factors of a `match` table, spelt as factors are; raises `UserError` that names the key."""
    wanted: dict[str, Value] = {}
    for key, value in table.items():
        if setting(key) in wanted:
            raise UserError(f"{name}.{key} is given twice, spelt differently")
        wanted[setting(key)] = toml.take(f"{name}.{key}", value, bool | int | float | str)
    return wanted


def selects(wanted: Factors, factors: Factors) -> bool:
    """Whether all wanted factors hold; 1 and 1.0 are the same number, true is none."""
    spelt = {setting(name): value for name, value in factors.items()}
    return all(
        name in spelt and spelt[name] == value and isinstance(spelt[name], bool) == isinstance(value, bool)
        for name, value in wanted.items()
    )


def why_none(wanted: Factors, several: Iterable[Factors]) -> str:
    """In words why a selection selects nothing: a name that none has, or a value."""
    several = list(several)
    if not several:
        return "there is no record"
    values: dict[str, dict[Value, None]] = {}
    for factors in several:
        for name, value in factors.items():
            values.setdefault(setting(name), {})[value] = None
    for name, value in wanted.items():
        if name not in values:
            near = difflib.get_close_matches(name, values, n=1)
            return f"no record has a {name}" + (f"; did you mean {near[0]}?" if near else "")
        if not any(selects({name: value}, {name: known}) for known in values[name]):
            near = [str(known) for known in list(values[name])[:5]]
            return f"no record has {name}={value}; they have {', '.join(near)}"
    return "no record has all of these factors together"


_OPTIONS = {"gpus": "gpu", "preheat_max": "preheat_max_s", "timeout": "timeout_s"}
"""Options whose settings have another name."""


def setting(name: str) -> str:
    """The name of a setting that may be spelt as an option is."""
    plain = name.replace("-", "_")
    return _OPTIONS.get(plain, plain)
