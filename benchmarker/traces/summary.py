"""The summary of a trace: how its time is divided among devices and scopes, what is missing, and what was left out."""

from collections.abc import Mapping
from functools import reduce

import numpy as np
import pandas as pd

from benchmarker.formatting import count
from benchmarker.records.profile import DeviceTime, Scope, Trace
from benchmarker.traces.attribution.attribute import Attributed
from benchmarker.traces.attribution.categories import UNCATEGORISED
from benchmarker.traces.attribution.graphs import GRAPH
from benchmarker.traces.events import ON_DEVICE, codes, grouped, matching
from benchmarker.traces.formats.reading import Reading
from benchmarker.traces.intervals import Covered, Overlap, inherit, union_ns
from benchmarker.traces.statistics import work


def summary(
    reading: Reading,
    found: Attributed,
    steps: list[int],
    each_scope: list[Scope],
    *,
    separable: bool,
    variables: Mapping[str, str],
) -> Trace:
    """The summary of an attributed trace; `steps` are the durations of its steps."""
    events = found.events
    rows = work(events)
    devices = list(device_times(events, rows))
    whole = [device for device in devices if not device.track]
    uneven = _uneven(rows)
    overlaps = [Overlap.of(of_device) for _, of_device in rows.groupby("device", observed=True)]
    missing = [*reading.lost, *_missing(found, uneven, each_scope, reading)]
    return Trace(
        format=reading.format,
        framework=reading.framework,
        separable=separable,
        variables=dict(variables),
        rows=len(events),
        kernels=len(rows),
        steps=len(steps),
        step_ns=steps,
        wall_ns=max(each.wall_ns for each in whole),
        busy_ns=sum(each.busy_ns for each in whole),
        idle_ns=sum(each.idle_ns for each in whole),
        communication_ns=sum(overlap.moving_ns for overlap in overlaps),
        hidden_ns=sum(overlap.hidden_ns for overlap in overlaps),
        outside_ns=int(rows.loc[rows["leaf"] == "", "busy_ns"].sum()),
        uncategorised_ns=int(rows.loc[rows["category"] == UNCATEGORISED, "busy_ns"].sum()),
        unmatched_ops=found.unmatched_ops,
        unmatched_backward=found.unmatched_backward,
        unlaunched=found.unlaunched,
        overlapping=found.overlapping,
        uneven=uneven,
        devices=devices,
        missing=missing,
        notes=[*reading.notes, *found.notes, *_unknown(events, rows), *_restored(found), *_captured(rows)],
        complete=not missing,
        rank=reading.rank,
        world_size=reading.world_size,
        device_names=list(reading.device_names),
    )


def device_times(events: pd.DataFrame, rows: pd.DataFrame) -> list[DeviceTime]:
    """Each device, and if it has several streams or threads, each of these."""
    all_ns = Covered.of(events, rows).wall_ns
    found = []
    for device, of_device in rows.groupby("device", observed=True):
        tracks = list(of_device.groupby("track", observed=True))
        busy = int(of_device["busy_ns"].sum())
        wall = max(all_ns, busy)
        found.append(DeviceTime(device, "", len(of_device), busy, wall - busy, wall))
        for track, chosen in tracks if len(tracks) > 1 else ():
            ran = union_ns(chosen["ts_ns"].to_numpy(), (chosen["ts_ns"] + chosen["dur_ns"]).to_numpy())
            found.append(DeviceTime(device, track, len(chosen), ran, wall - ran, wall))
    return found


