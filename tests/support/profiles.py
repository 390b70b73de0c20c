"""Small profiles for tests: XSpace and HLO messages by hand, and the JSON that PyTorch and JAX's viewer write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

Value = int | bytes | str


def varint(value: int) -> bytes:
    """An integer as the wire has it; negative ones as int64."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: Value) -> bytes:
    """One field: a varint, or anything else with its length before it."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def message(*fields: tuple[int, Value]) -> bytes:
    """A message of fields in this order."""
    return b"".join(field(number, value) for number, value in fields)


class Plane:
    """An XPlane whose names get their numbers as they come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[bytes] = []
        self._events: dict[str, int] = {}
        self._statistics: dict[str, int] = {}
        self._protos: dict[str, bytes] = {}

    def _statistic(self, name: str) -> int:
        return self._statistics.setdefault(name, len(self._statistics) + 1)

    def stat(self, name: str, value: Any) -> bytes:
        """An int as int64; `("ref", text)`, `("uint", number)`; a text as a literal."""
        key = (1, self._statistic(name))
        if isinstance(value, tuple):
            kind, of = value
            return message(key, (7, self._statistic(of)) if kind == "ref" else (3, of))
        return message(key, (4, value) if isinstance(value, int) else (5, value))

    def event(self, name: str, begin_ps: int, duration_ps: int, /, **stats: Any) -> bytes:
        """An XEvent."""
        number = self._events.setdefault(name, len(self._events) + 1)
        return message(
            (1, number), (2, begin_ps), (3, duration_ps), *((4, self.stat(key, value)) for key, value in stats.items())
        )

    def line(self, name: str, events: Iterable[bytes], timestamp_ns: int = 0, display: str = "") -> Plane:
        """Add an XLine."""
        shown = ((11, display),) if display else ()
        self.lines.append(message((2, name), (3, timestamp_ns), *((4, event) for event in events), *shown))
        return self

    def program(self, name: str, proto: bytes) -> Plane:
        """Add a serialised HloProto, as the plane `/host:metadata` has it."""
        self._events.setdefault(name, len(self._events) + 1)
        self._protos[name] = message((1, self._statistic("Hlo Proto")), (6, proto))
        return self

    def encoded(self) -> bytes:
        """The plane."""
        events = (
            message((1, number), (2, name), *(((5, self._protos[name]),) if name in self._protos else ()))
            for name, number in self._events.items()
        )
        statistics = (message((1, number), (2, name)) for name, number in self._statistics.items())
        return message(
            (2, self.name),
            *((3, line) for line in self.lines),
            *((4, message((1, number), (2, each))) for number, each in enumerate(events, 1)),
            *((5, message((1, number), (2, each))) for number, each in enumerate(statistics, 1)),
        )


def space(*planes: Plane, hostname: str | None = "host") -> bytes:
    """An XSpace."""
    names = () if hostname is None else ((4, hostname),)
    return message(*((1, plane.encoded()) for plane in planes), *names)


F32 = 11
"""xla.PrimitiveType of float32."""


def shape(*dims: int, of: int = F32, parts: Sequence[bytes] = ()) -> bytes:
    """A ShapeProto; dimensions are packed."""
    return message((2, of), (3, b"".join(map(varint, dims))), *((4, part) for part in parts))


def instruction(
    name: str,
    opcode: str,
    number: int,
    of: bytes,
    operands: Sequence[int] = (),
    calls: Sequence[int] = (),
    path: str = "",
    *more: tuple[int, Value],
) -> bytes:
    """A HloInstructionProto."""
    return message(
        (1, name),
        (2, opcode),
        (3, of),
        *(((7, message((2, path), (3, "/somewhere/model.py"), (4, 12))),) if path else ()),
        (35, number),
        *((36, operand) for operand in operands),
        *((38, call) for call in calls),
        *more,
    )


def hlo(name: str, number: int, **computations: Sequence[bytes]) -> bytes:
    """A HloProto; computations are numbered from 1 in their order."""
    made = (
        message((1, key), *((2, each) for each in each_of), (5, index))
        for index, (key, each_of) in enumerate(computations.items(), 1)
    )
    return message((1, message((1, name), *((3, each) for each in made), (5, number))))


