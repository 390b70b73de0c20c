"""What is on the page, as values: sentences, figures, tables."""

import math
import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy import stats
from support.records import QUIET, make_energy, make_record

from benchmarker import UserError
from benchmarker.comparing.results import Rules
from benchmarker.files import atomic
from benchmarker.page.assemble import page
from benchmarker.page.gather import gather
from benchmarker.page.page_model import Axis, Bars, Boxes, Figure, Points, axes_of, legend_of
from benchmarker.page.power import MOST_POINTS, thinned
from benchmarker.page.render import specification
from benchmarker.page.study import MOST_DRAWN
from benchmarker.records import store
from benchmarker.records.energy import Conditions
from benchmarker.records.plan import make_plan
from benchmarker.records.record import EMULATED, Check, Record
from benchmarker.stats.median_interval import median_half_width, median_interval
from benchmarker.tables.table import Table

A = [1.00, 1.02, 0.98, 1.01, 0.99, 1.03, 0.97, 1.00]


@pytest.fixture(scope="module")
def rich(rich_place):
    return page(gather([(rich_place, *store.read([rich_place]))], Rules()))[0]


def section(page, key):
    return next(each for each in page.sections if each.key == key)


def doubts(page):
    return [each.text for each in page.doubts]


def test_sides_have_the_word_for_their_execution_and_the_answer_says_what_compiles_the_eager_one(page_of, place, two):
    records = two(A, [2 * each for each in A])
    ways = {"one": {"compile": True, "executions": ["jitted"]}, "two": {"executions": ["eager", "compiled"]}}
    cases = [msgspec.structs.replace(record.case, **ways[record.case.framework]) for record in records]
    records = [msgspec.structs.replace(record, case=case) for record, case in zip(records, cases, strict=True)]
    made = page_of(place(records))
    (card,) = made.cards
    assert card.sentence == (
        "two eager takes 2x as long as one jitted (±0); eager is compared with jitted (--compile compiles two too)."
    )
    assert made.subtitle.startswith("execution and framework compared: one jitted, two eager · ")


def test_the_answer_is_a_sentence_with_ratio_interval_and_rounds(page_of, place, two, parts):
    made = page_of(place(two(A, [2 * each for each in A])))
    (card,) = made.cards
    assert (card.verdict, card.word, card.figure) == ("slower", "slower", "takes 2x as long")
    assert card.sentence == "two takes 2x as long as one (±0)."
    assert card.detail == "step time (median): B/A 2.000; 95% interval [2.000, 2.000]; 8 rounds"
    assert made.subtitle.startswith(
        "framework compared: one, two · 16 trials · none failed · 2 configurations · 1 run · "
    )
    assert made.title == "nap, inference, fp32"
    assert section(made, "measured").lead == ("One case: nap ms=1.0 fp32 on cpu, eager.",)
    assert not made.doubts
    (row,) = parts(made)["Comparisons"].table.rows
    assert row[0] == "nap ms=1.0"
    assert row[1] == "slower"
    assert row[2:7] == pytest.approx((1.0, 2.0, 2.0, 2.0, 2.0), rel=0.01)
    assert row[-1] == "8 rounds"


def test_the_same_and_the_undecided_are_said_as_such(page_of, place, two, parts):
    same = page_of(place(two(A, A), "same"))
    assert same.cards[0].sentence == "no difference: two is within ±2% of one (0% faster)."
    assert same.cards[0].figure == "within ±2%"
    few = page_of(place(two(A[:1], A[:1]), "few"))
    assert few.cards[0].sentence == "in these, two is 0% faster than one."
    assert doubts(few) == [
        "No verdict is possible: with only one trial on a side, the variation between processes is unknown."
    ]
    assert few.cards[0].figure == "too few trials"
    assert few.cards[0].detail == "step time (median): B/A 1.000; no interval; 1 and 1 trials"


def test_a_side_without_a_value_is_the_reason_why_there_is_no_verdict(page_of, place, two, failed):
    records = two(A, A)
    broken = [failed(each, "told to fail") if each.case.framework == "two" else each for each in records]
    made = page_of(place(broken, "broken"))
    assert "No verdict is possible: two: 8 of 8 trials failed (told to fail)." in doubts(made)
    assert "two: 8 of 8 trials failed, for instance: told to fail. The figures are based on the others." in doubts(made)
    assert made.cards[0].sentence == ("two and one cannot be compared, because a side has no step time (median).")
    folder = place(records, "unsensed")
    made = page(gather([(folder, *store.read([folder]))], Rules(metric="samples_per_J")))[0]
    (warning,) = doubts(made)
    assert warning.startswith("No verdict is possible: one: no trial has a samples_per_J: ")
    assert "; two: no trial has a samples_per_J: " in warning
    assert "single" not in warning


def test_two_trials_that_share_one_round_are_no_single_trial(page_of, place, two):
    records = [each for each in two(A[:3], A[:3]) if (each.case.framework, each.trial) not in (("one", 0), ("two", 2))]
    (warning,) = doubts(page_of(place(records)))
    assert "with only one round with trials of both sides, the variation" in warning


