"""The matrix products of a trace: how often each ran, for how long, and how fast."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarker.traces.events import codes, words
from benchmarker.traces.formats.gemm import Gemm, parse
from benchmarker.traces.statistics import calls, describe, work

_CATEGORY = "gemm"
_SHOWN = ["op", "name", "count", "total_ns", "busy_ns", "share", "flops", "flop_per_s", "bytes", "bytes_per_s"]


def gemms(events: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One line for each distinct matrix product, the longest busy time first; and the rows of other products.

    `dtype`, `m`, `n`, `k`, `batch` and `layout` are those of `Gemm`; `op` is the op or HLO opcode and `name` the
    kernel that does the work, or how many there are. `count` is the number of products, `total_ns` the durations of all
    kernels that their ops launched themselves, such as the reduction after a product that is split along K. `flops`,
    2·m·n·k·batch for each, and `bytes`, the least traffic, are sums; rates divide them by `total_ns`. `share` is the
    fraction of the busy time of all work. The other products are further rows of the category gemm: their shapes are
    unknown, they compute several products at once, or they are ops around a product.
    """
    rows = work(events)
    texts = rows["gemm"].cat.categories
    known = np.array([parse(text) is not None for text in texts], bool)
    call, code = calls(events, rows), codes(rows["gemm"])
    own = known[code] & (call >= 0)
    of_call = np.full(int(call.max(initial=-1)) + 2, -1)  # the last element is for rows in no call
    of_call[call[own]] = code[own]
    line = of_call[call]
    chosen = line >= 0
    names = [*rows["name"].cat.categories, ""]
    name = words(np.where(own, codes(rows["name"]), len(names) - 1)[chosen], names)
    described = rows[chosen].assign(gemm=words(line[chosen], list(texts)), op=_op(rows[chosen]), name=name)
    found = describe(described, ["gemm"], call[chosen], sole=["op", "name"])
    number = pd.Series(np.bincount(code[own], minlength=len(texts)), texts)
    found["count"] = number[found["gemm"]].to_numpy()
    found["share"] = found["busy_ns"] / max(1, int(rows["busy_ns"].sum()))
    parts = pd.DataFrame([parse(text) for text in found["gemm"]], columns=list(Gemm._fields))
    return pd.concat([parts, found[_SHOWN]], axis=1), rows[~chosen & (rows["category"] == _CATEGORY).to_numpy()]


def _op(rows: pd.DataFrame) -> pd.Categorical:
    """The HLO opcode of each row, otherwise its op."""
    opcode, op = codes(rows["opcode"]), codes(rows["op"])
    opcodes, ops = rows["opcode"].cat.categories, rows["op"].cat.categories
    return words(np.where((rows["opcode"] != "").to_numpy(), opcode, len(opcodes) + op), [*opcodes, *ops])
