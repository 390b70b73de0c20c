"""`--counters` in real worker processes: what is known beforehand is counted, and nothing else changes."""

import json
import sys

import pytest

from benchmarker.machine import perf_events

HERE = perf_events.available()
pytestmark = pytest.mark.skipif(bool(HERE["page_faults"]), reason=HERE["page_faults"])

PAGES = 100
TOUCHES = f"""
import mmap

import numpy as np


def touch(x):
    memory = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE)
    for at in range(0, len(memory), mmap.PAGESIZE):
        memory[at] = 1
    memory.close()
    return x


def keep(x):
    return x


def inputs():
    return {{"x": np.ones(4, np.float32)}}
"""
RUN = ("run", "touches.py:touch", "--power=none", "--blocks=5")


@pytest.fixture
def touching(cli, tmp_path):
    (tmp_path / "touches.py").write_text(TOUCHES)

    def run(*words):
        done = cli(*RUN, *words)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_each_step_has_as_many_page_faults_as_fresh_pages(touching, cli):
    done = touching("--counters=page_faults,task_clock,cycles", "--json")
    (record,) = json.loads(done.stdout)
    blocks = record["blocks"]
    steps = blocks["steps_per_block"] * len(blocks["duration_ns"])
    faults, clock, cycles = record["counters"]
    assert (faults["name"], faults["counted_share"]) == ("page_faults", 1.0)
    assert PAGES * steps <= faults["count"] < 1.02 * PAGES * steps + 50
    assert record["metrics"]["page_faults_per_step"]["value"] == faults["count"] / steps
    assert clock["count"] <= 1.05 * sum(blocks["duration_ns"]) + 2_000_000  # the blocks alone, of one thread
    assert "--counters=page_faults,task_clock,cycles" in record["command"]
    if HERE["cycles"]:
        assert (cycles["count"], record["reasons"]["counters[2].count"]) == (None, HERE["cycles"])
        assert record["metrics"]["cycles_per_step"]["reason"] == HERE["cycles"]
        assert f"not counted: cycles: {HERE['cycles']}" in done.stderr
    assert cli("validate", "results").returncode == 0
    shown = cli("show", "results").stdout
    assert "page_faults_per_step" in shown
    assert f"page_faults {faults['count']:,}" in shown


def test_with_and_without_counters_it_is_the_same_case(touching, cli):
    touching("--counters=page_faults")
    touching()
    table = cli("show", "results", "--metric=step_time_median_s", "--json")
    assert [record["counters"] != [] for record in json.loads(table.stdout)] == [True, False]
    lines = cli("show", "results", "--csv").stdout.splitlines()
    assert len(lines) == 2  # a heading, and one case with two trials
    done = cli("sweep", "touches.py:touch", "--axis=counters=none,page_faults")
    assert (done.returncode, "or in what is counted; run them separately" in done.stderr) == (2, True)


def test_ranks_are_added(cli):
    words = ("run", "--framework=toy", "--problem=team", "--power=none", "--blocks=3", "--devices=2", "--json")
    done = cli(*words, "--counters=task_clock")
    (record,) = json.loads(done.stdout)
    (clock,) = record["counters"]
    busy_s = record["interference"]["own_busy_cores"] * record["interference"]["duration_s"]
    assert 0 < clock["count"] / 1e9 <= busy_s + 0.05


def test_a_program_is_counted_with_its_processes(cli):
    child = f"import mmap\nm = mmap.mmap(-1, {PAGES * 100} * 4096)\nfor at in range(0, len(m), 4096): m[at] = 1"
    words = ("run", "--power=none", "--json", "--counters=page_faults,task_clock", "--")
    done = cli(*words, "sh", "-c", f"'{sys.executable}' -S -c '{child}'; true")
    (record,) = json.loads(done.stdout)
    assert record["status"] == "ok", record["error"]
    faults, clock = record["counters"]
    assert PAGES * 100 <= faults["count"] < PAGES * 100 + 10_000
    figures = {figure["name"]: figure["values"][0] for figure in record["figures"]}
    busy_s = figures["user_time_s"] + figures["system_time_s"]
    assert clock["count"] / 1e9 == pytest.approx(busy_s, rel=0.2, abs=0.05)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--counters=flops",), "--counters: no counter is named 'flops'"),
        (("--counters=page_faults", "--stepwise", "--", "true"), "--counters cannot count a program that has started"),
    ],
)
def test_what_cannot_be_counted_is_refused_before_the_run(cli, words, message):
    what = () if "--" in words else ("--framework=toy", "--problem=nap")
    done = cli("run", *what, *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_duet_is_refused(cli):
    words = ("sweep", "--framework=toy", "--problem=nap", "--design=duet", "--axis=ms=1,2", "--counters=page_faults")
    done = cli(*words)
    assert (done.returncode, "--counters cannot be used with a duet" in done.stderr) == (2, True)


def test_all_counters_are_listed_with_what_this_machine_has(command):
    listed = json.loads(command("list", "counters", "--json").stdout)
    assert {each["name"]: each["reason"] for each in listed} == {name: why or None for name, why in HERE.items()}
    assert all(each["available"] == (each["reason"] is None) for each in listed)
    text = command("list", "counters").stdout
    assert all(name in text for name in HERE)
    assert max(map(len, text.splitlines()[:8])) <= 80
