"""Step time over the run: where blocks, preheat, doubts and readings of meters stand, by hand."""

import re

import msgspec
import numpy as np
import pytest
from support.records import QUIET, make_record

from benchmarker.api.meter import Channel
from benchmarker.page.over_time import MOST_CASES, MOST_NAMED, MOST_POINTS, MOST_TRIALS, placed
from benchmarker.page.page_model import Band, Points
from benchmarker.page.power import Slowed, apart, readings
from benchmarker.power import telemetry
from benchmarker.power.sampler import Sample
from benchmarker.power.samplers import Sampled
from benchmarker.records.record import Preheat
from benchmarker.stats.steady import change

STEADY = np.random.default_rng(1).normal(0.01, 0.0001, 40).tolist()


def section(page):
    return next(each for each in page.sections if each.key == "over_time")


def of_case(study):
    return placed(study.groups)


def lasting(duration_s, **more):
    return msgspec.structs.replace(QUIET, duration_s=duration_s, **more)


def test_blocks_stand_in_the_time_that_the_timed_part_took_and_trials_one_after_the_other(study_of, place):
    records = [make_record([0.1, 0.2, 0.2], trial=trial, interference=lasting(1.0 + trial)) for trial in range(2)] + [
        make_record([0.3, 0.1], trial=2, interference=lasting(0.1))
    ]
    first, second, third = of_case(study_of(place(records)))
    assert (first.start, first.timed, first.end) == (0.0, 0.0, 1.0)
    assert first.begin_s.tolist() == pytest.approx([0.0, 0.2, 0.6])
    assert second.begin_s.tolist() == pytest.approx([1.0, 1.4, 2.2])
    assert (third.begin_s.tolist(), third.end) == (pytest.approx([3.0, 3.3]), pytest.approx(3.4))
    assert third.median[1] == pytest.approx(0.2)


def test_preheat_windows_stand_before_the_blocks_if_records_keep_them(study_of, place, page_of, parts):
    heated = Preheat("plateau", 1.5, 30, [10.0, 20.0, 25.0])
    fixed = Preheat("fixed", 9.0, 30, [])
    records = [make_record(STEADY, trial=trial, preheat=each) for trial, each in enumerate((heated, fixed))]
    results = place(records)
    one, two = of_case(study_of(results))
    assert [each.tolist() for each in one.windows] == [pytest.approx([0.5, 1.0, 1.5]), pytest.approx([0.1, 0.05, 0.04])]
    assert (one.timed, one.end, two.start, two.timed) == (1.5, 2.5, 2.5, 2.5)
    windows = parts(page_of(results))["over-time-0"].marks[0]
    assert (windows.name, windows.x, windows.y) == ("preheat windows", (0.5, 1.0, 1.5), (0.1, 0.05, 0.04))


def test_blocks_of_a_duet_take_turns_in_the_same_time(study_of, place):
    one = make_record([0.1, 0.1], case={"framework": "one"}, interference=lasting(0.0))
    two = make_record([0.2, 0.4], case={"framework": "two"}, design={"case_number": 1}, interference=lasting(0.0))
    ids = [one.trial_id, two.trial_id]
    for first_two in ([False, True], [True, False]):
        duet = [
            msgspec.structs.replace(
                each,
                design=msgspec.structs.replace(each.design, kind="duet", partner=ids[1 - at], partner_first=turns),
            )
            for at, (each, turns) in enumerate(((one, first_two), (two, [not first for first in first_two])))
        ]
        a, b = placed(study_of(place(duet, f"duet-{first_two[0]}")).groups)
        assert (a.start, a.end) == (b.start, b.end) == (0.0, pytest.approx(0.8))
        expected = ([0.0, 0.7], [0.1, 0.3]) if first_two == [False, True] else ([0.2, 0.3], [0.0, 0.4])
        assert (a.begin_s.tolist(), b.begin_s.tolist()) == tuple(map(pytest.approx, expected))


