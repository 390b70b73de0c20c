"""`archive add`, `query`, and commands on an archive in place of the folder that it was made from."""

from __future__ import annotations

import json
import sys

import pytest
from unit.records.test_archive import save_run


@pytest.fixture
def added(command, tmp_path):
    """Two runs, and an archive of them; the second is of another year."""
    save_run(tmp_path / "results", trials=6)
    save_run(tmp_path / "results", 1, year=2025)
    return command("archive", "add", "results", "--to=archive")


def test_it_says_what_was_added(added, command):
    assert (added.returncode, added.stdout) == (0, "added 18 trials of 2 runs (archive)\n")
    again = command("archive", "add", "results", "nothing", "--to=archive", "--json")
    assert again.returncode == 1
    assert json.loads(again.stdout) == {
        "trials": 0,
        "runs": 0,
        "present": 18,
        "faults": [{"path": "nothing", "reason": "no such file or folder"}],
    }
    assert again.stderr == "benchmarker: cannot read nothing: no such file or folder\n"


def test_nothing_to_add_leaves_no_archive(command, tmp_path):
    done = command("archive", "add", "missing", "--to=new")
    assert (done.returncode, done.stdout) == (1, "added 0 trials of 0 runs (new)\n")
    assert done.stderr == "benchmarker: cannot read missing: no such file or folder\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words",
    [
        "show RESULT",
        "show RESULT --where=ms=1 --trials",
        "show RESULT --where=ms=1 --where=\"run_id LIKE '2026%'\" --json",
        "table RESULT --value=step_time_median_s,roof_share",
        "table RESULT --where=ms=0,1 --where=\"status = 'ok'\"",
        "compare RESULT --by=ms --json",
        "pareto RESULT",
        "suite score RESULT --by=ms --contender=1.0",
        'query RESULT "SELECT problem, count(*) AS n, sum(step_time_median_s) AS s FROM trials GROUP BY ALL"',
        'query RESULT "SELECT * FROM blocks ORDER BY ALL" --csv',
        "validate RESULT --json",
    ],
)
@pytest.mark.usefixtures("added")
def test_an_archive_answers_as_its_folder_does(command, words):
    import shlex

    of_folder, of_archive = (command(*shlex.split(words.replace("RESULT", each))) for each in ("results", "archive"))
    assert of_folder.returncode == of_archive.returncode
    assert of_folder.stdout
    assert of_archive.stdout.replace("archive/", "results/") == of_folder.stdout
    assert of_archive.stderr.replace("archive/", "results/") == of_folder.stderr


@pytest.mark.usefixtures("added")
def test_a_report_of_an_archive_is_that_of_its_folder(command, tmp_path):
    for result in ("results", "archive"):
        assert command("report", result, "-o", f"{result}.html").returncode == 0
    assert "nap" in (tmp_path / "archive.html").read_text()


@pytest.mark.usefixtures("added")
def test_each_side_has_what_fits(command):
    done = command("show", "archive", "results/20260302T030405.000000-89abcdef", "--where=side=archive")
    assert "both contain the trial" in done.stderr
    data = json.loads(command("show", "archive", "--where=started_s < 1750000000", "--json").stdout)
    assert {each["run_id"][:4] for each in data} == {"2025"}


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("result", ["archive", "results"])
def test_a_wrong_condition_is_explained(command, result):
    def refused(*conditions):
        done = command("show", result, *(f"--where={each}" for each in conditions))
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        return done.stderr

    assert "--where=ms: write NAME=VALUE" in refused("ms")
    assert 'Referenced column "mss" not found' in refused("mss > 1")
    assert "DESCRIBE trials lists the columns" in refused("problem = gpt2")
    assert "--where=problem = 'gpt2': no record fits; `show` lists the cases" in refused("problem = 'gpt2'")
    assert "syntax error" in refused("ms >")
    assert "no record" in refused("ms=7")


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("words", ["profile kernels", "telemetry", "suite check"])
def test_what_an_archive_does_not_keep_is_sought_in_the_folder(command, words):
    done = command(*words.split(), "archive")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("benchmarker: error: archive is an archive, which keeps no ")
    assert done.stderr.endswith("; name the folder of the run\n")


@pytest.mark.usefixtures("added")
def test_sql_reaches_nothing_but_the_records(command):
    for statement in ("COPY records TO 'out.csv'", "SELECT 1; SELECT 2", "DROP VIEW trials"):
        assert "not one statement that only reads" in command("query", "archive", statement).stderr
    assert "Permission Error" in command("query", "archive", "SELECT * FROM read_text('archive/archive.json')").stderr
    assert "reads one archive" in command("query", "archive", "results", "SELECT 1").stderr
    assert "The tables are trials, blocks" in command("query", "archive", "SELECT * FROM events").stderr


@pytest.mark.usefixtures("added")
def test_without_duckdb_an_archive_is_shown_but_not_queried(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert command("show", "archive").returncode == 0
    for result in ("results", "archive"):
        assert command("show", result, "--where=ms=1").returncode == 0
    for words in (["query", "archive", "SELECT 1"], ["show", "archive", "--where=problem = 'nap'"]):
        done = command(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "SQL over records needs the module 'duckdb'; pip install" in done.stderr