def test_cases_have_a_geometric_mean_and_many_are_counted(page_of, place, two, parts):
    records = [
        msgspec.structs.replace(each, run_id=f"run-{seed}", trial_id=f"{seed}-{each.trial_id}")
        for seed in range(5)
        for each in two(A, [1.5 * each for each in A], seed=seed)
    ]
    made = page_of(place(records))
    (card,) = made.cards
    assert card.sentence == "over 5 cases (geometric mean): two takes 50.0% longer than one (±1.3%)."
    assert card.detail.endswith("; of 5 cases: 5 slower")
    assert section(made, "verdicts").lead[-1] == "5 comparisons: 5 slower."
    assert parts(made)["ratios"].rows == tuple(f"seed={seed}" for seed in range(5))


def test_a_mean_of_undecided_cases_says_why_they_are(page_of, place, two):
    records = [
        msgspec.structs.replace(each, run_id=f"run-{seed}", trial_id=f"{seed}-{each.trial_id}")
        for seed in range(5)
        for each in two(A[:6], [1.5 * each for each in A[:6]], seed=seed)
    ]
    made = page_of(place(records))
    why = (
        "5 of 5 cases are undecided: 6 rounds cannot reach p < 0.01, as 5 comparisons together require; at least 8 are"
    )
    assert made.cards[0].detail.endswith("; of 5 cases: 5 undecided")
    assert any(why in text for text in doubts(made))


def test_the_figure_of_ratios_is_the_comparisons(study_of, page_of, place, two, parts):
    results = place(two(A, [1.5 * each for each in A]))
    figure = parts(page_of(results))["ratios"]
    (comparison,) = study_of(results).family.comparisons
    mark = figure.marks[-1]
    assert (mark.x, mark.low, mark.high) == ((comparison.ratio,), (comparison.low,), (comparison.high,))
    (band,) = figure.bands
    assert (band.start, band.end, band.name) == (pytest.approx(1 / 1.02), pytest.approx(1.02), "±2%")
    (row,) = figure.data.rows
    assert row[4:7] == (comparison.ratio, comparison.low, comparison.high)


def test_curves_of_ratios_are_the_p_values_of_the_test_and_dots_the_rounds(page_of, place, two, parts):
    b = [1.5 * each * (1 + 0.001 * number**2) for number, each in enumerate(A)]
    figure = parts(page_of(place(two(A, b))))["ratios"]
    curve, rounds, mark = figure.marks
    assert rounds.x == pytest.approx([two / one for one, two in zip(A, b, strict=True)])
    logs, middle = np.log(rounds.x), np.log(curve.x)
    for at in range(0, len(middle), 7):
        assert curve.heights[at] == pytest.approx(stats.wilcoxon(logs - middle[at], method="exact").pvalue, rel=1e-3)
    inside = [low <= x <= high for x in curve.x for low, high in [(mark.low[0], mark.high[0])]]
    assert [height > 0.05 for height in curve.heights] == inside
    assert "5% at the ends of the interval. Small marks below a row are the ratios of its rounds." in figure.caption


def test_the_curve_of_trials_that_are_not_paired_is_that_of_mann_whitney(page_of, place, two, parts):
    b = [1.03 * each * (1 + 0.002 * number) for number, each in enumerate(A)]
    old, new = ([each for each in two(A, b) if each.case.framework == name] for name in ("one", "two"))
    new = [msgspec.structs.replace(each, run_id="new", case=old[0].case) for each in new]
    figure = parts(page_of(place(old, "old"), place(new, "new")))["ratios"]
    curve, _ = figure.marks
    for at in range(0, len(curve.x), 9):
        p = stats.mannwhitneyu(np.array(b) / curve.x[at], A, method="exact").pvalue
        assert curve.heights[at] == pytest.approx(p, rel=1e-3)
    assert "Small dots" not in figure.caption


@pytest.mark.parametrize("n", [6, 7, 10, 30, 200])
def test_the_interval_of_a_median_is_that_of_the_timed_blocks(n):
    values = np.random.default_rng(n).integers(1000, 2000, n)
    low, high = median_interval(values)
    assert (high - low) / 2 / np.median(values) == pytest.approx(median_half_width(values.tolist()))
    rank = int(np.flatnonzero(np.sort(values) == low)[-1])
    assert stats.binom.cdf(rank, n, 0.5) <= 0.025
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None


