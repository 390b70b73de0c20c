"""`table`: what a user asks for, sees, and is refused."""

import csv
import io
import json

import msgspec
import pytest
from support.records import QUIET, make_record

from benchmarker.files import atomic
from benchmarker.records.record import Failure


@pytest.fixture
def results(tmp_path):
    """Nine rounds of two sizes in two precisions; the large one runs out of memory in fp32."""
    folder = tmp_path / "results"
    folder.mkdir()
    cases = [(size, precision) for size in (1, 2) for precision in ("fp32", "bf16")]
    for number, (size, precision) in enumerate(cases):
        for trial in range(9):
            step_s = 0.02 * size * (0.5 if precision == "bf16" else 1.0) * (1 + trial % 5 / 1000)
            case = {"precision": precision, "params": {"ms": size}}
            record = make_record(step_s, trial=trial, case=case, design={"case_number": number})
            if (size, precision) == (2, "fp32"):
                error = Failure("skipped" if trial else "out_of_memory", "no memory", "build")
                record = msgspec.structs.replace(record, status="failed", error=error)
            atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    return folder


ASKED = ("table", "results", "--rows=ms", "--columns=precision")


def test_a_table_has_a_title_headings_with_the_unit_and_notes(command, results):
    done = command(*ASKED)
    assert done.returncode == 0
    assert done.stdout.splitlines()[:4] == [
        "step time (median): nap in toy on cpu",
        "ms       fp32, ms          bf16, ms",
        " 1   20.04 ± 0.04  10.020 ± 0.020 *",
        " 2  out of memory      20.04 ± 0.04",
    ]
    assert "* better than each other cell of the row that does the same work" in done.stdout
    assert "median over 9 trials ± its 95% interval (the farther end)" in done.stdout


def test_the_difference_has_a_column_in_the_unit_and_one_in_percent(command, results):
    rows = list(csv.DictReader(io.StringIO(command(*ASKED, "--difference=fp32", "--format=csv").stdout)))
    assert float(rows[0]["bf16 step_time_median_s difference"]) == pytest.approx(-0.01, rel=0.01)
    assert float(rows[0]["bf16 step_time_median_s ratio"]) == pytest.approx(0.5)
    assert rows[0]["bf16 step_time_median_s verdict"] == "faster"
    assert rows[1]["fp32 step_time_median_s"] == "out of memory"
    assert rows[1]["bf16 step_time_median_s difference"] == ""
    text = command(*ASKED, "--difference=precision=fp32", "--format=markdown").stdout
    assert "| ms | fp32, ms | bf16, ms | bf16, Δ % | bf16, Δ ms |" in text
    assert "Δ is the difference from fp32" in text


def test_json_has_every_cell_with_its_comparison_and_the_notes(command, results):
    made = json.loads(command(*ASKED, "--difference=fp32", "--json").stdout)
    cells = {(each["row"]["ms"], each["column"]["precision"]): each for each in made["cells"]}
    assert cells[1, "bf16"]["best"]
    assert cells[1, "bf16"]["difference"]["verdict"] == "faster"
    assert (cells[2, "fp32"]["median"], cells[2, "fp32"]["failure"]) == (None, "out of memory")
    assert any("9 trials" in note for note in made["notes"])


def test_cases_are_selected_as_tables_show_their_factors(command, results):
    text = command(*ASKED, "--where=ms=1", "--where=precision=bf16,fp32", "--format=markdown").stdout
    assert "out of memory" not in text
    assert "| 1 |" in text
    assert "no record has ms=3; they have 1, 2" in command(*ASKED, "--where=ms=3").stderr
    assert "no record has a presicion; did you mean precision" in command(*ASKED, "--where=presicion=1").stderr
    assert "--where=ms: write NAME=VALUE" in command(*ASKED, "--where=ms").stderr


def test_several_values_are_columns_and_each_has_its_own_unit(command, results):
    text = command(*ASKED, "--value=step_time_median_s,host_peak_rss_bytes,samples_per_s", "--format=markdown").stdout
    heading = next(line for line in text.splitlines() if line.startswith("| ms"))
    assert "fp32, step time (median), ms | fp32, host peak rss, MiB | fp32, samples/s |" in heading


