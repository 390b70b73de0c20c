import hashlib
import json
import os
import stat
import struct
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.records import make_ceiling, make_record

from benchmarker import Case, UserError
from benchmarker.bundles.manifest import MAX_FILES, Manifest, name_trouble
from benchmarker.bundles.pack import Bundled, bundle
from benchmarker.bundles.run_files import MAX_JSON_BYTES
from benchmarker.bundles.unpack import unbundle
from benchmarker.files import atomic
from benchmarker.hooks import parameters, registry
from benchmarker.records import ceilings, store
from benchmarker.records.plan import make_plan
from benchmarker.records.record import Blocks, Failure
from benchmarker.records.suite import TrialSuite

RUN = "20260102T030405.678901-89abcdef"


def make_run(folder: Path, trials: int = 2, recorded: int = 2, case: Case | None = None) -> Path:
    """The folder of a run of one case, with files of every kind."""
    case = case or make_record().case
    records = [msgspec.structs.replace(make_record(run=RUN, trial=trial), case=case) for trial in range(recorded)]
    plan = make_plan([case], trials, seed=1)
    folder = folder / RUN
    folder.mkdir(parents=True)
    atomic.write(folder / "plan.json", atomic.encode(msgspec.structs.replace(plan, run_id=RUN)))
    for record in records:
        atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    first = f"{RUN}-0000-0"
    (folder / f"{first}.log").write_text("a warning\n" * 100)
    (folder / f"{first}.events.parquet").write_bytes(b"PAR1" * 99)
    (folder / f"{first}.telemetry.parquet").write_bytes(b"PAR1")
    (folder / f"{first}.profile.json.gz").write_bytes(b"\x1f\x8b...")
    (folder / f"{first}.profile.log").write_text("")
    (folder / "ceilings.json").write_bytes(ceilings.encode([]))
    return folder


def pack(folder: Path, output: Path, **options) -> Bundled:
    done = bundle(folder, output, **options)
    assert isinstance(done, Bundled), done
    return done


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a run, without those that a bundle adds."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("manifest.json", "environment.json")
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "mine")


