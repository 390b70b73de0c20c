"""The wire format against protobuf's own encoder, and bytes that are no message."""

import time

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarker.traces.formats import wire

Field = descriptor_pb2.FieldDescriptorProto
TYPES = {
    1: Field.TYPE_INT64,
    2: Field.TYPE_UINT64,
    3: Field.TYPE_STRING,
    4: Field.TYPE_BYTES,
    5: Field.TYPE_DOUBLE,
    6: Field.TYPE_FIXED32,
    7: Field.TYPE_BOOL,
    300: Field.TYPE_INT32,
}


def _message_class():
    file = descriptor_pb2.FileDescriptorProto(name="any.proto", package="any", syntax="proto3")
    made = file.message_type.add(name="Any")
    for number, kind in TYPES.items():
        made.field.add(name=f"f{number}", number=number, type=kind, label=Field.LABEL_OPTIONAL)
    made.field.add(name="packed", number=20, type=Field.TYPE_INT64, label=Field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("any.Any"))


Any = _message_class()
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
messages = st.fixed_dictionaries(
    {},
    optional={
        "f1": int64,
        "f2": st.integers(0, (1 << 64) - 1),
        "f3": st.text(max_size=200),
        "f4": st.binary(max_size=20),
        "f5": st.floats(allow_nan=False),
        "f6": st.integers(0, (1 << 32) - 1),
        "f7": st.booleans(),
        "f300": st.integers(-(1 << 31), (1 << 31) - 1),
        "packed": st.lists(int64, max_size=5),
    },
).map(lambda each: Any(**each))


@settings(max_examples=100, deadline=None)
@given(messages)
def test_fields_are_those_of_protobuf(message):
    found = dict(wire.fields(memoryview(message.SerializeToString())))
    assert set(found) == {field.number for field, _ in message.ListFields()}
    assert wire.signed(found.get(1, 0)) == message.f1
    assert found.get(2, 0) == message.f2
    assert wire.text(found.get(3, memoryview(b""))) == message.f3
    assert bytes(found.get(4, b"")) == message.f4
    assert np.frombuffer(found.get(5, bytes(8)), "<f8")[0] == message.f5
    assert np.frombuffer(found.get(6, bytes(4)), "<u4")[0] == message.f6
    assert found.get(7, 0) == message.f7
    assert wire.signed(found.get(300, 0)) == message.f300
    assert [wire.signed(each) for each in wire.integers(found.get(20, memoryview(b"")))] == list(message.packed)


@settings(max_examples=60, deadline=None)
@given(st.lists(messages, max_size=12))
def test_columns_are_those_of_protobuf(made):
    parts = [message.SerializeToString() for message in made]
    buffer = np.frombuffer(b"?".join(parts) + b"?", np.uint8)
    start = np.cumsum([0, *(len(part) + 1 for part in parts)])[: len(parts)].astype(np.int64)
    end = start + [len(part) for part in parts]
    found = wire.columns(buffer, start, end.astype(np.int64))
    raw = bytes(buffer)
    for number, kind in ((1, wire.VARINT), (2, wire.VARINT), (300, wire.VARINT)):
        column = found.get((number, kind), wire.NOTHING)
        expected = {index: getattr(each, f"f{number}") for index, each in enumerate(made)}
        assert column.value.dtype == np.uint64 or not len(column.value)
        values = column.value if number == 2 else column.value.astype(np.int64)
        assert dict(zip(column.owner.tolist(), values.tolist(), strict=True)) == {
            index: value for index, value in expected.items() if value
        }
    for number, read in ((3, lambda part: part.decode()), (4, bytes)):
        column = found.get((number, wire.BYTES), wire.NOTHING)
        spans = zip(column.owner.tolist(), column.value.tolist(), column.end.tolist(), strict=True)
        assert {owner: read(raw[first:last]) for owner, first, last in spans} == {
            index: getattr(each, f"f{number}") for index, each in enumerate(made) if getattr(each, f"f{number}")
        }
    column = found.get((5, wire.FIXED64), wire.NOTHING)
    doubles = {
        owner: np.frombuffer(raw[at : at + 8], "<f8")[0]
        for owner, at in zip(column.owner.tolist(), column.value.tolist(), strict=True)
    }
    assert doubles == {
        index: each.f5 for index, each in enumerate(made) if "f5" in {field.name for field, _ in each.ListFields()}
    }


