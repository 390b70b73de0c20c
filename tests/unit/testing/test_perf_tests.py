"""The plugin of pytest without measuring: what it costs, refuses, makes a case of, and compares with."""

import io
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from _pytest.config import create_terminal_writer
from support.records import make_record

from benchmarker.api.errors import UserError
from benchmarker.comparing.results import Rules
from benchmarker.library.commits import BUILDS
from benchmarker.records import store
from benchmarker.records.plan import make_plan
from benchmarker.tables import terminal
from benchmarker.testing.baselines import Outcome, Revision, Stored
from benchmarker.testing.cases import PerfTest, _cases, _precision
from benchmarker.testing.progress import Beside
from benchmarker.testing.session import PerfTests, _properties
from benchmarker.worker import perf_tests
from benchmarker.worker.perf_tests import Baseline, _refuse_others

TEST = """
import pytest

@pytest.mark.benchmarker(trials=3)
@pytest.mark.parametrize("n", [2, 3])
def test_double(measure, n):
    assert measure(lambda x: 2 * x, n) == 2 * n
"""


def pytest_in(folder: Path, *words: str, text: str = TEST) -> "subprocess.CompletedProcess[str]":
    (folder / "test_file.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n")
    words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


def test_without_the_option_a_perf_test_is_a_plain_test_also_in_parallel(tmp_path):
    done = pytest_in(tmp_path, "-n", "2")
    assert "2 passed" in done.stdout, done.stdout
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"test_file.py", "pytest.ini"}


def test_a_second_call_fails_and_an_error_of_the_function_shows_the_test_alone(tmp_path):
    text = "def test_twice(measure):\n    measure(int)\n    measure(int)\n\n"
    done = pytest_in(tmp_path, text=text + "def test_error(measure):\n    measure(lambda: 1 / 0)\n")
    assert "2 failed" in done.stdout
    assert "`measure` is called twice: split the test" in done.stdout
    assert "ZeroDivisionError" in done.stdout
    assert "plugin.py" not in done.stdout


@pytest.mark.parametrize("words", [(), ("--benchmarker=run",)])
def test_a_value_in_place_of_a_function_fails_with_the_remedy(tmp_path, words):
    done = pytest_in(tmp_path, *words, text="def test_value(measure):\n    measure(5)\n")
    assert "`measure` got a value of type int: pass a function and then its arguments" in done.stdout
    assert "1 failed" in done.stdout
    assert "TypeError" not in done.stdout


def test_a_test_that_measures_nothing_fails_if_a_measurement_is_asked_for(tmp_path):
    text = "import pytest\n\ndef test_nothing(measure):\n    pass\n\n"
    text += "def test_skipped(measure):\n    pytest.skip('here')\n\ndef test_other():\n    pass\n"
    done = pytest_in(tmp_path, "--benchmarker=run", text=text)
    assert "1 failed, 1 passed, 1 skipped" in done.stdout, done.stdout
    assert "nothing was measured: the test takes `measure`, and does not call it" in done.stdout
    assert "2 passed, 1 skipped" in pytest_in(tmp_path, text=text).stdout


CONFTEST = """
import pytest
from pathlib import Path

def pytest_addoption(parser):
    parser.addoption("--sizes", type=int, action="append", default=[])
    parser.addoption("--data", type=Path)
    parser.addini("limit", "A setting.")

def pytest_configure(config):
    config.at_start = list(config.option.sizes)

@pytest.fixture
def given(request):
    option = request.config.option
    return [request.config.at_start, option.sizes, str(option.data), option.verbose, request.config.getini("limit")]
"""


def test_a_trial_gets_the_options_of_the_users_conftest_as_they_were_given(tmp_path, monkeypatch):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    monkeypatch.setenv("PYTEST_ADDOPTS", "--sizes=2")
    wanted = [[1, 2, 3], [1, 2, 3], "x", 0, "7"]
    text = f"""
        import os
        def test_options(measure, given):
            assert given[:3] + given[4:] == {wanted[:3] + wanted[4:]}
            assert given[3] == (-1 if "BENCHMARKER_TESTS" in os.environ else 2)
            measure(lambda: 1)
    """
    (tmp_path / "test_file.py").write_text(textwrap.dedent(text))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --sizes=1\n")
    words = (
        "-vv",
        "--sizes",
        "3",
        "--data=x",
        "-o",
        "limit=7",
        "--benchmarker=run",
        "--benchmarker-trials=1",
        "test_file.py",
    )
    words = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    (record,) = store.read([tmp_path / "results"])[0]
    again = "python -m pytest --benchmarker=run --sizes=2 --sizes 3 --data=x test_file.py::test_options"
    assert record.command == again


