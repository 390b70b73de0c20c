"""Statistics of scopes: by root, by any member, and pure; how often each ran, and how often it should have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from benchmarker.traces.statistics import work
from benchmarker.traces.summary import Scope


def scopes(events: pd.DataFrame, steps: int, expected: Mapping[str, int]) -> list[Scope]:
    """Every scope in each phase, the longest time first; what lies outside any has the empty name.

    `expected` is how often each scope is entered in a step. A scope that never ran is in the list too.
    """
    rows = work(events)
    parts = _parts(rows)
    found = [
        _scope(name, phase, chosen, parts, steps, expected)
        for (name, phase), chosen in rows.groupby(["leaf", "phase"], observed=True, sort=False)
    ]
    have = {(each.scope, each.phase) for each in found}
    for name, phase in parts.index.unique():
        if (name, phase) not in have:
            found.append(_scope(name, phase, rows.iloc[:0], parts, steps, expected))
            have.add((name, phase))
    forward = {name for name, phase in have if phase == "forward"}
    found += [
        Scope(name, "forward", 0, 0, count * steps, 0, 0, 0, 0.0, [0] * steps)
        for name, count in expected.items()
        if name not in forward
    ]
    return sorted(found, key=lambda each: -each.any_ns)


def _parts(rows: pd.DataFrame) -> pd.DataFrame:
    """Busy time and executions of each scope by any of a row's members: lines by leaf, phase, path and execution."""
    columns = ["members", "scope", "leaf", "phase", "run", "step", "scope_id"]
    lines = rows.groupby(columns, observed=True, sort=False)["busy_ns"].sum().reset_index()
    members = lines["members"].astype(object)
    fused = members != ""
    lines["line"] = np.arange(len(lines))
    lines["path"] = np.where(fused, members, lines["scope"].astype(object))
    split = lines[fused].assign(path=members[fused].str.split(";")).explode("path")
    split["leaf"] = [path.rpartition("/")[2] for path in split["path"]]
    split["scope_id"] = -1
    every = pd.concat([lines[~fused], split], ignore_index=True)
    return every.astype({"leaf": object, "phase": object}).set_index(["leaf", "phase"]).sort_index()


def _scope(
    name: str, phase: str, rows: pd.DataFrame, parts: pd.DataFrame, steps: int, expected: Mapping[str, int]
) -> Scope:
    share = rows["busy_ns"].to_numpy()
    purity = np.nan_to_num(rows["purity"].to_numpy(), nan=1.0)
    step = rows["step"].to_numpy()
    of_step = np.zeros(steps, np.int64)
    inside = (step >= 0) & (step < steps)
    np.add.at(of_step, step[inside], share[inside])
    mine = parts.loc[[(name, phase)]] if (name, phase) in parts.index else parts.iloc[:0]
    return Scope(
        scope=name,
        phase=phase,
        rows=len(rows),
        occurrences=_occurrences(mine) if name else None,
        expected=expected[name] * steps if name in expected and phase == "forward" else None,
        root_ns=int(share.sum()),
        any_ns=int(mine.loc[~mine["line"].duplicated(), "busy_ns"].sum()),
        pure_ns=int(share[purity >= 1].sum()),
        purity=float(np.average(purity, weights=share)) if share.sum() else 0.0,
        step_ns=of_step.tolist(),
    )


def _occurrences(parts: pd.DataFrame) -> int | None:
    """Different occurrences: rows that opened it, or paths in an execution; None where none can be told apart."""
    opened = set(parts.loc[parts["scope_id"] >= 0, "scope_id"]) - {-1}
    execution = np.where(parts["run"] >= 0, parts["run"], parts["step"])
    fused = parts[(parts["scope_id"] < 0) & (execution >= 0)]
    ran = set(zip(fused["path"], execution[(parts["scope_id"] < 0) & (execution >= 0)], strict=True))
    return len(opened) + len(ran) if opened or ran else None
