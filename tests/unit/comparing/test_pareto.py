"""Configurations that none beats."""

import csv
import json

import msgspec
import pytest
from support.records import make_record

from benchmarker import PRECISIONS
from benchmarker.comparing.pareto import by_work, front
from benchmarker.files import atomic
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records.record import Check, Componentwise

METRICS = ["samples_per_s", "host_peak_rss_bytes"]


def record(seed, step_s, rss, trial=0):
    plain = make_record(step_s, trial=trial, case={"seed": seed}, design={"case_number": seed})
    return msgspec.structs.replace(plain, memory=msgspec.structs.replace(plain.memory, host_peak_rss_bytes=rss))


def test_the_front_goes_by_medians_each_metric_in_its_better_direction():
    records = [
        record(0, 1.0, 100),
        record(1, 2.0, 50),
        record(2, 2.0, 100),  # slower than 0, as large
        record(3, 2.0, 50),  # as good as 1
        *(record(4, step, 30, trial) for trial, step in enumerate((9.0, 4.0, 1.0))),
    ]
    found = front(Cases.of(records), METRICS, load_metrics())
    assert [point.optimal for point in found.points] == [True, True, False, True, True]
    assert found.points[4].values == (0.5, 30)  # 2 samples in 4 s
    assert found.left_out == 0


def test_medians_have_intervals_from_six_trials_on(cli, tmp_path):
    """Of nine values, the 95% interval of the median is from the second to the eighth."""
    records = [record(0, float(step), 100, trial) for trial, step in enumerate((5, 2, 9, 4, 7, 1, 8, 3, 6))]
    records += [record(1, float(step), 50, trial) for trial, step in enumerate((5, 2, 4, 1, 3))]
    several, few = front(Cases.of(records), METRICS, load_metrics()).points
    assert several.intervals == ((2 / 8, 2 / 2), (100, 100))
    assert few.intervals == ((None, None), (None, None))
    for each in records:
        atomic.write(tmp_path / f"{each.trial_id}.json", atomic.encode(each))
    told = [row["intervals"] for row in json.loads(cli("pareto", ".", "--json").stdout)]
    assert told == [
        {"samples_per_s": [0.25, 1.0], "host_peak_rss_bytes": [100, 100]},
        {"samples_per_s": [None, None], "host_peak_rss_bytes": [None, None]},
    ]
    rows = list(csv.DictReader(cli("pareto", ".", "--csv").stdout.splitlines()))
    ends = sorted((row["samples_per_s low"], row["samples_per_s high"]) for row in rows)
    assert ends == [("", ""), ("0.25", "1.0")]


def test_what_lacks_a_metric_is_counted():
    records = [record(0, 1.0, 100), record(1, 1.0, 0)]
    records[1] = msgspec.structs.replace(records[1], memory=None, reasons={**records[1].reasons, "memory": "a duet"})
    assert front(Cases.of(records), METRICS, load_metrics()).left_out == 1
    assert front(Cases.of(records), ["device_peak_bytes"], load_metrics()).points == ()
    assert front(Cases.of(records), ["enqueue_s"], load_metrics()).points == ()  # a metric of another problem


def checked(precision, step_s, error, componentwise=None):
    plain = make_record(step_s, case={"precision": precision}, design={"case_number": [*PRECISIONS].index(precision)})
    return msgspec.structs.replace(plain, check=Check(error, "x", 1.0, True, componentwise=componentwise))


def test_precisions_are_compared_by_their_error():
    """fp64 is the most accurate, bf16 the fastest, and tf32 here neither faster nor better than fp32."""
    records = [
        checked("fp64", 4.0, 1e-16),
        checked("fp32", 2.0, 1e-7),
        checked("tf32", 2.0, 1e-4),
        checked("bf16", 1.0, 1e-3),
        checked("int8", 0.5, 0.0),  # of integers, which are other data
    ]
    metrics = ["samples_per_s", "error"]
    floats, integers = by_work(Cases.of(records), metrics)
    assert [point.optimal for point in front(floats, metrics, load_metrics()).points] == [True, True, False, True]
    assert len(integers) == 1
    assert len(by_work(Cases.of(records), METRICS)) == 5


