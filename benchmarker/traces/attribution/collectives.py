"""Collectives: what the host of PyTorch states of those that an accelerator executes, and the rows of those on a CPU.

The kernel of a collective may say little: NCCL runs an all-to-all as `ncclKernel_SendRecv`, and some builds name every
kernel so. c10d's op (`record_param_comms`) and annotation (`nccl:all_to_all`), which enclose the launch, state kind,
size and group. Each is taken from the kernel itself, otherwise from the nearest row around its launch that states it.

One collective of gloo is up to three rows: the call (`c10d::allreduce_`), which only puts it into a queue, the transfer
(`gloo:all_reduce`), on a thread of gloo, and the host's wait for it (`_c10d_functional::wait_tensor`). The transfer is
the work. It belongs to its call as a kernel does to its launch; call and wait are calls of a runtime. So are the ops
around them, such as `Redistribute` or a node of autograd with a hook: in their own time the host mostly waits, often
without a row that says so, and what they compute has rows within them.

A collective of XLA on a CPU is a series of meetings (`Rendezvous`) of the threads of all devices. Until the last of
them has come, the others are in `Wait: pending_threads=...`. Everything else in a collective is exchange.
"""

import re
from typing import Any

import numpy as np
import pandas as pd

from benchmarker.traces.events import ON_DEVICE, codes, matching, words
from benchmarker.traces.formats.notation import COLLECTIVE_INTEGERS, COLLECTIVE_TEXTS, collective_kind
from benchmarker.traces.intervals import COMMUNICATION, Nest, inherit

_TRANSFER = re.compile(r"(gloo|ucc|mpi):")
"""Annotations of backends on a CPU."""


def with_collectives(events: pd.DataFrame, on_device: np.ndarray) -> pd.DataFrame:
    """The table in which each kernel of a collective has what the rows around its launch state of it."""
    moves = on_device & ((events["category"] == COMMUNICATION) & (events["opcode"] == "")).to_numpy()
    rows, parent = np.flatnonzero(moves), events["parent_id"].to_numpy()
    columns: dict[str, Any] = {}
    for name in (*COLLECTIVE_TEXTS, *COLLECTIVE_INTEGERS):
        is_text = name in COLLECTIVE_TEXTS
        values = codes(events[name]) if is_text else events[name].to_numpy().copy()
        stated = (events[name] != "").to_numpy() if is_text else values >= 0
        source = _nearest(parent, rows, stated)
        values[rows[source >= 0]] = values[source[source >= 0]]
        columns[name] = words(values, list(events[name].cat.categories)) if is_text else values
    return events.assign(**columns)


def _nearest(parent: np.ndarray, rows: np.ndarray, has: np.ndarray) -> np.ndarray:
    """The nearest row that `has` something, from each of `rows` upwards, itself included; -1 if there is none."""
    found = rows.copy()
    lacking = np.flatnonzero(~has[found])
    while len(lacking):
        found[lacking] = parent[found[lacking]]
        lacking = lacking[found[lacking] >= 0]
        lacking = lacking[~has[found[lacking]]]
    return found


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
    begin, transfers = events["ts_ns"].to_numpy(), _named(events, _TRANSFER)
    if not transfers.any() or events["kind"].isin(ON_DEVICE).any():
        return found
    names, name = [collective_kind(text) for text in events["name"].cat.categories], codes(events["name"])
    kinds = np.array([_DONE_BY.get(text, text) for text in names])[name]
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
    texts = [*events["collective"].cat.categories, *(collective_kind(text) for text in names)]
    collective[moved] = len(events["collective"].cat.categories) + called
    return events.assign(kind=words(kind, [*kinds.cat.categories, "runtime"]), collective=words(collective, texts))


def _with_ops_around(events: pd.DataFrame, nested: Nest, chosen: np.ndarray) -> np.ndarray:
    rows = np.flatnonzero(chosen)
    while len(rows):
        above = nested.parent[rows]
        rows = np.unique(above[(above >= 0) & ~chosen[above]])
        chosen[rows] = True
    found: np.ndarray = chosen & (events["kind"] == "op").to_numpy() & ~_named(events, _TRANSFER)
    return found


def _named(events: pd.DataFrame, pattern: re.Pattern[str]) -> np.ndarray:
    """The ops whose names begin with a pattern."""
    named: np.ndarray = matching(events["name"], pattern.match) & (events["kind"] == "op").to_numpy()
    return named


_MEETING, _WAIT = re.compile("Rendezvous"), re.compile("Wait: pending_threads")


def meetings_ns(events: pd.DataFrame, nested: Nest) -> np.ndarray:
    """How long each collective waited for other devices, in ns; -1 for rows in which no threads meet."""
    found = np.full(len(events), -1)
    collective = ((events["category"] == COMMUNICATION) & (events["kind"] == "op")).to_numpy()
    within = inherit(nested.parent, np.where(collective, np.arange(len(events)), -1))
    meeting, wait = (matching(events["name"], begin.match) & (within >= 0) for begin in (_MEETING, _WAIT))
    found[within[meeting]] = 0
    np.add.at(found, within[wait & (found[within] >= 0)], events["dur_ns"].to_numpy()[wait & (found[within] >= 0)])
    return found