def test_bars_are_medians_with_intervals_or_the_trials_themselves(page_of, place, two, parts):
    figure = parts(page_of(place(two(A, A[:3]))))["samples_per_s"]
    one, two_, dots = figure.marks
    rates = [2 / each for each in A]  # two samples a step
    assert isinstance(one, Bars)
    assert one.values == pytest.approx((np.median(rates),))
    assert (one.low[0], one.high[0]) == pytest.approx(tuple(median_interval(rates)))
    assert isinstance(two_, Bars)
    assert two_.low == (None,)
    assert isinstance(dots, Points)
    assert sorted(dots.x) == pytest.approx(sorted(rates[:3]))
    assert set(dots.y) == {1.0}
    assert "order statistics" in figure.caption
    assert "dots are the trials" in figure.caption
    for mark, row in zip((one, two_), figure.data.rows, strict=True):
        assert row[2:5] == (mark.values[0], mark.low[0], mark.high[0])


def test_no_energy_is_said_with_its_reason(page_of, place, two, parts):
    made = page_of(place(two(A, A)))
    (reason,) = section(made, "throughput").lead
    assert re.fullmatch(r"No samples/J: .+\.", reason)
    assert "samples_per_J" not in parts(made)
    sensed = [msgspec.structs.replace(each, energy=make_energy(400.0)) for each in two(A, A)]
    made = page_of(place(sensed, "sensed"))
    assert parts(made)["samples_per_J"].marks[0].values == (0.5,)  # 200 samples
    assert parts(made)["pareto-samples_per_J-0"].data.rows[0][5] == 0.5


def test_boxes_are_quantiles_of_all_timed_blocks(page_of, place, parts):
    blocks = np.random.default_rng(1).uniform(1, 2, (3, 50)).round(6)
    records = [make_record(each.tolist(), trial=trial, design={"case_number": 0}) for trial, each in enumerate(blocks)]
    figure = parts(page_of(place(records)))["blocks"]
    (boxes,) = figure.marks
    assert isinstance(boxes, Boxes)
    assert boxes.five[0] == pytest.approx(np.percentile(blocks, [5, 25, 50, 75, 95]))
    assert figure.data.rows[0][1:] == (*boxes.five[0], 150)


def test_without_a_comparison_the_page_says_why(page_of, place):
    made = page_of(place([make_record(trial=trial) for trial in range(3)]))
    assert made.cards[0].verdict == "none"
    assert "the records are of one configuration" in made.cards[0].detail
    assert "the records are of one configuration" in section(made, "verdicts").lead[0]


def test_of_several_results_the_first_or_the_named_is_the_baseline(study_of, place, two):
    old, new = (place(two(A[:2], A[:2]), name) for name in ("old", "new"))
    for path, name in ((old, "o"), (new, "n")):
        for file in path.glob("*.json"):
            record = store.read_record(file)
            changed = msgspec.structs.replace(record, trial_id=f"{name}-{record.trial_id}", run_id=name)
            file.write_bytes(atomic.encode(changed))
    assert {each.baseline for each in study_of(old, new).family.comparisons} == {"old"}
    for named in (str(new), "new"):
        assert {each.baseline for each in study_of(old, new, baseline=named).family.comparisons} == {"new"}
    assert len(study_of(old, new).groups) == 4  # the configurations of one place are apart from the other's
    with pytest.raises(UserError, match="--baseline=other: no such result was given; there are: "):
        study_of(old, new, baseline="other")
    with pytest.raises(UserError, match="is named twice; name each result once"):
        study_of(old, old.parent / "new" / ".." / "old")
    with pytest.raises(UserError, match="--baseline names a value of the axis"):
        study_of(old, baseline="one")


def test_different_work_is_not_compared(page_of, study_of, place, two):
    def run(name, problem):
        records = two(A, A, problem=problem)
        return place(
            [msgspec.structs.replace(each, run_id=name, trial_id=f"{name}-{each.trial_id}") for each in records], name
        )

    gemm, gpt2, again = run("a", "gemm"), run("b", "gpt2"), run("c", "gemm")
    reason = "a and b are different work: problem gemm and gpt2"
    made = page_of(gemm, gpt2)
    assert (made.cards[0].verdict, made.cards[0].sentence) == ("none", reason)
    assert section(made, "verdicts").lead == (f"Nothing is compared: {reason}.",)
    family = study_of(gemm, gpt2, again).family
    assert {each.contender.split()[0] for each in family.comparisons} == {"c"}
    assert family.notes == [f"not compared: {reason}"]
    pair = place(
        [
            make_record(case={"mode": mode}, design={"case_number": n})
            for n, mode in enumerate(("inference", "training"))
        ]
    )
    assert study_of(pair).unjudged.startswith("the configurations do different work: they differ in mode; ")
    assert len(study_of(pair, by="mode").family.comparisons) == 1


def test_with_an_axis_the_baseline_is_one_of_its_values(study_of, place, two):
    (comparison,) = study_of(place(two(A, A)), by="framework", baseline="two").family.comparisons
    assert comparison.baseline == "framework=two"


def test_hosts_are_apart_where_they_are_the_axis(study_of, place, two):
    records = two(A, A)
    moved = [
        msgspec.structs.replace(
            each,
            trial_id=f"b-{each.trial_id}",
            run_id="b",
            machine=msgspec.structs.replace(each.machine, host="beta"),
        )
        for each in records
    ]
    labels = [group.label for group in study_of(place([*records, *moved]), by="host").groups]
    assert len(labels) == 4
    assert sum("host=beta" in label for label in labels) == 2


