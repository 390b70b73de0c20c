"""The suite of a run, from the plan file to the records, the score, the report and the bundle."""

import json
import time
from types import SimpleNamespace

import pytest

from benchmarker.running import run

PLAN = """
version = "1"
problem = "nap"
framework = "toy"
trials = 2
[measuring]
blocks = 2
warmup_steps = 1
power = "none"
[[case]]
name = "short"
ms = 1
[[case]]
ms = 2
"""


@pytest.fixture
def offers(cli, tmp_path):
    """Two results: of a plan file, and of that file with another number of blocks, under the same name."""
    for name, text in (("a", PLAN), ("b", PLAN.replace("blocks = 2", "blocks = 3"))):
        (tmp_path / "naps.toml").write_text(text)
        assert cli("plan", "run", "naps.toml", f"--results={name}").returncode == 0
    return tmp_path


def test_the_suite_stands_in_every_record_and_the_difference_is_named(cli, offers):
    records = [json.loads(path.read_text()) for path in offers.glob("[ab]/*/*.json") if path.name != "plan.json"]
    assert {(each["suite"]["name"], each["suite"]["version"]) for each in records} == {("naps", "1")}
    assert {(each["suite"]["case"], each["case"]["params"]["ms"]) for each in records} == {("short", 1.0), (None, 2.0)}
    plan = json.loads(next(offers.glob("a/*/plan.json")).read_text())
    assert len({each["suite"]["sha256"] for each in records}) == 2
    assert plan["suite"]["sha256"] in {each["suite"]["sha256"] for each in records}
    first, second = (
        json.loads(next(offers.glob(f"{each}/*/plan.json")).read_text())["suite"]["sha256"][:12] for each in "ab"
    )
    note = f"suites differ: naps 1 ({first}) → naps 1 ({second})"
    note += ": short (toy), nap toy ms=2.0: blocks 2 → 3"
    assert note in cli("compare", "a", "b").stdout
    scored = cli("suite", "score", "a", "b")
    assert note in scored.stdout
    assert f"A  a: 4 of 4 trials succeeded (100%); suite naps 1 ({first})" in scored.stdout
    assert (
        json.loads(cli("suite", "score", "a", "b", "--json").stdout)["scores"][0]["contender"]["suites"][0]["name"]
        == "naps"
    )
    assert cli("report", "a", "b").returncode == 0
    assert note.partition(", nap")[0] in (offers / "report.html").read_text()
    assert cli("report", "a").returncode == 0
    assert f"naps 1 ({first})" in (offers / "report.html").read_text()
    (run,) = (offers / "a").iterdir()
    made = cli("bundle", "create", str(run), "-o", "bid.zip", "--json")
    assert json.loads(made.stdout)["manifest"]["suite"] == {
        "name": "naps",
        "version": "1",
        "sha256": plan["suite"]["sha256"],
    }
    assert f"naps 1 ({first})" in cli("bundle", "verify", "bid.zip").stdout


@pytest.mark.slow
def test_one_suite_on_both_sides_makes_no_note(cli, offers):
    assert cli("plan", "run", "naps.toml", "--results=c").returncode == 0
    assert "suites differ" not in cli("compare", "b", "c").stdout


@pytest.mark.slow
def test_a_result_without_a_suite_is_told(cli, offers):
    assert (
        cli("run", "--framework=toy", "--problem=nap", "--ms=1", "--power=none", "--blocks=2", "--results=d").returncode
        == 0
    )
    (one,) = [path for path in (offers / "d").rglob("*.json") if path.name != "plan.json"]
    assert json.loads(one.read_text())["reasons"]["suite"] == "it was not run from a suite or a plan file"
    short = next(
        path for path in offers.glob("a/*/*.json") if '"short"' in path.read_text() and path.name != "plan.json"
    )
    assert "→ none" in cli("compare", str(short), "d").stdout


def test_a_spread_run_is_continued_after_an_interrupt_and_counts_as_several_runs(cli, tmp_path, monkeypatch):
    def interrupt(seconds):
        raise KeyboardInterrupt

    (tmp_path / "naps.toml").write_text(PLAN)
    for side in "ab":
        words = ("plan", "run", "naps.toml", "--runs=2", "--pause=1m", f"--results={side}")
        with monkeypatch.context() as patched:
            patched.setattr(run, "time", SimpleNamespace(time=time.time, sleep=interrupt))
            done = cli(*words)
        assert done.returncode == 130
        assert "2 runs of 1 and 1 rounds, with pauses of 60 s in all" in done.stderr
        assert "interrupted: 2 of 4 trials are stored" in done.stderr
        with monkeypatch.context() as patched:
            patched.setattr(run, "time", SimpleNamespace(time=lambda: time.time() + 61, sleep=interrupt))
            assert cli(*words, "--resume").returncode == 0
    (score,) = json.loads(cli("suite", "score", "a", "b", "--json").stdout)["scores"]
    mean = score["metrics"][0]["mean"]
    assert (mean["method"], mean["runs"]) == ("unpaired by run: Welch-Satterthwaite", [2, 2])
    assert "one run" not in cli("suite", "score", "a", "b").stdout