@pytest.fixture
def packed(run: Path, tmp_path: Path) -> Path:
    return pack(run, tmp_path / "bid.zip").path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def rebuild(path: Path, files: dict[str, bytes], extra=(), listed: dict[str, bytes] | None = None) -> None:
    """A bundle of these files with a manifest that fits them, as a hostile bidder would make it, and `extra`."""
    manifest = json.loads(files["manifest.json"])
    told = {name: content for name, content in (listed or files).items() if name != "manifest.json"}
    manifest["files"] = [
        {"path": name, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in told.items()
    ]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            if name != "manifest.json":
                archive.writestr(f"{RUN}/{name}", content)
        archive.writestr(f"{RUN}/manifest.json", json.dumps(manifest))
        for name, content in extra:
            archive.writestr(name, content)


def faults(path: Path, to: Path) -> dict[str, str]:
    """What does not hold of a bundle; nothing of it may be left behind."""
    done = unbundle(path, to)
    assert done.folder is None
    assert not to.exists() or not list(to.iterdir())
    return {fault.path: fault.reason for fault in done.faults}


def test_the_files_of_a_model_by_name_are_packed_if_asked_for_and_are_no_records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text('{"n_layer": 1}')
    Path("inputs.py").write_text("def inputs(): ...")
    Path("model.safetensors").write_bytes(b"weights")
    kind = registry.problem("transformers")
    files = {"config": "config.json", "inputs": "inputs.py", "weights": "model.safetensors"}
    params = parameters.resolve(kind, files, "cpu")
    case = msgspec.structs.replace(make_record().case, problem="transformers", params=params, source=kind.source.sha256)
    run = make_run(tmp_path / "mine", trials=1, recorded=1, case=case)
    packed = pack(run, tmp_path / "bid.zip", source=True).path
    sources = {name.split("/")[2]: content for name, content in members(packed).items() if name.startswith("source/")}
    assert sources == {"config.json": b'{"n_layer": 1}', "inputs.py": b"def inputs(): ..."}
    done = unbundle(packed, tmp_path / "theirs")
    assert done.faults == ()
    records, damaged = store.read([done.folder])
    assert (len(records), damaged) == (1, [])
    Path("inputs.py").write_text("def inputs(): return {}")
    with pytest.raises(UserError, match=r"inputs\.py changed after the run was planned"):
        pack(run, tmp_path / "bid.zip", source=True)


def test_what_was_packed_comes_out_byte_by_byte(run, packed, tmp_path):
    done = unbundle(packed, tmp_path / "theirs")
    assert done.folder == tmp_path / "theirs" / RUN
    assert done.faults == ()
    assert contents(done.folder) == contents(run)
    assert list((tmp_path / "theirs").iterdir()) == [done.folder]
    assert store.read([tmp_path / "theirs"]) == (store.read([run])[0], [])


def test_the_manifest_and_the_environment_are_kept_beside_the_records(packed, tmp_path):
    folder = unbundle(packed, tmp_path / "theirs").folder
    assert folder
    for name in ("manifest.json", "environment.json"):
        assert (folder / name).read_bytes() == members(packed)[name]


def test_the_same_run_gives_the_same_bytes(run, packed, tmp_path):
    os.utime(run / "plan.json", (0, 0))
    (run / "plan.json").chmod(0o600)
    assert pack(run, tmp_path / "again.zip").path.read_bytes() == packed.read_bytes()
    theirs = unbundle(packed, tmp_path / "theirs").folder
    assert theirs
    assert pack(theirs, tmp_path / "third.zip").path.read_bytes() == packed.read_bytes()


def test_other_tools_read_the_zip(packed, tmp_path):
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        assert {stat.S_IMODE(info.external_attr >> 16) for info in archive.infolist()} == {0o644}
        assert Counter(info.date_time for info in archive.infolist()) == {(1980, 1, 1, 0, 0, 0): 11}


def test_the_manifest_tells_every_file_with_its_checksum(run, packed):
    manifest = json.loads(members(packed)["manifest.json"])
    assert manifest["trials"] == {"planned": 2, "recorded": 2, "failed": 0}
    told = {each["path"]: (each["size_bytes"], each["sha256"]) for each in manifest["files"]}
    there = {name: content for name, content in members(packed).items() if name != "manifest.json"}
    assert told == {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in there.items()}
    assert told.keys() == {*contents(run), "environment.json"}


def test_the_checksum_is_that_of_the_zip(run, tmp_path):
    done = pack(run, tmp_path / "bid.zip")
    assert done.sha256 == hashlib.sha256(done.path.read_bytes()).hexdigest()
    assert done.size_bytes == done.path.stat().st_size
    assert unbundle(done.path, None, sha256=done.sha256.upper()).faults == ()
    with pytest.raises(UserError, match=f"not the expected file: its SHA-256 is {done.sha256}"):
        unbundle(done.path, None, sha256="0" * 64)


def test_the_environment_tells_distinct_machines_with_their_trials(run, tmp_path):
    other = make_record(run=RUN, trial=1)
    machine = msgspec.structs.replace(other.machine, host="elsewhere", load_average_1min=99.0)
    atomic.write(run / f"{RUN}-0001-0.json", atomic.encode(msgspec.structs.replace(other, machine=machine)))
    found = json.loads(members(pack(run, tmp_path / "bid.zip").path)["environment.json"])
    assert [(each["machine"]["host"], each["trials"]) for each in found["machine"]] == [
        (make_record().machine.host, [f"{RUN}-0000-0"]),
        ("elsewhere", [f"{RUN}-0001-0"]),
    ]
    assert "load_average_1min" not in found["machine"][0]["machine"]
    assert [each["trials"] for each in found["software"]] == [[f"{RUN}-0000-0", f"{RUN}-0001-0"]]
    assert found["device"][0]["device"]["name"] == "toy"


def test_profiles_can_be_left_out_and_that_is_told(run, tmp_path):
    done = pack(run, tmp_path / "bid.zip", profiles=False)
    left = [f"{RUN}-0000-0.events.parquet", f"{RUN}-0000-0.profile.json.gz"]
    assert [(each.path, each.reason) for each in done.manifest.left_out] == [
        (path, "left out by --no-profiles") for path in left
    ]
    folder = unbundle(done.path, tmp_path / "theirs").folder
    assert folder
    assert contents(folder).keys() == contents(run).keys() - set(left)


def test_what_was_left_out_is_still_told_by_a_bundle_of_the_unpacked_run(run, tmp_path):
    done = pack(run, tmp_path / "bid.zip", profiles=False)
    theirs = unbundle(done.path, tmp_path / "theirs").folder
    assert theirs
    assert pack(theirs, tmp_path / "again.zip").path.read_bytes() == done.path.read_bytes()


def test_what_is_no_file_of_the_run_is_named_and_not_packed(run, tmp_path):
    (run / "link").symlink_to("/etc/passwd")
    (run / "folder").symlink_to("/etc")
    os.mkfifo(run / "pipe")
    (run / ".x.json.abc.tmp").write_text("{")
    (run / ".work" / "profile").mkdir(parents=True)
    (run / "a\\b").write_text("")
    (run / "manifest.json").write_text("{}")
    (run / "sub").mkdir()
    (run / "sub" / "note.txt").write_text("kept")
    done = pack(run, tmp_path / "bid.zip")
    assert {each.path: each.reason for each in done.manifest.left_out} == {
        "link": "a link",
        "folder": "a link",
        "pipe": "not a regular file",
        ".x.json.abc.tmp": "a temporary file",
        ".work": "unfinished work of a process that was killed",
        "a\\b": "a backslash or a colon in its name",
        "manifest.json": "replaced by the bundle's own",
    }
    folder = unbundle(done.path, tmp_path / "theirs").folder
    assert folder
    assert (folder / "sub" / "note.txt").read_text() == "kept"


def test_a_name_that_is_not_utf8_is_named(run, tmp_path):
    Path(os.fsdecode(os.fsencode(run) + b"/\xff.log")).write_text("")
    (left,) = pack(run, tmp_path / "bid.zip").manifest.left_out
    assert left.path == "\\udcff.log"


def test_a_run_that_is_at_work_is_not_packed(run, tmp_path):
    code = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'rb'); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, run / "plan.json"], stdout=subprocess.PIPE)
    assert holder.stdout
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match="is in use by another process; wait until the run has ended"):
            bundle(run, tmp_path / "bid.zip")
    finally:
        holder.kill()
        holder.communicate()
    assert not (tmp_path / "bid.zip").exists()