def test_a_sweep_is_a_line_for_all_that_is_equal_else(rich, parts):
    figure = parts(rich)["sweep-0-samples_per_s"]
    assert [mark.name for mark in figure.marks] == ["one", "two"]
    assert [mark.x for mark in figure.marks] == [(1.0, 4.0, 16.0)] * 2
    assert figure.title == "samples/s over batch_size"
    assert figure.x.log
    drawn = [(mark.name, x, y) for mark in figure.marks for x, y in zip(mark.x, mark.y, strict=True)]
    assert [row[:3] for row in figure.data.rows] == drawn
    assert "sweep-0-tokens_per_s" in parts(rich)


def test_a_number_that_goes_with_others_alone_is_no_sweep(page_of, place, parts):
    records = [
        make_record(trial=0, case={"params": {"m": size, "n": size}}, design={"case_number": size}) for size in (1, 2)
    ]
    assert not [key for key in parts(page_of(place(records))) if key.startswith("sweep")]


def test_time_series_are_thinned_and_keep_their_extremes(rich, parts):
    found = parts(rich)
    for figure in (found["power"], found["temperature"]):
        assert all(len(mark.x) <= MOST_POINTS for mark in figure.marks)
        assert sum(len(mark.x) for mark in figure.marks) == len(figure.data.rows)
    card, counter = found["power"].marks[:2]
    assert (max(card.y), min(card.y)) == (900.0, 300.0)
    assert min(card.x) == -1.0  # the timed part begins at the 20th of 20 readings a second
    assert counter.y == pytest.approx((50.0,) * len(counter.y))  # 2.5 J in 50 ms, wraps and all
    x = np.arange(10_000.0)
    y = np.sin(x / 300)
    thin_x, thin_y = thinned(x, y, MOST_POINTS)
    assert len(thin_x) <= MOST_POINTS
    assert (thin_y.min(), thin_y.max()) == (y.min(), y.max())
    assert (np.diff(thin_x) > 0).all()


def test_each_problem_has_its_own_time_series_and_cards_of_two_sides_share_their_names(
    page_of, place, parts, time_series
):
    folder = place([])
    for number, (problem, side) in enumerate((problem, side) for problem in ("nap", "rest") for side in ("one", "two")):
        made = make_record(case={"problem": problem, "framework": side}, design={"case_number": number})
        made = msgspec.structs.replace(made, trial_id=f"t{number}")
        atomic.write(folder / f"{made.trial_id}.json", atomic.encode(made))
        atomic.write(folder / f"{made.trial_id}.telemetry.parquet", time_series(10))
    found = parts(page_of(folder))
    titles = [found[key].title for key in ("power-0", "power-1", "temperature-0", "temperature-1")]
    assert titles == [f"{what} over time, {of}" for what in ("Power", "Temperature") for of in ("nap", "rest")]
    names = [mark.name for mark in found["power-0"].marks]
    assert len(names) == 4
    assert [name.startswith(side) for name, side in zip(names, ("one", "one", "two", "two"), strict=True)] == [True] * 4


def test_one_command_repeats_the_cases_of_a_run_that_differ_in_the_framework_alone(page_of, place):
    """Three trials of each side, of which one always compiles; the other results are of runs of their own."""
    run = "python -m benchmarker run --framework="
    ways = {"one": (["jitted"], " --compile"), "two": (["eager", "compiled"], "")}
    records = [
        msgspec.structs.replace(
            make_record(trial=trial, case={"framework": side, "executions": way}, design={"case_number": at}),
            command=f"{run}{side} --problem=nap --ms=1.0{compiled} --seconds=5.0",
        )
        for at, (side, (way, compiled)) in enumerate(ways.items())
        for trial in range(3)
    ]
    compiled = msgspec.structs.replace(
        make_record(case={"framework": "two", "executions": ways["two"][0], "compile": True}, trial=9),
        command=f"{run}two --problem=nap --ms=1.0 --compile --seconds=5.0",
    )
    tested = msgspec.structs.replace(make_record(trial=10, case={"framework": "one", "seed": 2}), command="pytest a.py")
    assert section(page_of(place([*records, compiled, tested])), "repeat").commands == (
        f"{run}one,two --problem=nap --ms=1.0 --seconds=5.0 --trials=3",
        f"{run}two --problem=nap --ms=1.0 --compile --seconds=5.0",
        "pytest a.py",
    )


def test_categories_add_up(rich, parts):
    figure = parts(rich)["categories"]
    for row in range(len(figure.rows)):
        assert sum(mark.values[row] for mark in figure.marks) == pytest.approx(1.0)
    for row in figure.data.rows:
        assert sum(row[1:]) == pytest.approx(1.0)


