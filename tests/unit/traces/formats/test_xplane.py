"""XPlane files made by hand, read row by row."""

import pytest
from support.profiles import (
    Plane,
    field,
    instruction,
    message,
    shape,
    small_cpu_space,
    small_gpu_space,
    small_program,
    space,
)
from support.profiles import hlo as proto

from benchmarker.traces.formats import xplane
from benchmarker.traces.formats.wire import WireError


def rows(reading, *columns) -> list[list]:
    return reading.events[list(columns)].to_numpy().tolist()


def host(*events: bytes, clock: int = 0, name: str = "python") -> Plane:
    return Plane("/host:CPU").line(name, events, clock)


def test_a_cpus_profile():
    found = xplane.read(small_cpu_space())
    assert (found.format, found.framework, found.lost, found.notes) == ("xplane", "jax", (), ())
    assert rows(found, "kind", "name", "op", "device", "track", "ts_ns", "dur_ns", "end_ns", "step", "run") == [
        ["step", "step", "", "cpu", "python", 1000, 9000, -1, 0, -1],
        ["step", "step", "", "cpu", "python", 11000, 9000, -1, 1, -1],
        ["op", "dot.1", "dot.1", "cpu", "pool", 2000, 3000, 6000, -1, 1],  # of the runs -77 and -78
        ["op", "fusion.2", "fusion.2", "cpu", "pool", 7000, 2000, -1, -1, 1],
        ["op", "dot.1", "dot.1", "cpu", "pool", 12000, 3000, 16000, -1, 0],
        ["op", "fusion.2", "fusion.2", "cpu", "pool", 17000, 2000, -1, -1, 0],
    ]
    assert found.events["program_id"].tolist() == [-1, -1, 14, 14, 14, 14]
    assert list(found.programs) == [14]


def test_a_gpus_profile_has_its_streams_alone():
    found = xplane.read(small_gpu_space())
    assert rows(found, "kind", "name", "op", "scope", "device", "track", "ts_ns", "dur_ns", "correlation") == [
        ["kernel", "gemm_kernel", "dot.1", "jit(f)/attn/dot_general", "gpu:0", "stream 7", 2500, 4000, 5],
        ["copy", "MemcpyD2D", "", "", "gpu:0", "stream 7", 7500, 1000, 6],
        ["runtime", "cuLaunchKernel", "", "", "cpu", "python", 500, 1000, 5],
    ]


def test_a_tpus_profile_has_the_line_of_ops():
    tpu = Plane("/device:TPU:3")
    ops = [tpu.event("%dot.1 = f32[2]", 1000, 2000, hlo_op="dot.1")]
    tpu.line("Steps", [tpu.event("0", 0, 9000)]).line("XLA Modules", [tpu.event("jit_f", 0, 9000)]).line("XLA Ops", ops)
    found = xplane.read(space(tpu))
    assert rows(found, "kind", "op", "device", "track", "ts_ns", "dur_ns") == [
        ["op", "dot.1", "tpu:3", "XLA Ops", 1, 2]
    ]


def test_texts_stand_for_themselves_or_are_referred_to():
    plane = Plane("/host:CPU")
    events = [
        plane.event("a", 0, 1, hlo_op=("ref", "dot.1")),
        plane.event("b", 0, 1, hlo_op="dot.1"),
        plane.event("c", 0, 1, hlo_op="hlo_op"),
        plane.event("d", 0, 1, hlo_op=("ref", "hlo_op")),
        plane.event("e", 0, 1, hlo_op="ü\x00\x1b" * 50),
        plane.event("f", 0, 1, other="x", name="a/b/c"),
        plane.event("g", 0, 1),
    ]
    found = xplane.read(space(plane.line("t", events)))
    assert rows(found, "name", "op", "scope") == [
        ["a", "dot.1", ""],
        ["b", "dot.1", ""],
        ["c", "hlo_op", ""],
        ["d", "hlo_op", ""],
        ["e", "ü\x00\x1b" * 50, ""],
        ["f", "", "a/b/c"],
        ["g", "", ""],
    ]


def test_numbers_of_any_sign_and_kind():
    plane = Plane("/host:CPU")
    events = [
        plane.event("a", 0, 1, hlo_op="x", run_id=-(1 << 63), program_id=("uint", (1 << 64) - 5)),
        plane.event("b", 0, 1, hlo_op="x", run_id=7, program_id=-5),
        plane.event("c", 0, 1, hlo_op="x", run_id=-(1 << 63), program_id="text"),
    ]
    metadata = Plane("/host:metadata").program(f"jit_f({(1 << 64) - 5})", small_program())
    found = xplane.read(space(plane.line("t", events), metadata))
    assert rows(found, "run", "program_id") == [[0, -5], [1, -5], [0, -1]]
    assert list(found.programs) == [-5]


def test_programs_tell_jax_from_tensorflow():
    for name, framework in (("jit_f", "jax"), ("a_inference_forward_7__.1", "tensorflow")):
        metadata = Plane("/host:metadata").program(f"{name}(3)", proto(name, 3, main=[]))
        assert xplane.read(space(metadata)).framework == framework


