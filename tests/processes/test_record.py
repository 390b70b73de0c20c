import json
import shutil
from pathlib import Path

import jsonschema
import msgspec
import pytest

from benchmarker import Record
from benchmarker.records import plan, reading, store
from benchmarker.records.record import nulls, schema

FIXTURES = Path(__file__).parents[1] / "fixtures/records"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
"""What version 4 of the tool said of the records of versions 1 to 4, and versions 5 to 12 of their own."""


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


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
def test_records_of_earlier_versions_are_read_and_say_what_they_did_not_have(version):
    records, faults = store.read([FIXTURES / f"v{version}"])
    assert (len(records), faults) == (4, [])
    new = f"schema version {version} had none"
    for record in records:
        raw = json.loads((FIXTURES / f"v{version}" / f"{record.trial_id}.json").read_text())
        assert raw["schema_version"] == version
        assert record.schema_version == 12
        assert (record.case.devices, record.case.ranks, record.case.parallel, record.ranks) == (1, 1, "none", [])
        assert (record.case.nodes, record.machines) == (1, [])
        assert record.blocks.duration_ns == raw["blocks"]["duration_ns"]
        assert record.design.kind == "rounds"
        missing = {path for path, why in record.reasons.items() if why == new}
        assert missing == {
            1: {"suite", "machine.model", "interference", "trace", "energy", "device.pci"},
            2: {"suite", "machine.model", "interference.temperature_C", "trace", "energy", "device.pci"},
            3: {"suite", "machine.model", "interference.temperature_C", "energy", "device.pci"},
            4: {"suite", "machine.model"},
            5: {"suite", "machine.model"},
            6: {"machine.model"},
            7: set(),
            8: set(),
            9: set(),
            10: set(),
            11: set(),
        }[version] | ({"local", "allocation"} if version < 10 else set()) | ({"token_times"} if version < 8 else set())
        if version > 1:
            before = raw["witnesses" if version < 5 else "interference"]
            assert record.interference.own_busy_cores == before["own_busy_cores"]
        if version > 2 and record.case.framework == "torch":
            assert len(record.kernels) == len(raw["kernels"]) > 0
        if version == 4:
            assert [[each.reason for each in one.unavailable] for one in record.meters] == [
                [each["reason"] for each in one["lacks"]] for one in raw["meters"]
            ]


@pytest.mark.parametrize(
    ("devices", "mode", "way"), [(1, "training", "none"), (2, "training", "dp"), (2, "inference", "none")]
)
def test_several_devices_that_trained_were_data_parallel(devices, mode, way):
    raw = json.loads(next((FIXTURES / "v9").glob("2*.json")).read_text())
    raw["case"] |= {"devices": devices, "mode": mode}
    assert reading.read(json.dumps(raw).encode()).case.parallel == way
    planned = json.loads((FIXTURES / "v9/plan.json").read_text())
    planned["cases"][0] = raw["case"]
    assert plan.read(json.dumps(planned).encode()).cases[0].parallel == way


def test_the_ranks_of_an_earlier_version_were_on_one_node():
    raw = json.loads(next((FIXTURES / "v10").glob("2*.json")).read_text())
    durations = raw["blocks"]["duration_ns"]
    raw["ranks"] = [{"rank": 0, "devices": [0], "duration_ns": durations, "memory": raw["memory"]}]
    (rank,) = reading.read(
        json.dumps(raw | {"reasons": {**raw["reasons"], "ranks[0].memory.device_peak_bytes": "none"}}).encode()
    ).ranks
    assert rank.node == 0


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
def test_a_run_of_every_version_has_its_plan(version):
    plan = store.read_plan(FIXTURES / f"v{version}/plan.json")
    assert (plan.design, plan.trials, len(plan.order)) == ("rounds", 2, 4)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
def test_records_of_every_version_compare_and_report_as_expected(command, tmp_path, version):
    expected = EXPECTED[f"v{version}"]
    shutil.copytree(FIXTURES / f"v{version}", tmp_path / "old")
    compared = command("compare", "old", "--by=framework", "--baseline=numpy", "--json")
    (found,) = json.loads(compared.stdout)["family"]["comparisons"]
    assert {name: found[name] for name in expected["comparison"]} == expected["comparison"]
    shown = json.loads(command("show", "old", "--json").stdout)
    values = {each["trial_id"]: {name: one["value"] for name, one in each["metrics"].items()} for each in shown}
    for trial, metrics in expected["metrics"].items():
        assert {name: values[trial][name] for name in metrics} == pytest.approx(metrics)
    made = command("report", "old", "-o", "page.html")
    assert made.returncode == (version > 2)  # later versions were profiled, and their event tables are not here
    assert version < 3 or "no event table next to its record" in made.stderr
    assert (tmp_path / "page.html").read_text().count("torch") > 1
    assert command("validate", "old").returncode == 0


def test_a_record_of_a_newer_version_says_so(command, tmp_path):
    path = next((FIXTURES / "v12").glob("2*.json"))
    (tmp_path / "new.json").write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 13}))
    done = command("validate", "new.json")
    assert "new.json: made by a newer version of benchmarker (schema 13); update this one" in done.stdout


@pytest.mark.parametrize("change", [{"reasons": []}, {"design": "blocks"}, {"meters": [5]}, {"witnesses": "none"}])
def test_a_damaged_record_of_an_earlier_version_is_named(command, tmp_path, change):
    path = next((FIXTURES / "v4").glob("2*.json"))
    (tmp_path / "old.json").write_text(json.dumps(json.loads(path.read_text()) | change))
    done = command("validate", "old.json")
    assert (done.returncode, done.stdout.count("old.json: ")) == (1, 1)