def test_ops_beyond_the_longest_are_summed(monkeypatch, page_of, place, parts, profiled):
    monkeypatch.setattr("benchmarker.page.profiles.MOST_OPS", 0)
    folder = place([])
    atomic.write(folder / "run-0000-0.json", atomic.encode(profiled(make_record(), folder)))
    table = parts(page_of(folder))["nap ms=1.0, trial 0"].table
    assert table.rows == ()
    columns = [column.name for column in table.columns]
    rest = dict(zip(columns, table.rest, strict=True))
    assert rest["op"] == "and 1 more"
    assert rest["share"] == 1.0
    assert rest["count"] == 2
    assert rest["device_s"] == pytest.approx(2 * 33.125e-6)


def test_a_damaged_file_beside_a_record_is_named(page_of, place, profiled, study_of, time_series):
    folder = place([])
    record = profiled(make_record(), folder)
    atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    (folder / f"{record.trial_id}.events.parquet").write_bytes(b"PAR1")
    (folder / f"{record.trial_id}.telemetry.parquet").write_bytes(time_series()[:100])
    made = page_of(folder)
    (listing,) = section(made, "faults").parts
    assert listing.title == "Files that could not be read (2)"
    assert any("events.parquet" in row[1] for row in listing.table.rows)
    assert any("telemetry.parquet" in row[1] for row in listing.table.rows)


def test_failed_trials_come_with_message_and_command(page_of, place, two, failed, parts):
    records = two(A, A)
    records[0] = failed(records[0], "told to fail")
    made = page_of(place(records))
    (row,) = parts(made)["Failed trials (1)"].table.rows
    assert row == ("nap ms=1.0 one", 0, "exception", "timed", "told to fail", records[0].command, records[0].trial_id)
    assert doubts(made) == [
        "one: 1 of 8 trials failed, for instance: told to fail. The figures are based on the others."
    ]
    assert "1 failed" in made.subtitle


def test_what_a_plan_asks_for_beyond_the_records_is_listed(page_of, place, parts):
    record = make_record(run="run")
    folder = place([record])
    plan = make_plan([record.case], 3, left_out=["numpy does not support bf16"])
    atomic.write(folder / "plan.json", atomic.encode(msgspec.structs.replace(plan, run_id="run")))
    found = parts(page_of(folder))
    assert found["Planned trials without a record (1)"].table.rows == (("nap ms=1.0 fp32 in toy on cpu", 2, "run"),)
    assert found["Left out (1)"].table.rows == (("numpy does not support bf16",),)
    (folder / "plan.json").write_text("{")
    assert parts(page_of(folder))["Files that could not be read (1)"].table.rows[0][0] == str(folder / "plan.json")


def test_disturbed_trials_are_listed(page_of, place, two, parts):
    records = two(A, A)
    busy = msgspec.structs.replace(QUIET, other_busy_cores=1.5)
    records[3] = msgspec.structs.replace(records[3], interference=busy)
    (row,) = parts(page_of(place(records)))["Disturbed trials (1)"].table.rows
    assert row[:3] == ("nap ms=1.0 one", 3, "other processes kept 1.5 cores busy")
    quiet = section(page_of(place(two(A, A), "quiet")), "faults")
    short = [
        msgspec.structs.replace(each, interference=msgspec.structs.replace(QUIET, duration_s=0.1)) for each in two(A, A)
    ]
    untold = "Disturbances could not be detected in {} of 16 trials: they were timed for less than 0.5 s"
    (lead,) = section(page_of(place(short, "short")), "faults").lead
    assert untold.format(16) in lead
    assert "No trial is known to have been disturbed" not in lead
    (lead,) = section(page_of(place([*short[:2], *two(A, A)[2:]], "some")), "faults").lead
    assert "No trial is known to have been disturbed. " + untold.format(2) in lead
    assert quiet.lead == (
        "No trial failed. No planned trial lacks a record. Every file could be read. "
        "No trial is known to have been disturbed.",
    )


def test_what_differs_between_the_sides_is_marked(page_of, place, two, parts):
    records = [
        msgspec.structs.replace(
            each,
            software=msgspec.structs.replace(
                each.software, libraries={each.case.framework: "1.0", "numpy": f"{each.design.case_number}.0"}
            ),
        )
        for each in two(A, A)
    ]
    made = page_of(place(records))
    assert section(made, "environment").lead == ("1 property differs between the sides or within one.",)
    found = parts(made)
    table = found["What differs"].table
    assert [column.name for column in table.columns] == ["property", "one", "two"]
    rows = {row[0]: (index in table.marked, *row[1:]) for index, row in enumerate(table.rows)}
    assert rows["numpy"] == (True, "0.0", "1.0")
    assert rows["one"] == (False, "1.0", "-")
    (equal,) = [each for name, each in found.items() if name.startswith("What is the same")]
    assert "host" in {row[0] for row in equal.table.rows}
    assert equal.folded


