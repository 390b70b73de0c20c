"""What a trial tells of its speed besides its blocks, and when the trials of a run are doubted."""

from pathlib import Path

import msgspec
import pytest
from support.records import QUIET, make_record

from benchmarker.records import agreement, reading
from benchmarker.records.agreement import (
    LOAD,
    LOCAL,
    PREHEAT,
    PROFILE,
    SHORT,
    TIMED,
    TOKENS,
    WARM_UP,
    Sign,
    doubts,
    signs,
)
from benchmarker.records.consistency import BLOCK_COST_S, reading_s
from benchmarker.records.record import Blocks, Failure, Local, Preheat, TokenTimes

FIXTURES = Path(__file__).parents[2] / "fixtures/records"
TRACED = next(path for path in sorted(FIXTURES.glob("v1/2*.json")) if '"trace":null' not in path.read_text())


def made(step_s=0.1, steps=1, *, timed_s=1.01, **fields):
    """The record of a trial with ten blocks of so many steps."""
    blocks = Blocks(steps, [round(steps * step_s * 1e9)] * 10, "blocks")
    interference = msgspec.structs.replace(QUIET, duration_s=timed_s)
    return make_record(**({"blocks": blocks, "interference": interference} | fields))


def ratio(record, check):
    return next((round(sign.ratio, 2) for sign in signs(record) if sign.check == check), None)


def preheated(steps_per_s):
    return Preheat("plateau", 2.0, round(2 * steps_per_s), [steps_per_s, steps_per_s])


def test_steps_that_are_waited_for_are_compared_with_those_of_the_blocks():
    assert ratio(made(preheat=preheated(5.0)), PREHEAT) == 2.0
    assert ratio(made(preheat=Preheat("fixed", 0.6, 3, [])), WARM_UP) == 2.0
    assert ratio(made(token_times=TokenTimes([50_000_000], [[50_000_000] * 2])), TOKENS) == 1.5
    assert ratio(made(token_times=TokenTimes([], [[100_000_000], [200_000_000]])), TOKENS) == 1.5
    local = Local(1, [[150_000_000, 90_000_000]] * 2, [[1, 1]] * 2, [0, 1], [1] * 2)
    assert ratio(made(local=local, case={"devices": 2, "ranks": 2}), LOCAL) == 1.5


def test_a_single_step_that_costs_much_besides_proves_nothing():
    assert ratio(made(0.001, 100, preheat=Preheat("fixed", 0.6, 3, [])), WARM_UP) is None
    assert ratio(made(0.0001, 1000, preheat=preheated(5000.0)), PREHEAT) is None
    group = {"devices": 2, "ranks": 2}
    assert ratio(made(0.01, 10, preheat=preheated(50.0), case=group), PREHEAT) is None


def test_warm_up_that_is_left_in_the_first_blocks_does_not_count():
    slow = Blocks(1, [100_000_000, 200_000_000, *[100_000_000] * 8], "blocks")
    assert ratio(made(blocks=slow, preheat=preheated(5.0)), PREHEAT) == 1.0


def test_steps_may_overlap_on_an_accelerator_if_a_block_has_several():
    def limit(steps, device):
        record = made(steps=steps, preheat=preheated(5.0), case={"device": device})
        return next(sign.limit for sign in signs(record) if sign.check == PREHEAT)

    assert limit(2, "cuda") == agreement.OVERLAP
    assert limit(1, "cuda") == limit(2, "cpu") == agreement.LIMIT


def test_the_timed_part_is_not_much_longer_than_its_blocks():
    around_s = agreement.READING_S + reading_s(made()) + 10 * BLOCK_COST_S
    assert ratio(made(timed_s=1.0 + around_s), TIMED) == 1.0
    assert ratio(made(timed_s=1.5 * (1.0 + around_s)), TIMED) == 1.5
    assert ratio(made(timed_s=9.0, design={"kind": "duet", "partner": "other"}), TIMED) is None


def test_the_profile_is_compared_with_the_blocks():
    """Two profiled steps of 100 and 150 ms with 40 events, of which a device of an accelerator computes 90 ms each."""
    profiled = reading.read(TRACED.read_bytes())
    whole = msgspec.structs.replace(profiled.trace.devices[0], busy_ns=180_000_000, idle_ns=70_000_000)
    trace = msgspec.structs.replace(
        profiled.trace,
        steps=2,
        step_ns=[100_000_000, 150_000_000],
        rows=40,
        busy_ns=whole.busy_ns,
        idle_ns=whole.idle_ns,
        wall_ns=250_000_000,
        devices=[whole],
    )
    assert ratio(made(0.05, trace=trace), PROFILE) == 1.98
    assert ratio(made(0.05, trace=trace, case={"device": "cuda"}), PROFILE) == 1.8


def test_counters_without_other_work_are_held_against_the_load_and_the_length_of_blocks():
    def seen(**counters):
        record = made(0.005, timed_s=1.0, interference=msgspec.structs.replace(QUIET, **counters))
        cpu = msgspec.structs.replace(record.machine.cpu, logical_cores=2)
        machine = msgspec.structs.replace(record.machine, cpu=cpu, load_average_1min=10.0)
        record = msgspec.structs.replace(record, machine=machine)
        return ratio(record, LOAD), ratio(record, SHORT)

    assert seen() == (2.0, 2.0)
    assert seen(other_busy_cores=0.5) == seen(pressure_percent=50.0) == seen(duration_s=0.4) == (None, None)


def test_a_trial_that_failed_tells_nothing():
    error = Failure("exception", "told to fail", "timed")
    assert signs(made(preheat=preheated(5.0), status="failed", error=error)) == []


def run(check, beyond, within, cases=3):
    signs = [Sign(check, 1.5, 1.4)] * beyond + [Sign(check, 1.0, 1.4)] * within
    return [(number % cases, [sign]) for number, sign in enumerate(signs)]


def test_a_run_is_doubted_if_three_quarters_of_the_trials_of_several_cases_agree():
    assert doubts(run(PREHEAT, 6, 2)) == [("6 of 8 trials", f"{PREHEAT.format('1.5')} (1.5 to 1.5)")]
    assert doubts(run(PREHEAT, 5, 2)) == []
    assert doubts(run(PREHEAT, 5, 0)) == []
    assert doubts(run(PREHEAT, 8, 0, cases=2)) == []
    assert [share for share, _ in doubts(run(TIMED, 8, 0, cases=1))] == ["8 of 8 trials"]


@pytest.mark.parametrize("check", [PREHEAT, WARM_UP, TOKENS, LOCAL, PROFILE, TIMED, SHORT, LOAD])
def test_each_check_states_a_ratio(check):
    assert check.format(1.5).count("1.5") == 1