def damage_plan(run):
    (run / "plan.json").write_text("{")


def damage_record(run):
    (run / f"{RUN}-0001-0.json").write_bytes((run / f"{RUN}-0001-0.json").read_bytes()[:-9])


def other_run(run):
    atomic.write(run / f"{RUN}-0001-0.json", atomic.encode(make_record(run="other", trial=1, trial_id=f"{RUN}-0001-0")))


def other_name(run):
    (run / f"{RUN}-0001-0.json").rename(run / "better.json")


def other_case(run):
    atomic.write(run / f"{RUN}-0001-0.json", atomic.encode(make_record(run=RUN, trial=1, case={"seed": 9})))


def other_suite(run):
    suite = TrialSuite(name="naps", sha256="0" * 64)
    atomic.write(run / f"{RUN}-0001-0.json", atomic.encode(make_record(run=RUN, trial=1, suite=suite)))


def unplanned(run):
    atomic.write(run / f"{RUN}-0002-0.json", atomic.encode(make_record(run=RUN, trial=2)))


def twice(run):
    atomic.write(run / "z.json", atomic.encode(make_record(run=RUN, trial=1, trial_id="z")))


def endless(run):
    (run / "z.json").write_text('{"schema_version": 1, "reasons": ' + "[" * 100_000)


def strange(run):
    (run / "z.json").write_text('{"schema_version": 1, "reasons": [1], "interference": "x", "device": 3}')


SPOILT = [
    (damage_plan, "plan.json", "Input data was truncated"),
    (damage_record, f"{RUN}-0001-0.json", "Input data was truncated"),
    (other_run, f"{RUN}-0001-0.json", f"belongs to run other, not to {RUN}"),
    (other_name, "better.json", f"contains trial {RUN}-0001-0; a record must be named after its trial"),
    (other_case, f"{RUN}-0001-0.json", "its case differs from case 0 of the plan"),
    (other_suite, f"{RUN}-0001-0.json", "its suite is not that of the plan"),
    (unplanned, f"{RUN}-0002-0.json", "trial 2 of case 0 is not in the plan"),
    (twice, "z.json", f"same trial of the same case as {RUN}-0001-0.json"),
    (endless, "z.json", ""),
    (strange, "z.json", ""),
]


@pytest.mark.parametrize(("spoil", "path", "reason"), SPOILT, ids=[spoil.__name__ for spoil, *_ in SPOILT])
def test_a_run_that_does_not_hold_is_neither_packed_nor_unpacked(run, packed, tmp_path, spoil, path, reason):
    spoil(run)
    output = tmp_path / "spoilt.zip"
    (fault,) = bundle(run, output)
    assert fault.path == path
    assert reason in fault.reason
    assert not output.exists()
    files = {**contents(run), "manifest.json": members(packed)["manifest.json"]}
    rebuild(output, files)
    (found,) = faults(output, tmp_path / "theirs").items()
    assert found[0] == path
    assert reason in found[1]
    assert unbundle(output, None).faults


def test_a_plan_of_another_run_is_told(run, packed, tmp_path):
    files = members(packed)
    plan = json.loads(files["plan.json"]) | {"run_id": "other"}
    rebuild(packed, {**files, "plan.json": json.dumps(plan).encode()})
    assert faults(packed, tmp_path / "theirs")["plan.json"] == f"belongs to run other, not to {RUN}"


def test_a_suite_of_the_manifest_alone_is_told(packed, tmp_path):
    files = members(packed)
    manifest = json.loads(files["manifest.json"]) | {"suite": {"name": "naps", "version": None, "sha256": "0" * 64}}
    rebuild(packed, {**files, "manifest.json": json.dumps(manifest).encode()})
    reason = "states suite naps (000000000000), which is not that of the plan"
    assert faults(packed, tmp_path / "theirs") == {"manifest.json": reason}


def test_an_unfinished_run_is_packed_and_counted(tmp_path):
    done = pack(make_run(tmp_path / "mine", trials=3, recorded=1), tmp_path / "bid.zip")
    assert str(done.manifest.trials) == "1 of 3 trials recorded, 0 failed"
    assert unbundle(done.path, None).faults == ()


def test_failed_trials_are_counted(run, tmp_path):
    record = make_record(run=RUN, trial=1, status="failed", error=Failure("timeout", "too long", "time"))
    atomic.write(run / f"{RUN}-0001-0.json", atomic.encode(record))
    assert pack(run, tmp_path / "bid.zip").manifest.trials.failed == 1


def test_trials_counted_wrong_are_told(packed, tmp_path):
    files = members(packed)
    manifest = json.loads(files["manifest.json"])
    manifest["trials"]["failed"] = 1
    rebuild(packed, {**files, "manifest.json": json.dumps(manifest).encode()})
    assert "2 recorded" not in faults(packed, tmp_path / "theirs")["manifest.json"]
    assert faults(packed, tmp_path / "theirs") == {
        "manifest.json": (
            "states 2 of 2 trials recorded, 1 failed, but the files contain 2 of 2 trials recorded, 0 failed"
        )
    }