def test_few_configurations_are_drawn_and_all_are_in_the_data(page_of, place, parts):
    number = MOST_DRAWN + 5
    records = [make_record(1.0 + seed, case={"seed": seed}, design={"case_number": seed}) for seed in range(number)]
    found = parts(page_of(place(records)))
    for key in ("samples_per_s", "blocks"):
        figure = found[key]
        assert len(figure.rows) == MOST_DRAWN
        assert len(figure.data.rows) == number
        assert f"{MOST_DRAWN} of {number}" in figure.left_out


def test_the_front_is_that_of_pareto(rich, parts):
    figure = parts(rich)["pareto-samples_per_J-0"]
    assert isinstance(figure, Figure)
    assert [row[1] for row in figure.data.rows] == ["one", "two"]  # the same work
    optimal = {row[1] for row in figure.data.rows if row[8]}
    best = max(figure.data.rows, key=lambda row: row[2])
    assert optimal == {best[1]}  # it is the best in both
    listed = parts(rich)["Throughput against energy: all configurations"].table.rows
    assert len(listed) == 6
    assert sum(row[8] for row in listed) == 3  # one of each batch size
    assert all(math.isfinite(x) for mark in figure.marks for x in mark.x)


def test_a_label_of_a_trade_off_is_the_side_if_the_title_has_the_case(page_of, place, parts):
    records = [
        make_record(
            1.0 + at, trial=trial, case={"framework": side}, design={"case_number": at}, energy=make_energy(100.0)
        )
        for at, side in enumerate(("one", "two"))
        for trial in range(3)
    ]
    other = [
        make_record(1.0, trial=0, case={"framework": side, "params": {"ms": 9.0}}, design={"case_number": 2 + at})
        for at, side in enumerate(("one", "two"))
    ]
    figure = parts(page_of(place([*records, *other])))["pareto-samples_per_J-0"]
    assert figure.title == "Throughput against energy, nap ms=1.0"
    assert sorted(label for mark in figure.marks for label in mark.labels) == ["one", "two"]


def test_trade_offs_have_intervals_along_both_axes(page_of, place, parts):
    """Of nine values, the 95% interval of the median is from the second to the eighth; five have none."""
    orders = {"one": (5, 2, 9, 4, 7, 1, 8, 3, 6), "two": (5, 2, 4, 1, 3)}
    records = [
        make_record(
            float(time),
            trial=trial,
            case={"framework": side},
            design={"case_number": at},
            energy=make_energy(100.0 * (10 - time)),
        )
        for at, (side, order) in enumerate(orders.items())
        for trial, time in enumerate(order)
    ]
    figure = parts(page_of(place(records)))["pareto-samples_per_J-0"]
    one, two = sorted(figure.marks, key=lambda mark: mark.name)
    assert (one.x, one.y) == ((pytest.approx(2 / 5),), (2 / 5,))  # 2 samples in 5 s, 200 samples of 500 J
    assert (one.low, one.high) == ((2 / 8,), (2 / 2,))
    assert (*one.left, *one.right) == pytest.approx((2 / 8, 2 / 2))
    assert two.low == two.high == two.left == two.right == (None,)
    assert "95% interval if there are 6 trials or more, along both axes" in figure.caption
    found = {
        row[1]: dict(zip([column.name for column in figure.data.columns], row, strict=True)) for row in figure.data.rows
    }
    ends = ["samples_per_s_from", "samples_per_s_to", "samples_per_J_from", "samples_per_J_to"]
    assert [found["one"][end] for end in ends] == pytest.approx([0.25, 1.0, 0.25, 1.0])
    assert [found["two"][end] for end in ends] == [None] * 4
    assert (found["one"]["trials"], found["two"]["trials"]) == (9, 5)


@pytest.mark.parametrize(("errors", "drawn"), [((8.7e-8, 7.9e-8), False), ((8.7e-8, 7.9e-7), True)])
def test_errors_that_are_rounding_are_not_drawn_against_each_other(page_of, place, two, parts, errors, drawn):
    """The bound of fp32 is 1.9e-6."""
    records = [
        msgspec.structs.replace(each, check=Check(errors[each.case.framework == "two"], "out", 1.9e-6, True))
        for each in two(A, A)
    ]
    assert ("pareto-error-0" in parts(page_of(place(records)))) is drawn


def test_precisions_are_drawn_against_each_other_by_their_error(page_of, place, two, parts):
    records = []
    for precision, error in (("fp32", 8e-8), ("bf16", 2e-3)):
        for each in two(A, A):
            case = msgspec.structs.replace(each.case, precision=precision)
            check = Check(error, "out", 1.0, True)
            records.append(
                msgspec.structs.replace(each, case=case, check=check, trial_id=f"{each.trial_id}{precision}")
            )
    figure = parts(page_of(place(records)))["pareto-error-0"]
    assert len(figure.data.rows) == 4
    assert "pareto-energy-error-0" not in parts(page_of(place(records, "same")))


