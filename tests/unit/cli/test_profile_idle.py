"""`profile idle`, as a user meets it."""

import csv
import io
import json

import pytest
from support import profiles
from support.launched import step, trace, work

from benchmarker.library.profiles.timeline import NO_DEVICE


@pytest.fixture
def launched(tmp_path):
    """Two devices and two steps; in the first the device waits for the host, in the second hardly."""
    trace(
        tmp_path,
        step(0, 0, 100),
        step(1, 100, 200),
        work((1, 2), (5, 15), op="aten::mm"),
        work((80, 85), (90, 110), op="aten::add"),
        work((101, 102), (112, 200), op="aten::mm", stream=8),
        work((3, 4), (5, 195), op="aten::mm", device=1),
    )
    return "launched.json"


def test_the_table_says_why_the_device_waits_and_how_work_was_launched(command, launched):
    done = command("profile", "idle", launched)
    assert done.returncode == 0
    assert "host-bound" not in done.stdout
    assert "kernel-bound (kernel 77%, host 22%) of the wall time" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    host = next(line for line in lines if line[:2] == ["idle", "host"])
    assert host[2:8] == ["90", "µs", "22.5%", "4", "75", "µs"]
    assert host[8:] == ["aten::add", "cudaLaunchKernel"]
    assert any(line[:3] == ["gpu:0", "3", "5"] for line in lines)
    assert "kernel-bound (kernel 77%, host 22%)" in command("profile", "kernels", launched).stdout


def test_json_holds_all_tables(command, launched):
    found = json.loads(command("profile", "idle", launched, "--json").stdout)
    assert (found["reason"], found["bound"]) == (None, "kernel-bound")
    assert sum(found["shares"].values()) == pytest.approx(1)
    assert sum(line["time_ns"] for line in found["causes"]) == 400_000
    assert [line["device"] for line in found["devices"]] == ["gpu:0", "gpu:1"]
    assert [line["step"] for line in found["steps"]] == [0, 1]
    assert [line["stream"] for line in found["streams"]] == ["stream 7", "stream 8", "stream 7"]
    assert [line["launches"] for line in found["launches"]] == [3, 1]
    assert found["causes"][0]["gaps"] is None


def test_device_and_step_choose_the_work(command, launched):
    found = json.loads(command("profile", "idle", launched, "--device=gpu:1", "--json").stdout)
    assert [(line["cause"], line["time_ns"]) for line in found["causes"]] == [("kernels", 190_000), ("host", 10_000)]
    assert "nothing in the profile matches" in command("profile", "idle", launched, "--device=gpu:7").stdout
    assert "nothing in the profile matches" in command("profile", "idle", launched, "--step=7").stdout
    done = json.loads(command("profile", "idle", launched, "--step=0", "--device=gpu:0", "--json").stdout)
    assert [line["step"] for line in done["steps"]] == [0]


@pytest.mark.parametrize(
    ("by", "columns"),
    [
        ("cause", ["state", "cause", "time_ns", "share", "gaps"]),
        ("device", ["device", "bound", "wall_ns", "kernels_ns"]),
        ("step", ["step", "bound", "wall_ns", "kernels_ns"]),
        ("stream", ["device", "stream", "count", "busy_ns", "idle_ns", "host_wait_ns"]),
    ],
)
def test_csv_is_the_chosen_table(command, launched, by, columns):
    rows = list(csv.reader(io.StringIO(command("profile", "idle", launched, f"--by={by}", "--csv").stdout)))
    assert rows[0][: len(columns)] == columns
    assert len({len(row) for row in rows}) == 1


def test_clocks_that_disagree_are_told(command, tmp_path):
    trace(tmp_path, work((40, 45), (39, 49)), work((50, 55), (60, 70)))
    done = command("profile", "idle", "launched.json")
    assert "1 launch call began after the launched work: the clocks" in done.stdout


def test_work_without_launches_has_no_delays_and_no_queue(command, tmp_path):
    trace(tmp_path, work(None, (10, 20)), work(None, (60, 70)))
    done = command("profile", "idle", "launched.json")
    assert done.returncode == 0
    assert "bound by unknown waits (unknown 67%, kernel 33%)" in done.stdout
    assert "no launch of this work is in the trace" in done.stdout
    assert json.loads(command("profile", "idle", "launched.json", "--json").stdout)["launches"] == []


def test_a_profile_of_a_cpu_has_no_launch_queue_and_says_so(command, tmp_path):
    (tmp_path / "cpu.pb").write_bytes(profiles.small_cpu_space())
    done = command("profile", "idle", "cpu.pb")
    assert done.returncode == 0
    assert NO_DEVICE in done.stdout
    found = json.loads(command("profile", "idle", "cpu.pb", "--json").stdout)
    assert found.pop("reason") == NO_DEVICE
    assert set(found.values()) == {None}
    done = command("profile", "idle", "cpu.pb", "--csv")
    assert (done.stdout, NO_DEVICE in done.stderr) == ("", True)
