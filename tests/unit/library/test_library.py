"""The commands as functions: in a script, a thread and a notebook, without a word printed."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

import benchmarker
from benchmarker import UserError
from benchmarker.records import store

SMALL = {"problem": "gemm", "framework": "numpy", "n": 16, "k": 16, "seconds": 0.05, "warmup_steps": 1}


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> benchmarker.Measured:
    results = tmp_path_factory.mktemp("results")
    return benchmarker.run(**SMALL, m=[16, 32], precision=["fp32", "fp64"], trials=2, results=results)


def test_lists_make_cases_and_nothing_is_printed(tmp_path, capfd):
    lines: list[str] = []
    run = benchmarker.run(**SMALL, m=[16, 32], results=tmp_path, progress=lines.append)
    assert [record.case.params["m"] for record in run.records] == [16, 32]
    said = [re.sub(r"\d+\.\d s", "T", line).partition(" ") for line in lines]
    assert [number for number, _, _ in said] == ["[1/2]", "[2/2]"]
    assert sorted(rest for _, _, rest in said) == [f"numpy gemm m={m}, trial 0: done in T" for m in (16, 32)]
    assert capfd.readouterr() == ("", "")
    assert {record.trial_id for record in store.read([run.path])[0]} == {record.trial_id for record in run.records}


def test_progress_is_told_on_standard_error_if_it_is_asked_for(tmp_path, capfd):
    benchmarker.sweep(**SMALL, m=16, trials=1, results=tmp_path, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("[1/1] numpy gemm, trial 0: done in ")


def test_values_are_those_that_the_commands_print(measured, command):
    shown = json.loads(command("show", str(measured.path), "--json").stdout)
    by_trial = {record["trial_id"]: record for record in measured.to_dict()}
    assert {record["trial_id"]: record for record in shown} == by_trial
    compared = benchmarker.compare(measured.path, by="m")
    assert compared.to_dict() == json.loads(command("compare", str(measured.path), "--by=m", "--json").stdout)
    scored = benchmarker.score(measured.path, by="precision")
    assert scored.to_dict() == json.loads(
        command("suite", "score", str(measured.path), "--by=precision", "--json").stdout
    )


def test_frames_have_a_row_of_each_trial_comparison_and_score(measured):
    frame = measured.to_pandas()
    assert sorted(zip(frame["m"], frame["precision"], frame["trial"], strict=True)) == [
        (m, precision, trial) for m in (16, 32) for precision in ("fp32", "fp64") for trial in (0, 1)
    ]
    loaded = benchmarker.load(measured.path)
    assert frame.sort_values("trial_id", ignore_index=True).equals(loaded.sort_values("trial_id", ignore_index=True))
    assert list(benchmarker.compare(measured.path, by="m").to_pandas()["contender"]) == ["m=32", "m=32"]
    assert set(benchmarker.score(measured.path, by="m").to_pandas()["contender"]) == {"m=32"}


def test_a_report_is_the_page_that_the_command_writes(measured, command, tmp_path):
    made = benchmarker.report(measured.path, by="m", title="A <title>")
    options = ("report", str(measured.path), "--by=m", "--title=A <title>")
    assert made.to_dict() == json.loads(command(*options, "--json").stdout)
    command(*options, "-o", "command.html")
    made.save(tmp_path / "saved.html")
    assert (tmp_path / "saved.html").read_bytes() == (tmp_path / "command.html").read_bytes() == made.html
    first, answer, *_ = repr(made).splitlines()
    assert (first, answer.split(":")[0]) == ("A <title>", made.page.cards[0].word.split(":")[0])
    assert "A &lt;title&gt;" in made._repr_html_()
    assert len(made.to_pandas()) == len(measured.records)
    with pytest.raises(UserError, match=r"must end in \.html"):
        made.save(tmp_path / "page.pdf")


def test_a_report_of_traces_has_tables_and_no_trials(tmp_path):
    trace = Path(__file__).parents[2] / "fixtures/traces/torch-dp.rank0.json.gz"
    made = benchmarker.report(trace)
    assert made.page.title in repr(made)
    with pytest.raises(UserError, match="has no trials"):
        made.to_pandas()
    with pytest.raises(UserError, match="leave --by out"):
        benchmarker.report(trace, by="m")


def test_html_has_the_tables_and_needs_no_network(measured):
    for result in (measured, benchmarker.compare(measured.path, by="m"), benchmarker.score(measured.path, by="m")):
        html = result._repr_html_()
        assert html.count("<table>") == len(result.tables) > 0
        assert not re.search(r"https?:|src=|href=|<script|<link", html)
        assert "benchmarker.library" not in repr(result)


def test_a_hostile_name_is_text(measured):
    from msgspec.structs import replace

    records = [replace(record, case=replace(record.case, framework="<script>\x1b[2J")) for record in measured.records]
    hostile = benchmarker.Measured(tuple(records), measured.plan, measured.path)
    assert "<script>" not in hostile._repr_html_()
    assert "&lt;script&gt;\\x1b[2J" in hostile._repr_html_()
    assert "\x1b" not in repr(hostile)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mm": 3}, "no setting of gemm is named 'mm'; did you mean m?"),
        ({"m": "many"}, "m=many: not a whole number"),
        ({"m": []}, "the axis m has no values"),
        ({"problem": "gem"}, "gemm"),
        ({"precision": "fp31"}, "precision=fp31: not one of"),
    ],
)
def test_errors_are_exceptions(options, text, tmp_path, capfd):
    with pytest.raises(UserError, match=re.escape(text)):
        benchmarker.run(**(SMALL | options), results=tmp_path)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_two_sides_name_the_side(tmp_path):
    with pytest.raises(UserError, match=r"^b: no setting of gemm is named 'l'"):
        benchmarker.ab({"m": 16}, {"l": 16}, **SMALL, results=tmp_path)
    with pytest.raises(UserError, match=r"^a: 2 cases; a side is one"):
        benchmarker.ab({"m": [16, 32]}, {"m": 16}, **SMALL, results=tmp_path)
    with pytest.raises(UserError, match=r"^alpha=5: not a share"):
        benchmarker.ab({"m": 16}, {"m": 32}, **SMALL, alpha=5, results=tmp_path)
    with pytest.warns(UserWarning, match="contains no record"), pytest.raises(UserError, match="no record was read"):
        benchmarker.compare(tmp_path)
    with pytest.raises(UserError, match="no result is given"):
        benchmarker.compare()


def test_two_sides_give_a_verdict(tmp_path, command):
    verdicts = benchmarker.ab({"m": 16}, {"m": 64}, **SMALL, max_rounds=2, results=tmp_path)
    assert (verdicts.verdict, verdicts.ended[:20]) == ("undecided", "ended after 2 rounds")  # two decide nothing
    again = json.loads(command("compare", str(verdicts.path), "--json").stdout)
    assert verdicts.to_dict()["family"]["comparisons"][0]["ratio"] == again["family"]["comparisons"][0]["ratio"]


def test_it_runs_in_a_thread_and_beside_a_loop(tmp_path):
    runs: list[benchmarker.Measured] = []

    def measure() -> None:
        runs.append(benchmarker.run(**SMALL, m=16, results=tmp_path))

    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()

    async def cell() -> None:
        measure()

    asyncio.run(cell())
    assert [record.error for run in runs for record in run.records] == [None, None]


def test_a_script_needs_no_guard_of_main(tmp_path):
    script = (
        f"import benchmarker\nrun = benchmarker.run(**{SMALL!r}, m=16)\nprint(len(run.records), run.records[0].error)\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1 None\n", "")


def test_an_interrupt_leaves_a_run_that_can_be_resumed(tmp_path):
    def interrupt(line: str) -> None:
        if line.startswith("[1/2]"):
            raise KeyboardInterrupt

    options = {**SMALL, "m": [16, 32], "results": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        benchmarker.run(**options, progress=interrupt)
    resumed = benchmarker.run(**options, resume=True)
    (folder,) = Path(tmp_path).iterdir()
    assert (folder, len(resumed.records)) == (resumed.path, 2)


def test_a_file_of_the_user_needs_no_framework(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sorts.py").write_text(
        "import numpy as np\ndef inputs(n=8): return np.random.standard_normal(n)\n"
        "def one(x): return np.sort(x)\ndef two(x): return np.array(sorted(x))\n"
    )
    run = benchmarker.run(problem="sorts.py", n=[8, 16], seconds=0.05, warmup_steps=1)
    cases = {(record.case.framework, record.case.params["function"], record.case.params["n"]) for record in run.records}
    assert cases == {("numpy", function, n) for function in ("one", "two") for n in (8, 16)}
    with pytest.raises(UserError, match="no framework is given"):
        benchmarker.run(problem="gemm")
    with pytest.raises(UserError, match="a: 4 cases; a side is one"):
        benchmarker.ab({"n": [8, 32]}, {"n": 16}, problem="sorts.py")


def test_a_figure_of_a_result_is_saved_with_its_data(measured, command, tmp_path):
    compared = benchmarker.compare(measured.path, by="m")
    told = compared.save_figure(tmp_path / "ratios.svg", "ratios")
    assert told.startswith(f"figure: {tmp_path}/ratios.svg, its data: {tmp_path}/ratios.csv\n")
    done = command("report", str(measured.path), "--by=m", "--figure=ratios", "-o", "other.svg")
    assert done.stderr.splitlines()[0] == "figure: other.svg, its data: other.csv"
    assert (tmp_path / "ratios.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()
    assert (tmp_path / "ratios.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()
    with pytest.raises(UserError, match="name one figure; there are: ratios, blocks"):
        compared.save_figure(tmp_path / "x.svg")
    with pytest.raises(UserError, match="no figure is named 'bars'; there are: blocks"):
        measured.save_figure(tmp_path / "x.svg", "bars")
    with pytest.raises(UserError, match="there are: none"):
        benchmarker.score(measured.path, by="m").save_figure(tmp_path / "x.svg")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("-o", "x.svg"),
            "--output=x.svg: a page is .html; a figure, which --figure=NAME chooses, is .png, .svg, .pdf",
        ),
        (("--figure=ratios", "-o", "x.html"), "--output=x.html: a page is .html; a figure"),
        (("--figure=ratio",), "no figure is named 'ratio'; there are: "),
        (("--figure=blocks", "--json"), "leave --figure out"),
    ],
)
def test_a_figure_of_a_report_is_named(measured, command, words, message):
    done = command("report", str(measured.path), *words)
    assert (done.returncode, message in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_a_notebook_shows_the_table_and_the_figures_or_the_extra_that_draws_them(measured, monkeypatch):
    pytest.importorskip("matplotlib")
    html = measured._repr_html_()
    assert html.startswith(measured.records._repr_html_())
    assert html.count("<svg") == len(measured.figures) == 1
    assert html.index("</table>") < html.index("<svg")
    ElementTree.fromstring(f"<div>{html}</div>")
    monkeypatch.delitem(sys.modules, "benchmarker.page.drawing", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    without = measured._repr_html_()
    assert without.count("<svg") == 0
    assert without == html[: html.index("<figure")] + without[html.index("<figure") :]
    assert "a figure needs the module &#x27;matplotlib&#x27;; pip install" in without
