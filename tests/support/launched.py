"""Work of a device, its launch calls and waits of the host, as PyTorch's profiler writes them; times in µs."""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path
from typing import Any

from benchmarker.traces.ingest import Ingested, ingest
from support.profiles import torch_json

Events = list[dict[str, Any]]
_numbers = count(1)


def host(cat: str, name: str, begin: float, end: float, thread: int = 1, **args: Any) -> Events:
    """An event of a thread."""
    times = {"ts": begin, "dur": end - begin}
    return [{"ph": "X", "pid": 1, "tid": thread, "cat": cat, "name": name, **times, "args": args}]


def step(number: int, begin: float, end: float) -> Events:
    """A profiled step."""
    return host("user_annotation", f"ProfilerStep#{number}", begin, end)


def work(
    call: tuple[float, float] | None,
    ran: tuple[float, float],
    name: str = "sgemm",
    *,
    stream: int = 7,
    device: int = 0,
    op: str = "",
    launch: str = "cudaLaunchKernel",
    thread: int = 1,
) -> Events:
    """A kernel (a copy if its name begins with Memcpy), its launch call and the op around that; None: no call."""
    number = next(_numbers)
    cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    args = {"correlation": number, "device": device, "stream": stream}
    made = [
        {"ph": "X", "pid": device, "tid": stream, "cat": cat, "name": name, "ts": ran[0], "dur": ran[1] - ran[0]}
        | {"args": args}
    ]
    if call:
        made += host("cpu_op", op, *call, thread) if op else []
        made += host("cuda_runtime", launch, *call, thread, correlation=number)
    return made


def wait(begin: float, end: float, name: str = "cudaStreamSynchronize", thread: int = 1) -> Events:
    """A call in which the host waits for the device."""
    return host("cuda_runtime", name, begin, end, thread, correlation=next(_numbers))


def allocation(at: float, size: int, allocated: int, address: int = 64, device: int = 0) -> dict[str, Any]:
    """An event of memory on thread 1: so many bytes at an address, and the total after it; device -1 is the CPU."""
    args = {"Bytes": size, "Addr": address, "Total Allocated": allocated, "Total Reserved": 1 << 31}
    args |= {"Device Id": device, "Device Type": int(device >= 0)}
    return {"ph": "i", "pid": 1, "tid": 1, "cat": "cpu_instant_event", "name": "[memory]", "ts": at, "args": args}


def trace(folder: Path, *events: Events) -> Ingested:
    """The trace of these events."""
    path = folder / "launched.json"
    path.write_bytes(torch_json(list(chain(*events))))
    return ingest(path)
