"""`profile path`, as a user meets it."""

import csv
import io
import json

import pytest
from support import profiles
from support.launched import step, trace, wait, work

from benchmarker.library.profiles.timeline import NO_PATH


@pytest.fixture
def launched(tmp_path):
    """Two steps: in the first the host waits for a product, in the second it launches a copy late."""
    trace(
        tmp_path,
        step(0, 0, 100),
        work((5, 6), (10, 90), op="aten::mm"),
        wait(8, 92),
        step(1, 100, 200),
        work((150, 151), (160, 210), "Memcpy DtoH", op="aten::copy_"),
    )
    return "launched.json"


def test_the_path_is_shown_by_kind_and_by_name(command, launched):
    done = command("profile", "path", launched)
    assert done.returncode == 0
    assert "critical path of 2 steps: 210 µs" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["kernel", "gemm", "80", "µs", "38.1%", "1", "80", "µs"] in lines
    assert ["copy", "memory", "50", "µs", "23.8%", "1", "50", "µs"] in lines
    assert ["launch", "delay", "-", "15", "µs", "7.1%", "2", "10", "µs"] in lines
    assert any(line[:4] == ["host", "(outside", "any", "op)"] for line in lines)
    assert any(line[:2] == ["kernel", "sgemm"] and line[-1] == "aten::mm" for line in lines)


def test_json_holds_the_segments_in_order_and_step_chooses_one(command, launched):
    found = json.loads(command("profile", "path", launched, "--json").stdout)
    assert found["reason"] is None
    assert found["steps"] == [{"step": 0, "path_ns": 100_000}, {"step": 1, "path_ns": 110_000}]
    assert sum(line["time_ns"] for line in found["kinds"]) == found["path_ns"] == 210_000
    one = json.loads(command("profile", "path", launched, "--step=1", "--json").stdout)
    assert [(each["kind"], each["time_ns"]) for each in one["segments"]] == [
        ("host", 50_000),
        ("launch delay", 10_000),
        ("copy", 50_000),
    ]
    assert "nothing in the profile matches" in command("profile", "path", launched, "--step=2").stdout


def test_top_limits_the_names_and_csv_is_their_table(command, launched):
    assert "more, " in command("profile", "path", launched, "--top=1").stdout
    rows = list(csv.reader(io.StringIO(command("profile", "path", launched, "--csv").stdout)))
    assert rows[0][:6] == ["kind", "name", "category", "time_ns", "share", "count"]
    assert rows[1][:3] == ["kernel", "sgemm", "gemm"]


def test_a_profile_of_a_cpu_has_no_path_and_says_so(command, tmp_path):
    (tmp_path / "cpu.pb").write_bytes(profiles.small_cpu_space())
    assert NO_PATH in command("profile", "path", "cpu.pb").stdout
    found = json.loads(command("profile", "path", "cpu.pb", "--json").stdout)
    assert found.pop("reason") == NO_PATH
    assert set(found.values()) == {None}
