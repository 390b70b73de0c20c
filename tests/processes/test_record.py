import json
import shutil
from pathlib import Path

import jsonschema
import msgspec
import pytest

from benchmarker import Record
from benchmarker.records import store
from benchmarker.records.record import nulls, schema

FIXTURES = Path(__file__).parents[1] / "fixtures/records"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
"""What the tool said of stored records when their schema was new, by its version."""


@pytest.fixture(scope="module")
def text(recorded):
    return json.dumps(recorded("--blocks=2")[0])


@pytest.fixture
def plain(text):
    return json.loads(text)


def test_a_record_holds_to_its_json_schema(plain):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(plain, schema())


def test_a_record_comes_back_as_it_was(plain):
    assert msgspec.to_builtins(msgspec.convert(plain, Record)) == plain


def test_every_null_has_a_reason(plain):
    assert set(nulls({name: value for name, value in plain.items() if name != "reasons"})) == set(plain["reasons"])
    assert set(nulls(msgspec.convert(plain, Record))) == set(plain["reasons"])
    plain["compile_s"] = None
    with pytest.raises(msgspec.ValidationError, match="null without a reason: compile_s"):
        msgspec.convert(plain, Record)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("blocks", "duration_ns"), [1, 0], r"`int` >= 1 - at `\$.blocks.duration_ns\[1\]`"),
        (("case", "mode"), "sleeping", r"at `\$.case.mode`"),
        (("build_s",), "NaN", r"at `\$.build_s`"),
        (("blocks",), None, "an 'ok' record must contain at least one timed block"),
        (("status",), "failed", "`error` must be present exactly if `status` is 'failed'"),
        (("machine", "surprise"), 1, "unknown field `surprise`"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(plain, path, value, message):
    part = plain
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(plain, Record)


def test_no_private_folder_is_in_a_record(cli):
    done = cli(
        "run",
        "--framework=numpy",
        "--problem=gemm",
        "--blocks=2",
        "--m=8",
        "--json",
        env={
            "OPENBLAS_CORETYPE": "/home/someone/x Haswell",
            "SECRET_TOKEN": "hush",
            "OMP_NUM_THREADS": "2",
            "LOADEDMODULES": "gcc/12.2:/home/someone/mine:cuda/12.8",
        },
    )
    (record,) = json.loads(done.stdout)
    assert record["software"]["variables"] == {
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_CORETYPE": "<path> Haswell",
        "LOADEDMODULES": "gcc/12.2 <path> cuda/12.8",
    }
    assert "hush" not in done.stdout
    assert "someone" not in done.stdout


def test_a_stored_run_has_its_plan():
    plan = store.read_plan(FIXTURES / "v1/plan.json")
    assert (plan.design, plan.trials, len(plan.order)) == ("rounds", 2, 4)


def test_stored_records_compare_and_report_as_expected(command, tmp_path):
    expected = EXPECTED["v1"]
    shutil.copytree(FIXTURES / "v1", tmp_path / "stored")
    compared = command("compare", "stored", "--by=framework", "--baseline=numpy", "--json")
    (comparison,) = json.loads(compared.stdout)["family"]["comparisons"]
    assert {name: comparison[name] for name in expected["comparison"]} == expected["comparison"]
    shown = json.loads(command("show", "stored", "--json").stdout)
    values = {trial["trial_id"]: {name: one["value"] for name, one in trial["metrics"].items()} for trial in shown}
    for trial_id, metrics in expected["metrics"].items():
        assert {name: values[trial_id][name] for name in metrics} == pytest.approx(metrics)
    made = command("report", "stored", "-o", "page.html")
    assert made.returncode == 1  # the trials were profiled, and their event tables are not here
    assert "no event table next to its record" in made.stderr
    assert (tmp_path / "page.html").read_text().count("torch") > 1
    assert command("validate", "stored").returncode == 0


def test_a_record_of_a_newer_version_says_so(command, tmp_path):
    path = next((FIXTURES / "v1").glob("2*.json"))
    (tmp_path / "new.json").write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 2}))
    done = command("validate", "new.json")
    assert "new.json: made by a newer version of benchmarker (schema 2); update this one" in done.stdout
