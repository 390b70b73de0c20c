"""`history`: change points of series of stored records, and what else changed there."""

import hashlib
import json
import re
import shlex
import subprocess

import msgspec
import numpy as np
import pytest
from support.records import make_record

import benchmarker
from benchmarker.files import atomic
from benchmarker.records.machine import Gpu, SourceFile

STEP = 14
GPU = Gpu(0, "Card", "GPU-a", "560.1", "9.0", 2**30, 300.0, "off", "off", 0)


@pytest.fixture
def write(tmp_path):
    """Write runs of 3 trials, one a day, with a commit each; from run 14 on, a factor slower; return the folder."""

    def write(runs=24, factor=1.05, change=lambda record, _run: record, name="results", commit="c{:02}"):
        rng = np.random.default_rng(5)
        for run in range(runs):
            day = rng.normal(0, 0.004)
            for trial in range(3):
                log = day + rng.normal(0, 0.002) + (np.log(factor) if run >= STEP else 0)
                case = {"problem": "soft.py", "params": {"function": "fused"}, "source": f"{run:02}" * 32}
                record = make_record(1e-3 * float(np.exp(log)), run=f"run-{run:02}", trial=trial, case=case)
                command = "python -m benchmarker run --framework=toy --problem=soft.py --function=fused --n=4"
                record = msgspec.structs.replace(
                    record,
                    trial_id=f"202603{run + 1:02}T000000.{trial:06}-00000000",
                    started_at=f"2026-03-{run + 1:02}T00:00:00Z",
                    source=SourceFile("soft.py", f"{run:02}" * 32, commit.format(run)),
                    command=command,
                )
                record = change(record, run)
                folder = tmp_path / name / record.run_id
                folder.mkdir(parents=True, exist_ok=True)
                atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
        return name

    return write


