"""Damaged and hostile traces give right counts, or a word on what is not, or one clear line; never anything else."""

import gzip
import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import profiles

from benchmarker import UserError
from benchmarker.traces import profile_files
from benchmarker.traces.critical_path import critical_path
from benchmarker.traces.events import ON_DEVICE
from benchmarker.traces.ingest import Ingested, ingest, read
from benchmarker.traces.statistics import describe, ops, timeline, work
from benchmarker.traces.wall_time import idle_gaps, on_device, states

CORPUS = Path(__file__).parent / "corpus"
SMALL = {
    "cpu": profiles.small_cpu_space(runs=1),
    "gpu": profiles.small_gpu_space(),
    "torch": profiles.torch_json(profiles.torch_events(steps=1)),
}
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
thorough = settings(quick, max_examples=400)


def told(path: Path) -> Ingested | None:
    """Ingest as a user would; None where that is refused. Everything that is derived must agree with the rows."""
    try:
        found = ingest(path)
    except UserError as error:
        assert str(error).startswith(f"{path}: ")
        assert "\n" not in str(error)
        return None
    events, trace, rows = found.events, found.trace, work(found.events)
    assert trace.rows == len(events)
    assert trace.kernels == len(rows) == sum(each.count for each in found.kernels())
    assert trace.complete == (not trace.missing)
    assert (events[["ts_ns", "dur_ns", "self_ns"]].to_numpy() >= 0).all()
    assert trace.busy_ns == rows["busy_ns"].sum()
    assert sum(each.root_ns for each in found.scopes) == trace.busy_ns
    assert sum(each.rows for each in found.scopes) == trace.kernels
    assert sum(sum(each.step_ns) for each in found.scopes) == rows.loc[rows["step"] >= 0, "busy_ns"].sum()
    lines = describe(rows, ["name"])
    assert (lines["total_ns"] >= lines["self_ns"]).all()
    ops(events)
    if events["kind"].isin(ON_DEVICE).any():
        gaps = idle_gaps(events)
        assert abs(gaps["idle_ns"].sum() - trace.idle_ns) <= len(trace.devices)  # shares of busy time are rounded
        # Shares of busy time are computed in float64: beyond some 10 days their sum is off by some ns.
        wall_ns = states(events, on_device(events), gaps)["time_ns"].sum()
        assert wall_ns == pytest.approx(gaps["idle_ns"].sum() + trace.busy_ns, rel=1e-15)
    for _, segments in critical_path(events).groupby("step"):
        assert (segments["begin_ns"].to_numpy()[1:] == segments["end_ns"].to_numpy()[:-1]).all()
    timeline(events)
    kept = path.with_name("kept.parquet")
    kept.write_bytes(profile_files.encode(found))
    assert profile_files.load(kept).trace == trace
    return found


def number_told(found: Ingested) -> int:
    """Events that the trace says are not in its rows."""
    texts = [*found.trace.missing, *found.trace.notes]
    kinds = "valid time|could not be read|an unknown type|no counterpart"
    left_out = [text for text in found.trace.notes if text.startswith("events left out: ")]
    return sum(int(text.split()[0]) for text in texts if re.search(kinds, text)) + sum(
        int(number) for text in left_out for number in re.findall(r"[:,] (\d+) (?!instant)", text)
    )


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_a_trace_that_ends_at_any_byte_is_refused_or_says_so(tmp_path, name, compressed):
    content = gzip.compress(SMALL[name], mtime=0) if compressed else SMALL[name]
    path = tmp_path / "trace"
    path.write_bytes(content)
    whole = read(path)
    assert whole.lost == ()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        try:
            found = read(path)
        except UserError as error:
            assert "\n" not in str(error)
            continue
        assert found.lost, f"nothing is said of a cut at {cut}"
        rows = len(found.events)
        assert rows <= len(whole.events)
        assert found.events["ts_ns"].tolist() == whole.events["ts_ns"].tolist()[:rows]
        assert found.events["dur_ns"].tolist() == whole.events["dur_ns"].tolist()[:rows]
        if cut % 29 == 0:
            told(path)


def mutated(data: st.DataObject, content: bytes) -> bytes:
    """Some bytes changed, put in, taken out, or a part doubled."""
    found = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(found)))
        until = min(len(found), at + data.draw(st.integers(0, 12)))
        match data.draw(st.integers(0, 3)):
            case 0:
                found[at:until] = data.draw(st.binary(max_size=12))
            case 1:
                found[at:at] = found[at:until] * 3
            case 2:
                found[at:until] = data.draw(
                    st.sampled_from([b"\xff" * 10, b"\x80" * 9 + b"\1", b"NaN", b'"', b"[[", b"}"])
                )
            case 3 if at < len(found):
                found[at] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(found)


