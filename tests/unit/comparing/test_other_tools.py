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


def nvbench(run):
    def summary(tag, value, kind="float64"):
        data = [{"name": "value", "type": kind, "value": value}]
        return {"tag": tag, "name": "GPU Time", "hint": "duration", "data": data}

    def state(values, summaries, **more):
        axes = [{"name": name, "type": "int64", "value": str(value)} for name, value in values.items()]
        return {"name": "Device=0", "device": 0, "axis_values": axes or None, "summaries": summaries, **more}

    measured = [
        summary("nv/cold/sample_size", "120", "int64"),
        summary("nv/cold/time/cpu/mean", "9.0"),
        summary("nv/cold/time/gpu/mean", f"{2e-5 * factor(run)!r}"),
        summary("nv/cold/time/gpu/stdev/relative", None),
        {"tag": "nv/cold/hidden", "hide": "Hidden by default."},
    ]
    on_cpu = (
        [summary("nv/cpu_only/time/cpu/mean", "0.5")] if run == 0 else [summary("nv/cpu_only/time/cpu/mean", "nan")]
    )
    return {
        "meta": {
            "argv": ["./copy"],
            "version": {"json": {"major": 1, "string": "1.0.0"}, "nvbench": {"string": "0.1.0"}},
        },
        "devices": [{"id": 0, "name": "Card", "ecc_state": run >= STEP}],
        "benchmarks": [
            {
                "name": "copy",
                "states": [
                    state({"Elements": 2**20, "Block": 256}, measured, is_skipped=False),
                    state({"Elements": 2**30, "Block": 256}, None, is_skipped=True, skip_reason="no memory"),
                ],
            },
            *([{"name": "host", "states": [state({}, on_cpu)]}] if run < 2 else []),
            {"name": "none", "states": None},
        ],
    }


MAKERS = {
    "pytest-benchmark": pytest_benchmark,
    "hyperfine": hyperfine,
    "Google Benchmark": google_benchmark,
    "nvbench": nvbench,
}
COLUMNS = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25"]
COLUMNS += ["stats_q_75", "stats_number", "stats_repeat", "samples", "profile"]


def asv(run, machine="ci", version="a" * 64):
    """What asv 0.6 writes for a commit: of four combinations of parameters, one failed and one was skipped."""
    times = [1e-6 * factor(run), 2e-6, None, float("nan")]
    params = [["10", "1000"], ["'a'", "'b'"]]
    stats = [[time, time, None, None] for time in (1e-6, 3e-6, 1e-6, 3e-6)]
    return {
        "commit_hash": f"{run:02}" * 20,
        "env_name": "virtualenv-py3.12-numpy",
        "date": 1772323200000 + 86400000 * run,  # 2026-03-01
        "params": {
            "arch": "x86_64",
            "cpu": "Xeon",
            "machine": machine,
            "python": "3.12",
            "numpy": f"2.{run >= STEP:d}",
        },
        "python": "3.12",
        "requirements": {"numpy": ""},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": {
            "b.Suite.time_sum": [
                times,
                params,
                version,
                1,
                2.0,
                *stats,
                [5, 5, None, None],
                [2, 2, None, None],
                [[1], [2]],
            ],
            "b.peakmem_list": [[28160000], [], version, 1, 0.2],
            "b.track_rows": [[42], [], version, 1, 0.1],
            "b.time_fails": [None, [], version, 1, 0.2],
        },
        "durations": {"<build>": 1.0},
        "version": 2,
    }


@pytest.fixture
def files(tmp_path):
    def write(tool, runs=RUNS):
        made = []
        for run in range(runs):
            made.append(tmp_path / f"run{run:02}.json")
            made[-1].write_text(json.dumps(MAKERS[tool](run)))
        return made

    return write


