"""Profiles of rocprofv3: its SQLite database (rocpd), or its files with values separated by commas.

Tables and columns: rocprofiler-sdk's share/rocpd schema (version 3), whose tables carry a suffix for each process. A
call and the kernel that it dispatched have the same `stack_id`. Fields of the files: "Using rocprofv3", AMD.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarker.api.errors import UserError
from benchmarker.formatting import count
from benchmarker.traces.formats.reading import COPY, Database, Reading, launches, looked_up, numbered, rows

_DISPATCHES = "rocpd_kernel_dispatch"
_GRID, _GROUP = (
    ("grid_size_x", "grid_size_y", "grid_size_z"),
    ("workgroup_size_x", "workgroup_size_y", "workgroup_size_z"),
)
_MORE = ("vgpr_count", "lds_block_size")
"""Columns of the file of kernels in lower case; their case differs between versions."""
_ENDING = "_kernel_trace.csv"
_APIS = ("hip_api", "hsa_api", "marker_api", "rccl_api", "memory_copy")
"""Files that may lie beside the file of kernels."""
_MESSAGE = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)+)"')
_OF_JSON = b'"rocprofiler-sdk-tool"'
"""The key that all of rocprofv3's own JSON is under."""
_SEEN = 512
"""Bytes of a file that are searched for it."""
JSON = (
    "rocprofv3's own JSON, which is not read; run rocprofv3 with --output-format rocpd, which writes a database, "
    "or csv, which writes *_kernel_trace.csv"
)
_DIGITS = re.compile(r"(\d+)\D*$")


def has_tables(database: Database) -> bool:
    """Whether this is such a database."""
    return bool(database.beginning(_DISPATCHES))


def read(database: Database) -> Reading:
    """Read kernels, copies and regions of all processes in a database."""
    pieces = []
    for process, table in enumerate(database.beginning(_DISPATCHES)):
        pieces += _of_process(database, table.removeprefix(_DISPATCHES), process)
    return _reading(pieces)


def _of_process(database: Database, suffix: str, process: int) -> list[pd.DataFrame]:
    texts = database.names(f"rocpd_string{suffix}", "id", "string")
    symbols = database.select(
        f"rocpd_info_kernel_symbol{suffix}", ["id", "display_name", "kernel_name", "arch_vgpr_count"]
    )
    named = symbols["display_name"].where(symbols["display_name"].notna(), symbols["kernel_name"])
    kernel_names = dict(zip(symbols["id"], named, strict=True))
    vector_registers = dict(zip(symbols["id"], symbols["arch_vgpr_count"], strict=True))
    agents = database.select(f"rocpd_info_agent{suffix}", ["id", "type", "type_index", "logical_index"])
    number = agents["type_index"].where(agents["type_index"].notna(), agents["logical_index"])
    device = dict(zip(agents["id"], agents["type"].astype(str).str.lower() + numbered(":", number), strict=True))
    threads = database.names(f"rocpd_info_thread{suffix}", "id", "tid")
    events = database.select(f"rocpd_event{suffix}", ["id", "stack_id", "category_id"])
    stack = dict(zip(events["id"], events["stack_id"] + (process << 40), strict=True))
    category = dict(zip(events["id"], looked_up(events["category_id"], texts), strict=True))

    kernels = database.select(
        f"{_DISPATCHES}{suffix}",
        ["start", "end", "agent_id", "stream_id", "kernel_id", "event_id", *_GRID, *_GROUP, "group_segment_size"],
    )
    kernels["registers"] = looked_up(kernels["kernel_id"], vector_registers, None)
    kernels["launch"] = launches(kernels, _in_blocks(kernels), _GROUP, "registers", ["group_segment_size"])
    kernels["name"] = looked_up(kernels["kernel_id"], kernel_names)
    kernels["device"] = looked_up(kernels["agent_id"], device, "gpu:?")
    copies = database.select(
        f"rocpd_memory_copy{suffix}",
        ["start", "end", "name_id", "dst_agent_id", "src_agent_id", "size", "stream_id", "event_id"],
    ).assign(kind="copy")
    copies["name"] = looked_up(copies["name_id"], texts)
    to, source = (looked_up(copies[name], device) for name in ("dst_agent_id", "src_agent_id"))
    copies["device"] = to.where(to.str.startswith("gpu"), source)
    copies["bytes"] = copies["size"]
    regions = database.select(f"rocpd_region{suffix}", ["start", "end", "name_id", "tid", "event_id", "extdata"])
    marker = looked_up(regions["event_id"], category).str.startswith("MARKER").astype(bool)
    message = _messages(regions["extdata"])
    regions["name"] = message.where(marker & message.notna(), looked_up(regions["name_id"], texts))
    regions["kind"] = np.where(marker, "scope", "runtime")
    regions["device"], regions["track"] = "cpu", numbered("thread ", looked_up(regions["tid"], threads, None))
    pieces = [kernels.assign(kind="kernel"), copies, regions]
    for piece in pieces[:2]:
        piece["track"] = numbered("stream ", piece["stream_id"])
    for piece in pieces:
        piece["correlation"] = looked_up(piece["event_id"], stack, -1)
    return [piece.rename(columns={"start": "begin"}) for piece in pieces]


