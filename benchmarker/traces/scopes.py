"""Statistics of scopes: by root, by any member, pure and inclusive; how often each ran and should have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from benchmarker.records.profile import Scope
from benchmarker.traces.events import codes
from benchmarker.traces.intervals import inherit
from benchmarker.traces.statistics import work


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
    chain, names = _chains(events, rows)
    lines = pd.DataFrame({"chain": chain, "phase": rows["phase"].astype(object), "inclusive_ns": rows["busy_ns"]})
    lines = lines.groupby(["chain", "phase"], sort=False)["inclusive_ns"].sum().reset_index()
    lines["scope"] = [names[line] or ("",) for line in lines["chain"]]
    each = lines.explode("scope").groupby(["scope", "phase"], sort=False)["inclusive_ns"].sum()
    return each.reset_index()


def _chains(events: pd.DataFrame, rows: pd.DataFrame) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    """The scopes around each row: a number per row, and the names for each number, each name once."""
    opened = (events["kind"] == "scope").to_numpy()
    if not opened.any():  # JAX: the path of the instruction
        texts = rows["scope"].cat.categories
        return codes(rows["scope"]), [tuple(dict.fromkeys(text.split("/") if text else ())) for text in texts]
    above = inherit(events["parent_id"].to_numpy(), np.where(opened, np.arange(len(events)), -1))
    parent = events["parent_id"].to_numpy()
    outer = np.where(parent >= 0, above[parent], -1).tolist()
    name, texts = codes(events["name"]), events["name"].cat.categories
    names: list[tuple[str, ...]] = [()]
    numbers: dict[tuple[int, int], int] = {}
    known = {-1: 0}
    scope, place = np.unique(rows["scope_id"].to_numpy(), return_inverse=True)
    for inner in scope.tolist():
        left, row = [], inner
        while row not in known:
            known[row] = 0  # ends the loop if rows of a damaged table enclose each other
            left.append(row)
            row = outer[row]
        for each in reversed(left):
            key = known[outer[each]], int(name[each])
            if key not in numbers:
                numbers[key] = len(names)
                names.append(tuple(dict.fromkeys((*names[key[0]], texts[key[1]]))))
            known[each] = numbers[key]
    return np.array([known[row] for row in scope.tolist()])[place], names


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
    than once per run.
    Instructions in a loop that is itself within the scope say nothing of this; they are among those of `_opened`.
    """
    columns = ["device", "program_id", "op", "name", "phase", "members"]
    lines = rows.groupby(columns, observed=True)["busy_ns"].agg(["size", "sum"]).reset_index()
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
