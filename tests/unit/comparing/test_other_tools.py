"""Series from files of other tools, as these tools write them."""

import json

import numpy as np
import pytest

from benchmarker.api.errors import UserError
from benchmarker.comparing.other_tools import series_of, tool_of

RUNS, STEP = 20, 12


def factor(run):
    return (1.1 if run >= STEP else 1.0) * float(np.exp(np.random.default_rng(run).normal(0, 0.005)))


def pytest_benchmark(run):
    return {
        "machine_info": {"node": "ci", "python_version": "3.11.7", "release": "6.1", "cpu": {"brand_raw": "Xeon"}},
        "commit_info": {"id": f"{run:02}" * 20, "time": None, "dirty": run == 1, "project": "p", "branch": "main"},
        "benchmarks": [{"fullname": "test_a.py::test_sum[100]", "stats": {"median": 1e-6 * factor(run), "min": 1e-7}}],
        "datetime": f"2026-03-{run + 1:02}T01:00:00.123456+01:00",
        "version": "5.1.0" if run < STEP else "5.2.0",
    }


def hyperfine(run):
    times = [0.1 * factor(run) * scale for scale in (0.99, 1.0, 1.02)]
    each = {"command": "sleep 0.1", "mean": 9.0, "median": times[1], "times": times, "exit_codes": [0, 0, 0]}
    return {"results": [each | {"parameters": {"n": "1"}}]}


def google_benchmark(run):
    one = {"name": "BM_sum/8", "run_name": "BM_sum/8", "run_type": "iteration", "cpu_time": 1.0, "time_unit": "us"}
    return {
        "context": {"date": f"2026-03-{run + 1:02}T00:00:00+00:00", "host_name": "ci", "num_cpus": 2},
        "benchmarks": [
            *(
                one | {"repetition_index": at, "real_time": 5 * factor(run) * scale}
                for at, scale in enumerate((1, 1, 9))
            ),
            one | {"run_type": "aggregate", "aggregate_name": "mean", "name": "BM_sum/8_mean", "real_time": 99.0},
            {"name": "BM_bad", "run_name": "BM_bad", "run_type": "iteration", "error_occurred": True},
        ],
    }


MAKERS = {"pytest-benchmark": pytest_benchmark, "hyperfine": hyperfine, "Google Benchmark": google_benchmark}


@pytest.fixture
def files(tmp_path):
    def write(tool, runs=RUNS):
        made = []
        for run in range(runs):
            made.append(tmp_path / f"run{run:02}.json")
            made[-1].write_text(json.dumps(MAKERS[tool](run)))
        return made

    return write


@pytest.mark.parametrize(
    ("tool", "name", "seconds", "trials"),
    [
        ("pytest-benchmark", "test_a.py::test_sum[100]", 1e-6, 1),
        ("hyperfine", "sleep 0.1 n=1", 0.1, 3),
        ("Google Benchmark", "BM_sum/8", 5e-6, 1),
    ],
)
def test_a_series_has_the_times_the_change_and_what_the_tool_lacks(files, tool, name, seconds, trials):
    made = files(tool)
    assert {tool_of(path) for path in made} == {tool}
    order = made if tool == "hyperfine" else made[::-1]  # others are sorted by their dates
    (series,) = series_of(order, "date")
    assert (series.name, series.unit, series.lacks.partition(":")[0]) == (name, "s", tool)
    assert [point.run for point in series.points] == [path.stem for path in made]
    assert [point.value for point in series.points] == pytest.approx([seconds * factor(run) for run in range(RUNS)])
    assert {point.trials for point in series.points} == {trials}
    (change,) = series.changes
    assert (change.at, change.direction, change.confirm) == (STEP, "worse", [])
    assert "measure both sides in turns" in change.unconfirmed


def test_a_commit_and_what_else_changed_are_those_of_the_file(files):
    (series,) = series_of(files("pytest-benchmark"), "commit")
    assert [point.label for point in series.points[:2]] == ["00" * 6, "01" * 6 + "+changes"]
    assert series.changes[0].environment == ["pytest_benchmark 5.1.0 → 5.2.0"]
    (series,) = series_of(files("Google Benchmark"), "node")
    assert series.case == {"tool": "Google Benchmark", "name": "BM_sum/8", "host": "ci"}
    assert series.points[1].label == "2026-03-02 00:00"


def test_a_date_is_in_utc(files):
    (series,) = series_of(files("pytest-benchmark", 1), "date")
    assert series.points[0].label == "2026-03-01 00:00"


def test_what_a_tool_does_not_say_is_refused(files):
    with pytest.raises(UserError, match="--by=commit: no record knows it; they know: date"):
        series_of(files("hyperfine"), "commit")


@pytest.mark.parametrize("content", ["{", "[1]", "{}", '{"benchmarks": []}'])
def test_another_file_is_of_no_tool(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    assert tool_of(path) == ""
    with pytest.raises(UserError, match="neither a record nor a file of pytest-benchmark, hyperfine"):
        series_of([path], "date")


@pytest.mark.parametrize(
    "results", [[{"command": "a"}], [3], {"a": 1}, [{"command": "a", "times": ["x"]}], [{"command": "a", "times": [0]}]]
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, results):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"results": results}))
    with pytest.raises(UserError) as error:
        series_of([path], "date")
    assert "\n" not in str(error.value)


def test_the_command_takes_them(command, files, tmp_path):
    names = [path.name for path in files("hyperfine")]
    done = command("history", *names, "-o", "page.html")
    assert done.returncode == 0, done.stderr
    assert "sleep 0.1 n=1" in done.stdout
    assert "between date run11 and run12" in done.stdout
    assert "note: hyperfine: it says neither when, nor where" in done.stdout
    assert "hyperfine: it says neither when" in (tmp_path / "page.html").read_text()
    refused = command("history", *names, "--problem=gemm")
    assert (refused.returncode, "leave --problem out" in refused.stderr) == (2, True)