def survives_mutation(path: Path, name: str, data: st.DataObject) -> None:
    content = mutated(data, SMALL[name])
    path.write_bytes(content)
    told(path)
    path.write_bytes(mutated(data, gzip.compress(content, mtime=0)))
    told(path)


@pytest.mark.parametrize("name", SMALL)
@quick
@given(data=st.data())
def test_changed_bytes(tmp_path, name, data):
    survives_mutation(tmp_path / "trace", name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@thorough
@given(data=st.data())
def test_changed_bytes_at_length(tmp_path, name, data):
    survives_mutation(tmp_path / "trace", name, data)


class Literal(str):
    """Text that goes into JSON as it stands."""


HOSTILE = [
    "'; DROP TABLE slice; --",
    "<script>alert(1)</script>&amp;",
    "\x00\x1b[31m\x7f\x9b\r\n\t",
    "\u202e\u2028\ufeff",
    "[bold red]markup[/]",
    "ProfilerStep#99999999999999999999",
    "ProfilerStep#1\n",
    "nn.Module: ",
    "nccl:",
    "a/b;c(d)/e",
    "autograd::engine::evaluate_function: X",
    "Memcpy",
    "",
]
LITERALS = [
    "1e400",
    "-1e400",
    "1e-400",
    "9" * 25,
    "9" * 400,
    "NaN",
    "Infinity",
    "-Infinity",
    r'"\ud800"',
    "-0",
    "0.0005",
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 65), 1 << 65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(HOSTILE)
    | st.sampled_from([Literal(each) for each in LITERALS])
    | st.sampled_from(["12.5", "nan", "inf", "1e999999", "0x10", "1_0", " 7 ", "٣"])
    | st.text(max_size=8)
)
values = st.recursive(
    scalars, lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=3), of, max_size=2), max_leaves=4
)
ARGS = [
    "External id",
    "correlation",
    "correlation_id",
    "Sequence number",
    "Fwd thread id",
    "device",
    "stream",
    "hlo_op",
]
ARGS += [
    "hlo_module",
    "program_id",
    "run_id",
    "step_num",
    "name",
    "Input Dims",
    "Input type",
    "Concrete Inputs",
    "other",
]
times = st.integers(0, 10**16) | st.floats(0, 1e16) | st.sampled_from([0, 0.001, 1_763_000_000_000_000.123])


def mostly(usual: st.SearchStrategy, odd: st.SearchStrategy = values) -> st.SearchStrategy:
    return st.one_of(usual, usual, usual, odd)


slices = st.fixed_dictionaries(
    {"ph": st.just("X"), "ts": mostly(times), "dur": mostly(times)},
    optional={
        "name": mostly(st.sampled_from(["aten::mm", "gemm", "attn"])),
        "cat": mostly(st.sampled_from(["cpu_op", "kernel", "user_annotation", "cuda_runtime", "gpu_memcpy", "ac2g"])),
        "pid": mostly(st.integers(0, 2)),
        "tid": mostly(st.integers(0, 2)),
        "args": mostly(st.dictionaries(st.sampled_from(ARGS), mostly(st.integers(0, 3)), max_size=5)),
    },
)
any_events = st.fixed_dictionaries(
    {},
    optional={
        "ph": mostly(st.sampled_from(["X", "B", "E", "M", "i", "b", "e"])),
        "name": mostly(st.sampled_from(["process_name", "thread_name", "f"])),
        "cat": values,
        "pid": mostly(st.integers(0, 2)),
        "tid": mostly(st.integers(0, 2)),
        "ts": mostly(times),
        "dur": values,
        "args": values | st.dictionaries(st.sampled_from(ARGS), values, max_size=3),
    },
)


def written(value: object) -> str:
    """JSON, with literals as they stand."""
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def every_slice_is_counted(path: Path, events: list[dict]) -> None:
    path.write_text('{"schemaVersion":1,"traceEvents":' + written(events) + "}")
    found = told(path)
    if found:
        assert found.trace.rows + number_told(found) == len(events)


@quick
@given(events=st.lists(slices, min_size=1, max_size=8))
def test_any_values_in_slices(tmp_path, events):
    every_slice_is_counted(tmp_path / "trace", events)