def test_a_wrong_mark_is_told_once(tmp_path):
    done = pytest_in(tmp_path, "--benchmarker=run", "-k", "2", "-rN", text=TEST.replace("trials=3", "seconds='x'"))
    assert done.stdout.count("not a time") == 1, done.stdout


@pytest.mark.parametrize(("is_terminal", "room"), [(True, 40), (True, 9), (False, 40)])
def test_a_terminal_shows_which_trial_runs_and_a_pipe_does_not(is_terminal, room):
    file = io.StringIO()
    writer = create_terminal_writer(SimpleNamespace(option=SimpleNamespace(color="no", code_highlight="no")), file)
    writer.fullwidth = len("test_file.py .") + room
    writer.write("test_file.py .")
    plugins = {"terminalreporter": SimpleNamespace(isatty=is_terminal)}
    manager = SimpleNamespace(getplugin=plugins.get)
    with Beside(SimpleNamespace(pluginmanager=manager, get_terminal_writer=lambda: writer)) as progress:
        progress.begin("", None, 125.0)
        during = on_screen(file.getvalue())
        progress.begin("", None, None)
        after = on_screen(file.getvalue())
    shown = (
        ("test_file.py . trial 1, about 2 min left", "test_file.py . trial 2")
        if is_terminal
        else ("test_file.py .",) * 2
    )
    assert (during, after) == tuple(each[: writer.fullwidth - 1] for each in shown)
    writer.write("F")
    assert on_screen(file.getvalue()) == "test_file.py .F"


def on_screen(written: str) -> str:
    """What a line of a terminal shows, on which a backspace moves the cursor alone."""
    line, at = [], 0
    for each in written:
        if each == "\b":
            at -= 1
        else:
            line[at : at + 1] = each
            at += 1
    return "".join(line).rstrip()


def test_two_measurements_at_once_are_refused(tmp_path):
    done = pytest_in(tmp_path, "-n", "2", "--benchmarker=run")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: two measurements at once disturb each other: --benchmarker needs -n 0" in done.stderr


def test_the_plugin_imports_nothing_but_pytest():
    code = """if True:
        import sys, pytest, lazy_loader
        before = {*sys.modules}
        import benchmarker.testing.plugin
        print(*sorted({*sys.modules} - before))
    """
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["benchmarker", "benchmarker.testing", "benchmarker.testing.plugin"]


def config(folder: Path) -> SimpleNamespace:
    return SimpleNamespace(invocation_params=SimpleNamespace(dir=folder), rootpath=folder)


@pytest.mark.parametrize(
    ("mode", "given", "text"),
    [
        ("compare", {}, "name one with --benchmarker-baseline=RESULT or REVISION"),
        ("run", {"baseline": "x"}, "--benchmarker=run compares with no baseline: leave it out"),
        ("compare", {"baseline": "x"}, "--benchmarker-baseline=x: no such file or folder; .*: not a git repository"),
        ("compare", {"baseline": "empty"}, "^--benchmarker-baseline=[^:]*empty: contains no record"),
        ("compare", {"baseline": "."}, "--benchmarker-baseline=.: new records go there"),
        ("run", {"build": "make"}, "--benchmarker-build is for a git revision; leave it out"),
        ("run", {"delta": "5%"}, "--benchmarker-delta is for a comparison"),
        ("run", {"trials": "0"}, "--benchmarker-trials=0: not a number from 1"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path, mode, given, text):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=text) as error:
        PerfTests.of(config(tmp_path), mode, given)
    assert "\n" not in str(error.value)


def test_a_wrong_share_is_refused_with_a_baseline(tmp_path):
    record = make_record()
    with store.new_run(tmp_path / "base", make_plan([record.case], 1)) as folder:
        folder.save(record)
    with pytest.raises(UserError, match="--benchmarker-alpha=5: not a share between 0 and 1"):
        PerfTests.of(config(tmp_path), "compare", {"baseline": "base", "alpha": "5"})
    made = PerfTests.of(config(tmp_path), "compare", {"baseline": "base", "alpha": "2%", "delta": "10%"})
    assert (made.rules.alpha, made.rules.delta, made.results) == (0.02, 0.1, tmp_path / "results")


def item(nodeid: str, *marks: pytest.Mark, **spec: object) -> SimpleNamespace:
    values = {"callspec": SimpleNamespace(params=spec["params"], id=spec["id"])} if spec else {}
    return SimpleNamespace(nodeid=nodeid, path=Path("/p/t.py"), iter_markers=lambda _: iter(marks), **values)


def test_marks_and_parameters_are_settings_of_the_case():
    near, far = (pytest.mark.benchmarker(**each).mark for each in ({"seconds": 2}, {"seconds": 9, "trials": 4}))
    test = PerfTest.of(item("a/t.py::TestX::test_y[3-q]", near, far, params={"n": 3, "kind": "q"}, id="3-q"))
    assert (test.node, test.name, test.trials) == ("TestX::test_y[3-q]", "TestX::test_y", 4)
    assert test.settings == {"seconds": 2, "power": "none", "n": 3, "kind": "q"}


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (pytest.mark.benchmarker(3), "name what it sets, as in trials=20"),
        (pytest.mark.benchmarker(profile=True), "has no profile; it has: trials, seconds"),
        (pytest.mark.benchmarker(trials=0), r"trials=0\): not a number from 1"),
        (pytest.mark.benchmarker(trials=True), "not a number from 1"),
    ],
)
def test_a_mark_that_would_do_nothing_is_refused(mark, text):
    with pytest.raises(UserError, match=text):
        PerfTest.of(item("t.py::test", mark.mark))