NAMES = {
    "/etc/passwd": "an absolute path",
    "../../escaped": "a path with an empty part, '.' or '..'",
    "sub/../../escaped": "a path with an empty part, '.' or '..'",
    "./plan": "a path with an empty part, '.' or '..'",
    "sub//x": "a path with an empty part, '.' or '..'",
    "folder/": "a path with an empty part, '.' or '..'",
    "": "a path with an empty part, '.' or '..'",
    "..\\escaped": "a backslash or a colon in its name",
    "C:\\escaped": "a backslash or a colon in its name",
    "C:escaped": "a backslash or a colon in its name",
    "a\x1b[2Jb": "a control character in its name",
    "log\x00.json": "a control character in its name",
    "a\u202eb": "a control character in its name",
    "a ": "a name that ends in a dot or a space",
    "con.": "a name that ends in a dot or a space",
    "a" * 256: "a name longer than 255 bytes",
}


@pytest.mark.parametrize("name", NAMES, ids=map(ascii, NAMES))
def test_a_hostile_name_is_refused(packed, tmp_path, name):
    assert name_trouble(name) == NAMES[name]
    rebuild(packed, {**members(packed), name: b"x"})
    assert faults(packed, tmp_path / "theirs")[name] == NAMES[name]
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("a.log", "A.log"), "listed more than once, or under names that some systems treat as the same"),
        (("\u00e9.log", "e\u0301.log"), "listed more than once, or under names that some systems treat as the same"),
        (("a", "a/b"), "a file and a folder at once"),
        (("A", "a/b"), "a file and a folder at once"),
    ],
)
def test_names_that_clash_are_refused(packed, tmp_path, names, reason):
    rebuild(packed, {**members(packed), **dict.fromkeys(names, b"x")})
    assert faults(packed, tmp_path / "theirs")[names[0]] == reason


@pytest.mark.parametrize("name", [f"{RUN}/more.log", "more.log", "other/more.log", "../more.log", "/more.log", RUN])
def test_a_file_beyond_the_manifest_is_refused(packed, tmp_path, name):
    rebuild(packed, members(packed), extra=[(name, b"x")])
    assert faults(packed, tmp_path / "theirs") == {name: "not in the manifest"}


def test_a_file_that_is_missing_is_named(packed, tmp_path):
    files = members(packed)
    rebuild(packed, {name: files[name] for name in files if name != "ceilings.json"}, listed=files)
    assert faults(packed, tmp_path / "theirs") == {"ceilings.json": "missing from the zip"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_named(packed, tmp_path):
    rebuild(packed, members(packed), extra=[(f"{RUN}/ceilings.json", b"{}")])
    assert faults(packed, tmp_path / "theirs") == {"ceilings.json": "more than once in the zip"}


def kind(mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(f"{RUN}/x")
    info.create_system = 3
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (stat.S_IFLNK | 0o777, "a link"),
        (stat.S_IFCHR | 0o666, "not a regular file"),
        (stat.S_IFIFO | 0o666, "not a regular file"),
        (stat.S_IFDIR | 0o755, "not a regular file"),
    ],
)
def test_links_and_devices_are_refused(packed, tmp_path, mode, reason):
    files = members(packed)
    rebuild(packed, files, extra=[(kind(mode), b"/etc/passwd")], listed={**files, "x": b"/etc/passwd"})
    assert faults(packed, tmp_path / "theirs") == {"x": reason}


def test_permissions_of_a_bundle_are_not_taken_over(packed, tmp_path):
    files = members(packed)
    rebuild(packed, files, extra=[(kind(stat.S_IFREG | 0o6777), b"x")], listed={**files, "x": b"x"})
    folder = unbundle(packed, tmp_path / "theirs").folder
    assert folder
    assert not (folder / "x").stat().st_mode & 0o7111


def entry(path: Path, name: str) -> tuple[bytearray, int]:
    """The bytes of a zip, and where the entry of a file begins in its directory."""
    data = bytearray(path.read_bytes())
    return data, data.rindex(f"{RUN}/{name}".encode()) - 46


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [(8, 1, "encrypted"), (10, 12, "compression method 12, which bundles do not use")],
)
def test_encryption_and_strange_compression_are_refused(packed, tmp_path, offset, value, reason):
    data, at = entry(packed, "ceilings.json")
    data[at + offset] = value
    packed.write_bytes(data)
    assert faults(packed, tmp_path / "theirs") == {"ceilings.json": reason}


def test_files_that_share_bytes_are_refused(packed, tmp_path):
    data, at = entry(packed, "ceilings.json")
    data[at + 20 : at + 24] = (10**6).to_bytes(4, "little")
    packed.write_bytes(data)
    with pytest.raises(UserError, match="files in it overlap"):
        unbundle(packed, tmp_path / "theirs")


def bomb(packed: Path, size: int, told: int) -> None:
    """A bundle with a file of zeros that is larger than the manifest and the zip's directory tell."""
    files = members(packed)
    info = kind(stat.S_IFREG | 0o644)
    info.compress_type = zipfile.ZIP_DEFLATED
    rebuild(packed, files, extra=[(info, b"\0" * size)], listed={**files, "x": b"\0" * told})
    data, at = entry(packed, "x")
    data[at + 24 : at + 28] = told.to_bytes(4, "little")
    packed.write_bytes(data)


