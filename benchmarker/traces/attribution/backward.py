"""The backward pass: the forward row of each backward row, and the resulting phases and scopes."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarker.traces.events import codes
from benchmarker.traces.formats.reading import Reading
from benchmarker.traces.intervals import Nest, inherit

PHASES = ["forward", "backward", "remat", ""]
FORWARD, BACKWARD, REMAT, UNKNOWN = range(4)
"""Indices of the phases in `PHASES`."""
_NODE = re.compile(r"autograd::engine::evaluate_function|.*(?:Backward\d*$|(?:_|::)backward(?:_|$))")
"""Names of ops of the backward pass: the autograd engine's nodes, their functions, and the ops made for them."""


_SLICES = "CopySlices"
"""How the name of a node ends that copies the gradient of a part of a tensor."""

_RESTORED = re.compile(r"\bAsStridedBackward\d*$")
"""Nodes that PyTorch makes when a view is used whose base was changed in place; they have no forward op."""


def forward_rows(events: pd.DataFrame, reading: Reading, nested: Nest) -> tuple[np.ndarray, int, int]:
    """The forward row of each backward row (-1 for all other rows), how many were not found, and how many have none.

    Both rows have a sequence number, which each thread counts separately. The backward row also has the profiler's own
    number of the forward thread. This number is assigned to the thread on which most of its rows find their partner.
    """
    forward = np.full(len(events), -1)
    if reading.forward_thread is None:
        return forward, 0, 0
    sequence = events["sequence_nr"].to_numpy()
    thread = reading.forward_thread
    begin, track = events["ts_ns"].to_numpy(), codes(events["track"])
    backward = np.flatnonzero((thread > 0) & (sequence >= 0))
    if not len(backward):
        return forward, 0, 0
    inside = inherit(nested.parent, np.where(thread > 0, 1, -1)) >= 0
    candidates = np.flatnonzero((thread <= 0) & (sequence >= 0))
    # The last forward row with a number is the one that made the node: the rows around it began with the same number.
    # Rows recomputed within the backward pass are sorted first, so that they are chosen last.
    order = candidates[np.lexsort((begin[candidates], ~inside[candidates], sequence[candidates], track[candidates]))]
    for number in np.unique(thread[backward]).tolist():
        rows = backward[thread[backward] == number]
        best = np.full(len(rows), -1)
        for each in np.unique(track[candidates]).tolist():
            found = _last_with(sequence, order[track[order] == each], sequence[rows])
            found[(found >= 0) & (begin[found] > begin[rows])] = -1
            found[inside[found] & (found >= 0) & (best >= 0)] = -1
            best = found if (found >= 0).sum() > (best >= 0).sum() else best
        forward[rows] = best
    _follow_slices(events, nested, begin, backward, forward)
    lacking = backward[forward[backward] < 0]
    made = _named(events, _RESTORED.search)[lacking]
    return inherit(nested.parent, forward), int((~made).sum()), int(made.sum())


def _follow_slices(
    events: pd.DataFrame, nested: Nest, begin: np.ndarray, backward: np.ndarray, forward: np.ndarray
) -> None:
    """Give the nodes of ops that changed a part of a tensor in place the forward op of the node that they call.

    Such a node, CopySlices, has a number that no forward op has. It calls the in-place op's own node
    (`CopySlices::apply` in PyTorch's torch/csrc/autograd/functions/tensor.cpp).
    """
    named = _named(events, lambda name: name.endswith(_SLICES))
    lacking = np.zeros(len(forward), bool)
    lacking[backward] = named[backward] & (forward[backward] < 0)
    inner = backward[forward[backward] >= 0] if lacking.any() else backward[:0]
    inner = inner[np.argsort(-begin[inner], kind="stable")]  # of several, the first is written last
    while len(inner):
        above = nested.parent[inner]
        found = (above >= 0) & lacking[above]
        forward[above[found]] = forward[inner[found]]
        inner = above[found]


def _named(events: pd.DataFrame, test: Callable[[str], object]) -> np.ndarray:
    """Which rows have a name that passes a test."""
    names = events["name"]
    found: np.ndarray = np.array([bool(test(name)) for name in names.cat.categories], bool)[codes(names)]
    return found


def _last_with(numbers: np.ndarray, order: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The last row in `order` (rows sorted by number) that has each wanted number; -1 if none has."""
    if not len(order):
        return np.full(len(wanted), -1)
    at = np.maximum(np.searchsorted(numbers[order], wanted, side="right") - 1, 0)
    return np.where(numbers[order[at]] == wanted, order[at], -1)


def phases(events: pd.DataFrame, reading: Reading, nested: Nest) -> np.ndarray:
    """Each row's phase: backward within a node of the backward pass, remat for forward ops recorded within one.

    A scope opened within a node that holds such an op is remat as a whole: some ops of a forward pass, such as
    `aten::promote_types`, are never recorded. All other ops of PyTorch are forward. The phase of what is in no op, and
    of other programs' ops, is unknown.
    """
    own = np.full(len(events), -1)
    if reading.forward_thread is None:
        return np.full(len(events), UNKNOWN)
    is_op = (events["kind"] == "op").to_numpy()
    is_node = _named(events, _NODE.match) & is_op
    backward = is_node | (reading.forward_thread > 0)
    own[backward] = BACKWARD
    inside = inherit(nested.parent, own) == BACKWARD
    recorded = (reading.forward_thread == 0) & (events["sequence_nr"].to_numpy() >= 0)
    again = inside & ~backward & recorded
    opened = inherit(nested.parent, np.where((events["kind"] == "scope") & inside, np.arange(len(events)), -1))
    own[again] = REMAT
    own[opened[again & (opened >= 0)]] = REMAT
    found = inherit(nested.parent, own)
    if reading.framework == "torch":
        found = np.where((found < 0) & (inherit(nested.parent, np.where(is_op, 1, -1)) > 0), FORWARD, found)
    return np.where(found < 0, UNKNOWN, found)


def scope_rows(nested: Nest, counting: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """The innermost scope around each row; for a row of the backward pass, the one around its forward row.

    A scope that was opened within the backward pass counts for the rows that it encloses.
    """
    rows = np.arange(len(forward))
    around = inherit(nested.parent, np.where(counting, rows, -1))
    followed = forward >= 0
    node = inherit(nested.parent, np.where(followed & ~_same_as_parent(nested, forward), rows, -1))
    deeper = followed & (around >= 0) & (nested.level[around] > nested.level[node])
    return np.where(followed & ~deeper, around[forward], around)


def _same_as_parent(nested: Nest, values: np.ndarray) -> np.ndarray:
    same: np.ndarray = (nested.parent >= 0) & (values == values[nested.parent])
    return same
