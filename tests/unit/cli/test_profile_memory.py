"""`profile memory`, as a user meets it."""

import csv
import io
import json

import pytest
from support.launched import allocation, host, step, trace, work

from benchmarker.library.profiles.timeline import NO_MEMORY


@pytest.fixture
def allocating(tmp_path):
    """A product of 1 GiB in a scope, with 512 MiB from before; a small allocation of device 1."""
    trace(
        tmp_path,
        step(0, 0, 100),
        host("user_annotation", "attn", 5, 60),
        host("cpu_op", "aten::mm", 10, 20),
        [allocation(11, 1 << 30, 3 << 29, address=1), allocation(12, 1024, 1024, address=1, device=1)],
        work((13, 14), (20, 40)),
    )
    return "launched.json"


def test_the_peak_is_shown_with_what_was_allocated_then(command, allocating):
    done = command("profile", "memory", allocating)
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["gpu:0", "1.5", "GiB", "2", "GiB", "0", "512", "MiB", "1", "0", "aten::mm", "attn", "forward"] in lines
    assert ["gpu:0", "attn", "1", "GiB", "1", "66.7%"] in lines
    assert ["gpu:0", "(before", "the", "profile)", "512", "MiB", "0", "33.3%"] in lines
    assert "and 2 more, 512 MiB; --top=0 shows all" in command("profile", "memory", allocating, "--top=1").stdout


def test_json_holds_the_curve_and_csv_what_was_allocated(command, allocating):
    found = json.loads(command("profile", "memory", allocating, "--device=gpu:0", "--by=category", "--json").stdout)
    assert found["reason"] is None
    assert [each["peak_allocated"] for each in found["peaks"]] == [3 << 29]
    assert [(each["category"], each["bytes"]) for each in found["at_peak"]] == [
        ("gemm", 1 << 30),
        ("(before the profile)", 1 << 29),
    ]
    assert [(each["size"], each["allocated"]) for each in found["timeline"]] == [(1 << 30, 3 << 29)]
    rows = list(csv.reader(io.StringIO(command("profile", "memory", allocating, "--by=op", "--csv").stdout)))
    assert rows[0] == ["device", "op", "bytes", "allocations", "share"]
    assert rows[1][:3] == ["gpu:0", "aten::mm", str(1 << 30)]


def test_a_profile_without_memory_events_says_how_to_record_them(command, tmp_path):
    trace(tmp_path, work((0, 1), (2, 3)))
    assert NO_MEMORY in command("profile", "memory", "launched.json").stdout
    found = json.loads(command("profile", "memory", "launched.json", "--json").stdout)
    assert found.pop("reason") == NO_MEMORY
    assert set(found.values()) == {None}


def test_a_device_that_has_none_matches_nothing(command, allocating):
    assert "nothing in the profile matches" in command("profile", "memory", allocating, "--device=gpu:7").stdout
