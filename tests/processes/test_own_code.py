"""Files of a user, measured by commands in real processes."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

QUICK = ("--blocks=2", "--warmup-steps=1", "--seconds=0.1", "--power=none")
SORTS = '''
"""Two sorts."""
import numpy as np
def inputs(n=64): return np.random.standard_normal(n)
def reference(x): return np.sort(x)
def by_numpy(x): return np.sort(x)
def by_python(x): return np.array(sorted(x))
'''


@pytest.fixture
def sorts(tmp_path):
    path = tmp_path / "sorts.py"
    path.write_text(SORTS)
    return path


def test_every_function_of_a_file_is_measured_with_its_check_and_its_source(cli, sorts):
    done = cli("run", "sorts.py", "--n=32,64", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    cases = {(record["case"]["params"]["function"], record["case"]["params"]["n"]) for record in records}
    assert cases == {(function, n) for function in ("by_numpy", "by_python") for n in (32, 64)}
    for record in records:
        assert (record["case"]["problem"], record["case"]["framework"]) == ("sorts.py", "numpy")
        assert (record["check"]["ok"], record["check"]["against"]) == (True, "reference in fp64")
        assert record["source"]["path"] == "sorts.py"
        assert record["source"]["sha256"] == record["case"]["source"]
        assert record["source"]["commit"] is None
        assert record["cost"]["flops"] is None
        assert record["suspicions"] == []


def test_one_function_is_named_after_a_colon_and_what_is_unknown_is_refused(cli, sorts):
    done = cli("run", "sorts.py:by_python", *QUICK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sorts.py:by_python n=64 fp32 in numpy on cpu")
    assert "--function=other: not one of by_numpy, by_python" in cli("run", "sorts.py:other").stderr
    assert "No such option '--m'" in cli("run", "sorts.py", "--m=3").stderr
    assert "absent.py: no such file" in cli("run", "absent.py").stderr
    assert cli("ab", "absent.py", "absent.py").stderr.endswith("error: absent.py: no such file\n")


def test_a_wrong_function_fails_with_its_place_and_the_others_are_measured(cli, sorts):
    sorts.write_text(SORTS + "def wrong(x):\n    y = np.sort(x)\n    y[3] += 1\n    return y\n")
    done = cli("run", "sorts.py:by_numpy,wrong", *QUICK)
    assert done.returncode == 1
    assert "FAILED sorts.py:wrong" in done.stdout
    assert "against reference in fp64" in done.stdout
    assert "result[3] is " in done.stdout


def test_an_error_in_the_file_is_one_line_with_its_place(cli, sorts):
    sorts.write_text("import nothing_of_this_name\ndef f(): return 1\n")
    done = cli("run", "sorts.py", *QUICK)
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name' (sorts.py:1)" in done.stdout


@pytest.mark.slow
def test_two_functions_are_compared_by_their_names(cli, sorts):
    done = cli("ab", "sorts.py:by_numpy", "sorts.py:by_python", "--n=4096", *QUICK, "--design=rounds")
    assert done.returncode == 0, done.stderr
    assert (
        "sorts.py:by_python takes " in done.stdout
        or "sorts.py:by_numpy is " in done.stdout
        or ("sorts.py:by_python is " in done.stdout)
    )
    assert "n=4096 fp32 in numpy on cpu" in done.stdout


def test_versions_of_a_file_differ_and_a_run_does_not_mix_them(cli, sorts, tmp_path):
    first = cli("run", "sorts.py:by_numpy", *QUICK, "--json")
    sorts.write_text(SORTS + "# changed\n")
    second = cli("run", "sorts.py:by_numpy", *QUICK, "--json")
    digests = {json.loads(done.stdout)[0]["case"]["source"] for done in (first, second)}
    assert len(digests) == 2
    done = cli("compare", *map(str, sorted((tmp_path / "results").iterdir())))
    assert done.returncode == 0, done.stderr
    assert all(digest[:12] in done.stdout for digest in digests)


def test_records_are_read_without_the_file(cli, sorts, tmp_path, monkeypatch):
    assert cli("run", "sorts.py:by_numpy", *QUICK).returncode == 0
    monkeypatch.chdir("/")
    sorts.unlink()
    (run,) = (tmp_path / "results").iterdir()
    for command in (["show"], ["show", "--trials"], ["validate"], ["table", "--rows=n"]):
        done = cli(command[0], str(run), *command[1:])
        assert done.returncode == 0, done.stderr
    assert "sorts.py:by_numpy n=64" in cli("show", str(run)).stdout


def test_what_was_not_checked_is_said(cli, sorts):
    sorts.write_text(SORTS.replace("def reference", "def _reference"))
    done = cli("run", "sorts.py", *QUICK)
    assert "note: there is no `reference`; the others are checked against by_numpy, the first function" in done.stdout


@pytest.mark.slow
def test_what_is_suspect_is_said_and_makes_a_verdict_provisional(cli, sorts):
    sorts.write_text(
        SORTS
        + "import time\n_kept = {}\ndef keeps(x):\n    key = float(x[0])\n    if key not in _kept:\n"
        + "        time.sleep(30e-3)\n        _kept[key] = np.sort(x)\n    return _kept[key]\n"
    )
    done = cli("run", "sorts.py:by_python,keeps", "--trials=6", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "SUSPECT sorts.py:keeps: a step takes " in done.stdout
    done = cli("compare", "results", "--by=function")
    assert "provisional" in done.stdout
    assert "keeps is suspect: a step takes " in done.stdout


@pytest.mark.parametrize(
    "framework", ["numpy", *(pytest.param(name, marks=pytest.mark.slow) for name in ("torch", "jax"))]
)
def test_a_new_file_can_be_measured(cli, framework):
    written = cli("new", "mine.py", f"--framework={framework}")
    assert written.returncode == 0, written.stderr
    assert "exists already" in cli("new", "mine.py").stderr
    done = cli("run", "mine.py", "--n=8", "--m=16", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert [record["check"]["ok"] for record in records] == [True, True]
    assert {record["cost"]["bytes"] for record in records} == {2 * 8 * 16 * 4}


def test_new_says_what_it_writes(cli):
    assert "end it with .py for functions to measure, or .toml for a plan" in cli("new", "file.txt").stderr
    assert "there is no example in other" in cli("new", "file.py", "--framework=other").stderr


def test_a_file_is_described_without_running_it(cli, sorts):
    sorts.write_text(SORTS.replace("import numpy", "raise SystemExit\nimport numpy"))
    done = cli("describe", "sorts.py")
    assert done.returncode == 0, done.stderr
    for word in ("sorts.py: Two sorts.", "--function", "by_numpy, by_python", "--n", "numpy"):
        assert word in done.stdout


def test_the_commit_of_a_file_is_in_its_records(cli, sorts, tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "sorts.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True).stdout
    source = json.loads(cli("run", "sorts.py:by_numpy", *QUICK, "--json").stdout)[0]["source"]
    assert source["commit"] == head.strip()
    sorts.write_text(SORTS + "# changed\n")
    source = json.loads(cli("run", "sorts.py:by_numpy", *QUICK, "--json").stdout)[0]["source"]
    assert source["commit"] == f"{head.strip()}+changes"


@pytest.mark.parametrize(
    "mode", [*(pytest.param(mode, marks=pytest.mark.slow) for mode in ("inference", "forward_backward")), "training"]
)
def test_the_classes_of_the_example_are_measured_in_every_mode(cli, mode):
    example = Path(__file__).parents[2] / "examples" / "own-code" / "layers.py"
    done = cli("run", str(example), f"--mode={mode}", "--batch=4", "--width=8", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    assert [record["check"]["against"] for record in json.loads(done.stdout)] == ["itself in fp64"] * 2


def test_a_bundle_takes_the_file_only_if_asked_and_as_it_was_measured(cli, sorts, tmp_path):
    assert cli("run", "sorts.py:by_numpy", *QUICK).returncode == 0
    (run,) = (tmp_path / "results").iterdir()
    assert cli("bundle", "create", str(run), "-o", "without.zip").returncode == 0
    done = cli("bundle", "create", str(run), "--with-source", "-o", "with.zip")
    assert done.returncode == 0, done.stderr
    names = {name: zipfile.ZipFile(tmp_path / name).namelist() for name in ("without.zip", "with.zip")}
    assert not [name for name in names["without.zip"] if name.endswith(".py")]
    (packed,) = (name for name in names["with.zip"] if name.endswith(".py"))
    assert zipfile.ZipFile(tmp_path / "with.zip").read(packed).decode() == SORTS
    assert cli("bundle", "verify", "with.zip").returncode == 0
    assert "leave it or --redact out" in cli("bundle", "create", str(run), "--with-source", "--redact").stderr
    sorts.write_text(SORTS + "# changed\n")
    assert "sorts.py is not here as it was measured" in cli("bundle", "create", str(run), "--with-source").stderr


def test_a_run_of_a_plugin_has_no_source_to_pack(cli, tmp_path):
    assert cli("run", "--framework=toy", "--problem=nap", *QUICK).returncode == 0
    (run,) = (tmp_path / "results").iterdir()
    assert "measured no file of yours" in cli("bundle", "create", str(run), "--with-source").stderr


def test_a_plan_measures_every_function_of_a_file_in_its_framework(cli, sorts, tmp_path):
    measuring = "[measuring]\nblocks = 2\nwarmup_steps = 1\nseconds = 0.1\npower = 'none'\n"
    (tmp_path / "plan.toml").write_text(f"problem = 'sorts.py'\ntrials = 1\n{measuring}[axes]\nn = [32, 64]\n")
    done = cli("plan", "run", "plan.toml", "--json")
    assert done.returncode == 0, done.stderr
    cases = [record["case"] for record in json.loads(done.stdout)]
    assert {(case["framework"], case["params"]["function"], case["params"]["n"]) for case in cases} == {
        ("numpy", function, n) for function in ("by_numpy", "by_python") for n in (32, 64)
    }


def test_a_module_of_a_package_in_the_current_folder_is_measured(cli, tmp_path):
    package = tmp_path / "sortpackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("import numpy as np\n")
    (package / "sorts.py").write_text(SORTS.replace("import numpy as np", "from .helper import np"))
    done = cli("run", "sortpackage.sorts:by_python", *QUICK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sortpackage.sorts:by_python n=64 fp32 in numpy on cpu")


def test_the_functions_that_two_files_have_in_common_are_compared_in_turns(cli, sorts, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sorts.py").write_text(SORTS.replace("np.array(", "np.array(5 * ") + "def gone(x): return x\n")
    done = cli("ab", "old/sorts.py", "sorts.py", "--max-rounds=2", *QUICK)
    assert done.returncode == 1, done.stderr
    assert "2 comparisons: 2 undecided" in done.stdout
    assert "not compared, no counterpart: old/sorts.py:gone" in done.stdout
    assert "A: old/sorts.py source=" in done.stdout
    assert "ended after 2 rounds of 4 trials (A and B of each comparison)" in done.stdout
    (run,) = (tmp_path / "results").iterdir()
    comparisons = json.loads(cli("compare", str(run), "--json").stdout)["family"]["comparisons"]
    assert [each["case"] for each in comparisons] == [{"function": name} for name in ("by_numpy", "by_python")]
    assert [each["trials"] for each in comparisons] == [[2, 2], [0, 2]]


def test_a_difference_is_compared_for_each_function_of_a_file(cli, sorts):
    done = cli("ab", "--problem=sorts.py", "--framework=numpy", "--a=--n=8", "--b=--n=16", "--max-rounds=2", *QUICK)
    assert done.returncode == 0, done.stderr
    header = next(line for line in done.stdout.splitlines() if line.startswith("case"))
    assert header.split()[:3] == ["case", "n=8", "n=16"]


def test_every_function_of_a_file_is_checked(cli, sorts):
    sorts.write_text(SORTS + "def wrong(x): return -x\n")
    done = cli("check", "sorts.py", "--n=8")
    assert done.returncode == 1, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [
        ("function", "verdict"),
        *[("by_numpy", "ok"), ("by_python", "ok"), ("wrong", "WRONG")],
    ]
    done = cli("check", "sorts.py:by_python", "--json")
    (finding,) = json.loads(done.stdout)["checks"]
    assert (done.returncode, finding["function"], finding["ok"]) == (0, "by_python", True)
    sorts.write_text(SORTS.replace("def reference", "def _reference"))
    done = cli("check", "sorts.py")
    assert done.returncode == 0
    assert "not checked: there is no `reference`; the others are checked against by_numpy" in done.stdout