def test_a_bomb_ends_at_the_size_that_is_told(packed, tmp_path):
    bomb(packed, 10**7, 1000)
    assert "damaged: Bad CRC-32" in faults(packed, tmp_path / "theirs")["x"]


def test_a_size_that_is_not_that_of_the_manifest_is_not_read(packed, tmp_path):
    files = members(packed)
    rebuild(packed, {**files, "x": b"\0" * 10**6}, listed={**files, "x": b"\0" * 1000})
    assert faults(packed, tmp_path / "theirs") == {"x": "1000000 bytes; the manifest states 1000"}


def test_a_file_that_is_shorter_than_told_is_damaged(packed, tmp_path):
    bomb(packed, 1000, 2000)
    assert faults(packed, tmp_path / "theirs").keys() == {"x"}


def test_more_than_is_allowed_is_refused_before_it_is_read(packed, tmp_path):
    files = members(packed)
    manifest = json.loads(files["manifest.json"])
    manifest["files"].append({"path": "x", "size_bytes": 3 * 2**30, "sha256": "0" * 64})
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{RUN}/manifest.json", json.dumps(manifest))
    with pytest.raises(UserError, match=r"would unpack to 3 GiB, [\d.e+]+ times its size; --max-size=4 allows that"):
        unbundle(packed, tmp_path / "theirs")
    assert unbundle(packed, tmp_path / "theirs", max_bytes=2**32).faults


def test_a_changed_file_is_named_though_the_zip_is_whole(packed, tmp_path):
    files = members(packed)
    changed = {**files, f"{RUN}-0000-0.log": b"nothing to see\n" + b" " * 985}
    rebuild(packed, changed, listed=files)
    assert faults(packed, tmp_path / "theirs") == {
        f"{RUN}-0000-0.log": "changed: its SHA-256 differs from the manifest"
    }


def test_all_faults_are_named_not_only_the_first(packed, tmp_path):
    files = members(packed)
    changed = {name: content for name, content in files.items() if name != "ceilings.json"}
    changed[f"{RUN}-0000-0.telemetry.parquet"] = b"PAR2"
    changed[f"{RUN}-0001-0.json"] = b"{}"
    rebuild(packed, changed, extra=[("more", b"")], listed={**files, f"{RUN}-0001-0.json": b"{}"})
    assert faults(packed, tmp_path / "theirs").keys() == {
        "ceilings.json",
        f"{RUN}-0000-0.telemetry.parquet",
        f"{RUN}-0001-0.json",
        "more",
    }


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ({"format_version": 2}, "format 2 is newer than 1, which this benchmarker reads: update benchmarker"),
        ({"format_version": 0}, "Invalid enum value 0"),
        ({"run_id": "other"}, "run_id: not the name of the folder"),
        ({"run_id": "../up"}, "run_id: a slash"),
        ({"run_id": ".."}, "run_id: a path with an empty part"),
        ({"run_id": ""}, "run_id: a path with an empty part"),
        ({"files": [{"path": "x", "size_bytes": -1, "sha256": "0" * 64}]}, "Expected `int` >= 0"),
        ({"files": [{"path": "x", "size_bytes": 1, "sha256": "0"}]}, "Expected `str` matching regex"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_a_manifest_that_does_not_hold_is_refused(packed, tmp_path, manifest, reason):
    whole = json.loads(members(packed)["manifest.json"]) | manifest
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{RUN}/manifest.json", json.dumps(whole))
    with pytest.raises(UserError) as caught:
        unbundle(packed, tmp_path / "theirs")
    assert reason in str(caught.value)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b'{"format_version": 1, "x": ' + b"[" * 100_000])
def test_a_manifest_that_is_no_json_is_refused(packed, tmp_path, content):
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{RUN}/manifest.json", content)
    with pytest.raises(UserError, match=r"manifest.json: .*; request the bundle again"):
        unbundle(packed, tmp_path / "theirs")


def test_what_is_no_bundle_is_refused(tmp_path):
    path = tmp_path / "bid.zip"
    with pytest.raises(UserError, match=r"cannot read .*: No such file or directory; name a bundle"):
        unbundle(path, tmp_path / "theirs")
    path.write_bytes(b"")
    with pytest.raises(UserError, match="is not a zip file, or is truncated or damaged"):
        unbundle(path, tmp_path / "theirs")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("plan.json", "{}")
    with pytest.raises(UserError, match=r"is not a bundle: it contains 0 files RUN/manifest.json"):
        unbundle(path, tmp_path / "theirs")
    with pytest.raises(UserError, match=r"cannot read .*: Is a directory"):
        unbundle(tmp_path, tmp_path / "theirs")


