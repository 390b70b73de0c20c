"""The series of this machine, in `benchmarks/history`: what is known is not measured again, and what is said of it."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

FOLDER = Path(__file__).parents[3] / "benchmarks" / "history"


@pytest.fixture
def live(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("live")
    for name in ("live", "rules", "work"):
        sys.modules.pop(name, None)


@pytest.fixture
def lines(tmp_path, live):
    """The points of 2 series without a change and of 2 with each, in a file without its last point."""
    rng = np.random.default_rng(1)
    made = [
        json.dumps([shift, number, point, (np.log1p(shift) * (point >= 20) + rng.normal(0, 0.003, 4)).tolist()])
        for shift in live.SHIFTS
        for number in range(2)
        for point in range(live.POINTS)
    ]
    file = tmp_path / "points.jsonl"
    file.write_text("\n".join(made[:-1]) + "\n[0.05, 1, 3")
    return file


def test_what_was_cut_off_is_measured_and_nothing_else(live, lines, monkeypatch):
    asked = []
    monkeypatch.setattr(live, "measured", lambda key, point: asked.append((key, point)) or [np.log1p(0.05)] * 4)
    options = [f"--file={lines}", "--unchanged=2", "--changed=2"]
    done = CliRunner().invoke(live.live, options)
    assert done.exit_code == 0, done.output
    assert asked == [((0.05, 1), 39)]
    assert "history: an alarm in 0 of 2" in done.output
    assert "history: found in 2 of 2" in done.output.partition("5%: 2 series")[2]
    assert CliRunner().invoke(live.live, options).output == done.output
    assert len(asked) == 1


def test_a_point_is_real_work_in_fresh_processes(live, monkeypatch):
    monkeypatch.setattr(live, "BLOCKS", 1)
    monkeypatch.setattr(live, "COUNT", 10)
    logs = live.measured((0.05, 0), 20)
    assert len(logs) == live.TRIALS
    assert all(-20 < log < 0 for log in logs)
