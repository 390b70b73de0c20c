"""Reports of Nsight Systems, exported as SQLite.

Tables and columns: "SQLite Schema Reference" in NVIDIA's Nsight Systems User Guide. A global thread ID holds the number
of the process in bits 24 to 47 and that of the thread in bits 0 to 23. PyTorch's `emit_nvtx` writes ops as NVTX ranges
such as `aten::mm, op_id = 5, seq = 3`.
"""

import re

import numpy as np
import pandas as pd

from benchmarker.formatting import count
from benchmarker.traces.formats.reading import Database, Reading, launches, looked_up, numbered, rows

_CUPTI = "CUPTI_ACTIVITY_KIND_"
_KERNELS, _RUNTIME, _NVTX = f"{_CUPTI}KERNEL", f"{_CUPTI}RUNTIME", "NVTX_EVENTS"
_GRAPHS = f"{_CUPTI}GRAPH_TRACE"
_COPIES = dict(enumerate(["HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"], 1))
"""CUpti_ActivityMemcpyKind."""
_GRID, _BLOCK = ("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ")
_REGISTERS, _SHARED = "registersPerThread", ("staticSharedMemory", "dynamicSharedMemory")
_PROCESS = 1 << 24
"""A global thread ID is divided by this to get the process."""
_RANGES = (59, 60)
"""NVTX ranges: pushed and popped on a thread; started and ended."""
_NAMELESS = "(no name)"
_VERSION = re.compile(r"_v\d+$")
_OP = re.compile(r"(\w+(?:::[\w.]+)+|autograd::engine::evaluate_function: \w+)(?:, .*)?$", re.DOTALL)
_LEFT_OUT = {f"{_CUPTI}SYNCHRONIZATION": "synchronisation", "CUDA_GPU_MEMORY_USAGE_EVENTS": "memory", "OSRT_API": "OS"}


def has_tables(database: Database) -> bool:
    """Whether this is such a report."""
    return bool({_KERNELS, _RUNTIME, _NVTX, _GRAPHS} & database.tables)


def read(database: Database) -> Reading:
    """Read kernels, copies, calls of the runtime and the driver, and NVTX ranges."""
    texts = database.names("StringIds", "id", "value")
    ranges = _ranges(database, texts)
    graphs = _on_device(database, _GRAPHS, "graphId")
    graphs["name"] = numbered("graph ", graphs["graphId"])
    table, bad = rows([*_device_work(database, texts), graphs, _calls(database, texts), ranges])
    lost = [f"{count(bad, 'event has', 'events have')} no valid time"] if bad else []
    if len(graphs):
        whole = count(len(graphs), "graph was", "graphs were")
        lost.append(f"{whole} recorded as a whole: profile with --cuda-graph-trace=node")
    left_out = {what: len(database.select(name, ["start"])) for name, what in _LEFT_OUT.items()}
    counted = [f"{number} {what}" for what, number in left_out.items() if number]
    torch = bool((ranges["kind"] == "op").any())
    return Reading(
        "nsys",
        "torch" if torch else "",
        table,
        forward_thread=np.zeros(len(table), np.int64) if torch else None,
        lost=tuple(lost),
        notes=(f"events left out: {', '.join(counted)}",) if counted else (),
    )


def _device_work(database: Database, texts: dict[object, str]) -> list[pd.DataFrame]:
    kernels = _on_device(database, _KERNELS, "demangledName", *_GRID, *_BLOCK, _REGISTERS, *_SHARED)
    kernels["launch"] = launches(kernels, kernels[list(_GRID)], _BLOCK, _REGISTERS, _SHARED)
    kernels["name"] = looked_up(kernels["demangledName"], texts, _NAMELESS)
    copies = _on_device(database, f"{_CUPTI}MEMCPY", "copyKind", "bytes").assign(kind="copy")
    copies["name"] = "Memcpy " + looked_up(copies["copyKind"], _COPIES)
    sets = _on_device(database, f"{_CUPTI}MEMSET", "bytes").assign(kind="copy", name="Memset")
    return [kernels, copies, sets]


def _on_device(database: Database, table: str, *more: str) -> pd.DataFrame:
    columns = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"]
    found = database.select(table, [*columns, *more]).rename(columns={"start": "begin"})
    found["correlation"] = _correlation(found["correlationId"], found["globalPid"])
    found["device"] = numbered("gpu:", found["deviceId"])
    found["track"] = numbered("stream ", found["streamId"])
    return found.assign(kind="kernel")


def _calls(database: Database, texts: dict[object, str]) -> pd.DataFrame:
    found = database.select(_RUNTIME, ["start", "end", "globalTid", "correlationId", "nameId"])
    found = found.rename(columns={"start": "begin"})
    found["name"] = looked_up(found["nameId"], texts, _NAMELESS).str.replace(_VERSION, "", regex=True)
    found["correlation"] = _correlation(found["correlationId"], found["globalTid"])
    return found.assign(kind="runtime", device="cpu", track=_threads(database, texts, found["globalTid"]))


def _ranges(database: Database, texts: dict[object, str]) -> pd.DataFrame:
    """NVTX ranges: those of PyTorch's ops are ops, all others scopes."""
    found = database.select(_NVTX, ["start", "end", "eventType", "text", "textId", "globalTid"])
    found = found[found["eventType"].isin(_RANGES) & found["end"].notna()].rename(columns={"start": "begin"})
    given = found["text"].astype(object).where(found["text"].notna(), looked_up(found["textId"], texts, _NAMELESS))
    op = given.str.extract(_OP, expand=False)
    found["name"] = op.fillna(given)
    found["kind"] = np.where(op.notna(), "op", "scope")
    return found.assign(device="cpu", track=_threads(database, texts, found["globalTid"]))


def _threads(database: Database, texts: dict[object, str], of: pd.Series) -> pd.Series:
    """The name of each thread, with its number."""
    named = database.select("ThreadNames", ["nameId", "globalTid"])
    known = dict(zip(named["globalTid"], looked_up(named["nameId"], texts, "thread"), strict=True))
    numbers = pd.to_numeric(of, errors="coerce").fillna(0).astype("int64")
    process, thread = numbers // _PROCESS % _PROCESS, numbers % _PROCESS
    several = process.nunique() > 1
    found = [
        f"{f'process {of_process} ' if several else ''}{known.get(number, 'thread')} {of_thread}"
        for number, of_process, of_thread in zip(numbers, process, thread, strict=True)
    ]
    return pd.Series(found, of.index, dtype=object)


def _correlation(numbers: pd.Series, of: pd.Series) -> pd.Series:
    """Correlation IDs, which only one process counts, made unique among the processes of a report."""
    process = pd.to_numeric(of, errors="coerce").fillna(0).astype("int64") // _PROCESS % _PROCESS
    own = pd.to_numeric(numbers, errors="coerce").fillna(-1).astype("int64")
    return (process * (1 << 32) + own).where(own > 0, -1)
