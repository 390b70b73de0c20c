"""Splitting a JSON trace into pieces: whatever the pieces are, the events are those of `json.loads`."""

import json
from collections.abc import Iterator
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarker.traces.formats import json_events
from benchmarker.traces.formats.json_events import JsonEvents

NASTY = [
    {"ph": "X", "name": "},{", "ts": 1, "dur": 2},
    {"ph": "X", "name": '"},{"ph":"X","name":"', "ts": 2, "args": {"name": "]},["}},
    {"ph": "X", "name": "nested", "ts": 3, "args": {"other": [{"a": 1}, {"b": [{"c": 2}, {"d": 3}]}, {}], "name": "x"}},
    {},
    {"ph": "M", "name": 'traceEvents": [', "args": {"name": '"traceEvents": [{'}},
    {"ph": "X", "name": "\\", "ts": 1.5},
    {"ph": "X", "name": '\\"', "ts": 0.001, "cat": "ü😀\u2028"},
    {"ph": "X", "name": "spaces   },   {  ", "ts": -4},
    {"ph": "X", "args": {"Input Dims": [[1, 2], [[3]], []]}},
    {"ph": "X", "name": "last", "ts": 12},
]


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def read(content: bytes, size: int) -> tuple[JsonEvents, list]:
    made = JsonEvents()
    return made, [each for found in made.read(pieces(content, size)) for each in found]


def as_read(event: dict) -> tuple:
    return (
        event.get("ph"),
        event.get("name", ""),
        event.get("ts"),
        event.get("dur", 0),
        event.get("args", {}).get("name"),
    )


def seen(found: list) -> list[tuple]:
    """What events say; times that were read exactly as floats, to compare them."""

    def plain(value: object) -> object:
        return float(value) if isinstance(value, Decimal) else value

    return [
        (each.ph, each.name, plain(each.ts), plain(each.dur), each.args.name if each.args else None) for each in found
    ]


LAYOUTS = {
    "object": lambda text: f'{{"traceEvents": {text}}}',
    "bare": lambda text: text,
    "bare with space": lambda text: f" \n {text}\n ",
    "keys before": lambda text: f'{{"schemaVersion": 1, "more": {{"a": [{{}}, {{}}]}}, "traceEvents" \n : {text}}}',
    "keys after": lambda text: f'{{"traceEvents":{text}, "schemaVersion": 1, "x": [[1], {{"y": []}}, "]"]}}\n',
    "many lists after": lambda text: f'{{"traceEvents":{text}, "schemaVersion": 1, "x": [{",".join(["[{}]"] * 60)}]}}',
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), ("  ,\n ", ":")])
def test_the_events_do_not_depend_on_the_pieces(layout, separators):
    content = LAYOUTS[layout](json.dumps(NASTY, separators=separators)).encode()
    parsed = json.loads(content)
    expected = [as_read(each) for each in (parsed if isinstance(parsed, list) else parsed["traceEvents"])]
    for size in [*range(1, 40), *range(40, len(content) + 1, 61)]:
        made, found = read(content, size)
        assert seen(found) == expected, f"pieces of {size}"
        assert (made.malformed, made.unread_bytes, made.endless) == (0, 0, False)
        assert made.beside.get("schemaVersion") == (1 if "keys" in layout or "many" in layout else None)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["},{", "]", '"', "\\", "{[", "x"]),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.sampled_from("ab"), of, max_size=2),
    max_leaves=6,
)
events = st.fixed_dictionaries(
    {"ph": st.just("X")}, optional={"name": values, "ts": st.integers(0, 9), "other": values, "dur": st.integers(0, 9)}
)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=8), st.integers(1, 60), st.sampled_from(sorted(LAYOUTS)))
def test_any_events_in_any_pieces(made, size, layout):
    source, found = read(LAYOUTS[layout](json.dumps(made)).encode(), size)
    assert seen(found) == [as_read(each) for each in made]
    assert (source.malformed, source.unread_bytes) == (0, 0)


@pytest.mark.parametrize("size", [1, 10, 37, 1000])
def test_what_is_no_event_is_counted(size):
    content = b'[{"ts":1}, 5, null, "x,", [1,2], {"args":[1]}, {"args":{"name":3}}, true, {"ts":2}]'
    made, found = read(content, size)
    assert [each.ts for each in found] == [1, None, 2]
    assert made.malformed == 6
    assert made.unread_bytes == 0


@pytest.mark.parametrize("size", [1, 10, 37, 1000])
@pytest.mark.parametrize(
    "damaged",
    [
        b'{"ts":NaN}',
        b'{"name":"\\ud800"}',
        b'{"name":"\xff"}',
        b'{"name":"\x01"}',
        b'{"args":{"x":Infinity}}',
        b'{"ts":1e999}',
    ],
)
def test_one_event_that_is_no_json_costs_itself_alone(size, damaged):
    content = b'{"traceEvents":[{"ts":1},{"ts":2},' + damaged + b',{"ts":3},{"ts":4}],"schemaVersion":1}'
    made, found = read(content, size)
    assert [each.ts for each in found if each.ts != Decimal("1e999")] == [1, 2, 3, 4]
    assert made.malformed + len(found) == 5
    assert (made.unread_bytes, made.beside) == (0, {"schemaVersion": 1})


def test_every_cut_gives_the_events_before_it_and_says_so():
    content = LAYOUTS["keys after"](json.dumps(NASTY)).encode()
    whole = seen(read(content, 10_000)[1])
    for cut in range(content.index(b"[") + 1, len(content.rstrip())):
        made, found = read(content[:cut], 10_000)
        assert made.endless or made.unread_bytes
        assert seen(found) == whole[: len(found)]
    assert len(found) == len(whole)


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"traceEvents": 3}', b'{"events": []}', b'{"traceEvents', b" "])
def test_a_file_without_events_is_no_trace(content):
    with pytest.raises(msgspec.DecodeError, match="it has no traceEvents"):
        read(content, 3)


def test_an_event_without_end_is_told(monkeypatch):
    monkeypatch.setattr(json_events, "LONGEST", 1000)
    with pytest.raises(msgspec.DecodeError, match="no event ends within"):
        read(b'[{"name":"' + b"x" * 10_000, 100)
    with pytest.raises(msgspec.DecodeError, match="it has no traceEvents"):
        read(b'{"x":"' + b"x" * 10_000, 100)


def test_times_are_read_as_they_are_written():
    # 2**43 = 8796093022208: from there on a float of microseconds has no place for every nanosecond
    small, found = '{"ts":8796093022207.999,"dur":0.001}', '{"ts":8796093022208.001,"dur":0.123}'
    assert [type(each.ts) for each in read(f"[{small}]".encode(), 10_000)[1]] == [float]
    events = read(f"[{small},{small},{found}]".encode(), 10_000)[1]
    assert [str(each.ts) for each in events] == ["8796093022207.999", "8796093022207.999", "8796093022208.001"]
    assert [str(each.dur) for each in events] == ["0.001", "0.001", "0.123"]
    odd = read(f'[{found},{{"ts":[1]}}]'.encode(), 10_000)[1]
    assert [str(odd[0].ts), odd[1].ts] == ["8796093022208.001", [1]]


def test_the_events_of_another_list_of_the_same_name_are_not_all():
    made, found = read(b'{"meta":{"traceEvents":[{"ts":1}]},"traceEvents":[{"ts":2}]}', 10_000)
    assert [each.ts for each in found] == [1]
    assert made.unread_bytes > 0