def refusal(data: bytes, tmp_path: Path) -> str:
    """Why a bundle of these bytes is refused; nothing of it may be left behind."""
    (tmp_path / "hostile.zip").write_bytes(data)
    with pytest.raises(UserError) as caught:
        unbundle(tmp_path / "hostile.zip", tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
    return str(caught.value)


def shifted(data: bytes, by: int, at: int | None = None) -> bytes:
    """A zip whose directory tells offsets that are `by` bytes larger, of files from the offset `at` on."""
    found = bytearray(data)
    end = len(data) - 22
    position = begin = int.from_bytes(data[end + 16 : end + 20], "little")
    found[end + 16 : end + 20] = (begin + by).to_bytes(4, "little")
    while position < end:
        offset = int.from_bytes(data[position + 42 : position + 46], "little")
        if at is None or offset >= at:
            found[position + 42 : position + 46] = (offset + by).to_bytes(4, "little")
        position += 46 + sum(int.from_bytes(data[position + i : position + i + 2], "little") for i in (28, 30, 32))
    return bytes(found)


def test_bytes_before_or_after_the_archive_are_refused(packed, tmp_path):
    data = packed.read_bytes()
    assert "has bytes before its zip; request the bundle again" in refusal(b"#!/bin/sh\n" + data, tmp_path)
    assert "that belong to no file" in refusal(b"1234" + shifted(data, 4), tmp_path)
    assert "has bytes after the end of its zip" in refusal(data + b"more", tmp_path)
    assert "has bytes after the end of its zip" in refusal(data[:-2] + b"\4\0more", tmp_path)


def test_bytes_between_files_are_refused(packed, tmp_path):
    data = packed.read_bytes()
    second = data.index(b"PK\3\4", 4)
    moved = shifted(data, 4, second)
    assert "that belong to no file" in refusal(moved[:second] + b"1234" + moved[second:], tmp_path)
    directory = int.from_bytes(data[-6:-2], "little")
    moved = shifted(data, 4, directory)
    message = "has bytes before its directory that belong to no file"
    assert message in refusal(moved[:directory] + b"1234" + moved[directory:], tmp_path)
    assert "has bytes before its zip" in refusal(data[:-22] + b"1234" + data[-22:], tmp_path)


def test_two_archives_in_a_row_are_refused(packed, tmp_path):
    data = packed.read_bytes()
    assert "has bytes before its zip" in refusal(data + data, tmp_path)
    assert "that belong to no file" in refusal(data + shifted(data, len(data)), tmp_path)


def test_a_bundle_whose_directory_is_a_large_one_is_unpacked(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 3)
    rebuild(packed, members(packed))
    assert packed.read_bytes().count(b"PK\6\6") == 1
    data = packed.read_bytes()
    assert "has bytes before its zip" in refusal(data[:-98] + b"1234" + data[-98:], tmp_path)
    assert unbundle(packed, tmp_path / "theirs").folder


def crowd(files: int, stated: int | None = None) -> bytes:
    """A zip of empty files, written without `zipfile`, which would take long; its end states another number."""
    entry = struct.Struct("<4s6H3L5H2L")
    local = b"".join(struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, 0, 0) for _ in range(files))
    directory = b"".join(
        entry.pack(b"PK\1\2", 788, 20, 0, 0, 0, 33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30 * at) for at in range(files)
    )
    count = files if stated is None else stated
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), len(local))
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(local) + len(directory), 1)
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return local + directory + end + locator + last


def test_too_many_files_are_refused_before_their_list_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZipFile", None)
    message = f"contains {MAX_FILES + 1} files, more than the {MAX_FILES} of a bundle"
    assert message in refusal(crowd(MAX_FILES + 1), tmp_path)
    assert "a directory with more than its entries" in refusal(crowd(MAX_FILES + 1, stated=MAX_FILES), tmp_path)
    assert "a directory of 4600000 bytes for 1 files" in refusal(crowd(MAX_FILES, stated=1), tmp_path)


def test_as_many_files_as_are_allowed_are_listed(tmp_path):
    assert "is not a bundle: it contains 0 files RUN/manifest.json" in refusal(crowd(MAX_FILES), tmp_path)


