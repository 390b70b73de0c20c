"""Blocks that are in several trials are found however they were changed, and measured ones never."""

import random

import pytest
from support.records import make_record

from benchmarker.records.agreement import Copies

RNG = random.Random(3)
ONE, TWO, OTHER = ([round(RNG.gauss(12e6, 60e3)) for _ in range(60)] for _ in range(3))


def found(*trials):
    copies = Copies()
    for number, times in enumerate(trials):
        copies.add(make_record([time / 1e9 for time in times], trial=number))
    return copies.found()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda times: times, "its blocks are those of the trial run-0002-0"),
        (lambda times: times[::-1], "its blocks are those of the trial run-0002-0"),
        (lambda times: [time + 1_234_567 for time in times], "a run of its blocks is also in the trial run-0002-0"),
        (lambda times: [*OTHER[:30], *times[20:40]], "a run of its blocks is also in the trial run-0002-0"),
        (
            lambda times: [round(0.7 * time) for time in times],
            "a run of its blocks has the ratios of one in the trial run-0002-0",
        ),
    ],
    ids=["same", "another order", "shifted", "a part", "scaled"],
)
def test_blocks_of_another_trial_are_found(change, text):
    assert found(change(ONE), TWO, ONE)["run-0000-0"] == text
    assert set(found(change(ONE), TWO, ONE)) == {"run-0000-0", "run-0002-0"}


def test_blocks_that_repeat_within_a_trial_are_found():
    assert found(ONE[:20] * 3, TWO) == {"run-0000-0": "a run of its blocks is also in the same trial once more"}


def test_blocks_that_were_measured_are_not_found():
    """Also of a clock with steps of 10 µs, of blocks that hardly vary, and of a few blocks."""
    assert found(ONE, TWO, OTHER) == {}
    rng = random.Random(4)
    coarse = [[10_000 * rng.randint(1190, 1210) for _ in range(60)] for _ in range(200)]
    steady = [[12_000_000 + rng.randint(0, 3) for _ in range(60)] for _ in range(200)]
    few = [[round(rng.gauss(12e6, 60e3)) for _ in range(3)] for _ in range(200)]
    assert found(*coarse, *steady, *few, [12_000_000] * 60, [12_000_000] * 60) == {}


def test_a_record_that_is_read_twice_is_no_copy_of_itself():
    copies, record = Copies(), make_record([time / 1e9 for time in ONE])
    copies.add(record)
    copies.add(record)
    assert copies.found() == {}