@pytest.mark.slow
@thorough
@given(events=st.lists(slices, min_size=1, max_size=30))
def test_any_values_in_slices_at_length(tmp_path, events):
    every_slice_is_counted(tmp_path / "trace", events)


def survives(path: Path, events: list) -> None:
    path.write_text('{"traceEvents":' + written(events) + "}")
    told(path)


@quick
@given(events=st.lists(any_events | slices | values, max_size=8))
def test_any_events(tmp_path, events):
    survives(tmp_path / "trace", events)


@pytest.mark.slow
@thorough
@given(events=st.lists(any_events | slices | values, max_size=30))
def test_any_events_at_length(tmp_path, events):
    survives(tmp_path / "trace", events)


numbers = st.integers(-(1 << 63), (1 << 64) - 1)
contents = st.deferred(lambda: messages) | st.binary(max_size=6) | st.sampled_from(HOSTILE).map(str.encode)


def any_message(fields: dict[int, st.SearchStrategy]) -> st.SearchStrategy:
    """Messages whose fields are mostly of these."""
    known = st.one_of(*(st.tuples(st.just(number), of) for number, of in fields.items()))
    odd = st.tuples(st.integers(1, 60), numbers | st.binary(max_size=6))
    return st.lists(st.one_of(known, known, known, odd), max_size=6).map(lambda each: profiles.message(*each))


messages = any_message({1: st.integers(0, 3), 2: st.binary(max_size=4)})
small = st.integers(0, 20) | numbers
name = st.sampled_from(["hlo_op", "name", "run_id", "program_id", "step_num", "_p", "_c", "dot.1", "end: dot.1"])
stats = any_message({1: st.integers(0, 9), 3: small, 4: small, 5: name, 7: st.integers(0, 9)})
xevents = any_message({1: st.integers(0, 9), 2: small, 3: small, 4: stats})
xlines = any_message({2: st.sampled_from(["Stream #7(x)", "XLA Ops", "host"]), 3: small, 4: xevents})
hlo_names = st.sampled_from(["dot.1", "dot", "fusion", "call", "convolution", "custom-call", "jit(f)/a/b"])
shapes = any_message({2: st.integers(0, 33), 3: numbers | st.binary(max_size=3), 4: st.binary(max_size=3)})
instructions = any_message(
    {
        1: hlo_names,
        2: hlo_names,
        3: shapes,
        7: any_message({2: hlo_names, 3: hlo_names, 4: small}),
        16: any_message({4: small}),
        30: any_message({1: small}),
        35: st.integers(0, 3),
        36: st.integers(0, 3),
        38: st.integers(0, 3),
        43: st.just('{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["-7"]}}}'),
    }
)
modules = any_message({1: name, 3: any_message({2: instructions, 5: st.integers(0, 3)}), 5: small})
hlos = any_message({1: modules})
names = any_message({1: st.integers(0, 9), 2: name | st.just("jit_f(14)"), 5: any_message({6: hlos})})
entries = any_message({2: names})
planes = any_message(
    {2: st.sampled_from(["/host:CPU", "/device:GPU:0", "/host:metadata"]), 3: xlines, 4: entries, 5: entries}
)
spaces = any_message({1: planes, 4: st.just("host")})


@quick
@given(content=spaces)
def test_any_fields_of_a_space(tmp_path, content):
    (tmp_path / "trace").write_bytes(content)
    told(tmp_path / "trace")


@pytest.mark.slow
@thorough
@given(content=spaces)
def test_any_fields_of_a_space_at_length(tmp_path, content):
    (tmp_path / "trace").write_bytes(content)
    told(tmp_path / "trace")


odd_events = st.tuples(
    st.integers(0, 8),
    small,
    small,
    st.lists(st.tuples(name, numbers | name | name.map(lambda of: ("ref", of))), max_size=4),
)


@quick
@given(
    events=st.lists(odd_events, min_size=1, max_size=12), device=st.booleans(), clock=st.integers(0, 1 << 60) | numbers
)
def test_any_events_of_a_space(tmp_path, events, device, clock):
    plane = profiles.Plane("/device:GPU:0" if device else "/host:CPU")
    made = [plane.event(f"event {number}", begin, length, **dict(stats)) for number, begin, length, stats in events]
    plane.line("Stream #1(x)", made, clock)
    (tmp_path / "trace").write_bytes(
        profiles.space(profiles.Plane("/host:metadata").program("jit_f(14)", profiles.small_program()), plane)
    )
    found = told(tmp_path / "trace")
    if found:
        assert found.trace.rows + number_told(found) == len(events)