@settings(max_examples=60, deadline=None)
@given(messages, st.data())
def test_a_message_that_is_cut_is_refused_or_ends_at_a_field(message, data):
    content = message.SerializeToString()
    cut = content[: data.draw(st.integers(0, len(content)))]
    whole = [(number, bytes(value) if isinstance(value, memoryview) else value) for number, value in _of(content)]
    try:
        found = [(number, bytes(value) if isinstance(value, memoryview) else value) for number, value in _of(cut)]
    except wire.WireError:
        found = None
    assert found is None or found == whole[: len(found)]
    columns = _columns(cut)
    assert (columns is None) == (found is None)


def _of(content: bytes):
    return list(wire.fields(memoryview(content)))


def _columns(content: bytes):
    try:
        return wire.columns(np.frombuffer(content, np.uint8), np.zeros(1, np.int64), np.full(1, len(content)))
    except wire.WireError:
        return None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_read_alike_or_refused_alike(content):
    try:
        found = _of(content)
    except wire.WireError:
        found = None
    columns = _columns(content)
    assert (found is None) == (columns is None)
    if found is not None:
        assert len(found) == sum(len(each.owner) for each in columns.values())
        assert sorted(number for number, _ in found) == sorted(
            number for (number, _), each in columns.items() for _ in each.owner
        )


def test_by_hand():
    # "Encoding" in the documentation of Protocol Buffers: field 1 = 150, field 2 = "testing"
    assert _of(bytes.fromhex("089601")) == [(1, 150)]
    ((number, value),) = _of(bytes.fromhex("120774657374696e67"))
    assert (number, wire.text(value)) == (2, "testing")
    assert wire.integers(memoryview(bytes.fromhex("038e029ea705"))) == [3, 270, 86942]
    assert wire.integers(7) == [7]
    assert wire.signed((1 << 64) - 2) == -2
    assert wire.text(5) == "5"
    assert wire.text(memoryview(b"a\xffb")) == "a\ufffdb"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x08", "it ends within a number"),
        (b"\x80", "it ends within a number"),
        (b"\x12\x07test", "it ends within a field"),
        (b"\x09\x00\x00", "it ends within a field"),
        (b"\x0b", "a field of wire type 3"),
        (b"\x0f\x00", "a field of wire type 7"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "a number of more than 64 bits"),
        (b"\x12" + b"\xff" * 9 + b"\x01", "it ends within a field"),
    ],
)
def test_what_is_no_message_is_refused(content, message):
    with pytest.raises(wire.WireError, match=message):
        _of(content)
    with pytest.raises(wire.WireError, match=message):
        wire.columns(np.frombuffer(content, np.uint8), np.zeros(1, np.int64), np.full(1, len(content)))


def test_an_endless_number_and_countless_kinds_of_fields_take_no_time():
    start = time.process_time()
    with pytest.raises(wire.WireError, match="more than 64 bits"):
        _of(b"\x80" * 3_000_000)
    each = [wire_key(number) for number in range(1, 20_001)]
    buffer = np.frombuffer(b"".join(each), np.uint8)
    ends = np.cumsum([len(one) for one in each])
    with pytest.raises(wire.WireError, match="too many kinds of fields"):
        wire.columns(buffer, np.concatenate([[0], ends[:-1]]), ends)
    assert time.process_time() - start < 2


def wire_key(number: int) -> bytes:
    """A varint field of one byte."""
    key, out = number << 3, bytearray()
    while key > 127:
        out.append(key & 127 | 128)
        key >>= 7
    return bytes([*out, key, 1])


def test_no_messages_have_no_fields():
    assert wire.columns(np.empty(0, np.uint8), wire.EMPTY, wire.EMPTY) == {}
