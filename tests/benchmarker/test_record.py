import json

import jsonschema
import msgspec
import pytest

from benchmarker import Record
from benchmarker.record import nulls, read, schema


@pytest.fixture
def plain(cli, tmp_path):
    done = cli("run", "--framework=toy", "--problem=nap", "--blocks=2", "--json")
    (path,) = (path for path in (tmp_path / "results").glob("*/*.json") if path.name != "plan.json")
    assert done.returncode == 0
    return json.loads(path.read_text())


def test_a_record_holds_to_its_json_schema(plain):
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(plain, schema())


def test_a_record_comes_back_as_it_was(plain):
    assert msgspec.to_builtins(msgspec.convert(plain, Record)) == plain


def test_every_null_has_a_reason(plain):
    assert set(nulls({name: value for name, value in plain.items() if name != "reasons"})) == set(plain["reasons"])
    plain["compile_s"] = None
    with pytest.raises(msgspec.ValidationError, match="null without a reason: compile_s"):
        msgspec.convert(plain, Record)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("blocks", "duration_ns"), [1, 0], r"`int` >= 1 - at `\$.blocks.duration_ns\[1\]`"),
        (("case", "mode"), "sleeping", r"at `\$.case.mode`"),
        (("build_s",), "NaN", r"at `\$.build_s`"),
        (("blocks",), None, "an 'ok' record holds at least one timed block"),
        (("status",), "failed", "`error` stands exactly where `status` is 'failed'"),
        (("machine", "surprise"), 1, "unknown field `surprise`"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(plain, place, value, message):
    part = plain
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
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
        env={"OPENBLAS_CORETYPE": "/home/someone/x Haswell", "SECRET_TOKEN": "hush", "OMP_NUM_THREADS": "2"},
    )
    (record,) = json.loads(done.stdout)
    assert record["software"]["variables"] == {"OMP_NUM_THREADS": "2", "OPENBLAS_CORETYPE": "<path> Haswell"}
    assert "hush" not in done.stdout
    assert "someone" not in done.stdout


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_record_of_an_earlier_version_is_read_and_says_what_it_did_not_have(plain, version):
    later = {"energy", "telemetry", "meters"}
    later |= {"trace", "scopes", "kernels"} if version < 3 else set()
    later |= {"design", "witnesses"} if version == 1 else set()
    for name in later:
        del plain[name]
    if version > 1:
        del plain["witnesses"]["temperature_C"]
    del plain["device"]["pci"]
    for name in ("power", "power_hz", "power_min_s", "power_idle_s"):
        del plain["case"]["measuring"][name]
    plain["schema_version"] = version
    plain["reasons"] = {path: why for path, why in plain["reasons"].items() if path not in ("energy", "device.pci")}
    old = read(json.dumps(plain).encode())
    lacking = f"schema version {version} had none"
    assert (old.schema_version, old.energy, old.telemetry, old.meters) == (4, None, [], [])
    assert old.reasons["energy"] == old.reasons["device.pci"] == lacking
    if version < 3:
        assert (old.trace, old.scopes, old.kernels) == (None, [], [])
        assert old.reasons["trace"] == lacking
    if version == 1:
        assert (old.witnesses, old.design.kind) == (None, "blocks")
        assert old.reasons["witnesses"] == lacking
    else:
        assert old.reasons["witnesses.temperature_C"] == lacking
    assert old.blocks.duration_ns == plain["blocks"]["duration_ns"]
