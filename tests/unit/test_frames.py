"""Records as pandas frames."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.records import make_record

import benchmarker
from benchmarker import UserError
from benchmarker.files import atomic

PAGE = Path(__file__).parents[2] / "docs/comparing.md"


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results/run"
    folder.mkdir(parents=True)
    for trial, times in enumerate(([1.0, 3.0], [2.0])):
        record = make_record(times, trial=trial, case={"params": {"ms": 5.0}})
        atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))
    return folder.parent


def test_one_row_a_trial(results):
    frame = benchmarker.load(results)
    assert list(frame.trial) == [0, 1]
    assert list(frame.step_time_median_s) == [2.0, 2.0]
    assert list(frame.ms) == [5.0, 5.0]
    assert list(frame.framework) == ["toy", "toy"]
    assert math.isnan(frame.tokens_per_s[0])
    assert frame.host[0]


def test_one_row_a_block(results):
    frame = benchmarker.load_blocks(str(results))
    assert list(frame.step_s) == [1.0, 3.0, 2.0]
    assert list(frame.block) == [0, 1, 0]
    assert list(frame.trial) == [0, 0, 1]


def test_what_cannot_be_read_is_warned_of(results):
    (results / "run/cut.json").write_text("{")
    with pytest.warns(UserWarning, match=r"left out: .*cut.json"):
        assert len(benchmarker.load(results)) == 2
    with (
        pytest.warns(UserWarning, match="no such file"),
        pytest.raises(UserError, match=r"no record to load in .*none"),
    ):
        benchmarker.load(results / "none")


def test_pandas_is_imported_only_for_frames():
    code = (
        "import sys, benchmarker; assert 'pandas' not in sys.modules; benchmarker.load; assert 'pandas' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="attribute lode"):
        benchmarker.lode  # noqa: B018


def test_the_example_on_the_page_runs(results, monkeypatch, capsys):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    monkeypatch.chdir(results.parent)
    exec(compile(code, PAGE, "exec"), {})
    assert "toy" in capsys.readouterr().out