def told(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_change_has_its_place_its_size_and_the_commands_that_confirm_it(command, write):
    (series,) = told(command("history", write(), "--by=commit", "--json"))
    assert [point["label"] for point in series["points"]] == [f"c{run:02}" for run in range(24)]
    assert all(point["low"] < point["value"] < point["high"] and point["trials"] == 3 for point in series["points"])
    (change,) = series["changes"]
    assert (change["before"], change["after"], change["direction"]) == ("c13", "c14", "worse")
    assert change["low"] < 1.05 < change["high"] < 1.08
    assert change["environment"] == []
    *checkouts, ab = map(shlex.split, change["confirm"])
    assert checkouts == [
        ["git", "worktree", "add", "--detach", "../before", "c13"],
        ["git", "worktree", "add", "--detach", "../after", "c14"],
    ]
    assert ab[3:] == [
        "ab",
        *("--a=--problem=../before/soft.py", "--b=--problem=../after/soft.py"),
        *("--framework=toy", "--function=fused", "--n=4"),
    ]


def test_the_table_fits_and_says_that_a_change_is_a_suspicion(command, write):
    done = command("history", write(), "--by=commit")
    assert done.returncode == 0, done.stderr
    assert "worse +5." in done.stdout
    assert "worse, +5." in done.stdout and "between commit c13 and c14 (suspected from c" in done.stdout
    assert "also changed" not in done.stdout and "nothing else that is recorded changed there" in done.stdout
    assert "a change is a suspicion until" in done.stdout


def test_a_driver_that_changed_with_the_commit_is_named(command, write):
    def change(record, run):
        gpu = msgspec.structs.replace(GPU, driver="570.2") if run >= STEP else GPU
        return msgspec.structs.replace(record, machine=msgspec.structs.replace(record.machine, gpus=[gpu]))

    (series,) = told(command("history", write(change=change), "--by=commit", "--json"))
    assert series["changes"][0]["environment"] == ["driver 560.1 → 570.2"]
    (series,) = told(command("history", "results", "--by=driver", "--json"))
    (found,) = series["changes"]
    assert (found["before"], found["after"]) == ("560.1", "570.2")
    assert found["environment"] == ["commit c13 → c14", f"source {'13' * 6} → {'14' * 6}"]


def test_of_the_same_commit_the_commit_is_not_the_cause(command, write):
    (series,) = told(command("history", write(commit="c"), "--by=commit", "--json"))
    (change,) = series["changes"]
    assert (change["before"], change["after"], change["confirm"]) == ("c", "c", [])
    assert "commit is the same on both sides, so it is not the cause" in change["unconfirmed"]
    said = command("history", "results", "--by=commit").stdout
    assert "between 2026-03-14T00:00:00Z and 2026-03-15T00:00:00Z, commit c on both sides" in said


def test_uncommitted_changes_cannot_be_checked_out(command, write):
    (series,) = told(command("history", write(commit="c{:02}+changes"), "--by=commit", "--json"))
    assert "changes that no commit has" in series["changes"][0]["unconfirmed"]


def test_a_higher_rate_is_better(command, write):
    (series,) = told(command("history", write(), "--metric=samples_per_s", "--json"))
    assert (series["changes"][0]["direction"], series["better"]) == ("worse", "higher")
    assert series["changes"][0]["ratio"] == pytest.approx(1 / 1.05, rel=0.01)


def test_no_change_and_too_few_points(command, write):
    (series,) = told(command("history", write(factor=1.0), "--json"))
    assert series["changes"] == []
    assert series["points"][0]["label"] == "2026-03-01 00:00"
    done = command("history", write(runs=5, name="short"))
    assert "too few points" in done.stdout
    assert "1 of 1 case has fewer than 8 points" in done.stdout


def test_each_node_has_a_series(command, write):
    def change(record, run):
        host = "abc"[run % 3]
        machine = msgspec.structs.replace(record.machine, host=host)
        return msgspec.structs.replace(record, machine=machine)

    several = told(command("history", write(change=change), "--by=node", "--json"))
    assert [series["case"]["host"] for series in several] == ["a", "b", "c"]
    assert [len(series["points"]) for series in several] == [8, 8, 8]


def test_versions_are_in_their_own_order(command, write):
    def change(record, run):
        software = msgspec.structs.replace(record.software, libraries={"toy": f"1.{24 - run}"})
        return msgspec.structs.replace(record, software=software)

    (series,) = told(command("history", write(change=change, factor=1 / 1.05), "--by=toy", "--json"))
    assert [point["label"] for point in series["points"]] == [f"1.{minor}" for minor in range(1, 25)]
    assert (series["changes"][0]["before"], series["changes"][0]["after"]) == ("1.10", "1.11")


def test_an_unknown_property_is_refused_with_those_that_there_are(command, write):
    done = command("history", write(runs=1), "--by=fan")
    assert done.returncode == 2
    assert "--by=fan: no record knows it; they know: date, " in done.stderr
    assert "kernel" in done.stderr
    assert "driver" not in done.stderr  # there is no GPU
    assert command("history", "results", "--by=driver").returncode == 2


def test_an_unknown_metric_is_refused_and_problems_can_be_chosen(command, write):
    done = command("history", write(runs=1), "--metric=step_time")
    assert done.returncode == 2
    assert "--metric=step_time: no metric is named 'step_time'; did you mean step_time_" in done.stderr
    assert len(told(command("history", "results", "--problem=soft.py", "--json"))) == 1
    assert command("history", "results", "--problem=gemm").returncode == 2


def test_a_page_or_a_figure_is_written_whole(command, write, tmp_path):
    done = command("history", write(), "--by=commit", "-o", "page.html")
    assert done.returncode == 0, done.stderr
    assert "page: page.html" in done.stderr
    assert "worse since commit c14." in (tmp_path / "page.html").read_text()
    drawn = command("history", "results", "--by=commit", "-o", "case.svg")
    assert drawn.stderr.splitlines()[0] == "figure: case.svg, its data: case.csv"
    assert len((tmp_path / "case.csv").read_text().splitlines()) == 1 + 24
    refused = command("history", "results", "-o", "page.txt")
    assert refused.returncode == 2
    assert (
        "page.txt: the name of a report must end in .html or .htm, that of a figure in .png, .svg, .pdf"
        in refused.stderr
    )


SOFT = """import time

import numpy as np


def inputs(n=4):
    return np.ones(n)


def fused(x):
    time.sleep({factor} / 500)
    return x
"""


@pytest.fixture
def repository(tmp_path, write):
    """Runs of 24 commits, of which the two at the change are in a repository; from the 15th on, slower by `factor`.

    The file that the 15th has there is slower by `now`.
    """

    def made(factor=1.05, now=None, sizes=(4,)):
        def git(*words):
            who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
            done = subprocess.run(
                ["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True, text=True
            )
            return done.stdout.strip()

        git("init", "-q", "-b", "main", ".")
        commits = {}
        for run in (STEP - 1, STEP):
            (tmp_path / "soft.py").write_text(SOFT.format(factor=1.0 if run < STEP else now or factor) + f"# {run}\n")
            git("add", "soft.py")
            git("commit", "-qm", f"change {run}")
            commits[run] = git("rev-parse", "--short=12", "HEAD")
        for n in sizes:

            def change(record, run, n=n):
                source = msgspec.structs.replace(record.source, commit=commits.get(run, f"c{run}"))
                measuring = msgspec.structs.replace(record.case.measuring, blocks=3, seconds=0.05, power="none")
                params = {"function": "fused", "n": n}
                case = msgspec.structs.replace(record.case, framework="numpy", params=params, measuring=measuring)
                trial_id = f"{record.trial_id[:-8]}{n:08}"
                return msgspec.structs.replace(record, source=source, case=case, trial_id=trial_id)

            write(factor=factor, change=change)
        return commits[STEP - 1], commits[STEP]

    return made


@pytest.fixture
def confirming(tmp_path, repository, monkeypatch):
    """The same; a trial takes what its file says, without a process, and the trials of `n` 8 are interrupted."""

    def execute(folder, listener, _allocation, referee):
        rng, records = np.random.default_rng(3), []
        if folder.plan.cases[0].params["n"] == 8:
            raise KeyboardInterrupt
        for trial in range(11):
            for number, case in enumerate(folder.plan.cases):
                text = (tmp_path / case.problem).read_text()
                assert case.source == hashlib.sha256(text.encode()).hexdigest()
                step_s = float(re.search(r"\((\S+) / 500", text)[1]) * float(np.exp(rng.normal(0, 0.002)))
                design = {"case_number": number, "looks": folder.plan.looks}
                record = make_record(step_s, run=folder.plan.run_id, trial=trial, design=design)
                records.append(msgspec.structs.replace(record, case=case))
        return records

    monkeypatch.setattr("benchmarker.library.judging.execute", execute)
    return repository


def test_nothing_to_confirm_is_told(command, write):
    done = command("history", write(factor=1.0), "--confirm")
    assert (done.returncode, "nothing to confirm: no change has two commits" in done.stderr) == (0, True)


def test_trials_in_checkouts_are_left_out_unless_there_are_no_others(command, confirming, tmp_path):
    confirming()
    checkout = str(tmp_path / "results" / ".builds" / "x" / "tree" / "soft.py")
    for file in (tmp_path / "results" / "run-00").glob("*.json"):
        record = json.loads(file.read_text())
        record["case"]["problem"], record["trial_id"] = checkout, f"{record['trial_id'][:-8]}{99:08}"
        (other := tmp_path / "confirmed" / file.name).parent.mkdir(exist_ok=True)
        other.write_text(json.dumps(record))
    for results, wanted in ((["results", "confirmed"], "soft.py"), (["confirmed"], checkout)):
        (series,) = told(command("history", *results, "--json"))
        assert series["case"]["problem"] == wanted
        assert ("left out: 1 case that `bisect`" in command("history", *results).stdout) == (wanted == "soft.py")


def test_both_sides_of_a_change_are_measured_in_turns(command, confirming, tmp_path):
    commits = confirming()
    done = command("history", "results", "--by=commit", "--confirm", "--json", "-o", "page.html")
    (series,) = told(done)
    (change,) = series["changes"]
    assert (change["before"], change["after"]) == commits
    found = change["confirmation"]
    assert (found["outcome"], found["reason"]) == ("confirmed", "")
    assert found["comparison"]["ratio"] == pytest.approx(1.05, rel=0.005)
    assert found["comparison"]["delta"] == pytest.approx(0.02)
    assert f"change 1 of 1: soft.py, {commits[0]} and {commits[1]}" in done.stderr
    assert (tmp_path / found["records"] / "plan.json").is_file()
    assert "worse, confirmed" in (tmp_path / "page.html").read_text()
    assert "cannot read" not in command("history", "results", "--by=commit").stderr  # no file of a checkout is a record


@pytest.mark.parametrize(("now", "outcome"), [(1.0, "not confirmed"), (0.9, "not confirmed"), (1.02, "confirmed")])
def test_a_change_is_confirmed_by_its_direction(command, confirming, now, outcome):
    confirming(factor=1.03, now=now)
    done = command("history", "results", "--by=commit", "--confirm")
    assert done.returncode == 0, done.stderr
    assert f"  {outcome} in turns: after/before {now:.3f}"[:-2] in done.stdout
    assert "  records: results/2" in done.stdout
    assert "to confirm it" not in done.stdout
    assert "a change is a suspicion" not in done.stdout


def test_why_a_change_cannot_be_measured_is_told(command, confirming, tmp_path):
    before, _ = confirming()
    for file in (tmp_path / "results").glob("run-13/*.json"):
        file.write_text(file.read_text().replace(before, "--detach"))
    (series,) = told(command("history", "results", "--confirm", "--json"))
    found = series["changes"][0]["confirmation"]
    assert (found["outcome"], found["comparison"]) == ("not measured", None)
    assert found["reason"] == f"--detach: no such commit in {tmp_path}"


def test_an_interrupt_keeps_what_was_found_before(command, confirming):
    confirming(sizes=(4, 8))
    done = command("history", "results", "--by=commit", "--confirm")
    assert done.returncode == 130
    assert done.stdout.count("  confirmed in turns: ") == 1
    assert done.stdout.count("  to confirm it, in the repository:") == 1
    assert "change 2 of 2" in done.stderr
    assert "interrupted; what was found before" in done.stderr
    with pytest.raises(KeyboardInterrupt) as caught:
        benchmarker.history("results", by="commit").confirm()
    found = [series.changes[0].confirmation for series in caught.value.results.series]
    assert [bool(each) for each in found] == [True, False]
    one = benchmarker.history("results", by="commit").confirm(most=1)
    assert [bool(series.changes[0].confirmation) for series in one.series] == [True, False]


@pytest.mark.slow
def test_a_real_slow_down_is_confirmed_by_real_processes(command, repository):
    repository(factor=2.0)
    (series,) = told(command("history", "results", "--by=commit", "--confirm", "--json"))
    found = series["changes"][0]["confirmation"]
    assert (found["outcome"], found["comparison"]["verdict"]) == ("confirmed", "slower")
    assert 1.7 < found["comparison"]["ratio"] < 2.2


def test_options_of_confirming_without_it_are_refused(command, write):
    done = command("history", write(runs=1), "--most=2", "--results=here")
    assert (done.returncode, "only --confirm measures; leave --most and --results out" in done.stderr) == (2, True)


def test_without_a_repository_nothing_is_confirmed(command, write):
    done = command("history", write(), "--confirm")
    assert (done.returncode, "not a git repository" in done.stderr) == (2, True)


def test_python_has_the_same_and_a_row_of_each_point(command, write, tmp_path):
    (series,) = told(command("history", write(), "--by=commit", "--json"))
    found = benchmarker.history("results", by="commit")
    assert found.to_dict() == [series]
    assert "worse +5." in repr(found)
    frame = found.to_pandas()
    assert list(frame["label"]) == [f"c{run:02}" for run in range(24)]
    assert list(frame["changes"]) == [0] * STEP + [1] * (24 - STEP)
    assert list(frame["value"]) == [point["value"] for point in series["points"]]
    found.save("saved.html")
    assert command("history", "results", "--by=commit", "-o", "page.html").returncode == 0
    assert (tmp_path / "saved.html").read_text() == (tmp_path / "page.html").read_text()
    assert len(benchmarker.history("results", where="precision=fp32").series) == 1
    with pytest.raises(benchmarker.UserError, match="no record has precision=bf16"):
        benchmarker.history("results", where="precision=bf16")