def test_a_run_of_too_many_files_is_not_packed(run, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarker.bundles.pack.MAX_FILES", 10)
    with pytest.raises(UserError, match="contains 9 files; a bundle has at most 10: --no-profiles leaves"):
        bundle(run, tmp_path / "bid.zip")
    assert pack(run, tmp_path / "bid.zip", profiles=False).manifest.files


def test_a_record_that_is_too_large_is_neither_packed_nor_unpacked(run, packed, tmp_path):
    large = (run / f"{RUN}-0001-0.json").read_bytes() + b" " * MAX_JSON_BYTES
    rebuild(packed, {**members(packed), f"{RUN}-0001-0.json": large})
    reason = "larger than {} bytes, the limit for a JSON file"
    assert faults(packed, tmp_path / "theirs") == {f"{RUN}-0001-0.json": reason.format(MAX_JSON_BYTES)}
    (run / f"{RUN}-0001-0.json").write_bytes(large)
    (fault,) = bundle(run, tmp_path / "bid.zip")
    assert fault.reason == reason.format(MAX_JSON_BYTES)


def test_json_is_read_in_proportion_to_the_size_of_the_zip(packed, tmp_path):
    content = b'{"schema_version": 1, "x": [' + b"{}," * 2**22
    info = zipfile.ZipInfo(f"{RUN}/x.json")
    info.compress_type = zipfile.ZIP_DEFLATED
    files = members(packed)
    rebuild(packed, files, extra=[(info, content)], listed={**files, "x.json": content})
    limit = 2**20 + 100 * packed.stat().st_size
    assert faults(packed, tmp_path / "theirs") == {"x.json": f"larger than {limit} bytes, the limit for a JSON file"}


def test_a_path_of_endless_length_is_refused(packed, tmp_path):
    files = members(packed)
    rebuild(packed, files, listed={**files, "a/" * 10**6 + "a": b""})
    (fault,) = unbundle(packed, tmp_path / "theirs").faults
    assert fault.reason == "a path longer than 1000 bytes"


def test_an_interrupt_leaves_nothing(packed, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "sync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        unbundle(packed, tmp_path / "theirs")
    assert list((tmp_path / "theirs").iterdir()) == []


def small(folder: Path) -> tuple[bytes, dict[str, bytes]]:
    """A bundle of a run without a record, and what is in it."""
    run = make_run(folder, recorded=0)
    for path in run.glob(f"{RUN}-*"):
        path.unlink()
    return pack(run, folder / "small.zip").path.read_bytes(), contents(run)


def outcome(data: bytes, folder: Path) -> dict[str, bytes] | None:
    """What comes out of a bundle; None where it is refused."""
    path = folder / "changed.zip"
    path.write_bytes(data)
    try:
        done = unbundle(path, folder / "out")
    except UserError:
        return None
    if done.faults:
        return None
    assert done.folder
    found = contents(done.folder)
    for each in sorted(done.folder.rglob("*"), reverse=True):
        each.unlink()
    done.folder.rmdir()
    return found


@pytest.mark.slow
def test_every_byte_turned_over_is_noticed_or_harmless(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "sync", lambda: None)
    whole, expected = small(tmp_path)
    assert outcome(whole, tmp_path) == expected
    noticed = 0
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0xFF
        found = outcome(bytes(changed), tmp_path)
        assert found in (None, expected), position
        noticed += found is None
    assert noticed > 0.8 * len(whole)


@pytest.mark.slow
def test_every_length_cut_off_is_noticed(tmp_path):
    whole, _ = small(tmp_path)
    for length in range(len(whole)):
        assert outcome(whole[:length], tmp_path) is None, length


def test_a_changed_byte_is_named_with_its_file(packed, tmp_path):
    data = bytearray(packed.read_bytes())
    at = data.index(f"{RUN}/{RUN}-0000-0.events.parquet".encode())
    data[at + 100] ^= 1
    packed.write_bytes(data)
    assert faults(packed, tmp_path / "theirs") == {
        f"{RUN}-0000-0.events.parquet": f"damaged: Bad CRC-32 for file '{RUN}/{RUN}-0000-0.events.parquet'"
    }


def test_a_zip_that_is_cut_short_is_refused(packed, tmp_path):
    whole = packed.read_bytes()
    for length in (*range(0, len(whole), 97), *range(len(whole) - 30, len(whole))):
        packed.write_bytes(whole[:length])
        with pytest.raises(UserError, match="is not a zip file, or is truncated or damaged"):
            unbundle(packed, tmp_path / "theirs")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=8))
def test_bytes_written_over_are_noticed_or_harmless(tmp_path, changes):
    stored = tmp_path / "whole"
    if not stored.exists():
        whole, files = small(tmp_path)
        stored.write_bytes(whole)
        (tmp_path / "files").write_bytes(msgspec.json.encode({name: list(files[name]) for name in files}))
    whole = stored.read_bytes()
    expected = {name: bytes(each) for name, each in json.loads((tmp_path / "files").read_bytes()).items()}
    changed = bytearray(whole)
    for position, value in changes:
        changed[position % len(whole)] = value
    assert outcome(bytes(changed), tmp_path) in (None, expected)


def test_a_run_that_is_there_already_is_not_touched(packed, tmp_path):
    (tmp_path / "theirs" / RUN).mkdir(parents=True)
    with pytest.raises(UserError, match="exists already; move it away, or name another folder with --to"):
        unbundle(packed, tmp_path / "theirs")
    (tmp_path / "theirs" / RUN).rmdir()
    (tmp_path / "theirs" / RUN).symlink_to("nowhere")
    with pytest.raises(UserError, match="exists already"):
        unbundle(packed, tmp_path / "theirs")


def test_a_full_disk_leaves_nothing(run, packed, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    before = packed.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "sync", fail)
    with pytest.raises(
        UserError, match=r"cannot write to .*: No space left on device; free some space, or name another"
    ):
        unbundle(packed, tmp_path / "theirs")
    assert list((tmp_path / "theirs").iterdir()) == []
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device; name another file with -o"):
        bundle(run, packed)
    assert packed.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "theirs", "bid.zip"}


