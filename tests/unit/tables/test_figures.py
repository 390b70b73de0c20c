"""Values of cells: medians over trials, failures, the best of a row, and differences from a column."""

import msgspec
import pytest
from support.records import QUIET, make_record

from benchmarker import UserError
from benchmarker.comparing.judge import compare
from benchmarker.comparing.matching import by
from benchmarker.comparing.results import Rules
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records.record import Failure
from benchmarker.records.step_times import STEP_TIME
from benchmarker.stats.median_interval import median_interval
from benchmarker.tables.figures import PARAMETERS, baseline_of, figures, judged
from benchmarker.tables.grid import grid
from benchmarker.tables.layout import shown

TRIALS = 9


def times(step_s, spread=0.001):
    """Step times of trials, a few per mille apart."""
    return [step_s * (1 + spread * (trial % 5 - 2)) for trial in range(TRIALS)]


def trials(case, step_times, number, **fields):
    return [
        make_record(time, trial=trial, case=case, design={"case_number": number}, **fields)
        for trial, time in enumerate(step_times)
    ]


def table(columns, rows="ms", axis="framework", **fields):
    """A row with the step times of each column."""
    records = []
    for number, (name, step_times) in enumerate(columns.items()):
        case = {"params": {"ms": 1}, axis: name}
        records += trials(case, step_times, number, **fields)
    return grid(Cases.of(records), rows, axis), records


def value(made, name=STEP_TIME, baseline=None, **rules):
    derive = load_metrics()
    return judged(made, figures(made, name, derive), baseline, Rules(metric=name, **rules), derive)


def place(name):
    return ((1,), (name,))


def test_a_cell_has_the_median_over_its_trials_and_its_interval():
    made, _ = table({"jax": times(1.0, 0.01)})
    found = figures(made, STEP_TIME, load_metrics())
    cell = found.cells[place("jax")]
    assert (found.unit, found.better, found.spread) == ("s", "lower", "95% interval")
    assert (cell.value, cell.trials) == (1.0, TRIALS)
    assert (cell.low, cell.high) == median_interval(times(1.0, 0.01))


def test_if_a_cell_has_too_few_trials_all_spreads_are_ranges_as_in_show():
    made, _ = table({"jax": times(1.0, 0.01), "torch": [1.0, 3.0]})
    found = figures(made, STEP_TIME, load_metrics())
    assert found.spread == "range"
    assert (found.cells[place("torch")].low, found.cells[place("torch")].high) == (1.0, 3.0)
    assert found.cells[place("jax")].low == pytest.approx(0.98)


def failed(record, kind):
    return msgspec.structs.replace(record, status="failed", error=Failure(kind, "no", "timed"))


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (("out_of_memory", "skipped"), "out of memory"),
        (("skipped", "skipped"), "skipped"),
        (("timeout", "timeout"), "timed out"),
        (("check", "check"), "wrong result"),
        (("exception", "killed"), "failed"),
    ],
)
def test_a_cell_without_a_successful_trial_says_how_the_first_failed(kinds, told):
    records = [failed(make_record(trial=trial, case={"params": {"ms": 1}}), kind) for trial, kind in enumerate(kinds)]
    cell = figures(grid(Cases.of(records), "ms", "framework"), STEP_TIME, load_metrics()).cells[place("toy")]
    assert (cell.value, cell.failure) == (None, told)


def test_a_value_that_was_not_measured_has_its_reason():
    made, _ = table({"jax": times(1.0)})
    cell = figures(made, "samples_per_J", load_metrics()).cells[place("jax")]
    assert (cell.value, cell.failure) == (None, "")
    assert cell.reason


def test_the_number_of_parameters_is_that_of_the_problem_even_of_trials_that_failed():
    record = make_record(case={"params": {"size": "small"}})
    params = {name: each for name, each in record.case.params.items() if name != "ms"}
    record = msgspec.structs.replace(record, case=msgspec.structs.replace(record.case, problem="gpt2", params=params))
    made = grid(Cases.of([failed(record, "out_of_memory")]), "size", "framework")
    found = figures(made, PARAMETERS, load_metrics())
    assert [each.value for each in found.cells.values()] == [124_439_808]
    nap = figures(table({"jax": [1.0]})[0], PARAMETERS, load_metrics()).cells[place("jax")]
    assert nap.value is None
    assert "problem.nap" in nap.reason