def test_without_intervals_they_decide_the_digits_only(command, results):
    text = command(*ASKED, "--no-intervals").stdout
    assert "±" not in text
    assert "20.04" in text
    assert "median over 9 trials" in text


def test_a_file_has_the_format_of_its_ending_and_is_written_whole(command, results, tmp_path):
    done = command(*ASKED, "--title=Sizes & precisions", "-o", "table.tex")
    assert (done.returncode, done.stdout) == (0, "")
    assert r"\caption{Sizes \& precisions}" in (tmp_path / "table.tex").read_text()
    for name, begin in (("t.md", "**"), ("t.html", "<!doctype html>"), ("t.csv", "ms,"), ("t.txt", "step time")):
        command(*ASKED, "-o", name)
        assert (tmp_path / name).read_text().startswith(begin)
    assert "its ending names no format" in command(*ASKED, "-o", "table.pdf").stderr
    assert "cannot write" in command(*ASKED, "-o", "nowhere/table.tex").stderr
    assert list(tmp_path.glob(".*")) == []


def test_a_csv_keeps_its_notes_out_of_the_data(command, results):
    done = command(*ASKED, "--format=csv")
    assert "trials" not in done.stdout
    assert "median over 9 trials" in done.stderr


def test_doubtful_cells_are_named(command, results):
    path = next(results.glob("run-0003-1.json"))
    record = msgspec.json.decode(path.read_bytes())
    busy = msgspec.to_builtins(msgspec.structs.replace(QUIET, other_busy_cores=3.0))
    record |= {"interference": busy}
    record["machine"]["host"] = "elsewhere"
    path.write_bytes(msgspec.json.encode(record))
    text = command(*ASKED).stdout
    assert "1, bf16: 1 of 9 trials was disturbed, for instance: other processes kept 3.0 cores busy" in text
    assert "1, bf16: the trials of a case differ in host" in text
    assert "cells also differ in factors that are neither in rows nor in columns: host (" in text


def test_factors_that_follow_from_those_of_the_axes_are_not_reported(command, tmp_path):
    from benchmarker.hooks import registry
    from benchmarker.hooks.parameters import resolve

    problem = registry.problem("gpt2")
    for number, (size, seq_len) in enumerate((("small", 128), ("medium", 256))):
        record = make_record(case={"precision": "fp32"}, design={"case_number": number})
        full = resolve(problem, {"size": size, "seq_len": seq_len}, "cpu")
        case = msgspec.structs.replace(record.case, problem="gpt2", params=full)
        path = tmp_path / "results" / f"{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, case=case)))
    text = command("table", "results", "--rows=size", "--value=parameters,step_time_median_s").stdout
    assert "cells also differ in factors that are neither in rows nor in columns: seq_len (128, 256)\n" in text
    assert "n_layer" not in text
    assert "124.4" in text
    assert "354.8" in text
    assert "one trial of each case, so there is no interval" in text


def test_cells_that_no_test_can_compare_have_no_line_on_bold(command, tmp_path):
    for number, framework in enumerate(("jax", "torch")):
        case = {"framework": framework, "compile": framework == "jax"}
        path = tmp_path / "results" / f"{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(msgspec.json.encode(make_record(1.0 + number, case=case, design={"case_number": number})))
    text = command("table", "results").stdout
    assert "*" not in text
    assert "best of a row: 1 of 1 comparison: a side has fewer than two processes" in text
    assert "neither axis" not in text  # a framework may compile every step


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("table", "results", "--rows=ms"), "would share a cell (1); add precision to --rows or --columns"),
        ((*ASKED, "--value="), "--value names no value"),
        ((*ASKED, "--value=step"), "no metric is named 'step'"),
        ((*ASKED, "--difference=fp64"), "no column has this value; there are: fp32, bf16"),
        ((*ASKED, "--json", "--format=csv"), "--json, --csv and --format exclude each other"),
        (("table", "nothing"), "no record was read"),
    ],
)
def test_mistakes_are_refused_in_one_line(command, results, words, told):
    done = command(*words)
    assert done.returncode == 2
    assert told in done.stderr.splitlines()[-1]