def test_a_place_that_cannot_be_written_is_told(run, packed, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*file.*: (File exists|Not a directory)"):
        unbundle(packed, tmp_path / "file")
    for output in (tmp_path / "file" / "bid.zip", tmp_path / "no" / "bid.zip"):
        with pytest.raises(UserError, match=r"cannot write .*; name another file with -o"):
            bundle(run, output)
    with pytest.raises(UserError, match="is not a regular file"):
        bundle(run, Path("/dev/null"))
    with pytest.raises(UserError, match="would be inside the folder of the run"):
        bundle(run, run / "bid.zip")
    with pytest.raises(UserError, match=r"cannot read .*plan.json: No such file .*; name the folder of one run"):
        bundle(tmp_path, tmp_path / "bid.zip")


def test_verifying_alone_writes_nothing(packed, tmp_path, monkeypatch):
    before = contents(tmp_path)
    assert unbundle(packed, None).folder is None
    assert contents(tmp_path) == before


def test_the_command_line_packs_and_unpacks(command, run, tmp_path):
    made = command("bundle", "create", str(run))
    assert (made.returncode, made.stderr) == (0, "")
    told = hashlib.sha256((tmp_path / f"{RUN}.zip").read_bytes()).hexdigest()
    assert told in made.stdout
    done = command("bundle", "unpack", f"{RUN}.zip", f"--sha256={told}", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["folder"] == f"results/{RUN}"
    assert command("show", f"results/{RUN}").returncode == 0
    again = command("bundle", "unpack", f"{RUN}.zip")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert "verified" in command("bundle", "verify", f"{RUN}.zip").stdout


def test_the_command_line_says_what_is_missing(command, tmp_path):
    run = make_run(tmp_path / "mine", trials=3, recorded=1)
    (run / "l\x1b[2Jnk").symlink_to("nowhere")
    made = command("bundle", "create", str(run), "-o", "bid.zip", "--no-profiles", "--json")
    assert made.returncode == 0
    assert "UNFINISHED run: 2 of 3 trials have no record" in made.stderr
    assert "not packed: l\\x1b[2Jnk: a link" in made.stderr
    assert "not packed: 2 event tables and profiler files (--no-profiles)" in made.stderr
    assert json.loads(made.stdout)["manifest"]["trials"]["recorded"] == 1
    assert "UNFINISHED" in command("bundle", "verify", "bid.zip").stderr


def test_the_command_line_names_faults(command, run, packed, tmp_path):
    damage_record(run)
    made = command("bundle", "create", str(run), "-o", "spoilt.zip", "--json")
    assert made.returncode == 1
    assert f"{RUN}-0001-0.json: Input data was truncated" in made.stderr
    assert f"{run} is not packed: fix these files" in made.stderr
    assert json.loads(made.stdout)["faults"][0]["path"] == f"{RUN}-0001-0.json"
    rebuild(packed, members(packed), extra=[("a\x1b[2J", b"")])
    done = command("bundle", "unpack", str(packed))
    assert done.returncode == 1
    assert "a\\x1b[2J: not in the manifest" in done.stderr
    assert "NOT VERIFIED: 1 fault, not unpacked\n" in done.stdout
    assert json.loads(command("bundle", "verify", str(packed), "--json").stdout)["faults"][0]["path"] == "a\x1b[2J"
    wrong = command("bundle", "unpack", str(packed), "--sha256=12")
    assert (wrong.returncode, wrong.stdout) == (2, "")


def growth(run: Path, output: Path) -> int:
    """By how many bytes packing and verifying a run increase the memory of a process of its own."""
    code = """
import resource, sys
from pathlib import Path
from benchmarker.bundles.pack import Bundled, bundle
from benchmarker.bundles.unpack import unbundle
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert isinstance(bundle(Path(sys.argv[1]), Path(sys.argv[2])), Bundled)
assert not unbundle(Path(sys.argv[2]), None).faults
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code, run, output], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def test_a_large_file_goes_through_in_pieces(run, tmp_path):
    size = 150 * 2**20
    with (run / "big.events.parquet").open("wb") as file:
        file.truncate(size)
    assert growth(run, tmp_path / "big.zip") < size / 5


def test_only_one_record_is_in_memory_at_a_time(tmp_path):
    run = make_run(tmp_path, trials=12, recorded=0)
    blocks = Blocks(1, [10_000_000 + at for at in range(200_000)], "blocks")
    for trial in range(12):
        record = make_record(run=RUN, trial=trial, blocks=blocks)
        (run / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
    size = sum(path.stat().st_size for path in run.iterdir())
    assert growth(run, tmp_path / "big.zip") < 1.5 * size


def test_a_manifest_is_read_back_as_it_was_written(packed):
    content = members(packed)["manifest.json"]
    assert msgspec.json.format(msgspec.json.encode(Manifest.read(content)), indent=1) + b"\n" == content


def test_ceilings_of_the_devices_travel_along(run, tmp_path):
    """Those that are kept here, of the devices of the run, where the folder of the run has none of its own."""
    mine = make_ceiling(5.0)
    ceilings.keep([mine, make_ceiling(9.0, device=msgspec.structs.replace(mine.device, name="another"))])
    assert members(pack(run, tmp_path / "own.zip").path)["ceilings.json"] == ceilings.encode([])
    (run / "ceilings.json").unlink()
    packed = pack(run, tmp_path / "bid.zip").path
    assert members(packed)["ceilings.json"] == ceilings.encode([mine])
    done = unbundle(packed, tmp_path / "theirs")
    assert not done.faults
    assert ceilings.read(done.folder / "ceilings.json") == [mine]


def test_damaged_ceilings_are_named(run, packed, tmp_path):
    files = members(packed)
    rebuild(packed, {**files, "ceilings.json": b"[]"})
    assert faults(packed, tmp_path / "to").keys() == {"ceilings.json"}
