"""The transfers of PyTorch's backends on a CPU, such as gloo, and the calls that asked for them.

One collective of gloo is up to three rows of a trace: the call (`c10d::allreduce_`), which only puts it into a queue,
the transfer (`gloo:all_reduce`), on a thread of gloo, and the host's wait for it (`_c10d_functional::wait_tensor`).
The transfer is the work. It belongs to its call as a kernel does to its launch; call and wait are calls of a runtime.
So are the ops around them, such as `Redistribute` or a node of autograd with a hook: in their own time the host mostly
waits, often without a row that says so, and what they compute has rows within them.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from benchmarker.traces.attribution.nesting import Nest
from benchmarker.traces.events import ON_DEVICE, codes, words
from benchmarker.traces.formats.collectives import ON_CPU, kind_of

_CALL = re.compile(r"c10d::")
_RUNTIME = re.compile(r"(c10d|_c10d_functional(_autograd)?)::")
_DONE_BY = {"reduce_scatter": "all_reduce"}
"""Collectives that gloo does by another one."""


def calls_of(events: pd.DataFrame) -> np.ndarray:
    """The call of each transfer; -1 for a transfer without one, and for all other rows.

    Beside an accelerator, transfers are no work: then there are none.

    Calls are carried out in their order: a transfer is of the first call of its kind that has none, or if that came
    after it, of the call before, which then has several.
    """
    found = np.full(len(events), -1)
    begin, transfers = events["ts_ns"].to_numpy(), _named(events, ON_CPU)
    if not transfers.any() or events["kind"].isin(ON_DEVICE).any():
        return found
    names, name = [kind_of(text) for text in events["name"].cat.categories], codes(events["name"])
    kinds = np.array([_DONE_BY.get(each, each) for each in names])[name]
    calls = _named(events, _CALL)
    for kind in np.unique(kinds[transfers]).tolist():
        asked, moved = (np.flatnonzero(rows & (kinds == kind)) for rows in (calls, transfers))
        asked = asked[np.argsort(begin[asked], kind="stable")]
        place = 0
        for row in moved[np.argsort(begin[moved], kind="stable")].tolist():
            place += place < len(asked) and begin[asked[place]] <= begin[row]
            found[row] = asked[place - 1] if place else -1
    return found


def with_calls(events: pd.DataFrame, call: np.ndarray, nested: Nest) -> pd.DataFrame:
    """The table in which calls, waits and the ops around them are not work, and each transfer is what its `call` is."""
    moved = np.flatnonzero(call >= 0)
    if not len(moved):
        return events
    kinds, names = events["kind"], events["name"].cat.categories
    runtime = _with_ops_around(events, nested, _named(events, _RUNTIME))
    kind = np.where(runtime, len(kinds.cat.categories), codes(kinds))
    called = codes(events["name"])[call[moved]]
    collective = codes(events["collective"])
    texts = [*events["collective"].cat.categories, *(kind_of(each) for each in names)]
    collective[moved] = len(events["collective"].cat.categories) + called
    return events.assign(kind=words(kind, [*kinds.cat.categories, "runtime"]), collective=words(collective, texts))


def _with_ops_around(events: pd.DataFrame, nested: Nest, chosen: np.ndarray) -> np.ndarray:
    rows = np.flatnonzero(chosen)
    while len(rows):
        above = nested.parent[rows]
        rows = np.unique(above[(above >= 0) & ~chosen[above]])
        chosen[rows] = True
    found: np.ndarray = chosen & (events["kind"] == "op").to_numpy() & ~_named(events, ON_CPU)
    return found


def _named(events: pd.DataFrame, pattern: re.Pattern[str]) -> np.ndarray:
    """The ops whose names begin with a pattern."""
    matching = np.array([bool(pattern.match(name)) for name in events["name"].cat.categories], bool)
    found: np.ndarray = matching[codes(events["name"])] & (events["kind"] == "op").to_numpy()
    return found
