"""Protocol Buffers' wire format, read without code generated from a schema.

A message is a sequence of fields, each a key (field number and wire type) and a value; see "Encoding" in the
documentation of Protocol Buffers. `fields` iterates over one message; `columns` decodes many messages of one kind in
parallel.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""

_MAX_VARINT = 10
_MOST_KINDS = 64
"""Most kinds of fields at one position in messages of one kind; no schema that is read here has as many."""


class WireError(ValueError):
    """The bytes are not a message: they end within a field, or a field has no known type."""


EMPTY = np.empty(0, np.int64)


def fields(buffer: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Field numbers and values of a message: integers as unsigned numbers, everything else as bytes."""
    at, end = 0, len(buffer)
    while at < end:
        key, at = varint(buffer, at)
        wire = key & 7
        if wire == VARINT:
            value, at = varint(buffer, at)
            yield key >> 3, value
            continue
        if wire == BYTES:
            length, at = varint(buffer, at)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise WireError(f"a field of wire type {wire}")
        if at + length > end:
            raise WireError("it ends within a field")
        yield key >> 3, buffer[at : at + length]
        at += length


def varint(buffer: memoryview, at: int) -> tuple[int, int]:
    """The integer at a position, and the position after it."""
    value = 0
    try:
        for shift in range(0, 7 * _MAX_VARINT, 7):
            byte = buffer[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
    except IndexError:
        raise WireError("it ends within a number") from None
    raise WireError("a number of more than 64 bits")


def text(value: int | memoryview) -> str:
    """A text field; bytes that are not valid UTF-8 are replaced."""
    return bytes(value).decode("utf-8", "replace") if isinstance(value, memoryview) else str(value)


def integers(value: int | memoryview) -> list[int]:
    """A repeated integer field, packed or not."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found


def signed(value: int) -> int:
    """An unsigned 64-bit number, read as int64."""
    return value - (1 << 64) if value >> 63 else value


@dataclass(frozen=True, slots=True)
class Column:
    """One field of many messages: for each occurrence, the index of its message (`owner`) and its value.

    Integers are uint64 in `value`, and `end` is empty. For everything else, `value` is where the bytes begin and `end`
    where they end.
    """

    owner: np.ndarray
    value: np.ndarray
    end: np.ndarray


def columns(buffer: np.ndarray, start: np.ndarray, end: np.ndarray) -> dict[tuple[int, int], Column]:
    """The fields, by number and wire type, of the messages that lie in `buffer` (uint8) from `start` to `end`."""
    found: dict[tuple[int, int], list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
    owner = np.arange(len(start))
    at = start.astype(np.int64)
    limit = end.astype(np.int64)
    while True:
        left = at < limit
        if not left.all():
            owner, at, limit = owner[left], at[left], limit[left]
        if not len(owner):
            break
        key, at = varints(buffer, at)
        after = np.empty_like(at)
        kinds = [int(key[0])] if (key == key[0]).all() else np.unique(key).tolist()
        if len(kinds) > _MOST_KINDS:
            raise WireError("its messages have too many kinds of fields")
        for kind in kinds:
            chosen = slice(None) if len(kinds) == 1 else np.flatnonzero(key == kind)
            value, until = _values(buffer, at[chosen], kind & 7)
            if (until > limit[chosen]).any():
                raise WireError("it ends within a field")
            after[chosen] = until
            ends = EMPTY if kind & 7 == VARINT else until
            found.setdefault((kind >> 3, kind & 7), []).append((owner[chosen], value, ends))
        at = after
    return {key: Column(*(np.concatenate(parts) for parts in zip(*runs, strict=True))) for key, runs in found.items()}


NOTHING = Column(EMPTY, EMPTY, EMPTY)
"""A field that no message has."""


def _values(buffer: np.ndarray, at: np.ndarray, wire: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of one wire type, and the positions after them."""
    if wire == VARINT:
        return varints(buffer, at)
    if wire == BYTES:
        length, at = varints(buffer, at)
        if (length > len(buffer)).any():
            raise WireError("it ends within a field")
        return at, at + length.astype(np.int64)
    if wire in (FIXED64, FIXED32):
        return at, at + (8 if wire == FIXED64 else 4)
    raise WireError(f"a field of wire type {wire}")


def varints(buffer: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The integers at positions, and the positions after them."""
    if (at >= len(buffer)).any():
        raise WireError("it ends within a number")
    byte = buffer[at]
    value = (byte & 127).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(byte >= 128)
    for shift in range(7, 7 * _MAX_VARINT, 7):
        if not len(more):
            return value, after
        position = after[more]
        if (position >= len(buffer)).any():
            raise WireError("it ends within a number")
        byte = buffer[position]
        value[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        after[more] = position + 1
        more = more[byte >= 128]
    if len(more):
        raise WireError("a number of more than 64 bits")
    return value, after
