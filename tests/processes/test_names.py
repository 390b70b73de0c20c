"""Names of files, folders, hosts and variables that are anything but plain: a command works, or refuses in a line."""

import io
import json
import os
import shutil
import socket
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from support.commands import with_path
from support.records import make_record

from benchmarker.cli.commands import LINES
from benchmarker.files import atomic
from benchmarker.files.atomic import as_json
from benchmarker.machine.description import describe
from benchmarker.records import reading
from benchmarker.worker.protocol import Events, RecordPart

RECORDS = Path(__file__).parents[1] / "fixtures/records/v1"
UNDECODABLE = os.fsdecode(b"\xff")
ODD = "a\nb\x1b[2J\x07"
"""The bell too, because click takes escape sequences out of what goes to a pipe."""


def is_clean(done):
    return (
        all(line.isprintable() for line in (done.stdout + done.stderr).split("\n"))
        and "a\nb" not in done.stdout + done.stderr
    )


@pytest.mark.parametrize("name", LINES)
def test_every_command_refuses_a_name_that_is_not_utf_8_in_a_line(command, name):
    done = command(*name.split(), f"a/{UNDECODABLE}.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "benchmarker: error: a/\\xdcff.json is not valid UTF-8; rename it\n"


@pytest.mark.parametrize("name", [name for name in LINES if name not in ("ceilings", "card")])  # which would measure
def test_every_path_of_every_command_may_have_line_breaks_and_escapes(command, name):
    for words in with_path(name, ODD, "none"):
        done = command(*words)
        assert done.returncode in (0, 1, 2), words
        assert is_clean(done), words


def test_a_folder_with_line_breaks_and_escapes_holds_results_like_any_other(command, tmp_path):
    shutil.copytree(RECORDS, tmp_path / ODD)
    (tmp_path / ODD / "damaged.json").write_text("{")
    for words in (
        *[("show", ODD), ("validate", ODD), ("pareto", ODD), ("jobs", ODD)],
        *[("table", ODD, f"-o{ODD}.html")],
        ("new", f"{ODD}.toml"),
    ):
        done = command(*words)
        assert done.returncode in (0, 1), (words, done.stderr)
        assert is_clean(done), words
    assert (tmp_path / f"{ODD}.html").read_text("utf-8")
    assert tomllib.loads((tmp_path / f"{ODD}.toml").read_text("utf-8"))["problem"] == "gemm"
    assert json.loads(command("validate", ODD, "--json").stdout)["faults"][0]["path"] == f"{ODD}/damaged.json"


def test_names_that_are_not_utf_8_below_a_folder_are_told_and_the_rest_is_read(command, tmp_path):
    shutil.copytree(RECORDS, tmp_path / "r" / UNDECODABLE)
    (tmp_path / "r" / UNDECODABLE / f"{UNDECODABLE}.json").write_text("{")
    for words in (
        *[("show", "r"), ("validate", "r"), ("pareto", "r"), ("jobs", "r"), ("report", "r", "-or.html")],
        *[("compare", "r", "--by=framework"), ("table", "r", "-ot.html"), ("suite", "check", "r")],
    ):
        done = command(*words)
        assert done.returncode in (0, 1), (words, done.stderr)
        assert is_clean(done), words
    assert "r/\\xdcff/\\xdcff.json" in (tmp_path / "r.html").read_text("utf-8")
    (fault,) = json.loads(command("validate", "r", "--json").stdout)["faults"]
    assert fault["path"] == "r/\\udcff/\\udcff.json"
    assert len(json.loads(command("show", "r", "--json").stdout)) == 4


@pytest.mark.parametrize("where", ["the current folder", "TMPDIR"])
def test_folders_of_the_environment_that_are_not_utf_8_are_refused(command, tmp_path, monkeypatch, where):
    (tmp_path / UNDECODABLE).mkdir()
    if where == "TMPDIR":
        monkeypatch.setenv("TMPDIR", str(tmp_path / UNDECODABLE))
    else:
        monkeypatch.chdir(tmp_path / UNDECODABLE)
    done = command("list", "frameworks")
    assert done.returncode == 2
    assert done.stderr.endswith("/\\xdcff is not valid UTF-8; rename it\n")


def test_a_current_folder_that_is_gone_stops_no_command_that_needs_none(command, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert command("list", "frameworks").returncode == 0


def test_a_host_name_that_is_not_utf_8_is_recorded_and_printed(command, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: f"node{UNDECODABLE}")
    record = msgspec.structs.replace(make_record(1.0), machine=describe())
    assert json.loads(command("env", "--json").stdout)["machine"]["host"] == "node\\udcff"
    assert is_clean(command("env"))
    assert reading.read(atomic.encode(record)).machine.host == "node\\udcff"


def test_a_variable_that_is_not_utf_8_is_told_by_a_worker(tmp_path):
    events = Events(os.open(tmp_path / "events", os.O_CREAT | os.O_WRONLY))
    events.send(RecordPart(variables={"A": UNDECODABLE}))
    events._file.close()
    assert json.loads((tmp_path / "events").read_bytes()) == {"type": "RecordPart", "variables": {"A": "\\udcff"}}


def test_json_escapes_what_is_no_text_wherever_it_stands():
    value = {UNDECODABLE: [1, None, 0.5, (UNDECODABLE, "ok")]}
    assert json.loads(as_json(value)) == {"\\udcff": [1, None, 0.5, ["\\udcff", "ok"]]}


def test_what_a_terminal_cannot_show_is_escaped(command, monkeypatch):
    written = io.TextIOWrapper(io.BytesIO(), "latin-1", write_through=True)
    monkeypatch.setattr(sys, "stdout", written)
    assert command("show", str(RECORDS)).returncode == 0
    text = written.buffer.getvalue()
    assert b"numpy" in text
    assert b"6.95\\u20139.29" in text


def test_an_error_is_one_short_line(command):
    for word in ("x" * 100_000, "no\n" * 100):
        done = command("plan", "show", f"{word}.toml")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert len(done.stderr) < 2100
