"""Statistics of event tables: by any text column such as name or scope, of matrix products, memory, and two traces."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarker.traces.events import MEMORY, ON_DEVICE, codes, grouped, matching, texts_of, words
from benchmarker.traces.formats.notation import Gemm, parse
from benchmarker.traces.intervals import extended, inherit, nest

QUANTILES = {"median_ns": 0.5, "p5_ns": 0.05, "p95_ns": 0.95}


def work(events: pd.DataFrame) -> pd.DataFrame:
    """The rows whose time is counted: those that an accelerator executed, or if there are none, the host's ops."""
    on_device = events["kind"].isin(ON_DEVICE)
    return events[on_device] if on_device.any() else events[events["kind"] == "op"]


def describe(
    rows: pd.DataFrame, by: Sequence[str], call: np.ndarray | None = None, sole: Sequence[str] = ()
) -> pd.DataFrame:
    """One line for each group of rows with equal values in the columns `by`, the longest busy time first.

    `total_ns` is the sum of durations, until an asynchronous row was complete, including enclosed rows; rows within
    another row of their group are left out. `self_ns` is the sum of own times and `busy_ns` the sum of shares of the
    device's busy time; `share` is the fraction of the busy time of all `rows`. Mean, median, percentiles (linear
    interpolation), extremes and standard deviation are those of the rows' own times.

    `flops` and `bytes` are sums over the rows that have them, NaN if none has. `flop_per_s` and `bytes_per_s` are these
    sums divided by the durations of the same rows; `flops_share` and `bytes_share` are the fraction of the durations of
    all rows of the line that these rows take. If `call` numbers the call that each row belongs to, the durations are
    those of whole calls: of all rows with the same number. Columns `sole` hold the text that all rows of a line which
    have one share, or how many different ones there are.
    """
    group, labels = _groups(rows, by)
    count = len(labels)
    lines = rows[["self_ns", "busy_ns"]].assign(total_ns=_totals(rows, group)).groupby(group)
    own = lines["self_ns"]
    made = labels.assign(
        count=own.size(),
        total_ns=lines["total_ns"].sum(),
        self_ns=own.sum(),
        busy_ns=lines["busy_ns"].sum(),
        mean_ns=own.mean(),
        **{name: own.quantile(share) for name, share in QUANTILES.items()},
        min_ns=own.min(),
        max_ns=own.max(),
        std_ns=own.std(ddof=0),
    )
    made.insert(len(by) + 4, "share", made["busy_ns"] / max(1, int(rows["busy_ns"].sum())))
    for name in sole:
        made[name] = _sole(rows[name], group, count)
    durations = durations_ns(rows)
    whole = np.bincount(group, durations, count)
    for name, rate in (("flops", "flop_per_s"), ("bytes", "bytes_per_s")):
        amounts = rows[name].to_numpy()
        known = np.isfinite(amounts)
        has = np.bincount(group[known], minlength=count) > 0
        timed = known if call is None else np.isin(call, np.unique(call[known]))
        took = np.where(has, np.bincount(group[timed], durations[timed], count), np.nan)
        made[name] = np.where(has, np.bincount(group[known], amounts[known], count), np.nan)
        made[rate] = made[name] / np.where(took > 0, took, np.nan) * 1e9
        made[f"{name}_share"] = took / np.where(whole > 0, whole, np.nan)
    return made.sort_values("busy_ns", ascending=False, kind="stable", ignore_index=True)


def _sole(column: pd.Series, group: np.ndarray, count: int) -> list[str]:
    """The text of each group if all its rows that have one share it, or how many there are."""
    has = np.flatnonzero((column != "").to_numpy())
    code = codes(column)
    _, first = grouped(group[has], code[has])
    rows = has[first]
    several = np.bincount(group[rows], minlength=count).tolist()
    texts = [""] * count
    for row in rows.tolist():
        texts[group[row]] = str(column.cat.categories[code[row]])
    return [text if number < 2 else f"{number} different" for text, number in zip(texts, several, strict=True)]


def durations_ns(rows: pd.DataFrame) -> np.ndarray:
    """How long each row ran, in ns: its own time, or if it is asynchronous, the time until it was complete."""
    found: np.ndarray = np.where(
        rows["end_ns"].to_numpy() >= 0, rows["end_ns"].to_numpy() - rows["ts_ns"].to_numpy(), rows["self_ns"].to_numpy()
    )
    return found


