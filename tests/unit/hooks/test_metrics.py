"""Metric plugins that fail: their metrics are null with the reason, all others are as ever."""

import sys

import pytest
from support.records import make_record

from benchmarker import UserError
from benchmarker.hooks.metrics import load_metrics, metric_of, refuse_unknown

SOURCE = """
    from benchmarker import Metric, hookimpl

    calls = []

    @hookimpl
    def derive_metrics(record):
        calls.append(record)
        {body}
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.delitem(sys.modules, "odd", raising=False)


def derived(distribution, body, times=1):
    distribution("odd", {"metric.odd": "odd"}, {"__init__.py": SOURCE.format(body=body)})
    derive = load_metrics()
    for _ in range(times):
        found = derive(make_record())
    assert found["samples_per_s"].value > 0
    return found


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('a\\nb')", "metric.odd failed: ValueError: a b"),
        ("import sys; sys.exit(3)", "metric.odd failed: SystemExit: 3"),
        ("return {'x': 5}", "metric.odd failed: TypeError: 5 is not a Metric"),
        ("return {5: Metric(1.0, 's', 'lower')}", "metric.odd failed: TypeError: 5 is not the name of a metric"),
        ("return 7", "metric.odd failed: AttributeError: 'int' object has no attribute 'items'"),
    ],
)
def test_a_plugin_that_fails_is_named(distribution, body, reason):
    found = derived(distribution, body)
    assert (found["odd"].value, found["odd"].reason) == (None, reason)


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')", "'fast'", "10**400"])
def test_a_value_that_is_no_finite_number_is_null(distribution, value):
    found = derived(distribution, f"return {{'x': Metric({value}, 's', 'lower'), 'y': Metric(2, 's', 'lower')}}")
    assert found["x"].value is None
    assert "metric.odd" in found["x"].reason
    assert found["y"].value == 2


def test_the_names_of_a_plugin_that_fails_later_are_kept(distribution):
    body = "return {'x': Metric(1.0, 's', 'lower')} if len(calls) == 1 else 1 / 0"
    found = derived(distribution, body, times=2)
    assert (found["x"].value, found["x"].unit) == (None, "s")
    assert found["x"].reason == "metric.odd failed: ZeroDivisionError: division by zero"


def test_two_plugins_with_one_metric_are_refused(distribution):
    body = "return {'samples_per_s': Metric(1, 's', 'lower')}"
    with pytest.raises(UserError, match="two metric plugins derive samples_per_s"):
        derived(distribution, body)


def test_after_the_first_record_a_plugin_derives_only_what_is_asked_for(distribution):
    body = "return {'x': Metric(float(len(calls)), 's', 'lower')}"
    distribution("odd", {"metric.odd": "odd"}, {"__init__.py": SOURCE.format(body=body)})
    derive = load_metrics()
    first, second = derive(make_record()), derive(make_record())
    assert second["samples_per_s"].value > 0
    assert "nothing" not in first
    assert len(sys.modules["odd"].calls) == 1
    assert second["x"].value == 2
    assert list(second) == list(first) == [name for name, _ in second.items()]


def test_a_metric_is_known_if_any_record_has_it():
    """A problem has metrics that others have not, and what is counted differs from trial to trial."""
    records = [make_record(), make_record(trial=1, case={"problem": "launch"})]
    derive = load_metrics()
    refuse_unknown(["enqueue_s", "step_time_median_s"], records, derive)
    with pytest.raises(UserError, match="no metric is named 'enqueue_s'"):
        refuse_unknown(["enqueue_s"], records[:1], derive)
    assert (
        metric_of(records[0], "enqueue_s", derive(records[0])).reason == "nap has no enqueue_s, or it was not asked for"
    )


def test_an_unknown_metric_is_refused_with_those_that_are_spelt_alike():
    with pytest.raises(UserError, match="--value=step_time_s: no metric is named 'step_time_s'; did you mean step_tim"):
        refuse_unknown(["step_time_s"], [make_record()], load_metrics(), option="--value")
    with pytest.raises(UserError, match="there are: colour, "):
        refuse_unknown(["what"], [make_record()], load_metrics(), also=["colour"])
    refuse_unknown(["colour"], [make_record()], load_metrics(), also=["colour"])