def _in_blocks(kernels: pd.DataFrame) -> pd.DataFrame:
    """The grid of each kernel in blocks; AMD counts it in work-items."""
    sizes = kernels.reindex(columns=[*_GRID, *_GROUP]).apply(pd.to_numeric, errors="coerce").astype(float)
    block = sizes[list(_GROUP)].to_numpy()
    return pd.DataFrame(np.ceil(sizes[list(_GRID)].to_numpy() / np.where(block > 0, block, np.nan)), kernels.index)


def _messages(extdata: pd.Series) -> pd.Series:
    """The message of each marker, which is kept beside its function; None for other regions."""
    found = [_MESSAGE.search(str(text)) for text in extdata]
    return pd.Series([match and match[1] for match in found], extdata.index, dtype=object)


def is_json(first: bytes) -> bool:
    """Whether a file that begins so is rocprofv3's own JSON, which is not read."""
    return first.lstrip()[:1] == b"{" and _OF_JSON in first[:_SEEN]


def is_file(first: bytes) -> bool:
    """Whether a file that begins so holds the kernels of a profile."""
    line = first.split(b"\n", 1)[0].replace(b'"', b"").lower()
    return all(name in line for name in (b"kernel_name", b"start_timestamp", b"end_timestamp"))


def read_files(path: Path) -> Reading:
    """Read a file of kernels, and the files of calls, markers and copies beside it. Raises `UserError`."""
    kernels = _file(path)
    agent = kernels["Agent_Id"].astype(str).str.extract(_DIGITS, expand=False).fillna("0")
    stream = kernels["Stream_Id"] if "Stream_Id" in kernels else kernels["Queue_Id"]
    kernels = kernels.assign(kind="kernel", name=kernels["Kernel_Name"], device="gpu:" + agent)
    columns = {name.casefold(): name for name in kernels.columns}
    kernels = kernels.rename(columns={columns[name]: name for name in (*_GRID, *_GROUP, *_MORE) if name in columns})
    launched = launches(kernels, _in_blocks(kernels), _GROUP, _MORE[0], _MORE[1:])
    pieces = [kernels.assign(track=numbered("stream ", stream), launch=launched)]
    beside = []
    if path.name.endswith(_ENDING):
        beside = [path.with_name(path.name.removesuffix(_ENDING) + f"_{api}_trace.csv") for api in _APIS]
        beside = [each for each in beside if each.is_file()]
    pieces += [_copies(_file(each)) if "memory_copy" in each.name else _calls(_file(each)) for each in beside]
    notes = (f"read with it: {', '.join(each.name for each in beside)}",) if beside else ()
    return _reading(pieces, notes)


def _file(path: Path) -> pd.DataFrame:
    try:
        found = pd.read_csv(path, encoding_errors="replace", on_bad_lines="error")
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: not a file of rocprofv3: {' '.join(str(error).split())}") from None
    needed = {"Start_Timestamp", "End_Timestamp", "Correlation_Id"} - set(found.columns)
    if needed:
        raise UserError(f"{path}: not a file of rocprofv3: it lacks {', '.join(sorted(needed))}")
    return found.rename(columns={"Start_Timestamp": "begin", "End_Timestamp": "end", "Correlation_Id": "correlation"})


def _calls(found: pd.DataFrame) -> pd.DataFrame:
    marker = found["Domain"].astype(str).str.startswith("MARKER")
    found = found.assign(name=found["Function"], kind=np.where(marker, "scope", "runtime"), device="cpu")
    return found.assign(track=numbered("thread ", found["Thread_Id"]))


def _copies(found: pd.DataFrame) -> pd.DataFrame:
    to_device = found["Direction"].astype(str).str.endswith("DEVICE")
    agent = found["Destination_Agent_Id"].where(to_device, found["Source_Agent_Id"]).astype(str)
    number = agent.str.extract(_DIGITS, expand=False).fillna("0")
    return found.assign(kind="copy", name=found["Direction"], device="gpu:" + number, track="copies")


def _reading(pieces: list[pd.DataFrame], notes: tuple[str, ...] = ()) -> Reading:
    for piece in pieces:
        copies = np.array([bool(COPY.search(str(name))) for name in piece["name"]], bool)
        piece.loc[(piece["kind"] == "kernel") & copies, "kind"] = "copy"
    table, bad = rows(pieces)
    lost = (f"{count(bad, 'event has', 'events have')} no valid time",) if bad else ()
    return Reading("rocprof", "", table, lost=lost, notes=notes)
