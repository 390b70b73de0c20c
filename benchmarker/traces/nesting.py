"""Intervals: which encloses which, and how the time of a device divides among them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

_LEVELS = 128
"""Depth to which rows are nested level by level, all rows of one at once; deeper ones are nested one by one."""


@dataclass(frozen=True, slots=True)
class Nest:
    """The row that encloses each row, -1 for none; its depth; how many begin within their parent and end after it."""

    parent: np.ndarray
    level: np.ndarray
    overlapping: int


def nest(track: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Nest:
    """Nest the intervals of each track; of two equal ones the first encloses the other."""
    rows = len(begin)
    order = np.lexsort((-(end - begin), begin, track))
    first, last = _apart(track[order], begin[order], end[order])
    parent, level = np.full(rows, -1), np.zeros(rows, np.int32)
    left, above = np.arange(rows), np.full(rows, -1)
    for depth in range(_LEVELS):
        if not len(left):
            break
        level[left] = depth
        ends = last[left]
        top = np.ones(len(left), bool)
        top[1:] = first[left][1:] >= np.maximum.accumulate(ends)[:-1]
        heads = left[top]
        parent[heads] = above[top]
        above = heads[np.cumsum(top) - 1][~top]
        left = left[~top]
    if len(left):
        _one_by_one(left, above, first, last, parent, level)
    found, depth_of = np.full(rows, -1), np.empty(rows, np.int32)
    has = parent >= 0
    overlapping = int((last[has] > last[parent[has]]).sum())
    found[order[has]] = order[parent[has]]
    depth_of[order] = level
    return Nest(found, depth_of, overlapping)


def _apart(track: np.ndarray, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same order of times, with the tracks one after the other, so that all can be nested as one."""
    if not len(track):
        return begin, end
    number = np.cumsum(np.diff(track, prepend=track[0]) != 0)
    low, high = int(begin.min()), int(end.max())
    if (high - low + 1) * (int(number[-1]) + 1) < 1 << 62:
        offset = number * (high - low + 1) - low
        return begin + offset, end + offset
    ranks = np.unique(np.concatenate([begin, end]), return_inverse=True)[1]
    offset = number * (2 * len(begin) + 1)
    return ranks[: len(begin)] + offset, ranks[len(begin) :] + offset


def _one_by_one(
    left: np.ndarray, above: np.ndarray, first: np.ndarray, last: np.ndarray, parent: np.ndarray, level: np.ndarray
) -> None:
    """Nest what lies deeper than `_LEVELS`."""
    stack: list[int] = []
    base = -1
    for row, ancestor in zip(left.tolist(), above.tolist(), strict=True):
        if ancestor != base:
            stack, base = [ancestor], ancestor
        while len(stack) > 1 and last[stack[-1]] <= first[row]:
            stack.pop()
        parent[row] = stack[-1]
        level[row] = level[stack[-1]] + 1
        stack.append(row)


def inherit(nested: Nest, own: np.ndarray) -> np.ndarray:
    """Each row's own value, or where that is -1, that of the nearest row around it that has one."""
    found = own.copy()
    order = np.argsort(nested.level, kind="stable")
    bounds = np.searchsorted(nested.level[order], np.arange(1, int(nested.level.max(initial=0)) + 2))
    for low, high in pairwise(bounds.tolist()):
        rows = order[low:high]
        lacking = rows[found[rows] < 0]
        found[lacking] = found[nested.parent[lacking]]
    return found


def busy(
    begin: np.ndarray, end: np.ndarray, complete: np.ndarray, nested: Nest | None
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of a device's busy time, in ns: each row's own, and what of it came of its asynchronous tail.

    Each moment is divided equally among the rows that run at it: of nested ones the innermost. Where no row runs, it
    is divided among those that have ended but are not `complete` (-1: they were complete when they ended). The shares
    add up to the length of the union of all intervals and tails.
    """
    if not len(begin):
        return np.zeros(0), np.zeros(0)
    origin = int(begin.min())
    begin, end = (begin - origin).astype(float), (end - origin).astype(float)
    if nested is None:
        tops, inside = np.ones(len(begin), bool), None
    else:
        tops, inside = nested.parent < 0, nested
        end = _clipped(end, nested)
        begin = np.minimum(begin, end)
    tail = np.where(complete >= 0, (complete - origin).astype(float), end)
    tail = np.maximum(tail, end)
    times = np.concatenate([begin[tops], end[tops], end[tail > end], tail[tail > end]])
    running = np.concatenate([np.ones(tops.sum()), -np.ones(tops.sum()), np.zeros(2 * int((tail > end).sum()))])
    pending = np.zeros(len(times))
    pending[2 * tops.sum() :] = np.repeat([1.0, -1.0], int((tail > end).sum()))
    order = np.argsort(times, kind="stable")
    at = times[order]
    count, waiting = np.cumsum(running[order])[:-1], np.cumsum(pending[order])[:-1]
    length = np.diff(at)
    ran = np.concatenate([[0.0], np.cumsum(np.where(count > 0, length / np.maximum(count, 1), 0))])
    waited = np.concatenate(
        [[0.0], np.cumsum(np.where((count == 0) & (waiting > 0), length / np.maximum(waiting, 1), 0))]
    )
    share = np.interp(end, at, ran) - np.interp(begin, at, ran)
    own = share.copy()
    if inside is not None:
        children = inside.parent >= 0
        own -= np.bincount(inside.parent[children], share[children], len(share))
    return own, np.interp(tail, at, waited) - np.interp(end, at, waited)


def _clipped(end: np.ndarray, nested: Nest) -> np.ndarray:
    """Ends that are not after the ends of the rows around them."""
    if not nested.overlapping:
        return end
    end = end.copy()
    for depth in range(1, int(nested.level.max()) + 1):
        rows = np.flatnonzero(nested.level == depth)
        end[rows] = np.minimum(end[rows], end[nested.parent[rows]])
    return end


def union_ns(begin: np.ndarray, end: np.ndarray) -> int:
    """Length of the union of intervals."""
    if not len(begin):
        return 0
    order = np.argsort(begin, kind="stable")
    first, last = begin[order], np.maximum.accumulate(end[order])
    new = np.ones(len(first), bool)
    new[1:] = first[1:] > last[:-1]
    starts = np.flatnonzero(new)
    return int((last[np.append(starts[1:], len(first)) - 1] - first[starts]).sum())