def test_what_is_exact_or_emulated_is_told_beside_the_others(page_of, place, parts):
    """An exact result is drawn at 2^-53, and what is emulated has an error and no place. Energy has a figure, too."""
    errors = {"fp64": 0.0, "fp32": 8e-8, "bf16": 2e-3}
    records = [
        make_record(
            1.0 + at,
            case={"precision": precision},
            design={"case_number": at},
            check=Check(error, "out", 1.0, True),
            energy=make_energy(100.0 * (1 + at)),
        )
        for at, (precision, error) in enumerate(errors.items())
    ]
    plain = msgspec.to_builtins(make_record(1.0, design={"case_number": 3}, check=Check(0.17, "out", 1.0, True)))
    plain["case"]["precision"] = "mxfp4"
    lost = dict.fromkeys(("blocks", "energy", "cost"))
    emulated = plain | lost | {"reasons": plain["reasons"] | dict.fromkeys(lost, EMULATED)}
    made = parts(page_of(place([*records, msgspec.convert(emulated, Record)])))
    for key, name in (("pareto-error-0", "Throughput"), ("pareto-energy-error-0", "Energy efficiency")):
        figure = made[key]
        assert figure.title == f"{name} against numeric error, nap ms=1.0"
        assert sorted(x for mark in figure.marks for x in mark.x) == [2.0**-53, 8e-8, 2e-3]
        assert sorted(row[-5] for row in figure.data.rows) == [0.0, 8e-8, 2e-3]
        assert re.search(r"Emulated, so that there is an error and no speed: .*mxfp4 0\.17\.", figure.left_out)
        assert "Errors below 1.1e-16 are drawn there" in figure.left_out


def test_the_top_says_which_of_two_factors_is_compared(page_of, place, two):
    records = [each for seed in (1, 2) for each in two(A, A, seed=seed)]
    made = page_of(place([msgspec.structs.replace(each, trial_id=f"{at}") for at, each in enumerate(records)]))
    assert made.subtitle.startswith("framework compared: one, two, each with several values of seed · 32 trials")


def test_the_top_names_the_first_of_many_factors_that_vary(page_of, place):
    sizes = [dict.fromkeys("abcdef", at) for at in (1, 2)]
    records = [
        make_record(1.0, trial_id=f"{at}-{name}", case={"framework": name, "params": size}, design={"case_number": at})
        for at, size in enumerate(sizes)
        for name in ("one", "two")
    ]
    made = page_of(place(records))
    assert "each with several values of a, b, c, d and 2 other factors · 4 trials" in made.subtitle


def test_the_roofline_is_that_of_the_command_and_else_says_what_to_do(page_of, place, monkeypatch, tmp_path, parts):
    from benchmarker.records import ceilings

    monkeypatch.setattr(ceilings, "cache", lambda: tmp_path / "cache")
    record = make_record(2.0)
    folder = place([record])
    assert "run `benchmarker ceilings --precision=fp32`" in section(page_of(folder), "roofline").lead[0]
    common = {"device": ceilings.key_of(record), "host": "h", "framework": "f", "execution": "eager", "version": "1"}
    common |= {"trials": 3, "searched": 1, "params": {}, "measured_at": "2026-01-01T00:00:00Z", "run_id": "r"}
    common |= {"precision": ceilings.computed_in(record), "method": "quick"}
    ceilings.write(
        folder / "ceilings.json",
        [
            ceilings.Ceiling(resource="compute", value=1000.0, low=900.0, high=1100.0, **common),
            ceilings.Ceiling(resource="memory", value=100.0, low=90.0, high=110.0, **common),
        ],
    )
    made = page_of(folder)
    figure = parts(made)["roofs"]
    roof, step = figure.marks
    assert roof.look == "line"
    assert max(roof.y) == 1000.0
    assert (step.x, step.y) == ((125.0,), (500.0,))  # 1000 FLOP, 8 bytes, 2 s
    assert section(made, "roofline").lead[0].startswith("A step of nap ms=1.0 is compute-bound and reaches 50%")
    assert not [each for each in doubts(made) if "roof" in each]
    fast = page_of(place([make_record(0.9)]))  # it takes 1 s at least
    (warning,) = [each for each in doubts(fast) if "roof" in each]
    assert "is above its roof: " in warning
    assert "run `benchmarker ceilings --thorough` to measure them again" in warning


@pytest.mark.parametrize(
    ("values", "log", "is_log"),
    [
        ((0.985, 1.02), True, False),
        ((7e-8, 9e-8), True, False),
        ((1.0, 1.5), "always", True),
        ((0.1, 1.0), True, True),
        ((0.1, 1000.0), True, True),
        ((2000.0, 3000.0), True, False),
        ((0.0, 0.5), False, False),
    ],
)
def test_axes_are_logarithmic_where_values_are_far_apart(values, log, is_log):
    mark = Points("", 0, values, values)
    figure = Figure("key", "", "", Axis("x", log=log), (mark,), Table((), ()), y=Axis("y", log=log))
    found = specification(figure)
    assert (found["x"]["log"], found["y"]["log"]) == (is_log, is_log)


