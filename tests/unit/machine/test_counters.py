"""Interference counters of several nodes: what ranks did is added up, what disturbed them is that of the worst node."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.records import make_record

from benchmarker.machine import counters
from benchmarker.records.record import Interference
from benchmarker.worker import trial
from benchmarker.worker.process_group import RankRunner

QUIET = Interference(
    duration_s=10.0,
    own_busy_cores=2.0,
    other_busy_cores=0.1,
    steal_percent=0.0,
    pressure_percent=1.0,
    throttled_s=None,
    voluntary_switches=100,
    involuntary_switches=3,
    frequency_MHz=3000.0,
    temperature_C=None,
)
BUSY = Interference(
    duration_s=10.5,
    own_busy_cores=1.5,
    other_busy_cores=0.9,
    steal_percent=None,
    pressure_percent=30.0,
    throttled_s=0.2,
    voluntary_switches=50,
    involuntary_switches=400,
    frequency_MHz=2000.0,
    temperature_C=None,
)


def test_what_was_counted_between_two_snapshots_by_hand():
    """On four cores, in 10 s: 8 s of this process, 12 s of others, 2 s stolen of the 40 s that passed."""
    start = counters.Snapshot(100.0, 1.0, 500.0, 4000.0, 3.0, 7.0, None, 10, 20, 3000.0, None)
    end = counters.Snapshot(110.0, 9.0, 520.0, 4040.0, 5.0, 8.0, None, 110, 23, 2000.0, 61.0)
    assert counters.between(start, end) == Interference(10.0, 0.8, 1.2, 5.0, 10.0, None, 100, 3, 2500.0, 61.0)
    sampled = counters.between(replace(start, samplers_s=1.0), replace(end, samplers_s=4.0))
    assert sampled.other_busy_cores == pytest.approx(0.9)
    unknown = counters.between(replace(start, total_s=4040.0, pressure_s=None), end)
    assert (unknown.other_busy_cores, unknown.steal_percent, unknown.pressure_percent) == (None, None, None)


def test_a_rank_counts_the_samplers_that_it_is_connected_to():
    ended = 2**22 + 1  # no process has this number (proc(5): pid_max)
    runner = RankRunner(SimpleNamespace(case=make_record().case), SimpleNamespace(pids=[os.getpid(), ended]))
    runner._workload = SimpleNamespace(execution=None)
    seen = runner.counter_snapshot()
    assert seen.samplers_s == pytest.approx(seen.own_s, abs=0.1)


def test_a_disturbance_of_any_node_counts():
    assert counters.over_nodes([QUIET, BUSY]) == Interference(
        duration_s=10.0,
        own_busy_cores=3.5,
        other_busy_cores=0.9,
        steal_percent=0.0,
        pressure_percent=30.0,
        throttled_s=0.2,
        voluntary_switches=150,
        involuntary_switches=403,
        frequency_MHz=2000.0,
        temperature_C=None,
    )


def test_one_node_is_as_it_is():
    assert counters.over_nodes([BUSY]) == BUSY


def test_each_node_has_the_counters_of_its_own_ranks():
    """The first rank of a node tells what the node counts, and each what it counts of itself."""
    one = counters.snapshot()
    snapshots = [
        replace(one, time_s=rank, busy_s=rank, own_s=10.0**rank, voluntary=1, involuntary=2) for rank in range(4)
    ]
    case = SimpleNamespace(ranks_per_node=2)
    gather = {RankRunner.counter_snapshot: snapshots}.get
    by_node = trial._counter_snapshots(SimpleNamespace(gather=gather, bench=SimpleNamespace(case=case)))
    assert [(each.time_s, each.busy_s, each.own_s) for each in by_node] == [(0, 0, 11.0), (2, 2, 1100.0)]
    assert [(each.voluntary, each.involuntary) for each in by_node] == [(2, 4)] * 2
