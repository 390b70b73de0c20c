"""The events of a JSON trace in Chrome's format, decoded in pieces, so that memory does not grow with the file.

A piece must end where an event ends. A place between braces is tested by decoding the piece before it: all brackets
are closed only at the end of an event, so a piece that decodes is complete. If no piece decodes, because an event is
damaged or has many others in its arguments, the events are read one by one.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from benchmarker.traces.formats.wire import signed

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*$")
_SPACE = re.compile(r"[ \t\r\n]*")
_AFTER = re.compile(r"[ \t\r\n]*(?:,[ \t\r\n]*|(?=\])|\Z)")
"""What may follow an event."""
_SPACES = 256
"""Most white space that is expected between two events, in bytes."""
_TRIES = 24
"""Places that are tried before the events are read one by one."""
LONGEST = 1 << 28
"""Bytes within which an event must end."""
_EXACT_US = float(1 << 43)
"""Below this, a float of microseconds resolves nanoseconds: its spacing is less than 1 ns."""


NOT_GIVEN = msgspec.Raw(b"")
"""The value of an argument that an event does not have."""


class Args(Struct, gc=False):
    """The arguments that are read; a file may contain any type."""

    external_id: Any = msgspec.field(default=None, name="External id")
    older_external_id: Any = msgspec.field(default=None, name="external id")
    correlation: Any = None
    correlation_id: Any = None
    sequence_nr: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    device: Any = None
    dev_id: Any = msgspec.field(default=None, name="dev-id")
    stream: Any = None
    hlo_op: Any = None
    hlo_module: Any = None
    program_id: Any = None
    run_id: Any = None
    device_ordinal: Any = None
    step_num: Any = None
    name: Any = None
    dims: msgspec.Raw = msgspec.field(default=NOT_GIVEN, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOT_GIVEN, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NOT_GIVEN, name="Input Strides")
    concrete: msgspec.Raw = msgspec.field(default=NOT_GIVEN, name="Concrete Inputs")
    graph_node: Any = msgspec.field(default=None, name="graph node id")
    grid: msgspec.Raw = NOT_GIVEN
    block: msgspec.Raw = NOT_GIVEN
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    collective: Any = msgspec.field(default=None, name="Collective name")
    message: Any = msgspec.field(default=None, name="In msg nelems")
    element: Any = msgspec.field(default=None, name="dtype")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Any = msgspec.field(default=None, name="Group size")
    collective_nr: Any = msgspec.field(default=None, name="Seq")
    size: Any = msgspec.field(default=None, name="Bytes")
    address: Any = msgspec.field(default=None, name="Addr")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    memory_type: Any = msgspec.field(default=None, name="Device Type")
    memory_number: Any = msgspec.field(default=None, name="Device Id")


class Slice(Struct, gc=False):
    """One event; times in microseconds."""

    ph: Any = None
    name: Any = ""
    cat: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = 0
    args: Args | None = None


class _ExactSlice(Slice, gc=False):
    """An event whose times are read exactly as written."""

    ts: Decimal | None = None
    dur: Decimal | None = Decimal(0)


_decoder = msgspec.json.Decoder(list[Slice])
_exact_decoder = msgspec.json.Decoder(list[_ExactSlice])
_each_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_decoders_of_one = (msgspec.json.Decoder(_ExactSlice), msgspec.json.Decoder(Slice))
_scanner = json.JSONDecoder(strict=False, parse_int=len, parse_float=len)
"""Also finds the end of values that `msgspec` rejects: NaN, lone surrogates, control characters."""
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonEvents:
    """The events of a trace, in lists; after reading, also the rest of the file, and what was wrong."""

    def __init__(self) -> None:
        self.beside: dict[str, Any] = {}
        self.malformed = 0
        self.unread_bytes = 0
        self.endless = False

    def read(self, pieces: Iterator[bytes]) -> Iterator[list[Slice]]:
        """Yield lists of events. Raises `msgspec.DecodeError` if the file is not a trace."""
        buffer = bytearray()
        before = self._before(pieces, buffer)
        wanted = 0
        for piece in pieces:
            buffer += piece
            if len(buffer) < wanted:
                continue
            found = self._split(buffer)
            if found is not None:
                wanted = 0
                yield found
            elif len(buffer) > LONGEST:
                raise msgspec.DecodeError(f"no event ends within {LONGEST >> 20} MiB")
            else:
                wanted = 2 * len(buffer)
        yield from self._last(buffer, before)

    def _before(self, pieces: Iterator[bytes], buffer: bytearray) -> bytes:
        """The bytes before the events; the first events are left in `buffer`."""
        for piece in pieces:
            buffer += piece
            start = re.match(rb"\s*\[", buffer)
            match = start or _ARRAY.search(buffer)
            if match:
                before = bytes(buffer[: match.end() - 1])
                del buffer[: match.end()]
                return b"" if start else before
            if len(buffer) > LONGEST:
                break
        raise msgspec.DecodeError("it has no traceEvents")

    def _split(self, buffer: bytearray) -> list[Slice] | None:
        """Remove the longest complete piece from the start of `buffer`, and return its events."""
        at = len(buffer)
        for _ in range(_TRIES):
            at = buffer.rfind(b"{", 0, at)
            if at < 0:
                return None
            match = _BETWEEN.search(buffer, max(0, at - _SPACES), at)
            if match:
                found = self._decoded(b"[" + buffer[: match.start() + 1] + b"]")
                if found is not None:
                    del buffer[:at]
                    return found
        found, end = self._one_by_one(buffer, ended=False)
        del buffer[:end]
        return found or None

    def _last(self, buffer: bytearray, before: bytes) -> Iterator[list[Slice]]:
        """The events up to the array's end; if the file ends before it, those that are complete."""
        at = len(buffer)
        for _ in range(_TRIES):
            at = buffer.rfind(b"]", 0, at)
            if at < 0:
                break
            found = self._decoded(b"[" + buffer[: at + 1])
            if found is not None:
                yield found
                self._read_beside(before, buffer[at:])
                return
        found, at = self._one_by_one(buffer, ended=True)
        yield found
        if buffer[at : at + 1] == b"]":
            self._read_beside(before, buffer[at:])
        else:
            self.endless = True
            self.unread_bytes = len(buffer) - at

    def _read_beside(self, before: bytes, after: bytearray) -> None:
        """Read the file's fields around the events; a bare array has none."""
        try:
            if before:
                self.beside = msgspec.json.decode(before + b"[" + after, type=dict[str, Any])
                whole = self.beside.pop("traceEvents", None) == []  # otherwise another list was read
            else:
                whole = msgspec.json.decode(b"[" + after) == []
        except _UNREADABLE:
            whole = False
        if not whole:
            self.unread_bytes = len(after)

    def _one_by_one(self, buffer: bytearray, *, ended: bool) -> tuple[list[Slice], int]:
        """The complete events, and the position in the buffer after them."""
        text = buffer.decode("latin-1")
        space = _SPACE.match(text)
        at = space.end() if space else 0
        items = []
        while at < len(text) and text[at] != "]":
            try:
                end = _scanner.raw_decode(text, at)[1]
            except (ValueError, RecursionError):
                break
            after = _AFTER.match(text, end)
            if not after or (after.end() == len(text) and not (ended and text[at] == "{")):
                break
            items.append(buffer[at:end])
            at = after.end()
        return self._of_each(items), at

    def _decoded(self, text: bytes | bytearray) -> list[Slice] | None:
        """The events in a JSON array, None if it is not one."""
        try:
            try:
                found = _decoder.decode(text)
                times = [each.ts for each in found if type(each.ts) is float]
                if times and max(map(abs, times)) >= _EXACT_US:
                    return list(_exact_decoder.decode(text))
            except msgspec.ValidationError:
                return self._of_each(_each_decoder.decode(text))
            return found
        except _UNREADABLE:
            return None

    def _of_each(self, items: Sequence[bytes | bytearray | msgspec.Raw]) -> list[Slice]:
        """The events among values; values that are damaged or are not objects are counted."""
        found: list[Slice] = []
        for item in items:
            for decoder in _decoders_of_one:
                try:
                    found.append(decoder.decode(item))
                except _UNREADABLE:
                    continue
                break
            else:
                self.malformed += 1
        return found


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
    if set(map(type, values)) <= {str, int, type(None)}:
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