def small_program() -> bytes:
    """`a @ b` in the scope attn, and a fusion of an addition in mlp and a product in attn."""
    return hlo(
        "jit_f",
        14,
        fused=[
            instruction("p0", "parameter", 1, shape(2, 4)),
            instruction("mul", "multiply", 2, shape(2, 4), [1, 1], (), "jit(f)/attn/mul"),
            instruction("add", "add", 3, shape(2, 4), [2, 2], (), "jit(f)/mlp/add"),
        ],
        main=[
            instruction("a", "parameter", 11, shape(2, 3)),
            instruction("b", "parameter", 12, shape(3, 4)),
            instruction(
                "dot.1",
                "dot",
                13,
                shape(2, 4),
                [11, 12],
                (),
                "jit(f)/attn/dot_general",
                (30, message((1, b"\1"), (2, b"\0"))),
            ),
            instruction("fusion.2", "fusion", 14, shape(2, 4), [13], [1], "jit(f)/mlp/add"),
        ],
    )


def small_cpu_space(runs: int = 2) -> bytes:
    """A host's profile: in each run 3 µs of dot.1 with a marker at 5 µs, then 2 µs of fusion.2; a step around each."""
    host = Plane("/host:CPU")
    main, pool = [], []
    for run in range(runs):
        at = run * 10_000_000
        main.append(host.event("step", at, 9_000_000, step_num=run))
        common = {"hlo_module": ("ref", "jit_f"), "program_id": 14, "run_id": -77 - run}
        pool.append(host.event("dot.1", at + 1_000_000, 3_000_000, hlo_op=("ref", "dot.1"), _p=100 + run, **common))
        pool.append(host.event("end: dot.1", at + 5_000_000, 1_000, _c=100 + run))
        pool.append(host.event("fusion.2", at + 6_000_000, 2_000_000, hlo_op="fusion.2", **common))
    host.line("python", main, 1_000).line("pool", pool, 1_000)
    return space(Plane("/host:metadata").program("jit_f(14)", small_program()), host)


def small_gpu_space() -> bytes:
    """A GPU's profile: one launch, a kernel of 4 µs that it made, and a copy of 1 µs."""
    host = Plane("/host:CPU")
    host.line("python", [host.event("cuLaunchKernel", 0, 1_000_000, correlation_id=5)], 500)
    gpu = Plane("/device:GPU:0")
    common = {"correlation_id": 5, "program_id": 14}
    kernels = [
        gpu.event("gemm_kernel", 2_000_000, 4_000_000, hlo_op="dot.1", name="jit(f)/attn/dot_general", **common),
        gpu.event("MemcpyD2D", 7_000_000, 1_000_000, correlation_id=6),
    ]
    gpu.line("Stream #7(Kernel)", kernels, 500).line("XLA Ops", kernels, 500)
    return space(Plane("/host:metadata").program("jit_f(14)", small_program()), gpu, host)


def torch_events(steps: int = 2) -> list[dict[str, Any]]:
    """Steps of a scope with a product in it, its launch and its kernel; times end in decimals of a µs."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        at, number = 1_763_000_000_000_000.5 + 100 * step, 7 + step
        host = {"ph": "X", "pid": 1, "tid": 1}
        shapes = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
        op = {"External id": number} | shapes
        launch = {"correlation": number}
        events += [
            {**host, "cat": "user_annotation", "name": f"ProfilerStep#{step + 5}", "ts": at, "dur": 90.25},
            {**host, "cat": "user_annotation", "name": "attn", "ts": at + 1, "dur": 40},
            {**host, "cat": "cpu_op", "name": "aten::mm", "ts": at + 2, "dur": 30, "args": op},
            {**host, "cat": "cuda_runtime", "name": "launch", "ts": at + 5, "dur": 10, "args": launch},
            {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "sgemm_128x64", "ts": at + 20, "dur": 33.125}
            | {"args": {"correlation": number, "External id": number, "device": 0, "stream": 7}},
            {"ph": "s", "id": number, "pid": 1, "tid": 1, "cat": "ac2g", "name": "ac2g", "ts": at + 5},
        ]
    return events


def torch_json(events: Sequence[Any] | None = None) -> bytes:
    """A trace as PyTorch's profiler writes it."""
    made = torch_events() if events is None else events
    return json.dumps({"schemaVersion": 1, "traceEvents": made, "traceName": "t.json"}).encode()