def test_parameters_have_short_values_or_the_id_of_all():
    assert _cases({"n": np.int64(3), "f": np.sort, "precision": "x"}, "id") == {
        "n": 3,
        "f": "sort",
        "test_precision": "x",
    }
    assert _cases({"n": 3, "x": [1, 2]}, "3-x0") == {"id": "3-x0"}
    assert _cases({"x": float("nan")}, "nan") == {"id": "nan"}


def test_arguments_keep_their_types_or_are_refused():
    single, double = np.ones(2, np.float32), np.ones(2)
    assert _precision((single, {"a": [3, "x"]})) == "fp32"
    assert _precision((double, np.arange(3))) == "fp64"
    assert _precision((torch.ones(2, dtype=torch.bfloat16),)) == "bf16"
    assert _precision(("text", 3)) == "fp32"
    with pytest.raises(UserError, match="arguments are float32 and float64, and have one precision"):
        _precision((single, [double]))
    with pytest.raises(UserError, match="a Series would become an array"):
        _precision((pd.Series([1.0]),))


def several(step_s: float, run: str, **changed: object) -> list:
    case = {"problem": "t.py", "source": "ab", "params": {"function": "test", "n": 3}}
    steps = [step_s * (1 + 0.001 * number) for number in range(6)]
    return [make_record(step, run=run, trial=n, case=case | changed) for n, step in enumerate(steps)]


def elsewhere(records: list) -> list:
    import msgspec

    return [
        msgspec.structs.replace(each, machine=msgspec.structs.replace(each.machine, host="other")) for each in records
    ]


def test_a_stored_baseline_is_that_of_the_case_and_of_this_machine():
    own = several(2.0, "own")
    baseline = [*several(1.0, "base", source="cd"), *several(9.0, "n4", params={"function": "test", "n": 4})]
    outcome = Stored("base", [*baseline, *elsewhere(several(7.0, "far"))]).outcome("t.py::test", own, Rules())
    one = outcome.comparison
    assert (one.verdict, one.baseline, one.contender, one.trials) == ("slower", "base", "this checkout", (6, 6))
    assert one.ratio == pytest.approx(2.0)
    named = dict(_properties(outcome))
    assert named["benchmarker.verdict"] == "slower"
    assert named["benchmarker.step_time_s"] == pytest.approx(
        2.005
    )  # the median of 2, 2.002, 2.004, 2.006, 2.008 and 2.01
    assert "one run a side" in named["benchmarker.provisional"]