def test_a_cell_is_bold_only_if_it_differs_from_all_others_of_its_row():
    made, _ = table({"a": times(1.0), "b": times(2.0), "c": times(3.0)})
    assert value(made).bold == {place("a")}
    made, _ = table({"a": times(1.0), "b": times(1.001), "c": times(3.0)})
    assert value(made).bold == set()


def test_delta_alpha_and_the_direction_of_the_metric_decide():
    made, _ = table({"a": times(1.0), "b": times(1.1)})
    assert value(made).bold == {place("a")}
    assert value(made, delta=0.2).bold == set()
    assert value(made, alpha=0.001).bold == set()
    assert value(made, "samples_per_s").bold == {place("a")}


def test_comparisons_of_all_rows_are_corrected_together():
    few = {"a": times(1.0)[:6], "b": times(2.0)[:6]}
    assert value(table(few)[0]).bold == {place("a")}
    records = [
        record
        for ms in (1, 2)
        for number, (name, step_times) in enumerate(few.items())
        for record in trials({"params": {"ms": ms}, "framework": name}, step_times, 2 * ms + number)
    ]
    assert value(grid(Cases.of(records), "ms", "framework")).bold == set()


def test_only_cells_that_do_the_same_work_compete():
    made, records = table({"inference": times(1.0), "training": times(3.0)}, axis="mode")
    assert value(made).bold == {place("inference")}
    cost = msgspec.structs.replace(records[0].cost, flops=3000)
    other = [msgspec.structs.replace(r, cost=cost) if r.case.mode == "training" else r for r in records]
    assert value(grid(Cases.of(other), "ms", "mode")).best.comparisons == ()


def test_a_verdict_that_is_provisional_makes_no_cell_bold():
    busy = msgspec.structs.replace(QUIET, other_busy_cores=3.0)
    made, _ = table({"a": times(1.0), "b": times(2.0)}, interference=busy)
    found = value(made)
    assert [each.verdict for each in found.best.comparisons] == ["faster"]
    assert found.bold == set()


def test_the_difference_from_a_column_is_that_of_the_comparing_engine():
    made, records = table({"fp32": times(2.0, 0.01), "bf16": times(1.0, 0.02)}, axis="precision")
    base = baseline_of(made, "fp32")
    (found,) = value(made, baseline=base).difference.comparisons
    (engine,) = compare(by(records, "precision", "fp32").matches, Rules(), load_metrics()).comparisons
    for field in ("ratio", "low", "high", "verdict", "p_adjusted", "rounds"):
        assert getattr(found, field) == getattr(engine, field), field


def test_a_baseline_is_named_by_its_value_or_by_its_factor_too():
    records = [
        record
        for number, (framework, precision) in enumerate([("jax", "fp32"), ("jax", "bf16"), ("torch", "bf16")])
        for record in trials({"framework": framework, "precision": precision, "params": {"ms": 1}}, [1.0], number)
    ]
    made = grid(Cases.of(records), "ms", "framework,precision")
    assert baseline_of(made, "fp32").columns == {("jax", "bf16"): ("jax", "fp32")}
    assert baseline_of(made, "framework=jax").columns == {("torch", "bf16"): ("jax", "bf16")}
    with pytest.raises(UserError, match=r"no column has this value; there are: jax, fp32, bf16, torch"):
        baseline_of(made, "fp64")
    with pytest.raises(UserError, match="name their factors with --columns"):
        baseline_of(grid(Cases.of(records), "framework,precision", ""), "fp32")


def test_small_values_without_a_spread_have_an_exponent():
    """Numeric errors do: of one in fp64, 15 zeros would stand before the first digit."""
    assert [shown(value, None) for value in (4.6244e-16, 9.99e-5, 1e-4, 0.0377, 0.0)] == [
        "4.624e-16",
        "9.990e-05",
        "0.0001000",
        "0.03770",
        "0",
    ]
