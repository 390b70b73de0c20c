import errno
import fcntl
import json
import os
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest
from support.records import make_record

from benchmarker import Case, Measuring, UserError
from benchmarker.files import atomic, locks
from benchmarker.records import store
from benchmarker.records.plan import make_plan

CASE = Case(problem="nap", framework="toy", device="cpu", params={"ms": 1.0})
PLAN = make_plan([CASE], 1)


def test_write_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    atomic.write(path, b"first")

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        atomic.write(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_ids_sort_by_time_and_do_not_collide():
    ids = [store.new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [name[:22] for name in ids] == sorted(name[:22] for name in ids)


def test_a_run_is_held_by_one_process(tmp_path):
    with store.new_run(tmp_path, PLAN):
        again = store.unfinished_run(tmp_path, PLAN)
        with pytest.raises(UserError, match="is in use by another process"):
            again.__enter__()
    with store.unfinished_run(tmp_path, PLAN) as folder:
        assert folder.plan.cases == [CASE]


@pytest.fixture
def as_on_nfs(monkeypatch):
    """Locks are refused as NFS refuses them: flock(2) of Linux, "NFS details"."""
    flock = fcntl.flock

    def refuse(held, operation):
        readonly = fcntl.fcntl(held, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        if operation & fcntl.LOCK_EX and readonly:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(held, operation)

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_run_is_locked_where_only_files_open_for_writing_can_be(as_on_nfs, tmp_path):
    with store.new_run(tmp_path, PLAN):
        with pytest.raises(UserError, match="is in use by another process"):
            store.unfinished_run(tmp_path, PLAN).__enter__()
        with store.new_run(tmp_path, PLAN):
            pass
    with locks.locked(tmp_path), pytest.raises(BlockingIOError), locks.locked(tmp_path):
        pass
    with store.unfinished_run(tmp_path, PLAN):
        pass
    assert store.read([tmp_path])[0] == []


def test_a_file_system_without_locks_is_told_with_the_remedy(monkeypatch, tmp_path):
    def refuse(held, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UserError, match="its file system has no locks; mount Lustre with -o flock"):
        store.new_run(tmp_path, PLAN).__enter__()


def leave_behind(path, trial_id):
    """What a process leaves that is killed while it measures and writes; returns these files."""
    (path / ".work/profile").mkdir(parents=True)
    names = [f"{trial_id}.log", f"{trial_id}.telemetry.parquet", f"{trial_id}.profile.json.gz", ".x.json.1a.tmp"]
    names += [f"{trial_id}.rank1.log", f"{trial_id}.rank12.profile.log", f"{trial_id}.rank1.profile.json.gz"]
    for name in names:
        (path / name).touch()
    return names


@pytest.mark.parametrize("how", ["new", "resume"])
def test_what_a_killed_process_left_is_swept_at_the_next_start(tmp_path, how):
    with store.new_run(tmp_path, PLAN) as killed:
        pass
    leave_behind(killed.path, store.new_id())
    finished = store.new_id()
    kept = {
        "plan.json",
        f"{finished}.json",
        f"{finished}.log",
        f"{finished}.profile.log",
        f"{finished}.rank1.log",
        "notes.log",
    }
    for name in kept - {"plan.json"}:
        (killed.path / name).touch()
    unborn = tmp_path / store.new_id()
    unborn.mkdir()
    (unborn / ".plan.json.1a.tmp").touch()
    (tmp_path / "my folder").mkdir()
    if how == "new":
        with store.new_run(tmp_path, PLAN):
            pass
        assert not unborn.exists()
    else:
        (killed.path / f"{finished}.json").unlink()
        kept -= {f"{finished}.json", f"{finished}.log", f"{finished}.profile.log", f"{finished}.rank1.log"}
        with store.unfinished_run(tmp_path, PLAN) as resumed:
            assert resumed.work.is_dir()
    assert {path.name for path in killed.path.iterdir()} == kept
    assert (tmp_path / "my folder").is_dir()


def test_what_another_process_works_on_is_not_swept(tmp_path):
    with store.new_run(tmp_path, PLAN) as running:
        names = leave_behind(running.path, store.new_id())
        with store.new_run(tmp_path, PLAN):
            pass
        assert all((running.path / name).exists() for name in names)


def test_temporary_folders_of_killed_processes_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "temporary", lambda: tmp_path)
    old, young = tmp_path / "benchmarker-scratch-01abcdef", tmp_path / "benchmarker-scratch-01234567"
    others = {tmp_path / "benchmarker-results", tmp_path / "benchmarker-scratch-of-a-user"}
    for path in (old, young, *others):
        (path / "log").mkdir(parents=True)
        if path != young:
            os.utime(path, (0, 0))
    with locks.scratch() as used:
        os.utime(used, (0, 0))
        assert {*tmp_path.iterdir()} == {young, used, *others}
        with locks.scratch():
            assert used.exists()
    assert {*tmp_path.iterdir()} == {young, *others}


def test_a_missing_folder_for_temporary_files_is_told(monkeypatch):
    def refuse():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    with pytest.raises(UserError, match="name one with TMPDIR"):
        locks.temporary()


def test_another_plan_is_not_resumed(tmp_path):
    with store.new_run(tmp_path, PLAN):
        pass
    others = [make_plan([msgspec.structs.replace(CASE, seed=1)], 1), make_plan([CASE], 2)]
    others += [make_plan([CASE], 1, looks=[1])]
    for other in others:
        with pytest.raises(UserError, match="no unfinished run"), store.unfinished_run(tmp_path, other):
            pass
    with store.unfinished_run(tmp_path, make_plan([CASE], 1, seed=PLAN.seed + 1)) as folder:
        assert folder.plan.seed == PLAN.seed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"order": []}, "the order is not that of 1 trial of 1 case"),
        ({"order": [[7, 0]]}, "the order is not that of 1 trial of 1 case"),
        ({"order": [[0, 0], [0, 0]], "trials": 2}, "the order is not that of 2 trials of 1 case"),
        ({"trials": 10**400}, "Expected `int` <= 9223372036854775807"),
        ({"seed": -1}, "Expected `int` >= 0"),
    ],
)
def test_an_edited_plan_is_named_when_a_run_is_to_go_on(tmp_path, change, reason):
    with store.new_run(tmp_path, PLAN) as folder:
        pass
    file = folder.path / "plan.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError) as caught, store.unfinished_run(tmp_path, PLAN):
        pass
    assert f"; cannot read {file}: {reason}" in str(caught.value)


