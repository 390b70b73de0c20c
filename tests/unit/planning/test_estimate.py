"""How long a plan should take: every part of a trial counts, and it is said what each is based on."""

import msgspec
import pytest
from support.records import make_record

from benchmarker import Case, Measuring
from benchmarker.planning.estimate import ASSUMED_S, TimeLeft, forecast, outside_s, unmeasured
from benchmarker.records.plan import make_plan
from benchmarker.records.record import Failure, Harness

STAGES = {"rest": 2.0, "python": 0.5, "open": 1.5, "check": 1.0, "compile": 4.0, "preheat": 3.0, "timed": 5.0}
"""With an end of 1 s, a trial takes 18 s; 8 s of them are outside rest, preheat and timing."""


def case(ms=1.0, **measuring):
    return Case(
        problem="nap",
        framework="toy",
        device="cpu",
        params={"ms": ms},
        measuring=Measuring(**{"preheat": True, "preheat_max_s": 30.0, "seconds": 10.0, "power": "none"} | measuring),
    )


def record(ms=1.0, profile_s=None, **fields):
    """A trial of 18 s, and of its profile; 10 timed blocks of 0.5 s, one step each."""
    stages = STAGES | ({} if profile_s is None else {"profile": profile_s})
    measured = {"params": {"ms": ms}, "measuring": case(profile=profile_s is not None).measuring}
    harness = Harness(wall_s=18.0 + (profile_s or 0.0), stages_s=stages)
    return make_record([0.5] * 10, case=measured, harness=harness, **fields)


def test_what_is_outside_preheat_and_timing_is_start_check_build_compilation_and_end():
    assert outside_s(record()) == outside_s(record(profile_s=20.0)) == 8


def test_a_case_with_records_of_its_own_takes_their_mean_with_all_that_belongs_to_a_trial():
    one, other = record(profile_s=20.0), record(profile_s=24.0)
    found = forecast(make_plan([one.case], 3), [one, other], {})
    assert (found.seconds, found.known, found.records, found.unknown) == (3 * 40, 1, 2, 0)


def test_a_case_that_was_measured_for_another_time_takes_the_same_around_its_own_blocks():
    found = forecast(make_plan([case(blocks=12, seconds=60.0)], 2), [record()], {})
    assert found.seconds == 2 * (8 + 2 + 12 * 0.5)
    assert (found.records, found.preheat_more_s) == (1, 2 * 28)


def test_its_profile_takes_as_long_as_earlier_ones_or_else_another_start_and_its_steps():
    profiled = case(profile=True, profile_steps=6, blocks=2)
    plain_s = 8 + 2 + 2 * 0.5
    assert forecast(make_plan([profiled], 1), [record()], {}).seconds == plain_s + 8 + 6 * 0.5
    assert forecast(make_plan([profiled], 1), [record(), record(ms=2.0, profile_s=25.0)], {}).seconds == plain_s + 25


def test_an_unknown_case_takes_its_limits_and_the_overhead_of_its_problem_framework_and_mode():
    found = forecast(make_plan([case(ms=7.0), case(ms=8.0, profile=True)], 2), [record(trial=0), record(trial=1)], {})
    assert (found.seconds, found.unknown, found.overhead_records, found.assumed) == (None, 2, 2, 0)
    assert found.at_most_s == 2 * 2 * (30 + 10)
    assert found.overhead_s == 2 * (8 + (8 + 8))


def test_without_any_such_record_the_overhead_is_assumed():
    elsewhere = msgspec.structs.replace(record(), case=msgspec.structs.replace(case(), framework="other"))
    for records in ([], [elsewhere]):
        found = forecast(make_plan([case()], 3), records, {})
        assert (found.overhead_s, found.overhead_records, found.assumed) == (3 * ASSUMED_S, 0, 1)


@pytest.mark.parametrize(
    "useless",
    [
        {"error": Failure(stage="timed", kind="timeout", message="too long"), "status": "failed"},
        {"design": {"kind": "duet", "partner": "x"}},
    ],
)
def test_failed_trials_and_duets_tell_nothing_about_other_cases(useless):
    plan = make_plan([case(blocks=5)], 1)
    assert forecast(plan, [record(**useless)], {}).assumed == 1
    assert unmeasured(plan, [record(**useless)]) == [0]
    assert unmeasured(plan, [record()]) == []


def test_the_two_of_a_duet_share_their_process_but_not_their_profiles():
    plan = make_plan([case(), case(profile=True)], 1, design="duet")
    left = TimeLeft(plan)
    partner = {"design": {"kind": "duet", "partner": "x"}}
    left.learn([record(**partner), record(profile_s=20.0, **partner)])
    assert left.seconds() == 9 + (9 + 20)