def test_names_of_programs():
    metadata = Plane("/host:metadata")
    for name in ("jit_f(3)", "odd((1)(4)", "none", "(", "()", "(x)", f"long({'1' * 5000})", "(5) "):
        metadata.program(name, small_program())
    assert sorted(xplane.read(space(metadata)).programs) == [3, 4]


def test_a_marker_that_comes_later_says_when_an_op_was_complete():
    plane = Plane("/host:CPU")
    main = [
        plane.event("late", 0, 10_000, hlo_op="a", _p=-8),
        plane.event("soon", 20_000, 10_000, hlo_op="b", _p=9),
        plane.event("without", 40_000, 10_000, hlo_op="c", _p=10),
    ]
    pool = [plane.event("end: late", 15_000, 0, _c=-8), plane.event("end: soon", 29_000, 0, _c=9)]
    other = [plane.event("end: other", 50_000, 0), plane.event("ThreadpoolListener::Record", 0, 1)]
    found = xplane.read(space(plane.line("main", main, 100).line("pool", pool, 100).line("other", other, 100)))
    assert rows(found, "name", "end_ns") == [["late", 115], ["soon", -1], ["without", -1], ["end: other", -1]]


def test_times_are_of_the_lines_clock_to_the_nanosecond():
    plane = Plane("/host:CPU")
    events = [
        plane.event("a", 1_999, 2),
        plane.event("b", 5_000, 999),
        plane.event("c", 3_600_000_000_000_000_123, 1_000),
    ]
    found = xplane.read(space(plane.line("t", events, 1_763_000_000_123_456_789)))
    base = 1_763_000_000_123_456_789
    assert rows(found, "ts_ns", "dur_ns") == [[base + 1, 1], [base + 5, 0], [base + 3_600_000_000_000_000, 1]]


@pytest.mark.parametrize(
    ("begin", "duration", "clock"),
    [(-1, 5, 0), (5, -1, 0), ((1 << 63) - 1, 5, 0), (0, (1 << 63) - 1, 0), (0, 1, -5), (0, 1, (1 << 63) - 1)],
)
def test_what_is_no_time_is_counted(begin, duration, clock):
    plane = Plane("/host:CPU")
    plane.line("bad", [plane.event("a", begin, duration)], clock).line("good", [plane.event("b", 7_000, 1_000)])
    found = xplane.read(space(plane))
    assert rows(found, "name", "ts_ns", "dur_ns") == [["b", 7, 1]]
    assert found.lost == ("1 event has no valid time",)


def test_lines_of_one_name_keep_apart():
    plane = Plane("/host:CPU")
    event = plane.event("a", 0, 5_000, hlo_op="x")
    found = xplane.read(
        space(plane.line("python", [event]).line("python", [event]).line("id", [event], display="shown"))
    )
    assert found.events["track"].tolist() == ["python", "python (2)", "shown"]


def test_chunks_do_not_change_the_rows(monkeypatch):
    whole = xplane.read(small_cpu_space(runs=5)).events
    monkeypatch.setattr(xplane, "_CHUNK", 2)
    assert xplane.read(small_cpu_space(runs=5)).events.astype(object).equals(whole.astype(object))


def test_long_events_and_unknown_fields():
    plane = Plane("/host:CPU")
    plane.line("t", [plane.event("a", 1_000, 2_000, hlo_op="x" * 5000), plane.event("b", 4_000, 1_000)])
    plane.lines[0] += field(90, 5) + field(91, b"more")
    found = xplane.read(space(plane) + field(77, 3))
    assert rows(found, "name", "op", "ts_ns") == [["a", "x" * 5000, 1], ["b", "", 4]]


def test_what_the_profiler_says_is_told():
    plane = host()
    content = space(plane, hostname=None) + message((2, "GPU was\nlost"), (3, "slow"), (4, "h"))
    found = xplane.read(content)
    assert (found.lost, found.notes) == (("the profiler reports: GPU was lost",), ("the profiler reports: slow",))


def test_a_file_that_ends_between_planes_is_told():
    content = space(Plane("/host:metadata").program("f(1)", small_program()), host(), hostname=None)
    assert xplane.read(content).lost == (
        "the host's name, the last entry of a complete file, is missing: the file may be cut short",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello world, this is text",
        message((4, "host")),
        message((1, b"\xff")),
        message((1, message((2, "/host:CPU"), (3, message((2, "t")) + b"\x22\x05"))), (4, "h")),
        message((1, message((2, "/host:CPU"), (3, b"\x25" + bytes(4)))), (4, "h")),
        message((1, message((4, message((2, message((1, "text")))))))),
        message(
            (1, message((2, "/host:metadata"), (4, message((2, message((2, "f(1)"), (5, message((6, b"\xff")))))))))
        ),
    ],
)
def test_what_is_no_profile_is_refused(content):
    with pytest.raises(WireError):
        xplane.read(content)


def test_programs_with_fusions_that_could_not_be_are_refused():
    endless = proto("m", 1, a=[instruction("x", "fusion", 1, shape(2), [], [1])])
    with pytest.raises(WireError, match="nest too deep"):
        xplane.read(space(Plane("/host:metadata").program("f(1)", endless)))