@pytest.fixture
def asv_results(tmp_path):
    """Write the results of asv for commits on a machine; return their folder."""

    def write(machine="ci", runs=RUNS, **options):
        folder = tmp_path / "results" / machine
        folder.mkdir(parents=True)
        (folder / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
        known = {"b.track_rows": {"type": "track", "unit": "rows"}, "version": 2}
        (folder.parent / "benchmarks.json").write_text(json.dumps(known))
        for run in range(runs):
            made = asv(run, machine, **options)
            (folder / f"{made['commit_hash'][:8]}-{made['env_name']}.json").write_text(json.dumps(made))
        return folder.parent

    return write


@pytest.mark.parametrize(
    ("tool", "name", "seconds", "trials"),
    [
        ("pytest-benchmark", "test_a.py::test_sum[100]", 1e-6, 1),
        ("hyperfine", "sleep 0.1 n=1", 0.1, 3),
        ("Google Benchmark", "BM_sum/8", 5e-6, 1),
        ("nvbench", "copy Elements=1048576 Block=256", 2e-5, 1),
    ],
)
def test_a_series_has_the_times_the_change_and_what_the_tool_lacks(files, tool, name, seconds, trials):
    made = files(tool)
    assert {tool_of(path) for path in made} == {tool}
    order = made if tool in ("hyperfine", "nvbench") else made[::-1]  # others are sorted by their dates
    series, *_ = series_of(order, "date")
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


def test_a_folder_that_is_not_of_asv_is_refused(asv_results):
    results = asv_results()
    with pytest.raises(UserError, match=f"^{results.parent}: not the results of asv; give records and files"):
        series_of([results, results.parent], "date")


def test_the_results_of_asv_are_a_series_of_each_combination_of_parameters(asv_results):
    results = asv_results()
    assert (tool_of(results), tool_of(results / "ci"), tool_of(results.parent)) == ("asv", "asv", "")
    one, other = series_of([results], "commit")
    assert [one.name, other.name] == ["b.Suite.time_sum(10, 'a')", "b.Suite.time_sum(10, 'b')"]
    assert [point.value for point in one.points] == pytest.approx([1e-6 * factor(run) for run in range(RUNS)])
    assert {(point.low, point.high, point.trials) for point in one.points} == {(None, None, 1)}
    assert (one.points[3].label, one.points[3].started_at) == ("03" * 6, "2026-03-04T00:00:00Z")
    (change,) = one.changes
    assert (change.before, change.after, change.environment) == ("11" * 6, "12" * 6, ["numpy 2.0 → 2.1"])
    assert "which of its times are from which process" in one.lacks


@pytest.mark.parametrize(
    ("metric", "name", "unit", "value"),
    [("peak_memory_bytes", "b.peakmem_list", "B", 28160000), ("rows", "b.track_rows", "", 42)],
)
def test_other_numbers_of_asv_are_metrics(asv_results, metric, name, unit, value):
    (series,) = series_of([asv_results(runs=2)], "date", metric)
    assert (series.name, series.metric, series.unit) == (name, metric, unit)
    assert [point.value for point in series.points] == pytest.approx([value, value])


def test_machines_and_versions_of_a_benchmark_of_asv_are_apart(asv_results):
    asv_results("one", 2)
    results = asv_results("two", 3, version="b" * 64)
    several = series_of([results], "date", "rows")
    assert [(series.name, len(series.points)) for series in several] == [
        ("b.track_rows, host one, version aaaaaaaaaaaa", 2),
        ("b.track_rows, host two, version bbbbbbbbbbbb", 3),
    ]


def test_a_metric_that_no_file_has_is_refused_with_those_that_there_are(asv_results):
    with pytest.raises(UserError, match="no file has a fan above 0; they have: time_s, peak_memory_bytes, rows"):
        series_of([asv_results(runs=1)], "date", "fan")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "version 1 of the format, not 2: `asv update` may convert it"),
        ({"results": {"a": [[1.0], [["1", "2"]], "v"]}}, "1 results of a, which has other parameters"),
        ({"results": {"a": [[1.0] * 9, [["1"] * 999] * 99]}}, "9 results of a"),
        ({"results": {"a": 3}}, "TypeError"),
        ({"params": {}}, "KeyError 'machine'"),
        ({"date": 1e300}, "OverflowError"),
    ],
)
def test_damaged_results_of_asv_are_named_in_one_line(asv_results, change, message):
    results = asv_results(runs=1)
    (file,) = (results / "ci").glob("0*.json")
    file.write_text(json.dumps(asv(0) | change))
    with pytest.raises(UserError) as error:
        series_of([results], "date")
    assert f"{file}: not as asv writes it: " in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_state_of_nvbench_on_the_cpu_and_one_without_a_time(files):
    copy, host = series_of(files("nvbench"), "date")
    assert (host.name, [point.value for point in host.points]) == ("host", [0.5])
    assert copy.changes[0].environment == ["ecc False → True"]


def test_devices_of_nvbench_are_apart_and_a_newer_format_is_refused(tmp_path):
    content = nvbench(0)
    content["devices"].append({"id": 1, "name": "Card", "ecc_state": False})
    path = tmp_path / "two.json"
    path.write_text(json.dumps(content))
    assert [series.name for series in series_of([path], "date")] == [
        "copy Elements=1048576 Block=256 device=0",
        "host device=0",
    ]
    content["meta"]["version"]["json"] = {"major": 2, "string": "2.0.0"}
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"not as nvbench writes it: ValueError version 2\.0\.0 of the format is not 1"):
        series_of([path], "date")


def test_the_command_takes_a_metric_of_asv(command, asv_results):
    asv_results(runs=3)
    done = command("history", "results", "--metric=rows", "--by=commit")
    assert done.returncode == 0, done.stderr
    assert "b.track_rows" in done.stdout
    assert "note: asv: it does not say which of its times" in done.stdout


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
