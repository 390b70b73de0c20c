"""Generate synthetic traces of any length, identical on every machine: PyTorch as Chrome JSON, JAX as XPlane."""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_LAYERS, _BLOCKS, _UNITS = 32, ("attn", "mlp"), 12
_JITTER = 4096
"""Number of random factors for durations."""
_SYNC_NS = 20_000
_MICRO = 1000


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel, the op that launches it, and its duration."""

    name: str
    op: str
    ns: int
    grid: int


_OPS = ("addmm", "mm", "bmm", "add", "mul", "native_layer_norm", "gelu", "_softmax", "sum", "copy_")
_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{0}x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
_POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<{0}, at::native::{1}_functor<float>, std::array<char*, 3ul> >(...)"
)


def _kernels() -> list[_Kernel]:
    """Return 200 kernels: twenty variants of each op."""
    rng = random.Random(0)
    return [
        _Kernel(
            (_GEMM if op.endswith("mm") else _POINTWISE).format(variant + 1, op),
            f"aten::{op}",
            round(rng.lognormvariate(9, 1)),
            rng.randrange(1, 2000),
        )
        for op in _OPS
        for variant in range(20)
    ]


def chrome(path: Path, slices: int) -> None:
    """Write the steps of a training run until there are `slices` slices; compressed if the name ends in .gz."""
    number = 0
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(b'{\n  "schemaVersion": 1,\n  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},\n')
        file.write(b'  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],\n')
        file.write(b'  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1751410836000000000,\n  "traceEvents": [\n')
        for text in _Torch().events():
            file.write(text.encode())
            number += text.count('"ph": "X"')
            if number >= slices:
                break
        file.write(b'  {\n    "name": "process_name", "ph": "M", "ts": 1428625731608.106, "pid": 4242, "tid": 0,\n')
        file.write(b'    "args": {\n      "name": "python"\n    }\n  }],\n  "traceName": "trace.json"\n}\n')


class _Torch:
    """The events that Kineto would write for training on one GPU: a forward thread, a backward thread, a stream."""

    def __init__(self) -> None:
        rng = random.Random(1)
        self._jitter = [rng.lognormvariate(0, 0.3) for _ in range(_JITTER)]
        self._kernels = _kernels()
        self._at = 1_428_625_731_669_706
        self._free = 0
        self._number = self._sequence = 0

    def events(self) -> Iterator[str]:
        """Yield layer after layer, endlessly; the event of a step comes after its layers."""
        step = 0
        while True:
            begin = self._at
            last = self._sequence
            for layer in range(_LAYERS):
                opened = self._at
                parts = []
                for block in _BLOCKS:
                    start = self._at
                    parts += [self._forward(unit + layer) for unit in range(_UNITS)]
                    parts.append(self._scope(block, start))
                yield "".join(parts) + self._scope(f"layer.{layer}", opened)
            for _ in range(_LAYERS):
                first = self._sequence
                yield "".join(self._backward(first - each) for each in range(len(_BLOCKS) * _UNITS))
                self._sequence -= len(_BLOCKS) * _UNITS
            self._sequence = 2 * self._sequence - last + _LAYERS * len(_BLOCKS) * _UNITS
            self._at = max(self._at, self._free) + _SYNC_NS
            yield self._scope(f"ProfilerStep#{step}", begin)
            step += 1

    def _forward(self, choice: int) -> str:
        self._sequence += 1
        kernel = self._choose(choice)
        start = self._at
        launched, work = self._launch(kernel, start + 4000)
        self._at += 14_000
        sequence = f'"Sequence number": {self._sequence}, "Fwd thread id": 0, '
        return (
            self._op("aten::linear", 4242, start, 12_000, "")
            + self._op(kernel.op, 4242, start + 1500, 10_000, sequence)
            + launched
            + work
        )

    def _backward(self, sequence: int) -> str:
        kernel = self._choose(sequence)
        start = self._at
        launched, work = self._launch(kernel, start + 5000, 4300)
        self._at += 15_000
        node = f"{kernel.op.removeprefix('aten::').strip('_').title()}Backward0"
        follows = f'"Fwd thread id": 1, "Sequence number": {sequence}, '
        return (
            self._op(f"autograd::engine::evaluate_function: {node}", 4300, start, 13_000, follows)
            + self._op(node, 4300, start + 1000, 11_500, follows)
            + self._op(kernel.op, 4300, start + 2000, 10_000, "")
            + launched
            + work
        )

    def _choose(self, choice: int) -> _Kernel:
        return self._kernels[(choice * 7 + self._number) % len(self._kernels)]

    def _op(self, name: str, thread: int, start: int, ns: int, sequence: str) -> str:
        self._number += 1
        return (
            f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 4242, "tid": {thread},\n'
            f'    "ts": {_us(start)}, "dur": {_us(ns)},\n    "args": {{\n      "External id": {self._number},'
            f'"Record function id": 0, {sequence}"Input type": ["float", "float"], '
            f'"Input Dims": [[512, 1024], [1024, 4096]], "Ev Idx": {self._number}\n    }}\n  }},\n'
        )

    def _launch(self, kernel: _Kernel, start: int, thread: int = 4242) -> tuple[str, str]:
        """Return the launch call and the kernel, each with its flow event."""
        self._number += 1
        correlation = self._number
        begin = max(self._free, start + 6000)
        took = max(1000, int(kernel.ns * self._jitter[correlation % _JITTER]))
        self._free = begin + took + 500
        arrow = f'"id": {correlation}, "cat": "ac2g", "name": "ac2g"'
        call = (
            f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": {thread},\n'
            f'    "ts": {_us(start)}, "dur": 5.120,\n    "args": {{\n      "External id": {correlation - 1}, '
            f'"cbid": 211, "correlation": {correlation}\n    }}\n  }},\n'
            f'  {{\n    "ph": "s", {arrow}, "pid": 4242, "tid": {thread}, "ts": {_us(start)}\n  }},\n'
        )
        work = (
            f'  {{\n    "ph": "X", "cat": "kernel", "name": "{kernel.name}", "pid": 0, "tid": 7,\n'
            f'    "ts": {_us(begin)}, "dur": {_us(took)},\n    "args": {{\n      "External id": {correlation - 1}, '
            f'"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {correlation}, '
            f'"registers per thread": 168, "shared memory": 231424, "grid": [{kernel.grid}, 1, 1], '
            '"block": [384, 1, 1], "est. achieved occupancy %": 0\n    }\n  },\n'
            f'  {{\n    "ph": "f", {arrow}, "pid": 0, "tid": 7, "ts": {_us(begin)}, "bp": "e"\n  }},\n'
        )
        return call, work

    def _scope(self, name: str, start: int) -> str:
        self._number += 1
        return (
            f'  {{\n    "ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 4242, "tid": 4242,\n'
            f'    "ts": {_us(start)}, "dur": {_us(self._at - start)},\n    "args": {{\n'
            f'      "External id": {self._number}, "Ev Idx": {self._number}\n    }}\n  }},\n'
        )


def _us(ns: int) -> str:
    return f"{ns // _MICRO}.{ns % _MICRO:03}"


_INSTRUCTIONS = 250
_PROGRAM = 14
_STREAMS = 4
_STATISTICS = ("hlo_op", "hlo_module", "program_id", "run_id", "correlation_id", "name", "kernel_details")


def xplane(path: Path, events: int) -> None:
    """Write executions of one program on a GPU; half of the events are launches on the host, half are kernels."""
    rng = random.Random(2)
    jitter = [rng.lognormvariate(0, 0.3) for _ in range(_JITTER)]
    names = [f"{'loop' if index % 5 else 'gemm'}_fusion_{index * 4 // 5}" for index in range(_INSTRUCTIONS)]
    took = [round(rng.lognormvariate(9, 1)) for _ in names]
    streams = [bytearray() for _ in range(_STREAMS)]
    calls = bytearray()
    texts = {name: number for number, name in enumerate(_STATISTICS, 1)}
    for index in range(_INSTRUCTIONS):
        texts[f"fusion.{index}"] = len(texts) + 1
        texts[f"jit(step)/layer.{index // 10}/mlp/dot_general:{index}"] = len(texts) + 1
    number = {name: texts[name] for name in _STATISTICS}
    texts["jit_step"], texts["regs:32 grid:128,1,1 block:256,1,1"] = len(texts) + 1, len(texts) + 2
    metadata = {name: at for at, name in enumerate(dict.fromkeys(names), 2)}
    fixed = [
        _stat(number["hlo_op"], 7, texts[f"fusion.{index}"])
        + _stat(number["hlo_module"], 7, texts["jit_step"])
        + _stat(number["program_id"], 3, _PROGRAM)
        for index in range(_INSTRUCTIONS)
    ]
    more = [
        _stat(number["name"], 7, texts[f"jit(step)/layer.{index // 10}/mlp/dot_general:{index}"])
        + _stat(number["kernel_details"], 7, len(texts))
        for index in range(_INSTRUCTIONS)
    ]
    kinds = [b"\x08" + _varint(metadata[name]) for name in names]
    at, free = 0, [0] * _STREAMS
    for each in range(events // 2):
        run, index = divmod(each, _INSTRUCTIONS)
        own = _stat(number["correlation_id"], 3, each + 1) + _stat(number["run_id"], 3, run + 1)
        at += 4000
        calls += _field(4, b"\x08\x01\x10" + _varint(at * 1000) + b"\x18" + _varint(2_500_000) + fixed[index] + own)
        stream = index % _STREAMS
        begin = max(free[stream], at + 5000)
        ns = max(1000, int(took[index] * jitter[each % _JITTER]))
        free[stream] = begin + ns
        times = b"\x10" + _varint(begin * 1000) + b"\x18" + _varint(ns * 1000)
        streams[stream] += _field(4, kinds[index] + times + fixed[index] + more[index] + own)
    statistics = b"".join(_named(5, at, text.encode()) for text, at in texts.items())
    kernels = b"".join(_named(4, at, name.encode()) for name, at in metadata.items())
    host = _field(2, b"/host:CPU") + statistics + _named(4, 1, b"cuLaunchKernel")
    program = _field(5, b"\x08\x01" + _field(6, _hlo()))
    with path.open("wb") as file:
        file.write(_field(1, _field(2, b"/host:metadata") + _named(4, 1, b"jit_step(%d)" % _PROGRAM, program)))
        _write_plane(file, host, [(b"python", calls)])
        device = _field(2, b"/device:GPU:0") + statistics + kernels
        _write_plane(file, device, [(b"Stream #%d(Compute)" % at, body) for at, body in enumerate(streams, 13)])
        file.write(_field(4, b"localhost"))


def _write_plane(file: BinaryIO, begin: bytes, lines: list[tuple[bytes, bytearray]]) -> None:
    heads = [b"\x08" + _varint(at) + _field(2, name) + b"\x18" + _varint(10**18) for at, (name, _) in enumerate(lines)]
    sizes = [len(head) + len(body) for head, (_, body) in zip(heads, lines, strict=True)]
    keys = [b"\x1a" + _varint(size) for size in sizes]
    file.write(b"\x0a" + _varint(len(begin) + sum(sizes) + sum(map(len, keys))) + begin)
    for key, head, (_, body) in zip(keys, heads, lines, strict=True):
        file.write(key + head)
        file.write(body)


def _hlo() -> bytes:
    """Return a program of fusions with one dot each."""
    shape = b"\x10\x0b" + _field(3, _varint(128) + _varint(128))
    entry = b""
    computations = b""
    for index in range(_INSTRUCTIONS):
        path = _field(7, _field(2, b"jit(step)/layer.%d/mlp/dot_general" % (index // 10)))
        inner = _field(1, b"dot.%d" % index) + _field(2, b"dot") + _field(3, shape) + path
        member = _field(2, inner + b"\x98\x02" + _varint(1000 + index))
        computations += _field(3, _field(1, b"fused.%d" % index) + member + b"\x28" + _varint(index + 2))
        fusion = _field(1, b"fusion.%d" % index) + _field(2, b"fusion") + _field(3, shape) + path
        entry += _field(2, fusion + b"\x98\x02" + _varint(index + 1) + b"\xb2\x02" + _field_body(_varint(index + 2)))
    return _field(1, _field(1, b"jit_step") + computations + _field(3, _field(1, b"main") + entry + b"\x28\x01"))


def _named(field: int, number: int, name: bytes, more: bytes = b"") -> bytes:
    """Return an entry of a plane's map of names."""
    return _field(field, b"\x08" + _varint(number) + _field(2, b"\x08" + _varint(number) + _field(2, name) + more))


def _stat(number: int, kind: int, value: int) -> bytes:
    return _field(4, b"\x08" + _varint(number) + bytes([kind << 3]) + _varint(value))


def _field(number: int, body: bytes) -> bytes:
    """Return a field of bytes with a field number below 16."""
    return bytes([number << 3 | 2]) + _field_body(body)


def _field_body(body: bytes) -> bytes:
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


if __name__ == "__main__":
    kind, name, number = sys.argv[1:]
    {"chrome": chrome, "xplane": xplane}[kind](Path(name), int(number))
