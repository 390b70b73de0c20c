"""Convert the values of a JSON trace, which may have any type, to arrays of numbers."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from benchmarker.traces.formats.json_events import Slice
from benchmarker.traces.formats.wire import signed

_LATEST_US = float(1 << 62) / 1000
"""Later times do not fit int64 ns."""


def text_of(value: Any) -> str:
    """A text unchanged, anything else as its `repr`."""
    if type(value) is str:
        return value
    try:
        return repr(value)
    except RecursionError:
        return f"({type(value).__name__})"


def given_text(value: Any) -> str:
    """A value as text; empty for None."""
    return "" if value is None else text_of(value)


def numbers(values: list[Any], number: Callable[[Any], int]) -> np.ndarray:
    """The number of each value; `number` is called once for equal values if their types ensure that they look alike."""
    if _are_none(values):
        return np.full(len(values), number(None), np.int32)
    types = set(map(type, values))
    if types == {type(None)}:
        return np.full(len(values), number(None), np.int32)
    if types <= {str, int, type(None)}:
        known = {value: number(value) for value in dict.fromkeys(values)}
        if len(known) == 1:
            return np.full(len(values), known[values[0]], np.int32)
        return np.fromiter(map(known.__getitem__, values), np.int32, len(values))
    return np.array([number(value) for value in values], np.int32)


def _are_none(values: list[Any]) -> bool:
    """Whether there are values and all are None, as in most columns."""
    return bool(values) and values[0] is None and values.count(None) == len(values)


def integers(values: list[Any]) -> np.ndarray:
    """Values as int64, -1 for any that is not an integer; texts of digits count as integers."""
    if _are_none(values):
        return np.full(len(values), -1)
    types = set(map(type, values))
    if types <= {int, type(None)}:
        try:
            return np.array([-1 if value is None else value for value in values], np.int64)
        except OverflowError:
            pass
    return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    """A 64-bit integer, read as signed; -1 if the value is not one."""
    if type(value) not in (int, str) and not (type(value) is float and value.is_integer()):
        return -1
    try:
        number = int(value)
    except ValueError:
        return -1
    return signed(number) if 0 <= number < 1 << 64 else number if -(1 << 63) <= number < 0 else -1


def times_ns(slices: list[Slice]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Begins and durations in ns, and which of them are valid: non-negative numbers of less than 146 years."""
    times = [each.ts for each in slices], [each.dur for each in slices]
    types = {*map(type, times[0]), *map(type, times[1])}
    if not types <= {int, float, Decimal}:
        times = [decimal_of(value) for value in times[0]], [decimal_of(value) for value in times[1]]
    ts, dur = (_floats(values) for values in times)
    with np.errstate(invalid="ignore"):
        valid = (ts >= 0) & (ts < _LATEST_US) & (dur >= 0) & (dur < _LATEST_US)
    if types <= {int, float}:
        return _nanoseconds(np.where(valid, ts, 0)), _nanoseconds(np.where(valid, dur, 0)), valid
    begin, length = (
        np.array(
            [_whole_ns(value) if good else 0 for value, good in zip(values, valid.tolist(), strict=True)], np.int64
        )
        for values in times
    )
    return begin, length, valid


def decimal_of(value: Any) -> Decimal | None:
    """A number exactly as written, None if the value is not a number; texts of numbers count as numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        number = Decimal(value)
    except ArithmeticError:
        return None
    return number if number.is_finite() else None


def _floats(values: list[Any]) -> np.ndarray:
    """Numbers as floats, NaN for None."""
    try:
        return np.array(values, float)
    except OverflowError:  # an integer of more than 300 digits
        return np.array([None if value is None else float(Decimal(value)) for value in values], float)


def _whole_ns(microseconds: Any) -> int:
    return round(Decimal(microseconds) * 1000)


def _nanoseconds(microseconds: np.ndarray) -> np.ndarray:
    """Whole ns; whole µs are converted separately, so that no digit of a large time is lost."""
    whole = np.floor(microseconds)
    found: np.ndarray = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    return found
