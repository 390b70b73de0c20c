"""Nesting and shares of time against a stack and against a count of every nanosecond."""

import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarker.traces import intervals
from benchmarker.traces.intervals import Covered, busy, enclosed, inherit, nest, union_ns

EPOCH = 1_763_000_000_123_456_789
drawn_intervals = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=40
)  # track, begin, duration


def arrays(rows: list[tuple[int, int, int]], origin: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    track, begin, duration = (np.array([row[index] for row in rows], np.int64) for index in range(3))
    return track, begin + origin, begin + duration + origin


def by_stack(track: np.ndarray, begin: np.ndarray, end: np.ndarray) -> tuple[list[int], list[int]]:
    """Parent and depth: rows in order of time, the longer first; what has ended is taken off a stack."""
    parent, level = [-1] * len(begin), [0] * len(begin)
    for each in set(track.tolist()):
        rows = [row for row in range(len(begin)) if track[row] == each]
        rows.sort(key=lambda row: (begin[row], -(end[row] - begin[row])))
        stack: list[int] = []
        for row in rows:
            while stack and end[stack[-1]] <= begin[row]:
                stack.pop()
            if stack:
                parent[row], level[row] = stack[-1], level[stack[-1]] + 1
            stack.append(row)
    return parent, level


@settings(max_examples=200, deadline=None)
@given(drawn_intervals, st.sampled_from([0, EPOCH, (1 << 62) - 50]))
def test_nesting_is_that_of_a_stack(rows, origin):
    track, begin, end = arrays(rows, origin)
    found = nest(track, begin, end)
    parent, level = by_stack(track, begin, end)
    assert found.parent.tolist() == parent
    assert found.level.tolist() == level
    assert found.overlapping == sum(above >= 0 and end[row] > end[above] for row, above in enumerate(parent))


@settings(max_examples=100, deadline=None)
@given(drawn_intervals)
def test_rows_that_lie_deep_are_nested_alike(rows):
    track, begin, end = arrays(rows)
    level_by_level = nest(track, begin, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_LEVELS", 2)
        one_by_one = nest(track, begin, end)
    assert one_by_one.parent.tolist() == level_by_level.parent.tolist()
    assert one_by_one.level.tolist() == level_by_level.level.tolist()


def test_tracks_of_clocks_that_are_an_epoch_apart():
    track = np.arange(6) // 2
    begin = np.array([0, 5, EPOCH * 2, EPOCH * 2 + 1, 3, 4])
    end = begin + np.array([10, 1, 9, 2, 4, 1])
    found = nest(track, begin, end)
    assert found.parent.tolist() == [-1, 0, -1, 2, -1, 4]


@settings(max_examples=100, deadline=None)
@given(drawn_intervals, st.data())
def test_a_row_inherits_from_the_nearest_around_it(rows, data):
    track, begin, end = arrays(rows)
    own = np.array(data.draw(st.lists(st.integers(-1, 3), min_size=len(rows), max_size=len(rows))), np.int64)
    nested = nest(track, begin, end)
    expected = []
    for row in range(len(rows)):
        at = row
        while at >= 0 and own[at] < 0:
            at = nested.parent[at]
        expected.append(own[at] if at >= 0 else -1)
    given_ = own.copy()
    assert inherit(nested.parent, own).tolist() == expected
    assert (own == given_).all()


def by_counting(
    track: np.ndarray, begin: np.ndarray, end: np.ndarray, complete: np.ndarray
) -> tuple[list[float], list[float], int]:
    """Shares of each nanosecond: of each thread's rows the last to begin; where none runs, of those not complete."""
    own, tail, union = [0.0] * len(begin), [0.0] * len(begin), 0
    _, level = by_stack(track, begin, end)
    for at in range(int(begin.min()), int(max(end.max(), complete.max()))):
        running = [
            max(
                (row for row in range(len(begin)) if track[row] == each and begin[row] <= at < end[row]),
                key=level.__getitem__,
            )
            for each in set(track.tolist())
            if any(track[row] == each and begin[row] <= at < end[row] for row in range(len(begin)))
        ]
        waiting = [] if running else [row for row in range(len(begin)) if end[row] <= at < complete[row]]
        for row in running:
            own[row] += 1 / len(running)
        for row in waiting:
            tail[row] += 1 / len(waiting)
        union += bool(running or waiting)
    return own, tail, union


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 8), st.integers(-1, 12)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([0, EPOCH, (1 << 62) - 50]),
)
@example([(0, 0, 10, -1), (0, 5, 10, -1)], 0)
@example([(0, 0, 10, -1), (0, 2, 3, -1), (0, 4, 4, -1)], EPOCH)
def test_every_nanosecond_is_shared_among_what_runs_at_it(rows, origin):
    track, begin, end = arrays([row[:3] for row in rows])
    late = np.array([row[3] for row in rows])
    # An asynchronous op's completion is marked after its own end; those of nested rows are tested by hand.
    nested = nest(track, begin, end)
    alone = (nested.parent < 0) & ~np.isin(np.arange(len(rows)), nested.parent)
    complete = np.where((late >= 0) & alone, end + late, -1)
    own, tail, union = by_counting(track, begin, end, complete)
    moved = np.where(complete >= 0, complete + origin, -1)
    found_own, found_tail = busy(begin + origin, end + origin, moved, nest(track, begin + origin, end + origin))
    np.testing.assert_allclose(found_own, own, atol=1e-9)
    np.testing.assert_allclose(found_tail, tail, atol=1e-9)
    assert found_own.sum() + found_tail.sum() == pytest.approx(union, abs=1e-9)
    assert union_ns(np.append(begin, end), np.append(end, np.maximum(complete, end))) == union


