"""JSON that holds names of files, hosts and variables, which may be any bytes.

Python has the bytes of a name that are not UTF-8 as lone surrogates, which JSON cannot hold. They are escaped.
"""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(value: Any) -> bytes:
    r"""Encode a value as JSON, as msgspec does, with a byte 0xff of a name that is not UTF-8 as the text `\udcff`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)))


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {_escaped(name): _escaped(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(part) for part in value]
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
