"""JSON and text that hold names of the system: of files, hosts and variables, which may be any bytes.

Python has the bytes of a name that are not UTF-8 as lone surrogates, which no file in UTF-8 can hold. They are escaped.
"""

from __future__ import annotations

from typing import Any

import msgspec


def encoded(text: str) -> bytes:
    r"""Encode a text in UTF-8; a byte 0xff of a name that is not UTF-8 becomes `\udcff`."""
    return text.encode(errors="backslashreplace")


def as_json(value: Any) -> bytes:
    """Encode a value as JSON, as msgspec does, with texts as `encoded` has them."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)))


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {_escaped(name): _escaped(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_escaped(part) for part in value]
    return encoded(value).decode() if isinstance(value, str) else value