def test_a_doubted_trial_is_hollow_and_its_shade_and_the_text_name_the_reason(page_of, place, parts):
    records = [
        make_record(STEADY, trial=trial, interference=lasting(1.0, steal_percent=30.0 if trial == 2 else 0.0))
        for trial in range(4)
    ]
    made = page_of(place(records))
    figure = parts(made)["over-time-0"]
    reason = "the hypervisor stole 30% of the time"
    assert figure.bands == (
        Band(1.0, 2.0),
        Band(2.0, 3.0, f"trial 2: {reason}", "doubt"),
        Band(3.0, 4.0),
    )
    by_name = {mark.name: mark for mark in figure.marks}
    assert (by_name["trials"].look, by_name["trials"].x) == ("dots", (0.5, 1.5, 3.5))
    assert (by_name["trials, doubted"].look, by_name["trials, doubted"].x) == ("hollow", (2.5,))
    assert reason in by_name["trials, doubted"].texts[0]
    assert section(made).lead == (f"Doubted: trial 2 ({reason}).",)


def test_a_change_of_level_is_marked_where_the_statistics_find_it(page_of, place, parts):
    steps = [*STEADY[:20], *(1.2 * each for each in STEADY[20:])]
    made = page_of(place([make_record(STEADY, trial=0), make_record(steps, trial=1, interference=lasting(0.1))]))
    figure = parts(made)["over-time-0"]
    mark = next(mark for mark in figure.marks if mark.name == "change of level")
    found = change(np.array(steps))
    assert found.after == 20
    assert mark.x == (pytest.approx(1.0 + sum(steps[:20]), rel=1e-4),)
    assert mark.y == (pytest.approx(np.median(steps[20:]), rel=1e-4),)
    assert section(made).lead == (f"Not steady: {mark.texts[0]}.",)
    assert mark.texts[0] == f"trial 1: the level changes after block 20 ({found.share:+.1%})"


def test_each_case_names_its_trials_that_are_not_steady(page_of, place):
    steps = [*STEADY[:20], *(1.2 * each for each in STEADY[20:])]
    cases = enumerate((name, number) for name in ("one", "two") for number in range(MOST_NAMED + 2))
    made = [
        make_record(steps, trial=0, case={"framework": name, "params": {"m": 2**number}}, design={"case_number": at})
        for at, (name, number) in cases
    ]
    *of_cases, others = section(page_of(place(made))).lead
    assert len(of_cases) == MOST_NAMED
    for number, text in enumerate(of_cases):
        assert re.fullmatch(rf"Not steady, .*\bm={2**number}\b.*: one .*trial 0: the level .*; two .*\.", text), text
    assert others == "Not steady in 2 more cases."


def test_many_blocks_are_thinned_and_keep_the_extremes(page_of, place, parts):
    values = np.random.default_rng(2).normal(0.01, 0.0005, 5000)
    values[[777, 4321]] = 0.002, 0.05
    figure = parts(page_of(place([make_record(values.tolist(), trial=0)])))["over-time-0"]
    blocks = figure.marks[0]
    assert len(blocks.x) <= MOST_POINTS
    assert {0.002, 0.05} <= {*blocks.y}
    assert f"more than {MOST_POINTS} blocks, the least and the largest" in figure.caption
    cells = dict(zip([column.name for column in figure.data.columns], figure.data.rows[0], strict=True))
    assert tuple(map(float, cells["step times of drawn blocks, s"].split())) == blocks.y