def test_a_legend_explains_what_neither_rows_nor_a_single_name_do():
    bars = Bars("two", 1, (0, 1), (1.0, 2.0)), Bars("one", 0, (2,), (3.0,))
    trials = Points("trials", 7, (1.0, 2.0), (0.0, 1.0), look="small")
    rows = ("a two", "b two", "c one")
    figure = Figure("key", "", "", Axis("x"), (*bars, trials), Table((), ()), rows=rows)
    assert legend_of(figure) == []
    other = replace(figure, rows=("a two", "b twofold", "c one"))
    assert legend_of(other) == [("two", 0, False), ("trials", 2, False)]
    ideal, cloud = Points("ideal", 7, (1.0, 2.0), (1.0, 2.0), look="line"), Points("cloud", 1, (2.0, 1.0), (1.0, 2.0))
    hidden = replace(ideal, name="hidden", listed=False)
    lines = replace(figure, marks=(ideal, cloud, ideal, hidden), rows=(), y=Axis("y"))
    assert legend_of(lines) == [("ideal", 0, True), ("cloud", 1, False)]


def test_a_logarithmic_axis_does_not_reach_zero():
    mark = Points("", 0, (1.0, 100.0), (1.0, 2.0))
    x, y = axes_of(
        Figure(
            "key",
            "",
            "",
            Axis("x", log=True, limit=(0.0,)),
            (mark,),
            Table((), ()),
            y=Axis("y", log=True, limit=(0.0,)),
        )
    )
    assert (x.log, x.limit, y.log, y.limit) == (True, (), False, (0.0,))


def test_no_more_lines_are_drawn_than_can_be_told_apart(page_of, place, parts):
    records = [
        make_record(case={"seed": seed, "params": {"batch_size": size}}, design={"case_number": 2 * seed + size})
        for seed in range(10)
        for size in (0, 1)
    ]
    figure = parts(page_of(place(records)))["sweep-0-samples_per_s"]
    assert len(figure.marks) == 8
    assert len(figure.data.rows) == 20
    assert "8 of 10 lines" in figure.left_out


def test_the_cases_that_a_power_cap_held_back_are_named_if_there_are_several(page_of, place):
    capped = Conditions(
        meter="nvml", id="a", device="Card", measured=True, ranges={}, throttle={"power cap": 0.9}, throttle_s={}
    )
    records = [
        make_record(
            trial=trial,
            case={"framework": side, "params": {"ms": ms}},
            design={"case_number": number},
            telemetry=[capped] * (ms == 2.0),
        )
        for number, (ms, side) in enumerate((ms, side) for ms in (1.0, 2.0) for side in ("one", "two"))
        for trial in range(2)
    ]
    told = "one: a power cap held the device's clock back"
    assert f"{told} (2 of 4 trials): nap ms=2.0." in doubts(page_of(place(records)))
    assert f"{told} (2 of 2 trials)." in doubts(page_of(place(records[4:], "large")))


def test_disturbed_and_unsteady_trials_are_named_at_the_top(page_of, place):
    steady = [1.0 + 0.001 * (at % 7) for at in range(60)]
    records = [
        make_record(steady if trial else [*steady[:40], *(1.1 * each for each in steady[40:])], trial=trial)
        for trial in range(3)
    ]
    stolen = msgspec.structs.replace(records[2].interference, steal_percent=9.0)
    records[2] = msgspec.structs.replace(records[2], interference=stolen)
    told = doubts(page_of(place(records)))
    (which,) = [each for each in told if each.startswith("1 of 3 trials was disturbed")]
    assert which.endswith("; disturbed: trial 2.")
    assert "Not steady: trial 0: the level changes after block 40 (+10.0%)." in told


def test_the_figures_of_a_single_case_have_the_names_of_the_sides_alone(page_of, place, two, parts):
    made = page_of(place(two(A, [1.5 * each for each in A])))
    assert parts(made)["samples_per_s"].rows == ("one", "two")
    assert section(made, "verdicts").lead[-1] == made.cards[0].sentence == "two takes 50.00% longer than one (±0.00%)."
    few = page_of(place(two(A[:3], A[:3]), "few"))
    assert few.cards[0].detail.endswith("; 3 rounds; trials from 980 ms to 1.02 s and from 980 ms to 1.02 s")


def test_a_single_configuration_has_its_step_time_at_the_top(page_of, place):
    (card,) = page_of(place([make_record(step_s, trial=trial) for trial, step_s in enumerate((1.0, 1.2, 1.1))])).cards
    assert (card.word, card.figure) == ("step time (median)", "1.1 s")
    assert card.sentence == "median over 3 trials; range 1 s to 1.2 s"
    (several,) = page_of(place([make_record(case={"seed": seed}, trial=seed) for seed in (1, 2)], "two")).cards
    assert several.figure != "1 s"
