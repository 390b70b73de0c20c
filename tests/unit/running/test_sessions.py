"""Runs that are spread over time: which rounds are in which session, and how long the run waits in between."""

from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from support.records import make_record

from benchmarker.api.errors import UserError
from benchmarker.cli.execution import spread
from benchmarker.planning.estimate import TimeLeft
from benchmarker.records.plan import make_plan
from benchmarker.running import run

NOW_S = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""


def planned(trials, runs, pause_s=60.0, cases=1):
    made = [msgspec.structs.replace(make_record().case, seed=number) for number in range(cases)]
    return spread(make_plan(made, trials), runs, pause_s)


@pytest.fixture
def slept(monkeypatch):
    """The times that were slept, s; the clock stands still."""
    found = []
    monkeypatch.setattr(run, "time", SimpleNamespace(time=lambda: NOW_S, sleep=found.append))
    return found


def ended(seconds_ago, session=0):
    """A record of a trial that took 10 s and ended so long ago."""
    record = make_record(design={"session": session})
    harness = msgspec.structs.replace(record.harness, wall_s=10.0)
    started_at = datetime.fromtimestamp(NOW_S - seconds_ago - 10, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return msgspec.structs.replace(record, started_at=started_at, harness=harness)


@pytest.mark.parametrize(("trials", "runs", "rounds"), [(11, 3, [4, 4, 3]), (9, 3, [3, 3, 3]), (3, 3, [1, 1, 1])])
def test_rounds_are_spread_evenly(trials, runs, rounds):
    plan = planned(trials, runs)
    of = [plan.session_of(number) for number in range(trials)]
    assert of == sorted(of)
    assert [of.count(session) for session in range(runs)] == rounds == plan.rounds_of_sessions()


def test_a_session_begins_after_the_pause_from_the_end_of_the_last_trial(slept):
    said = []
    run.wait_before(3, planned(9, 3), [ended(20)], said.append)
    assert slept == [pytest.approx(40)]
    assert said[0].startswith("run 2 of 3 begins at ")
    assert said[0].endswith("after a pause of 60 s")


@pytest.mark.parametrize(
    ("number", "finished"),
    [
        pytest.param(0, [], id="the first session"),
        pytest.param(4, [ended(20), ended(5, session=1)], id="amid a session"),
        pytest.param(3, [ended(61)], id="resumed after the pause"),
    ],
)
def test_there_is_no_pause_otherwise(slept, number, finished):
    run.wait_before(number, planned(9, 3), finished, print)
    assert slept == []


def test_the_time_left_contains_the_pauses():
    plan = planned(9, 3, cases=2)
    left = TimeLeft(plan)
    for index in range(2):
        left.expect(index, 1.0)
    assert [left.seconds(ran) for ran in (0, 6, 12, 17)] == [18 + 120, 12 + 60, 6, 1]


def test_only_the_same_spread_is_continued():
    plan = planned(9, 3)
    assert plan.same_as(planned(9, 3))
    assert not plan.same_as(planned(9, 1, None))
    assert not plan.same_as(planned(9, 3, 5.0))


@pytest.mark.parametrize(
    ("runs", "pause_s", "message"),
    [(1, 5.0, "--pause is the time between several runs"), (3, None, "each run needs a trial of each case")],
)
def test_mistakes_are_told(runs, pause_s, message):
    with pytest.raises(UserError, match=message):
        planned(2, runs, pause_s)