def test_cases_and_trials_are_bounded_and_the_rest_is_told(page_of, place, parts):
    many = [
        make_record(0.1, trial=trial, case={"framework": name}, design={"case_number": number})
        for trial in range(MOST_TRIALS // 2 + 5)
        for number, name in enumerate(("one", "two"))
    ]
    others = [
        make_record(0.1, run=f"run-{seed}", case={"framework": name, "seed": seed}, design={"case_number": number})
        for seed in range(1, MOST_CASES + 2)
        for number, name in enumerate(("one", "two"))
    ]
    made = page_of(place([*many, *others]))
    figures = [part for part in section(made).parts if part.key.startswith("over-time")]
    assert len(figures) == MOST_CASES
    assert figures[0].left_out == f"Only the first {MOST_TRIALS} of {MOST_TRIALS + 10} trials are drawn."
    assert len(figures[0].data.rows) == MOST_TRIALS
    assert section(made).lead == (
        f"Only the first {MOST_CASES} of {MOST_CASES + 2} cases are drawn; `show RECORD --json` prints every block.",
    )


def card(values, begin=10):
    """Readings each 0.1 s of power, clock, reasons and thermal time; the timed part begins with that reading."""
    channels = (
        Channel(id="GPU-a", domain="gpu", quantity="power_instant_W"),
        Channel(id="GPU-a", domain="gpu", quantity="sm_clock_MHz"),
        Channel(id="GPU-a", domain="gpu", quantity="throttle_mask", bits={1: "power cap", 4: "thermal", 8: "thermal"}),
        Channel(id="GPU-a", domain="gpu", quantity="throttle_time_s", what="hardware"),
    )
    samples = [
        Sample(at * 100_000_000, 0, "begin" if at == begin else "", reading) for at, reading in enumerate(values)
    ]
    return telemetry.encode([Sampled("nvml", channels, (), samples)])


VALUES = [
    (100.0 + at, 2000.0 - 10 * at, 9.0 if 14 <= at < 17 else 4.0 if at == 3 else 1.0, 0.5 if at > 25 else 0.0)
    for at in range(40)
]


def test_a_slowdown_lasts_from_the_reading_that_tells_it_to_the_next_that_does_not(tmp_path):
    path = tmp_path / "trial.telemetry.parquet"
    path.write_bytes(card(VALUES))
    lines, slowed = readings(path)
    assert [(line.quantity, len(line.values)) for line in lines] == [("power", 40), ("clock", 40)]
    assert [(each.reason, round(each.start, 6), round(each.end, 6)) for each in slowed] == [
        ("thermal", -0.7, -0.6),
        ("thermal", 0.4, 0.7),
        ("hardware", 1.5, 1.6),
    ]
    assert isinstance(slowed[0], Slowed)


def test_what_meters_read_stands_on_the_axis_of_the_blocks(page_of, place, parts):
    records = [make_record(STEADY, trial=trial, interference=lasting(2.0)) for trial in range(2)]
    folder = place(records)
    (folder / f"{records[1].trial_id}.telemetry.parquet").write_bytes(card(VALUES))
    figure = parts(page_of(folder))["meters-0"]
    assert figure.rows == ("power, 0 to 130 W", "clock, 0 to 1900 MHz")
    power, clock = figure.marks
    assert power.x == pytest.approx([2.0 + 0.1 * at for at in range(21)])
    assert power.heights == pytest.approx([(110 + at) / 130 for at in range(21)], abs=1e-4)
    assert clock.heights == pytest.approx([(1900 - 10 * at) / 1900 for at in range(21)], abs=1e-4)
    assert [(round(each.start, 6), round(each.end, 6), each.name, each.look) for each in figure.bands] == [
        (2.4, 2.7, "thermal", "doubt"),
        (3.5, 3.6, "hardware", "doubt"),
    ]
    assert figure.x == parts(page_of(folder))["over-time-0"].x


def test_a_damaged_time_series_is_named_once_and_a_page_without_meters_has_no_such_figure(page_of, place, parts):
    folder = place([make_record(STEADY, trial=0)])
    assert "meters-0" not in parts(page_of(folder))
    (folder / "run-0000-0.telemetry.parquet").write_bytes(card(VALUES)[:50])
    made = parts(page_of(folder))
    assert len(made["Files that could not be read (1)"].table.rows) == 1
    assert "meters-0" not in made


def test_failed_trials_have_no_blocks_in_the_figure(page_of, place, failed, parts):
    records = [make_record(STEADY, trial=trial) for trial in range(2)]
    records[0] = failed(records[0], "told to fail")
    figure = parts(page_of(place(records)))["over-time-0"]
    assert [row[0] for row in figure.data.rows] == ["trial 1"]
    assert all(isinstance(mark, Points) for mark in figure.marks)


def test_sensors_are_named_by_what_tells_them_apart():
    assert apart(["nvml GPU-1 gpu", "nvml GPU-1 gpu_memory", "nvml GPU-1 gpu"]) == {
        "nvml GPU-1 gpu": "gpu",
        "nvml GPU-1 gpu_memory": "gpu_memory",
    }
    assert apart(["nvml GPU-1 gpu"]) == {"nvml GPU-1 gpu": ""}
    assert apart([]) == {}
