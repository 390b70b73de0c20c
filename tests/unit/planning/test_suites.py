"""Suites: their files, the list, and what `suite run` makes of them."""

import json
import tomllib
from pathlib import Path

import pytest

from benchmarker import UserError
from benchmarker.hooks import registry
from benchmarker.planning import build, factors, plan_file, suites
from benchmarker.procurement import weights
from benchmarker.stats.shift import fewest

PROCUREMENT = ("procurement-quick", "procurement")
TABLES = ("lm-frameworks", "lm-warmup", "lm-precision", "lm-kernels")
"""Suites for tables of language models; each has a quick variant."""


def test_every_plan_stands_in_the_index_and_every_entry_has_a_plan():
    files = {path.stem for path in suites.FOLDER.glob("*.toml")} - {"index"}
    others = {"zoo-quick", "node-health", *(f"{name}-quick" for name in TABLES)}
    assert files == set(suites.names()) == {*PROCUREMENT, *TABLES, *others}


@pytest.mark.parametrize("name", PROCUREMENT)
def test_a_suite_is_a_plan_that_compares_frameworks_with_enough_trials(name):
    suite = suites.find(name)
    assert suite.plan == plan_file.read(suites.FOLDER / f"{name}.toml")
    assert suite.plan.trials >= 6
    assert (suite.plan.name, suite.plan.version) == (name, "1")
    assert suite.plan.axes == {"framework": ["jax", "torch"]}
    tables = factors.expand(suite.plan)
    assert all(table[factors.CASE_NAME] for table in tables)
    assert {table["problem"] for table in tables} >= {"gemm", "attention", "gpt2", "llama", "resnet", "fft", "cg", "lu"}
    assert {table.get("mode", "inference") for table in tables} >= {"inference", "training"}
    assert suite.summary
    assert suite.time


def test_a_suite_that_changes_needs_a_new_version():
    """Whoever changes a suite changes its version, and then these."""
    assert {(name, suite.version): suite.sha256[:12] for name in suites.names() for suite in [suite_of(name)]} == {
        ("procurement-quick", "1"): "89b5d6673cb5",
        ("procurement", "1"): "9f16f9f6a601",
        ("zoo-quick", "1"): "44338fe9aede",
        ("node-health", "1"): "cacc28f3e18d",
        ("lm-frameworks", "1"): "d4109cae1917",
        ("lm-frameworks-quick", "1"): "9e1fb5bd3402",
        ("lm-warmup", "1"): "4c0c17b3d104",
        ("lm-warmup-quick", "1"): "8729d07235a0",
        ("lm-precision", "1"): "a5891d3edd70",
        ("lm-precision-quick", "1"): "8111bfda6ae4",
        ("lm-kernels", "1"): "e828a6d1bbaf",
        ("lm-kernels-quick", "1"): "f8450e609b19",
    }


def suite_of(name):
    return build.suite_of(suites.find(name).plan)


@pytest.mark.parametrize("name", suites.names())
def test_sizes_do_not_depend_on_the_device(name):
    """Two machines do the same work only where no default of the device enters."""
    for table in factors.expand(suites.find(name).plan):
        problem = registry.problem(table["problem"])
        assert set(problem.accelerator) <= set(table), table


def test_the_full_suite_sweeps_what_a_buyer_asks_for():
    plan = suites.find("procurement").plan
    assert (plan.trials, plan.base) == (11, {"preheat": True, "power": "auto", "profile": True})
    tables = factors.expand(plan)
    inference = [each for each in tables if each["problem"] == "gpt2" and each.get("mode") != "training"]
    assert {each["precision"] for each in tables if each["problem"] in ("fft", "cg", "stencil", "lu")} == {"fp64"}
    assert {each["precision"] for each in tables} >= {"fp32", "tf32", "bf16", "mixed_bf16", "int8"}
    assert {each["batch_size"] for each in inference if each.get("seq_len") == 1024} >= {1, 8, 32}
    assert {each["seq_len"] for each in tables if each["problem"] == "attention"} == {1024, 4096, 16384}
    assert {"xl", "large", "medium"} <= {each.get("size") for each in tables}


@pytest.mark.parametrize("name", TABLES)
def test_a_quick_variant_varies_the_same_but_for_the_sizes(name):
    full, quick = suites.find(name).plan, suites.find(f"{name}-quick").plan
    assert {*full.axes} - {*quick.axes} <= {"size"}
    assert {*quick.axes} <= {*full.axes}
    assert max(each["d_model"] for each in factors.expand(quick)) <= 256


@pytest.mark.parametrize("name", ["lm-frameworks", "lm-warmup", "lm-precision"])
@pytest.mark.parametrize("quick", ["", "-quick"])
def test_a_suite_for_tables_has_the_rounds_that_its_comparisons_of_two_need(name, quick):
    plan = suites.find(f"{name}{quick}").plan
    comparisons = len(factors.expand(plan)) // 2
    assert plan.trials == fewest(0.05 / comparisons, is_paired=True)


def test_the_zoo_has_every_problem_once():
    tables = factors.expand(suites.find("zoo-quick").plan)
    cases = sorted(table["problem"] for table in tables if table["framework"] == "jax")
    assert [f"problem.{name}" for name in cases] == sorted(registry.registered("problem"))