def _groups(rows: pd.DataFrame, by: Sequence[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """The number of each row's group, and the values that define each group."""
    group, first = grouped(*(codes(rows[column]) for column in by), ordered=True)
    return group, rows.iloc[first][list(by)].astype(object).reset_index(drop=True)


def _totals(rows: pd.DataFrame, group: np.ndarray) -> np.ndarray:
    """Each row's duration with all that it encloses, in ns; 0 for rows within another row of their group and thread."""
    begin, duration = rows["ts_ns"].to_numpy(), rows["dur_ns"].to_numpy()
    end = np.maximum(begin + duration, rows["end_ns"].to_numpy())
    if rows["kind"].isin(ON_DEVICE).any() or (rows["self_ns"].to_numpy() >= duration).all():
        whole: np.ndarray = end - begin  # no row encloses another
        return whole
    thread = grouped(group, codes(rows["device"]), codes(rows["track"]))[0]
    nested = nest(thread, begin, begin + duration)
    return np.where(nested.parent < 0, extended(end, nested) - begin, 0)


def calls(events: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    """The number of the call of an op that each row of work belongs to; -1 for none.

    All executions of an HLO instruction on a device count as one call, as do those of an op with the same shapes in one
    launch of a graph.
    """
    if (rows["opcode"] != "").any():
        return grouped(codes(rows["device"]), rows["program_id"], codes(rows["op"]))[0]
    called = inherit(events["parent_id"].to_numpy(), np.where(events["kind"] == "op", events.index, -1))
    of_graph = (rows["graph"] != "").to_numpy()
    again = grouped(rows["parent_id"], codes(rows["op"]), codes(rows["shapes"]))[0]
    return np.where(of_graph, len(events) + again, called[rows.index])


def ops(events: pd.DataFrame, further: Sequence[str] = ()) -> pd.DataFrame:
    """Statistics of HLO instructions, or of a framework's ops; split by the columns `further` too.

    All have `intensity`, in FLOP/byte. Instructions also have program, opcode, scope and phase. Host ops that launched
    work on an accelerator have the busy time of that work, `device_ns`, and are sorted by it, longest first;
    `kernel_ns` is the sum of the work's durations.
    """
    rows = work(events)
    hosts = events[events["kind"] == "op"]
    if (rows["opcode"] != "").any():
        by = ["program", "op", *further, "opcode", "category", "leaf", "phase"]
        found = describe(rows, by, calls(events, rows)).rename(columns={"leaf": "scope"})
    elif hosts.index.equals(rows.index):
        found = describe(rows, ["op", *further, "category"])
    else:
        found = _launching(hosts, rows, calls(events, rows), further)
    return found.assign(intensity=found["flops"] / found["bytes"])


def _launching(hosts: pd.DataFrame, rows: pd.DataFrame, call: np.ndarray, further: Sequence[str]) -> pd.DataFrame:
    """Host ops, with the busy time, durations and cost of what they launched on a device."""
    rates = ["flops", "flop_per_s", "flops_share", "bytes", "bytes_per_s", "bytes_share"]
    by = ["op", *further]
    found = (
        describe(hosts, ["name", *further]).drop(columns=["busy_ns", "share", *rates]).rename(columns={"name": "op"})
    )
    launched = describe(rows, by, call)
    launched["kernel_ns"] = launched["total_ns"]
    own = found[by].merge(launched[[*by, "busy_ns", "kernel_ns", *rates]], "left", on=by)
    busy = own["busy_ns"].fillna(0).astype(np.int64)
    found.insert(len(by) + 1, "device_ns", busy)
    found.insert(len(by) + 2, "kernel_ns", own["kernel_ns"].fillna(0).astype(np.int64))
    found.insert(len(by) + 3, "share", busy / max(1, int(launched["busy_ns"].sum())))
    return found.join(own[rates]).sort_values("device_ns", ascending=False, kind="stable", ignore_index=True)


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


def difference(
    before: pd.DataFrame, after: pd.DataFrame, by: Sequence[str], steps: tuple[int, int] = (1, 1)
) -> pd.DataFrame:
    """One line for each group of rows with equal values in the columns `by`, the largest change of time first.

    `before` and `after` are rows of work; `steps` is how many steps each covers. Counts and times are per step; times
    are busy times, so that the changes add up to that of the whole. `change` is added, gone, slower, faster or same.
    `ratio` is after / before. `difference_share` is the line's part of the difference of all lines, NaN if that is 0.
    """
    sides = [
        (describe(rows, by).set_index(list(by))[["count", "busy_ns"]] / number).add_suffix(suffix)
        for rows, number, suffix in zip((before, after), steps, ("_before", "_after"), strict=True)
    ]
    made = sides[0].join(sides[1], how="outer").reset_index()
    old, new = made["busy_ns_before"], made["busy_ns_after"]
    change = new.fillna(0) - old.fillna(0)
    kinds = [old.isna(), new.isna(), change > 0, change < 0]
    whole = change.sum()
    found = pd.DataFrame(
        {
            **{name: made[name] for name in by},
            "change": np.select(kinds, ["added", "gone", "slower", "faster"], "same"),
            "before_count": made["count_before"].fillna(0),
            "after_count": made["count_after"].fillna(0),
            "before_ns": old.fillna(0),
            "after_ns": new.fillna(0),
            "difference_ns": change,
            "ratio": new / old.where(old > 0),
            "difference_share": change / (whole if whole else np.nan),
        }
    )
    return found.iloc[np.argsort(-np.abs(change.to_numpy()), kind="stable")].reset_index(drop=True)


_ALLOCATING = re.compile(r"aten::(empty|resize|new_empty)")
"""Ops that only allocate; an allocation belongs to the op around them."""
BEFORE = "(before the profile)"
"""Stands for memory that was allocated before the profile began."""


def timeline(events: pd.DataFrame) -> pd.DataFrame:
    """Every allocation and free, in the order of time; empty if the trace has none.

    `device` is where the memory is. `size` is in bytes, negative for a free. `allocated` and `reserved` are the totals
    of the device after it. `op`, `category`, `scope`, `phase` and `step` are those of the op that did it.
    """
    rows = events[events["kind"] == "memory"].sort_values("ts_ns", kind="stable")
    doing = (events["kind"] == "op").to_numpy() & ~matching(events["name"], _ALLOCATING.match)
    op = inherit(events["parent_id"].to_numpy(), np.where(doing, np.arange(len(events)), -1))[rows.index]
    columns = MEMORY if len(rows) else ()
    return pd.DataFrame(
        {
            "ts_ns": rows["ts_ns"].to_numpy(),
            "device": rows["name"].astype(object).to_numpy(),
            **{name: rows[name].to_numpy().astype(np.int64) for name in columns},
            "op": texts_of(events["name"], op),
            "category": texts_of(events["category"], op),
            "scope": rows["leaf"].astype(object).to_numpy(),
            "phase": rows["phase"].astype(object).to_numpy(),
            "step": rows["step"].to_numpy(),
        }
    )


def peaks(memory: pd.DataFrame) -> pd.DataFrame:
    """One line for each device: when the most memory was allocated, and by which op, scope and step it was reached.

    `at_ns` is from the first memory event of the trace. `before` is what had been allocated before that event.
    """
    found = []
    for device, of in memory.groupby("device"):
        most, first = of.loc[of["allocated"].idxmax()], of.iloc[0]
        found.append(
            {
                "device": device,
                "peak_allocated": int(most["allocated"]),
                "peak_reserved": int(of["reserved"].max()),
                "at_ns": int(most["ts_ns"] - memory["ts_ns"].iloc[0]),
                "before": int(first["allocated"] - first["size"]),
                "allocations": int((of["size"] > 0).sum()),
                "step": None if most["step"] < 0 else int(most["step"]),
                **{name: most[name] for name in ("op", "scope", "phase")},
            }
        )
    return pd.DataFrame(found)


def at_peak(memory: pd.DataFrame, by: str) -> pd.DataFrame:
    """What was allocated at the peak of each device, by op, category, scope or phase, the most first.

    The bytes of a device add up to its peak: what the allocations of the trace do not explain was allocated before it.
    """
    found = []
    for device, of in memory.groupby("device"):
        peak = int(of["allocated"].idxmax())
        last = of.loc[:peak].drop_duplicates("address", keep="last")
        alive = last[last["size"] > 0]
        lines = alive.groupby(by)["size"].agg(["sum", "size"]).reset_index()
        lines.columns = pd.Index([by, "bytes", "allocations"])
        most = int(of.loc[peak, "allocated"])
        before = pd.DataFrame({by: [BEFORE], "bytes": [most - int(lines["bytes"].sum())], "allocations": [0]})
        lines = pd.concat([lines, before[before["bytes"] != 0]], ignore_index=True)
        lines = lines.sort_values("bytes", ascending=False, kind="stable")
        lines.insert(0, "device", device)
        found.append(lines.assign(share=lines["bytes"] / max(1, most)))
    return pd.concat(found, ignore_index=True)