def test_a_results_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    run = store.new_run(tmp_path / "file" / "results", PLAN)
    with pytest.raises(UserError, match=r"cannot write to .*file.*: Not a directory; name another folder"):
        run.__enter__()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Input data was truncated"),
        (b'{"schema_version": 1', "Input data was truncated"),
        (b"\xff\xfe", "malformed"),
        (b"{}", "not a record: it has no `schema_version`"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"schema_version": 2}', "made by a newer version of benchmarker (schema 2); update this one"),
        (b'{"schema_version": 0}', "Invalid enum value 0"),
        (b'{"schema_version": 1}', "missing required field `run_id`"),
    ],
)
def test_a_damaged_record_is_named_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "r.json"
    path.write_bytes(content)
    records, faults = store.read([tmp_path])
    assert not records
    (fault,) = faults
    assert fault.path == path
    assert reason in fault.reason


def test_every_byte_cut_off_is_seen(cli, tmp_path):
    cli("run", "--framework=toy", "--problem=nap", "--blocks=2")
    (path,) = (path for path in (tmp_path / "results").glob("*/*.json") if path.name != "plan.json")
    whole = path.read_bytes()
    for length in range(0, len(whole) - 2, 97):
        path.write_bytes(whole[:length])
        assert isinstance(store.read_record(path), atomic.Fault)


def test_results_without_records_are_faults(tmp_path):
    _, faults = store.read([tmp_path, tmp_path / "nothing"])
    assert [fault.reason for fault in faults] == ["contains no record", "no such file or folder"]


def tmpfs(path: Path, size: str) -> bool:
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True)
    return done.returncode == 0


@pytest.mark.slow
def test_a_full_disk_rescues_the_record_and_resume_goes_on(program, tmp_path):
    disk = tmp_path / "disk"
    if not tmpfs(disk, "64k"):
        pytest.skip("mounting a tmpfs needs root")
    rescue = tmp_path / "rescue"
    rescue.mkdir()
    run = ("run", "--framework=toy", "--problem=nap", "--blocks=3", f"--results={disk}", "--trials=2")
    fault = ("--ms=2",)
    try:
        filler = disk / "filler"
        filler.write_bytes(b"x" * 60 * 1024)  # one page is left: the plan takes it
        done = program(*run, *fault, env={"TMPDIR": str(rescue)})
        assert done.returncode == 2
        assert "No space left on device" in done.stderr
        assert "--resume" in done.stderr
        assert "Traceback" not in done.stderr
        filler.unlink()
        (saved,) = rescue.glob("benchmarker-*.json")
        (folder,) = (path for path in disk.iterdir() if path.is_dir())
        (folder / saved.name.removeprefix("benchmarker-")).write_bytes(saved.read_bytes())
        again = program(*run, *fault, "--resume", env={"TMPDIR": str(rescue)})
        assert again.returncode == 0, again.stderr
        assert "1 of 2 trials has a record" in again.stderr
        assert program("validate", str(disk)).stdout == "2 valid, 0 faulty\n"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_results_folder_is_told_before_anything_runs(cli, tmp_path):
    disk = tmp_path / "disk"
    if not tmpfs(disk, "64k"):
        pytest.skip("mounting a tmpfs needs root")
    try:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        done = cli("run", "--framework=toy", "--problem=nap", f"--results={disk}")
        assert done.returncode == 2
        assert f"cannot write to {disk}: Read-only file system; name another folder with --results" in done.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_does_not_belong_to_the_plan_is_named(command, tmp_path):
    run = tmp_path / "r" / "run"
    short = {"measuring": Measuring(blocks=1)}
    first, second = (make_record(run="run", trial=trial, case=short) for trial in (0, 1))
    other = make_record(run="run", trial=2, case={**short, "seed": 1})
    run.mkdir(parents=True)
    plan = msgspec.structs.replace(make_plan([first.case], 4), run_id="run")
    atomic.write(run / "plan.json", atomic.encode(plan))
    for record in (first, second, other):
        atomic.write(run / f"{record.trial_id}.json", atomic.encode(record))
    done = command("validate", "r")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"r/run/{other.trial_id}.json: not a trial of r/run/plan.json",
        "run: changed: 3 of 3 trials: fields cannot be recomputed: the problem nap is not installed here",
        "3 valid, 1 faulty",
        "2 planned trials have no record; repeat the run's command with --resume (under pytest, run the tests again)",
    ]
    (run / f"{other.trial_id}.json").unlink()
    assert command("validate", "r").returncode == 0
    told = json.loads(command("validate", "r", "--json").stdout)
    assert (told["valid"], told["missing"], told["faults"]) == (2, 2, [])
    (run / "plan.json").write_text("{}")
    assert "r/run/plan.json: Object missing required field" in command("validate", "r").stdout
