"""Files that a user or somebody's folder names: what is not a regular file is refused, and not read."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarker.api.errors import UserError
from benchmarker.bundles import signature
from benchmarker.bundles.pack import bundle
from benchmarker.bundles.run_files import in_folder
from benchmarker.bundles.unpack import unbundle
from benchmarker.files import regular, toml
from benchmarker.files.atomic import Fault
from benchmarker.power import telemetry
from benchmarker.records import ceilings, job, load, store
from benchmarker.running import site
from benchmarker.serving import arrivals
from benchmarker.traces import profile_files, sql

FILES = {
    "settings": toml.load,
    "record": store.read_record,
    "plan": store.read_plan,
    "job": lambda path: job.job_of(path.parent),
    "ceilings": ceilings.read,
    "load": load.read,
    "arrivals": arrivals.read_trace,
    "trace": profile_files.open_profile,
    "event table": profile_files.load,
    "trace for Perfetto": lambda path: next(sql._chunks(path)),
    "time series": telemetry.read,
    "file of a run": lambda path: in_folder(path.parent)(path.name),
    "run to pack": lambda path: bundle(path.parent),
    "bundle": lambda path: unbundle(path, None),
    "signers": lambda path: signature._write_allowed(path.with_name("allowed"), path),
}


@pytest.fixture(autouse=True)
def _no_long_wait() -> Iterator[None]:
    """A pipe that is opened all the same waits for a writer for ever."""

    def too_long(*_: object) -> None:
        raise RuntimeError("it was read")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def reason(read: Callable[[Path], object], path: Path) -> str:
    """Why a file is refused."""
    try:
        told = read(path)
    except (UserError, OSError) as error:
        return str(error)
    assert isinstance(told, Fault)
    return str(told)


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_refused(what: str, kind: str, tmp_path: Path) -> None:
    name = {"job": "job.json", "run to pack": "plan.json"}.get(what, "file")
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")  # which ends, so that a test fails rather than eats all memory
    assert "not a regular file" in reason(FILES[what], path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "Is a directory" in reason(toml.load, tmp_path)
    assert "Is a directory" in reason(store.read_record, tmp_path)


def test_settings_of_a_site_that_never_end_are_refused(command, monkeypatch) -> None:
    monkeypatch.setenv(site.VARIABLE, "/dev/zero")
    monkeypatch.setattr(regular, "content", lambda path: regular.check(path) or pytest.fail("it was read"))
    done = command("submit", "plan.toml", "--launcher=local")
    assert (done.returncode, done.stderr) == (
        2,
        "benchmarker: error: cannot read /dev/zero: not a regular file\n",
    )


def test_a_file_that_is_too_large_for_any_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with path.open("wb") as file:
        file.truncate(regular.MOST_BYTES + 1)  # it takes no room on the disk
    assert "larger than 256 MiB" in reason(store.read_record, path)
