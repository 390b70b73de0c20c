"""Curves of text generation on the page, beside what `predict` says."""

import msgspec
import pytest
from support.records import make_ceiling
from support.texts import make_text, prediction

from benchmarker.records import ceilings
from benchmarker.roofline.roofs import Roof

ROOF = Roof(1e12, 1e8)
FACTORS = [1.0, 1.02, 0.98, 1.01, 0.99, 1.03]


def trials(*options, frameworks=("one",), trials=6):
    """Records of each of these options; a step takes 2 s, a first token 3 s, each other 0.5 s, with some scatter."""
    return [
        msgspec.structs.replace(
            make_text(
                2 * factor,
                () if each["phase"] == "decode" else [3 * factor],
                () if each["phase"] == "prefill" else [0.5 * factor] * 4,
                trial=trial,
                framework=framework,
                **each,
            ),
            trial_id=f"{framework}-{number}-{trial}",
        )
        for framework in frameworks
        for number, each in enumerate(options)
        for trial, factor in enumerate(FACTORS[:trials])
    ]


@pytest.fixture
def known():
    ceilings.keep([make_ceiling(ROOF.flop_per_s), make_ceiling(ROOF.bytes_per_s, "memory")])


def drawn(found, metric, name):
    """The figure of a metric over a parameter; None if there is none."""
    keys = [
        key for key in found if key.startswith("sweep") and key.endswith(f"-{metric}") and found[key].x.title == name
    ]
    return found[keys[0]] if keys else None


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("phase", ["prefill", "generate"])
def test_ttft_stands_over_the_length_of_the_prompt_beside_the_prediction(page_of, place, parts, phase):
    more = {"phase": phase} | ({"new_tokens": 5} if phase == "generate" else {})
    records = trials(*({"prompt_len": length, **more} for length in (8, 16, 64)))
    figure = drawn(parts(page_of(place(records))), "ttft_s", "prompt_len")
    measured, predicted = figure.marks
    assert (measured.x, measured.y) == ((8.0, 16.0, 64.0), pytest.approx([3.015] * 3))
    assert (measured.low[0], measured.high[0]) == pytest.approx((0.98 * 3, 1.03 * 3))  # six trials: their extremes
    assert (predicted.name, predicted.look, predicted.x) == ("TTFT predicted", "line", measured.x)
    assert predicted.y == pytest.approx([prediction(each, ROOF).phases[0].time_s for each in records[::6]])
    row = dict(zip([each.name for each in figure.data.columns], figure.data.rows[0], strict=True))
    assert (row["predicted_ttft_s"], row["interval_from"], row["trials"]) == (predicted.y[0], measured.low[0], 6)
    assert f"times the predicted {predicted.y[0] * 1e3:.4g} ms" in measured.texts[0]


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(("name", "values"), [("depth", (8, 64, 512)), ("batch_size", (1, 4, 16))])
def test_times_of_decode_stand_over_its_context_and_its_batch(page_of, place, parts, name, values):
    records = trials(*({"phase": "decode", "new_tokens": 5, name: value} for value in values))
    found = parts(page_of(place(records)))
    expected = [prediction(each, ROOF).time_s for each in records[::6]]
    for metric, value in (("tpot_s", 0.5), ("step_time_median_s", 2.0)):
        measured, predicted = drawn(found, metric, name).marks
        assert measured.x == predicted.x == tuple(map(float, values))
        assert measured.y == pytest.approx([1.005 * value] * 3)
        assert predicted.y == pytest.approx(expected)
    assert drawn(found, "ttft_s", name) is None


@pytest.mark.usefixtures("known")
def test_what_is_predicted_stands_beside_the_step_time_in_the_results(page_of, place, parts):
    records = trials({"phase": "decode"}, trials=3)
    table = parts(page_of(place(records)))["Configurations"].table
    assert [each.name for each in table.columns[1:4]] == ["step_time_median_s", "times_predicted", "predicted_s"]
    predicted_s = prediction(records[0], ROOF).time_s
    assert table.rows[0][1:4] == pytest.approx((2.0, 2.0 / predicted_s, predicted_s))


def test_without_ceilings_nothing_is_predicted_and_few_trials_have_no_interval(page_of, place, parts):
    records = trials({"phase": "decode", "depth": 8}, {"phase": "decode", "depth": 64}, trials=5)
    found = parts(page_of(place(records)))
    figure = drawn(found, "tpot_s", "depth")
    assert [mark.name for mark in figure.marks] == ["TPOT"]
    assert figure.marks[0].low == (None, None)
    assert "predicted" not in figure.caption
    assert drawn(found, "step_time_median_s", "depth") is None  # samples/s tell the same


@pytest.mark.usefixtures("known")
def test_frameworks_share_a_prediction_and_batch_sizes_do_not(page_of, place, parts):
    options = [{"phase": "decode", "depth": depth, "batch_size": batch} for batch in (1, 8) for depth in (8, 64)]
    figure = drawn(parts(page_of(place(trials(*options, frameworks=("one", "two"))))), "tpot_s", "depth")
    assert [mark.name for mark in figure.marks] == [
        *("batch_size=1 one", "batch_size=1 two", "batch_size=8 one", "batch_size=8 two"),
        *("batch_size=1 predicted", "batch_size=8 predicted"),
    ]


def test_a_room_that_is_given_joins_no_lengths_that_have_others(page_of, place, parts):
    options = [{"phase": "decode", "depth": depth, "seq_len": room} for depth in (8, 64) for room in (128, 256)]
    figure = drawn(parts(page_of(place(trials(*options)))), "tpot_s", "depth")
    assert [(mark.name, mark.x) for mark in figure.marks] == [
        ("seq_len=128", (8.0, 64.0)),
        ("seq_len=256", (8.0, 64.0)),
    ]


@pytest.mark.usefixtures("known")
def test_phases_are_named_points_of_one_roofline_however_many_cases_there_are(page_of, place, parts):
    options = [{"phase": "prefill", "prompt_len": 8 + length} for length in range(9)]
    options += [{"phase": "decode"}, {"phase": "generate", "new_tokens": 5}]
    figure = parts(page_of(place(trials(*options, trials=1))))["roofs"]
    labels = [label for mark in figure.marks for label in mark.labels]
    assert {"prefill", "decode", "generate"} <= set(labels)
    (split,) = [mark for mark in figure.marks if len(mark.labels) == 2]
    assert (split.labels, split.look, split.listed) == (("prefill", "decode"), "dots", False)
    rows = [row for row in figure.data.rows if row[1] == "phase"]
    assert split.x == tuple(row[3] for row in rows)
    assert len([row for row in figure.data.rows if row[1] == "step"]) == 11