@pytest.mark.parametrize(("mode", "width"), [("run", 50), ("compare", 80)])
def test_the_tables_at_the_end_fit_a_terminal(tmp_path, monkeypatch, mode, width):
    monkeypatch.setattr(terminal, "width", lambda: width)
    tests = PerfTests.of(config(tmp_path), "run", {})
    for n in (3, 4):
        own = several(2.0, "own", params={"function": "test_of_a_long_name", "n": n})
        name, rules = f"tests/perf/test_file.py::test_of_a_long_name[{n}]", Rules()
        base = Stored("a-baseline-of-a-long-name", several(1.0, "base", params=own[0].case.params))
        tests.outcomes[name] = base.outcome(name, own, rules) if mode == "compare" else Outcome(own)
    written: list[str] = []
    tests.summarise(SimpleNamespace(verbosity=0, section=lambda _: None, write_line=written.append))
    assert written.pop() == f"records: {tmp_path / 'results'}"
    assert max(map(len, written)) <= width
    assert any(line.startswith("a wider terminal shows more columns: ") for line in written)


def test_a_baseline_of_another_machine_or_of_other_settings_is_told_and_not_judged():
    own = several(2.0, "own")
    far = Stored("base", elsewhere(several(1.0, "far"))).outcome("t", own, Rules())
    assert (far.comparison, far.is_elsewhere) == (None, True)
    assert "base is of another machine (host other → " in far.missing
    other = Stored("base", several(1.0, "other", threads=2)).outcome("t", own, Rules())
    assert (other.missing, other.is_elsewhere) == ("base measured it with other settings: threads", False)
    none = Stored("base", several(1.0, "n4", params={"function": "test", "n": 4})).outcome("t", own, Rules())
    assert none.missing == "base has no record of it"


def test_a_baseline_must_import_its_own_checkout(tmp_path, monkeypatch):
    user, tree = tmp_path / "user", tmp_path / "user/results/baseline/tree"
    for path in (user / "src/p.py", tree / "src/p.py", tree / "tests/test_p.py", tree / "tests/__init__.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if path.name == "__init__.py" else "x = 1")
    baseline = Baseline(str(tree), "", str(user), [str(tree / "tests/test_p.py")])

    def imports(name: str, path: Path) -> None:
        module = types.ModuleType(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)

    imports("tests_of_p", tree / "tests/__init__.py")
    imports("test_p", tree / "tests/test_p.py")
    with pytest.raises(UserError, match=r"it imports nothing of the revision but the test; .*--benchmarker-build="):
        _refuse_others(baseline)
    imports("p", tree / "src/p.py")
    _refuse_others(baseline)
    imports("q", user / "src/p.py")
    with pytest.raises(UserError, match="it imports q from your checkout"):
        _refuse_others(baseline)


def test_a_revision_gets_the_test_of_the_user_and_what_it_lacks(tmp_path):
    def git(*words: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main", ".")
    perf = tmp_path / "tests/perf"
    perf.mkdir(parents=True)
    (tmp_path / "p.py").write_text("old")
    (perf / "test_p.py").write_text("old")
    (perf / "helper.py").write_text("old")
    git("add", ".")
    git("commit", "-qm", "old")
    for path in (tmp_path / "p.py", perf / "test_p.py", perf / "helper.py", perf / "more.py", perf / "conftest.py"):
        path.write_text("new")
    results = tmp_path / "results"
    revision = Revision.of("--benchmarker-baseline", "HEAD", tmp_path, None, results)
    words = ["-q", f"--rootdir={tmp_path}", "-c", str(tmp_path / "pytest.ini")]
    given = ["tests", f"--data={tmp_path}/data"]
    own = perf_tests.Place("test_p", words, given, [], str(tmp_path), [str(tmp_path), "/usr/lib"])
    file, place = revision._place(perf / "test_p.py", own)
    tree = revision.checkout.tree
    assert file == tree / "tests/perf/test_p.py"
    assert not tree.is_relative_to(results / BUILDS)  # where a search finds commits as they are
    contents = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*.py")}
    assert contents == {
        "p.py": "old",
        "tests/perf/test_p.py": "new",
        "tests/perf/helper.py": "old",
        "tests/perf/more.py": "new",
        "tests/perf/conftest.py": "new",
    }
    assert place.words == ["-q", f"--rootdir={tree}", "-c", str(tree / "pytest.ini")]
    assert place.given == ["tests", f"--data={tree}/data"]
    assert (place.folder, place.paths) == (str(tree), [str(tree)])
    with pytest.raises(UserError, match="compare with a folder of results"):
        revision._place(Path("/elsewhere/test_p.py"), own)
    with pytest.raises(UserError, match="--benchmarker-baseline=nope: no such file or folder, and no such commit"):
        Revision.of("--benchmarker-baseline", "nope", tmp_path, None, results)