COUNTS = {
    "args_is_a_list_before_nan.json": (1, "2 events could not be read"),
    "argument_is_nan.json": (2, "1 event could not be read"),
    "asynchronous.json": (1, "events left out: 2 asynchronous"),
    "beside_is_deep.json.gz": (1, "the last 200011 bytes contain no complete event"),
    "clock_zero_and_epoch.json": (2, ""),
    "configuration_is_deep.pb.gz": (1, ""),
    "contracting_axis_is_infinite.pb": (1, ""),
    "contracting_axis_is_negative.pb": (1, ""),
    "correlations_are_lists.json": (2, "2 kernels and copies have no launch"),
    "dimensions_are_huge.pb": (1, ""),
    "durations_are_negative_or_overflow.pb": (1, "3 events have no valid time"),
    "durations_of_a_hundred_years.json": (None, "the times are not those of a trace"),
    "empty_gzip.json.gz": (None, "the compressed file is cut short"),
    "epoch_after_a_hundred_small_times.json.gz": (1, "events left out: "),
    "events_within_another_list.json": (None, "the last 100 bytes contain no complete event"),
    "fusion_calls_itself.pb": (None, "its fusions nest too deep"),
    "fusions_grow_tenfold_at_each_level.pb.gz": (None, "its fusions nest too deep, or contain too many instructions"),
    "kernel_feature_is_text.pb": (1, ""),
    "list_has_no_end.json": (2, "the list of events has no end"),
    "many_lists_after_the_events.json": (1, ""),
    "name_is_a_list.json": (1, ""),
    "name_is_half_a_surrogate.json": (2, "1 event could not be read"),
    "name_is_no_utf8.json": (1, "1 event could not be read"),
    "name_number_is_bytes.pb": (None, "the number of a name is not an integer"),
    "one_time_is_a_list_the_others_epochs.json": (2, "1 event has no valid time"),
    "planes_after_the_cut_are_gone.pb": (1, "the file may be cut short"),
    "profiler_had_an_error.pb": (1, "the profiler reports: GPU was lost"),
    "program_number_is_above_int64.pb": (1, ""),
    "program_number_of_5000_digits.pb.gz": (1, "1 executed instruction is in no program"),
    "step_number_is_huge.json": (2, ""),
    "steps_with_a_gap.json": (4, ""),
    "text_number_overflows.pb": (1, "the trace contains no program"),
    "time_is_a_text.json": (2, ""),
    "times_are_lists.json": (None, "2 events have no valid time"),
    "type_is_unknown.json": (1, "2 events have an unknown type"),
    "unknown_field_is_deep.json.gz": (1, "the last 200020 bytes contain no complete event"),
    "words_after_a_bare_list.json": (1, "the last 10 bytes contain no complete event"),
}
"""What once was a traceback, a hang or a wrong count: how many rows it has, None where it is refused; what is said."""


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.iterdir()))
def test_what_once_failed(tmp_path, name):
    path = tmp_path / name
    path.write_bytes((CORPUS / name).read_bytes())
    rows, text = COUNTS[name]
    found = told(path)
    if rows is None:
        with pytest.raises(UserError, match=re.escape(text)):
            ingest(path)
        return
    assert found is not None
    assert found.trace.rows == rows
    said = [each for each in [*found.trace.missing, *found.trace.notes] if not each.startswith("the phase of")]
    assert any(text in each for each in said) if text else said == []


def test_the_corpus_comes_to_the_numbers_worked_out_by_hand():
    def of(name: str) -> Ingested:
        return ingest(CORPUS / name)

    assert of("clock_zero_and_epoch.json").trace.busy_ns == 3000
    assert of("one_time_is_a_list_the_others_epochs.json").events["ts_ns"].tolist() == [
        1_763_000_000_000_000_123,
        1_763_000_000_000_009_457,
    ]
    assert of("epoch_after_a_hundred_small_times.json.gz").events["ts_ns"].tolist() == [1_763_000_000_000_000_123]
    assert of("time_is_a_text.json").events["ts_ns"].tolist() == [12_000, 5_000]
    assert of("time_is_a_text.json").events["dur_ns"].tolist() == [3_000, 2_000]
    assert of("steps_with_a_gap.json").scopes[0].step_ns == [2000, 2000]
    assert of("many_lists_after_the_events.json").trace.framework == "torch"
    assert of("program_number_is_above_int64.pb").events["flops"].tolist() == [32.0]
    assert of("dimensions_are_huge.pb").events["flops"].isna().all()