@pytest.mark.parametrize(("error", "bits"), [(2**-50, 50), (2.0, 0), (0.0, 53), (2**-60, 53)])
def test_bits_are_those_of_the_error_by_element(error, bits):
    record = checked("fp64", 1.0, 1e-16, Componentwise(error, "x", 1.0))
    derived = load_metrics()(record)
    assert (derived["effective_bits"].value, derived["componentwise_error"].value) == (bits, error)


def test_bits_are_null_where_elements_are_not_sums_of_products():
    bits = load_metrics()(checked("fp64", 1.0, 0.0))["effective_bits"]
    assert (bits.value, bits.reason) == (None, "its outputs are not sums of products, as those of gemm are")


def test_the_frontier_of_error_and_speed_is_drawn(cli, tmp_path):
    pytest.importorskip("matplotlib")
    for each in (checked("fp64", 4.0, 0.0), checked("fp32", 2.0, 1e-7), checked("bf16", 1.0, 1e-3)):
        atomic.write(tmp_path / f"{each.trial_id}.json", atomic.encode(each))
    done = cli("pareto", ".", "--metric=samples_per_s,error", "-o", "frontier.svg")
    assert done.returncode == 0
    told, caption = done.stderr.splitlines()
    assert told == "figure: frontier.svg, its data: frontier.csv"
    assert caption.startswith("samples_per_s against error. Each mark is the median over the trials")
    assert "Better is to the left and above. Filled marks are" in caption
    assert "Errors below 1.1e-16 are drawn there" in caption
    plot = (tmp_path / "frontier.svg").read_text()
    assert all(f"<!-- {text} -->" in plot for text in ("samples_per_s", "error", "fp64", "bf16"))
    rows = list(csv.DictReader((tmp_path / "frontier.csv").read_text().splitlines()))
    assert [(float(row["samples_per_s"]), float(row["error"]), row["verdict"]) for row in rows] == [
        (0.5, 0.0, "optimal"),  # 2 samples in 4 s
        (1.0, 1e-7, "optimal"),
        (2.0, 1e-3, "optimal"),
    ]
    wrong = cli("pareto", ".", "--metric=error", "-o", "frontier.svg")
    assert "a figure has two axes; name two metrics, not 1: error" in wrong.stderr


def test_the_command(cli, tmp_path):
    for each in (record(0, 1.0, 100), record(1, 2.0, 50), record(2, 2.0, 100)):
        atomic.write(tmp_path / f"{each.trial_id}.json", atomic.encode(each))
    done = cli("pareto", ".")
    assert done.returncode == 0
    assert done.stdout.count("optimal") == 2
    assert [row["optimal"] for row in json.loads(cli("pareto", ".", "--json").stdout)] == [True, True, False]
    assert "no configuration has a value of each of device_peak_bytes" in (
        cli("pareto", ".", "--metric=device_peak_bytes").stderr
    )
    assert cli("pareto", ".", "--metric=,").returncode == 2
    assert cli("pareto", "none").returncode == 2
    assert "no metric is named 'speed'; there are: " in cli("pareto", ".", "--metric=speed").stderr


def test_intervals_are_printed_from_six_trials_on(cli, tmp_path):
    for trial in range(6):
        made = make_record(1.0 + trial / 10, trial=trial)
        atomic.write(tmp_path / f"{made.trial_id}.json", atomic.encode(made))
    heading, row = cli("pareto", ".", "--metric=step_time_median_s").stdout.splitlines()[1:3]
    assert "step time  step time 95% interval" in heading
    assert "1.25 s  1–1.5 s" in row
    assert "95%" not in cli("pareto", f"{made.trial_id}.json", "--metric=step_time_median_s").stdout
