"""References: read, refused, and drafted from records."""

import msgspec
import pytest
from support.records import make_record

from benchmarker import UserError
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import load_metrics
from benchmarker.procurement import reference

FAILURE = {"kind": "killed", "message": "by signal 9", "stage": "timed"}


def read(tmp_path, text):
    path = tmp_path / "reference.toml"
    path.write_text(text)
    return reference.read(path)


FIVE = reference.Tolerance(0.05)


def test_bounds_as_they_are_written(tmp_path):
    found = read(
        tmp_path,
        "format_version = 1\n"
        '[[case]]\nname = "least"\nmatch = {problem = "gemm", batch-size = 1}\nmin = 100\ntrials = 6\n'
        '[[case]]\nmatch = {m = 1, seed = 0}\nmetric = "step_time_median_s"\nmax = 0.5\n'
        '[[case]]\nmatch = {}\nvalue = 200\ntolerance = "5%"\n'
        "[[case]]\nmatch = {}\nvalue = -200.0\ntolerance = 0.1\n",
    )
    assert found[0] == reference.Wanted("least", {"problem": "gemm", "batch_size": 1}, "samples_per_s", 100, None, 6)
    assert found[1] == reference.Wanted("m=1 seed=0", {"m": 1, "seed": 0}, "step_time_median_s", None, 0.5, 1)
    assert (found[2].name, found[2].low, found[2].high) == ("any", 190, 210)
    assert (found[3].low, found[3].high) == pytest.approx((-220, -180))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no [[case]]"),
        ("format_version = 2", "format_version is 2; this version of benchmarker reads 1"),
        ("format_version = 'x'", 'format_version="x": not a whole number'),
        ("cases = 1\n[[case]]\nmatch = {}\nmin = 1", "there is no key cases; there are: format_version, case"),
        ("case = 3", "case=3: not a list"),
        ("[[case]]\nmin = 1", "case 1 needs match"),
        ("[[case]]\nmatch = {}", "case 1 has no bound; give min, max, or value and tolerance"),
        (
            "[[case]]\nmatch = {}\nmin = 1\n[[case]]\nmatch = {}\nmini = 1",
            "case 2 has no key mini; there are: match, name",
        ),
        ("[[case]]\nmatch = {}\nmin = nan", "case 1.min=nan: not a finite number"),
        ("[[case]]\nmatch = {}\nmin = '3'", 'case 1.min="3": not a number'),
        ("[[case]]\nmatch = {}\nmin = 2\nmax = 1", "case 1: min is above max"),
        ("[[case]]\nmatch = {}\nmin = 2\ntrials = 0", "case 1.trials=0: must be at least 1"),
        ("[[case]]\nmatch = {}\nvalue = 2", "case 1: value and tolerance go together"),
        ("[[case]]\nmatch = {}\nmin = 2\ntolerance = '5%'", "case 1: value and tolerance go together"),
        ("[[case]]\nmatch = {}\nvalue = 2\ntolerance = '5%'\nmax = 3", "case 1: value and tolerance replace"),
        (
            "[[case]]\nmatch = {}\nvalue = 2\ntolerance = 5",
            'case 1.tolerance: 5.0 is not a share between 0 and 1; write "5%" or 0.05',
        ),
        ("[[case]]\nmatch = {}\nvalue = 2\ntolerance = 'x%'", "case 1.tolerance: 'x%' is not a share"),
        ("[[case]]\nmatch = {m = []}\nmin = 2", "case 1.match.m: not a number, text, true or false"),
        ("[[case]]\nmatch = 3\nmin = 2", "case 1.match=3: not a table"),
        ("[[case]", "not TOML: "),
    ],
)
def test_mistakes_name_file_and_key(tmp_path, text, message):
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'reference.toml'}: {message}")


def test_a_draft_asks_for_what_was_measured_less_the_tolerance(tmp_path):
    steps = ((1.0, 2.0, 4.0), (8.0, 8.0, 8.0))
    odd = 'a "b" \\ é\x7f\n'
    records = [
        make_record(step, trial=trial, case={"params": {"ms": 1.0 + case, "odd": odd}}, design={"case_number": case})
        for case, several in enumerate(steps)
        for trial, step in enumerate(several)
    ]
    cases, left_out, _ = reference.draft(Cases.of(records), "samples_per_s", FIVE, load_metrics())
    assert left_out == []
    assert [(case.bound, case.limit, case.trials) for case in cases] == [("min", 0.95, 3), ("min", 0.2375, 3)]
    text = reference.text(cases)
    assert "min = 0.95  # median of 3 trials: 1 1/s" in text
    found = read(tmp_path, text)
    assert [(each.name, each.low, each.high, each.trials) for each in found] == [
        (f"nap ms=1.0 odd={odd.strip()}", 0.95, None, 3),
        (f"nap ms=2.0 odd={odd.strip()}", 0.2375, None, 3),
    ]
    assert found[0].match["odd"] == odd
    assert found[0].match["device"] == "cpu"
    assert not {"gpu", "seconds", "preheat"} & found[0].match.keys()
    times, _, _ = reference.draft(Cases.of(records), "step_time_median_s", FIVE, load_metrics())
    assert (times[0].bound, times[0].limit) == ("max", 2.1)


def test_how_it_was_measured_is_asked_for_where_it_tells_cases_apart():
    measured = make_record().case.measuring
    records = [
        make_record(case={"measuring": msgspec.structs.replace(measured, seconds=seconds)}, trial=trial)
        for trial, seconds in enumerate((1.0, 2.0))
    ]
    cases, _, _ = reference.draft(Cases.of(records), "samples_per_s", FIVE, load_metrics())
    assert [case.match["seconds"] for case in cases] == [1.0, 2.0]


def test_what_failed_or_has_no_value_is_no_model():
    good, bad = make_record(case={"seed": 1}), make_record(trial=1)
    bad = msgspec.convert({**msgspec.to_builtins(bad), "status": "failed", "error": FAILURE}, type(bad))
    cases, left_out, _ = reference.draft(Cases.of([good, bad]), "samples_per_s", FIVE, load_metrics())
    assert [case.match["seed"] for case in cases] == [1]
    assert left_out == ["nap ms=1.0 seed=0: 1 of 1 trial failed: killed: by signal 9"]
    cases, left_out, _ = reference.draft(Cases.of([good]), "tokens_per_s", FIVE, load_metrics())
    assert (cases, left_out) == ([], ["nap ms=1.0: nap has no tokens"])
    with pytest.raises(UserError, match="no metric is named 'speed'; there are: "):
        reference.draft(Cases.of([good]), "speed", FIVE, load_metrics())