def _unknown(events: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Describe the work whose op or phase is not known though its launch is."""
    op = (rows["op"] == "") & (rows["kind"] != "op") & (rows["parent_id"] >= 0) & ~_by_graph(events, rows)
    texts = []
    if op.any():
        texts.append(f"{int(op.sum())} kernels and copies ({_share(rows, op)}) were launched outside any op")
    phase = rows["phase"] == ""
    if phase.any() and not (share := _share(rows, phase)).startswith("0.0%"):
        texts.append(f"the phase of {share} is unknown")
    return texts


def _restored(found: Attributed) -> list[str]:
    """Describe the backward ops that have no forward op and therefore no scope."""
    if not found.restored:
        return []
    ops = count(found.restored, "backward op belongs", "backward ops belong")
    return [f"{ops} to no scope: autograd made AsStridedBackward for views of tensors that were changed in place"]


def _captured(rows: pd.DataFrame) -> list[str]:
    """Describe the rows whose op was found in the capture of their graph."""
    counts = {how: (rows["graph"] == how) for how in ("node", "order")}
    return [
        f"{int(chosen.sum())} kernels and copies of graphs ({_share(rows, chosen)}) have the op that was captured, "
        + ("joined by the nodes' numbers" if how == "node" else "joined by order")
        for how, chosen in counts.items()
        if chosen.any()
    ]


def _by_graph(events: pd.DataFrame, rows: pd.DataFrame) -> pd.Series:
    """Which rows are parts of graphs whose launch is in no op."""
    launch = rows["parent_id"].to_numpy()
    return (rows["op"] == "") & (launch >= 0) & matching(events["name"], GRAPH.search)[launch]


def _share(rows: pd.DataFrame, chosen: pd.Series) -> str:
    return f"{rows.loc[chosen, 'busy_ns'].sum() / max(1, rows['busy_ns'].sum()):.1%} of the busy time"


def _uneven(rows: pd.DataFrame) -> int:
    """Number of missing executions, compared with the run of the program in which each instruction ran most often."""
    run = rows[(rows["run"] >= 0) & (rows["op"] != "")]
    if not len(run):
        return 0
    program = grouped(codes(run["device"]), run["program_id"])[0]
    op = grouped(program, codes(run["op"]))[0]
    counts = pd.DataFrame({"op": op, "program": program, "run": run["run"].to_numpy()}).value_counts().reset_index()
    runs = counts.groupby("program")["run"].nunique()
    most = counts.groupby(["op", "program"])["count"].agg(["max", "sum"]).reset_index("program")
    return int((most["max"] * runs[most["program"]].to_numpy() - most["sum"]).sum())


def _missing(found: Attributed, uneven: int, each_scope: list[Scope], reading: Reading) -> list[str]:
    """Describe what should be in the trace but is missing."""
    counted = {
        ("executed instruction is", "executed instructions are", "in no program of the trace"): found.unmatched_ops,
        ("backward op has", "backward ops have", "no forward op in the trace"): found.unmatched_backward,
        ("kernel or copy has", "kernels and copies have", "no launch in the trace"): found.unlaunched,
        (
            "execution is",
            "executions are",
            "missing, or the program branches: some instructions ran a different number of times in different runs",
        ): uneven,
    }
    missing = [f"{count(number, one, several)} {what}" for (one, several, what), number in counted.items() if number]
    expected = [each for each in each_scope if each.expected]
    if expected and not any(each.occurrences for each in expected):
        missing.append("none of the scopes is in the trace: a step that is compiled as a whole has no scopes")
    else:
        missing += [
            f"scope {each.scope} ran {count(each.occurrences or 0, 'time')} "
            f"but {count(each.expected or 0, 'was', 'were')} expected"
            for each in expected
            if each.occurrences != each.expected
        ]
    rows = found.events
    if (graphs := _by_graph(rows, work(rows))).any():
        missing.append(
            f"{int(graphs.sum())} kernels and copies ({_share(work(rows), graphs)}) were launched as graphs, "
            "which do not record the op, scope and phase of each"
        )
    launches = ((rows["kind"] == "runtime") & (rows["correlation"] >= 0)).any()
    if reading.framework == "torch" and launches and not rows["kind"].isin(ON_DEVICE).any():
        missing.append("work was launched on a device, but no kernel is in the trace: all times are host times")
    if reading.is_of_xla and not reading.programs:
        missing.append("the trace contains no program: only scopes that the events themselves name are known")
    return missing


def scopes(events: pd.DataFrame, steps: int, expected: Mapping[str, int]) -> list[Scope]:
    """Every scope in each phase, the longest time first; time outside all scopes has the empty name.

    `expected` is how often each scope is entered per step. A scope that never ran is in the list too.
    """
    rows = work(events)
    parts = pd.concat([_opened(rows[rows["members"] == ""]), _fused(rows[rows["members"] != ""])])
    parts = parts.groupby(["leaf", "phase"]).agg({"ran": "max", "any_ns": "sum"})
    counted = dict(list(rows.groupby(["leaf", "phase"], observed=True, sort=False)))
    found = [
        _scope(name, phase, counted.get((name, phase), rows.iloc[:0]), parts, steps, expected)
        for name, phase in {**counted, **dict.fromkeys(parts.index)}
    ]
    forward = {each.scope for each in found if each.phase == "forward"}
    found += [
        Scope(name, "forward", 0, 0, count * steps, 0, 0, 0, 0.0, [0] * steps)
        for name, count in expected.items()
        if name not in forward
    ]
    return sorted(found, key=lambda each: (-each.root_ns, -each.any_ns))


def inclusive(events: pd.DataFrame) -> pd.DataFrame:
    """The busy time of all work within each scope, also within scopes inside it: `scope`, `phase`, `inclusive_ns`.

    Work outside all scopes has the empty name. Work of the backward pass lies within the scopes of its forward op.
    """
    rows = work(events)
    chain, links = chains(events, rows)
    names: list[tuple[str, ...]] = [()]
    for outer, name in links[1:]:
        names.append(tuple(dict.fromkeys((*names[outer], name))))
    lines = pd.DataFrame({"chain": chain, "phase": rows["phase"].astype(object), "inclusive_ns": rows["busy_ns"]})
    lines = lines.groupby(["chain", "phase"], sort=False)["inclusive_ns"].sum().reset_index()
    lines["scope"] = [names[line] or ("",) for line in lines["chain"]]
    each = lines.explode("scope").groupby(["scope", "phase"], sort=False)["inclusive_ns"].sum()
    return each.reset_index()


def chains(events: pd.DataFrame, rows: pd.DataFrame) -> tuple[np.ndarray, list[tuple[int, str]]]:
    """The scopes around each row, as a number, and for each number, that of the next outer scope and the scope's name.

    Number 0 is no scope; outer scopes have lower numbers.
    """
    links: list[tuple[int, str]] = [(0, "")]
    numbers: dict[tuple[int, str], int] = {}

    def number(outer: int, name: str) -> int:
        if (outer, name) not in numbers:
            numbers[outer, name] = len(links)
            links.append((outer, name))
        return numbers[outer, name]

    opened = (events["kind"] == "scope").to_numpy()
    if not opened.any():  # JAX: the path of the instruction
        texts = rows["scope"].cat.categories
        of_text = [reduce(number, text.split("/"), 0) if text else 0 for text in texts]
        return np.array(of_text, np.int64)[codes(rows["scope"])], links
    above = inherit(events["parent_id"].to_numpy(), np.where(opened, np.arange(len(events)), -1))
    parent = events["parent_id"].to_numpy()
    outer = np.where(parent >= 0, above[parent], -1).tolist()
    name, texts = codes(events["name"]), events["name"].cat.categories
    known = {-1: 0}
    scope, place = np.unique(rows["scope_id"].to_numpy(), return_inverse=True)
    for inner in scope.tolist():
        left, row = [], inner
        while row not in known:
            known[row] = 0  # ends the loop if rows of a damaged table enclose each other
            left.append(row)
            row = outer[row]
        for each in reversed(left):
            known[each] = number(known[outer[each]], texts[name[each]])
    return np.array([known[row] for row in scope.tolist()])[place], links


def _opened(rows: pd.DataFrame) -> pd.DataFrame:
    """For rows that can belong to only one scope: how often each scope was opened, and its time."""
    rows = rows.assign(none=rows["scope_id"] < 0)
    lines = rows.groupby(["leaf", "phase"], observed=True).agg({"scope_id": "nunique", "none": "any", "busy_ns": "sum"})
    lines["scope_id"] -= lines.pop("none").astype(int)
    return (
        lines.rename(columns={"scope_id": "ran", "busy_ns": "any_ns"})
        .reset_index()
        .astype({"leaf": object, "phase": object})
    )


def _fused(rows: pd.DataFrame) -> pd.DataFrame:
    """For instructions: executions and time of each scope that contains one of their members.

    In each program, a path ran as often as its most frequent instruction on one device; within a loop, that is more
    than once per run. An instruction ran as often as its rarest kernel: it may launch one several times, as cuDNN's
    attention does to fill its buffers.
    Instructions in a loop that is itself within the scope say nothing of this; they are among those of `_opened`.
    """
    columns = ["device", "program_id", "op", "phase", "members"]
    kernels = rows.groupby([*columns, "name"], observed=True)["busy_ns"].agg(["size", "sum"])
    lines = kernels.groupby(columns, observed=True).agg({"size": "min", "sum": "sum"}).reset_index()
    lines["path"] = lines["members"].astype(object).str.split(";")
    lines["line"] = np.arange(len(lines))
    each = lines.explode("path").astype({"phase": object})
    each["leaf"] = [path.rpartition("/")[2] for path in each["path"]]
    ran = each.groupby(["leaf", "phase", "path", "program_id"])["size"].max().groupby(["leaf", "phase"]).sum()
    time = each.drop_duplicates(["line", "leaf"]).groupby(["leaf", "phase"])["sum"].sum()
    return pd.DataFrame({"ran": ran, "any_ns": time}).reset_index()


def _scope(
    name: str, phase: str, rows: pd.DataFrame, parts: pd.DataFrame, steps: int, expected: Mapping[str, int]
) -> Scope:
    share = rows["busy_ns"].to_numpy()
    purity = np.nan_to_num(rows["purity"].to_numpy(), nan=1.0)
    step = rows["step"].to_numpy()
    of_step = np.zeros(steps, np.int64)
    inside = (step >= 0) & (step < steps)
    np.add.at(of_step, step[inside], share[inside])
    root_ns = int(share.sum())
    ran, any_ns = (int(value) for value in parts.loc[(name, phase)]) if (name, phase) in parts.index else (0, root_ns)
    return Scope(
        scope=name,
        phase=phase,
        rows=len(rows),
        occurrences=(ran or None) if name else None,
        expected=expected[name] * steps if name in expected and phase == "forward" else None,
        root_ns=root_ns,
        any_ns=any_ns,
        pure_ns=int(share[purity >= 1].sum()),
        purity=float(np.average(purity, weights=share)) if root_ns else 0.0,
        step_ns=of_step.tolist(),
    )
