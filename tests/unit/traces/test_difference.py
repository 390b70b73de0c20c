"""Two traces side by side, worked out by hand."""

import json

import numpy as np
import pytest
from unit.traces.test_statistics import table

from benchmarker.traces.statistics import difference


def rows(**busy_ns):
    return table(
        [
            {"kind": "kernel", "name": name, "busy_ns": each, "self_ns": each, "dur_ns": each}
            for name, each in busy_ns.items()
        ]
    )


def test_what_was_added_gone_slower_faster_and_the_same():
    before = rows(old=100, same=50, slow=10, fast=40)
    after = rows(new=300, same=50, slow=30, fast=20)
    found = difference(before, after, ["name"]).set_index("name")
    assert found["change"].to_dict() == {
        "new": "added",
        "old": "gone",
        "slow": "slower",
        "fast": "faster",
        "same": "same",
    }
    assert found.index.tolist() == ["new", "old", "fast", "slow", "same"]
    assert found["difference_ns"].to_dict() == {"new": 300, "old": -100, "fast": -20, "slow": 20, "same": 0}
    assert found["difference_ns"].sum() == 400 - 200
    assert found["difference_share"].to_dict() == {"new": 1.5, "old": -0.5, "fast": -0.1, "slow": 0.1, "same": 0}
    assert found["ratio"].dropna().to_dict() == {"slow": 3.0, "fast": 0.5, "same": 1.0}


def test_traces_of_different_lengths_are_compared_by_step():
    found = difference(rows(k=100), rows(k=300), ["name"], (1, 3))
    assert found[["change", "difference_ns", "before_count"]].to_numpy().tolist() == [["same", 0.0, 1.0]]
    assert found["after_count"].tolist() == pytest.approx([1 / 3])
    assert np.isnan(found["difference_share"]).all()


def trace(folder, name, **kernels):
    """A trace with one kernel of each name and duration, in µs."""
    place = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
    events = [{**place, "name": each, "ts": 1000 * at, "dur": dur} for at, (each, dur) in enumerate(kernels.items())]
    (folder / name).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


@pytest.mark.parametrize("by", ["kernels", "ops", "scopes"])
def test_two_results_are_shown_side_by_side(command, tmp_path, by):
    trace(tmp_path, "a.json", sgemm=10, copy=5)
    trace(tmp_path, "b.json", sgemm=20, gelu=5)
    done = command("profile", by, "a.json", "b.json")
    assert done.returncode == 0, done.stderr
    assert "busy time: before 15 µs, after 25 µs (+66.7%); one profile of each, so no verdict" in done.stdout
    lines = json.loads(command("profile", by, "a.json", "b.json", "--json").stdout)
    assert sum(line["difference_ns"] for line in lines) == 10_000
    assert sum(line["difference_share"] for line in lines) == pytest.approx(1)
    if by == "kernels":
        assert {line["name"]: line["change"] for line in lines} == {"sgemm": "slower", "gelu": "added", "copy": "gone"}


@pytest.mark.parametrize("by", ["kernels", "ops"])
def test_three_results_are_refused(command, tmp_path, by):
    done = command("profile", by, "a", "b", "c")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "name one to show it, or two" in done.stderr