@pytest.mark.parametrize("name", PROCUREMENT)
def test_each_weight_of_a_suite_applies_to_a_case_and_the_page_says_the_shares(name):
    given = weights.read(Path(name))
    tables = [table for table in factors.expand(suites.find(name).plan) if table["framework"] == "jax"]
    assert given.unused([{"mode": "inference", **table} for table in tables]) == []
    shares: dict[str, float] = {}
    for table in tables:
        hpc = table["problem"] in ("fft", "stencil", "cg", "lu")
        kernel = table["problem"] in ("gemm", "attention", "conv")
        kind = "HPC" if hpc else "kernels" if kernel else table.get("mode", "inference")
        shares[kind] = shares.get(kind, 0) + given.of({"mode": "inference", **table})
    percent = {kind: round(100 * share / sum(shares.values())) for kind, share in shares.items()}
    page = (Path(__file__).parents[3] / "docs/procurement.md").read_text()
    if name == "procurement":
        text = (
            f"training then has {percent['training']}% of the weight, inference of models {percent['inference']}%, "
            f"single kernels\n{percent['kernels']}% and HPC {percent['HPC']}%"
        )
        assert text in page


def test_suites_for_tables_vary_what_their_tables_show():
    axes = {name: suites.find(name).plan.axes for name in TABLES}
    assert axes["lm-frameworks"]["mode"] == ["inference", "forward_backward"]
    assert axes["lm-warmup"]["warmup_steps"] == [0, 5]
    assert axes["lm-precision"]["precision"] == ["fp32", "mixed_bf16"]
    assert len(axes["lm-precision"]["size"]) == 5
    assert suites.find("lm-kernels").plan.base["profile"]


def test_an_unknown_name_tells_the_nearest(tmp_path):
    with pytest.raises(UserError, match="no suite is named 'procurment'; did you mean procurement"):
        suites.find("procurment")
    with pytest.raises(UserError, match="there are: procurement-quick, procurement"):
        suites.find("zzz")
    (tmp_path / "mine.toml").write_text("")
    with pytest.raises(
        UserError, match=r"mine.toml is a file, not the name of a suite; `plan run .*mine.toml` runs it"
    ):
        suites.find(str(tmp_path / "mine.toml"))
    with pytest.raises(UserError, match="no suite is named 'index'"):
        suites.find("index")


def test_the_list_starts_no_framework(command, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    shown = command("suite", "list")
    assert shown.returncode == 0
    assert "procurement-quick, version 1\n  a first look in minutes" in shown.stdout
    assert "\n  22 cases, 9 trials of each; 15 to 25 min on two CPU cores\n" in shown.stdout
    assert command("suite", "list", "--csv").stdout.startswith("name,version,cases,trials,time,summary\n")
    found = json.loads(command("suite", "list", "--json").stdout)
    assert found[0]["cases"] == len(tomllib.loads((suites.FOLDER / "procurement-quick.toml").read_text())["case"]) * 2
    assert [each["name"] for each in found] == suites.names()
    versions = {each["name"]: each["version"] for each in found}
    assert versions == dict.fromkeys(suites.names(), "1")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "zzz"], "no suite is named 'zzz'"),
        ([], "no command was given; there are: suite list, suite run"),
        (["run", "procurement-quick", "--framework=jax,"], "--framework=jax,: a name is missing"),
        (["run", "procurement-quick", "--framework=jaxx"], "no framework is named 'jaxx'; did you mean jax?"),
    ],
)
def test_mistakes_are_told_before_anything_runs(command, args, message):
    done = command("suite", *args)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.fixture
def napping(tmp_path, monkeypatch):
    """A suite of the toy framework in place of those of the project."""
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "index.toml").write_text('[naps]\nsummary = "naps"\ntime = "seconds"\n')
    (folder / "naps.toml").write_text(
        'problem = "nap"\ntrials = 2\n[measuring]\nblocks = 2\n[axes]\nframework = ["other"]\nms = [1, 2]\n'
    )
    monkeypatch.setattr(suites, "FOLDER", folder)


def test_a_suite_runs_with_as_many_threads_as_asked(cli, napping):
    planned = cli("suite", "run", "naps", "--framework=toy", "--threads=3", "--dry-run", "--json")
    assert [case["threads"] for case in json.loads(planned.stdout)["cases"]] == [3, 3]


@pytest.mark.slow
def test_a_suite_runs_and_goes_on_where_it_was_cut_short(command, napping, toy_folder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(toy_folder)
    monkeypatch.setenv("PYTHONPATH", str(toy_folder))
    planned = command("suite", "run", "naps", "--framework=toy", "--dry-run", "--json")
    assert len(json.loads(planned.stdout)["cases"]) == 2
    done = command("suite", "run", "naps", "--framework=toy", "--device=cpu", "--json")
    assert done.returncode == 0
    assert [record["case"]["framework"] for record in json.loads(done.stdout)] == ["toy"] * 4
    (run,) = (tmp_path / "results").iterdir()
    gone = sorted(path for path in run.glob("*.json") if path.name != "plan.json")[-1]
    gone.unlink()
    again = command("suite", "run", "naps", "--framework=toy", "--device=cpu", "--resume", "--json")
    assert again.returncode == 0
    assert len(json.loads(again.stdout)) == 4
    assert list((tmp_path / "results").iterdir()) == [run]