def written_file(path: Path, events: str) -> Path:
    path.write_text(f'{{"traceEvents":[{events}]}}')
    return path


def bounded(path: Path, seconds: float = 20) -> Ingested | None:
    """Ingest within a bound that anything quadratic would pass by far."""
    start = time.process_time()
    found = told(path)
    assert time.process_time() - start < seconds
    return found


@pytest.mark.slow
def test_begins_nested_a_hundred_thousand_deep(tmp_path):
    count = 100_000
    begins = (f'{{"ph":"B","ts":{at},"pid":1,"tid":1,"cat":"user_annotation","name":"s"}}' for at in range(count))
    ends = (f'{{"ph":"E","ts":{count + at},"pid":1,"tid":1}}' for at in range(count + 1))
    op = '{"ph":"X","ts":99999.25,"dur":0.5,"pid":1,"tid":1,"cat":"cpu_op","name":"aten::mm"}'
    found = bounded(written_file(tmp_path / "trace", ",".join([*begins, op, *ends])))
    assert found is not None
    assert found.trace.rows == count + 1
    assert found.trace.missing == ["1 begin or end event has no counterpart"]
    assert found.trace.busy_ns == 500


def test_ops_that_overlap_in_a_staircase(tmp_path):
    count = 20_000
    ops = (f'{{"ph":"X","ts":{at},"dur":{count},"cat":"cpu_op","name":"f"}}' for at in range(count))
    found = bounded(written_file(tmp_path / "trace", ",".join(ops)))
    assert found is not None
    assert found.trace.overlapping == count - 1
    assert found.trace.busy_ns == (2 * count - 1) * 1000


def test_every_name_category_thread_and_number_is_another(tmp_path):
    count = 1_000
    ops = (
        f'{{"ph":"X","ts":{at},"dur":1,"pid":{at % 100},"tid":{at},"cat":"c{at}","name":"f{at}",'
        f'"args":{{"Sequence number":{at},"Fwd thread id":{at % 50},"correlation":{at}}}}}'
        for at in range(count)
    )
    found = bounded(written_file(tmp_path / "trace", ",".join(ops)), 60)
    assert found is not None
    assert found.trace.kernels == count
    assert len(found.trace.devices) == count + 1


def test_names_of_a_megabyte(tmp_path):
    long = "x" * (1 << 20)
    events = [
        {"ph": "X", "cat": cat, "name": long + name, "pid": long, "tid": 1, "ts": 1, "dur": 5, "args": {"device": long}}
        for cat, name in (("cpu_op", "1"), ("user_annotation", "2"), ("kernel", "3"), (long, "4"))
    ]
    found = bounded(written_file(tmp_path / "trace", json.dumps(events)[1:-1]))
    assert found is not None
    assert found.trace.rows + number_told(found) == 4


def test_a_path_with_a_hundred_thousand_parentheses(tmp_path):
    path = "jvp(" * 100_000 + "attn" + ")" * 100_000 + "/dot"
    proto = profiles.hlo("m", 14, main=[profiles.instruction("dot.1", "dot", 1, profiles.shape(1), (), (), path)])
    host = profiles.Plane("/host:CPU")
    host.line("t", [host.event("e", 0, 5_000, hlo_op="dot.1", program_id=14)])
    metadata = profiles.Plane("/host:metadata").program("m(14)", proto)
    (tmp_path / "trace").write_bytes(profiles.space(metadata, host))
    found = bounded(tmp_path / "trace")
    assert found is not None
    assert found.events["leaf"].tolist() == ["attn"]


def test_thousands_of_texts_that_stand_in_the_events(tmp_path):
    host = profiles.Plane("/host:CPU")
    host.line("t", [host.event("e", at, 5_000, hlo_op=f"op.{at}") for at in range(20_000)])
    (tmp_path / "trace").write_bytes(profiles.space(host))
    found = bounded(tmp_path / "trace")
    assert found is not None
    assert found.events["op"].nunique() == 20_000


def test_a_gzip_bomb_is_refused_soon(tmp_path):
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(b"[" + b" " * (290 << 20), 6))
    start = time.process_time()
    with pytest.raises(UserError, match="this is not a trace; unpack it yourself if you trust it"):
        ingest(tmp_path / "trace.json.gz")
    assert time.process_time() - start < 20