@settings(max_examples=100, deadline=None)
@given(drawn_intervals.filter(len))
def test_on_streams_nothing_encloses_and_the_shares_add_up_to_the_union(rows):
    _, begin, end = arrays(rows, EPOCH)
    own, tail = busy(begin, end, np.full(len(rows), -1), None)
    assert own.sum() == pytest.approx(union_ns(begin, end), abs=1e-6)
    assert (tail == 0).all()
    assert (own >= -1e-9).all()
    seconds = {at for first, last in zip(begin.tolist(), end.tolist(), strict=True) for at in range(first, last)}
    assert union_ns(begin, end) == len(seconds)


@settings(max_examples=100, deadline=None)
@given(drawn_intervals)
def test_what_is_enclosed_is_counted_by_the_nanosecond(rows):
    track, begin, end = arrays(rows)
    nested = nest(track, begin, end)
    within: list[set[int]] = [set() for _ in rows]
    for row in range(len(rows)):
        above = nested.parent[row]
        while above >= 0:
            within[above] |= set(range(begin[row], end[row])) & set(range(begin[above], end[above]))
            above = nested.parent[above]
    assert enclosed(begin, end, nested).tolist() == [len(each) for each in within]


def test_by_hand():
    #  0        10        20
    #  a---------a          thread 0
    #    b--b               in a
    #       c------c        begins in a (in b, were it not over), ends after it
    #     d-----------d     thread 1
    track = np.array([0, 0, 0, 1])
    begin, end = np.array([0, 2, 5, 3]), np.array([10, 5, 12, 15])
    nested = nest(track, begin, end)
    assert nested.parent.tolist() == [-1, 0, 0, -1]
    assert nested.overlapping == 1
    own, tail = busy(begin, end, np.full(4, -1), nested)
    # a 0-2; b 2-3 alone, 3-5 half; c 5-12 half; d 3-12 half, 12-15 alone
    assert own.tolist() == [2, 2, 3.5, 7.5]
    assert tail.tolist() == [0, 0, 0, 0]
    assert enclosed(begin, end, nested).tolist() == [8, 0, 0, 0]
    own, tail = busy(
        np.array([0, 4]), np.array([2, 5]), np.array([9, 7]), nest(np.zeros(2), *map(np.array, ([0, 4], [2, 5])))
    )
    # the first waits 2-4 alone, both wait 5-7, the first alone 7-9
    assert own.tolist() == [2, 1]
    assert tail.tolist() == [5, 1]


def test_a_hundred_thousand_rows_within_each_other():
    count = 100_000
    begin = np.arange(count) + EPOCH
    end = EPOCH + 3 * count - np.arange(count)
    start = time.process_time()
    nested = nest(np.zeros(count, np.int64), begin, end)
    assert nested.parent.tolist() == list(range(-1, count - 1))
    assert inherit(nested.parent, np.where(np.arange(count) == 7, 7, -1)).tolist() == [-1] * 7 + [7] * (count - 7)
    own, _ = busy(begin, end, np.full(count, -1), nested)
    assert own[:-1].tolist() == [2.0] * (count - 1)
    assert own.sum() == 3 * count
    crossing = nest(np.zeros(count, np.int64), begin, begin + count)
    assert crossing.overlapping == count - 1
    own, _ = busy(begin, begin + count, np.full(count, -1), crossing)
    assert own.tolist() == [1.0] * (count - 1) + [count]
    assert time.process_time() - start < 20


def test_nothing():
    none = np.empty(0, np.int64)
    nested = nest(none, none, none)
    assert (len(nested.parent), nested.overlapping) == (0, 0)
    assert [len(each) for each in busy(none, none, none, nested)] == [0, 0]
    assert union_ns(none, none) == 0
    assert len(inherit(nested.parent, none)) == 0
    assert len(enclosed(none, none, nested)) == 0


def test_covered_time_and_the_parts_of_a_time_by_hand():
    covered = Covered.union(np.array([30, 0, 5]), np.array([40, 10, 12]))
    assert (covered.begin, covered.end, covered.wall_ns) == (0, 40, 22)
    assert list(covered.parts(8, 35)) == [(8, 12, True), (12, 30, False), (30, 35, True)]
    assert list(covered.parts(12, 20)) == [(12, 20, False)]
    assert covered.until(np.array([0, 11, 20, 99])).tolist() == [0, 11, 12, 22]
