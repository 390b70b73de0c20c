"""Forgeries of a run of 24 trials: each is found by `validate` and by `suite check`, with the share of the trials."""

import json
import math
import re

import msgspec
import pytest
from support.offer import COMMIT, RUN, write, write_offer

from benchmarker.machine import description
from benchmarker.records import store


@pytest.fixture(autouse=True)
def _of_a_commit(monkeypatch):
    monkeypatch.setattr(description, "commit", lambda: COMMIT)


def replace(record, path, change):
    """The record with a changed value at a path."""
    name, _, rest = path.partition(".")
    value = getattr(record, name)
    return msgspec.structs.replace(record, **{name: replace(value, rest, change) if rest else change(value)})


def forge(run, *changes, trials=24):
    """Change the values at some paths in so many trials, in the order in which they were measured."""
    records = sorted(store.read([run])[0], key=lambda record: record.trial_id)
    for record in records[:trials]:
        forged = record
        for path, change in changes:
            forged = replace(forged, path, change)
        write(run, forged)


def found(command):
    """What `suite check` finds, as kinds, shares and texts; `validate` must find the same of the trials."""
    done = command("suite", "check", "offer", "--suite=asked.toml", "--json")
    (checked,) = json.loads(done.stdout)
    findings = [(each["kind"], each["of"], each["what"]) for each in checked["findings"]]
    assert done.returncode == (1 if findings else 0)
    validated = command("validate", "offer", "--json")
    notes = [(each["kind"], each["of"], each["what"]) for each in json.loads(validated.stdout)["notes"]]
    assert notes == findings
    assert validated.returncode == (1 if {"invalid", "doubtful"} & {kind for kind, *_ in findings} else 0)
    return [(kind, of, re.sub(r", for instance .*", "", what)) for kind, of, what in findings]


@pytest.mark.parametrize("preheat", [True, False])
def test_an_honest_run_has_no_findings(command, tmp_path, preheat):
    write_offer(tmp_path, preheat=preheat)
    assert found(command) == []
    assert command("validate", "offer").stdout == "24 valid, 0 faulty\n"


@pytest.mark.parametrize(("path", "change"), [("cost.samples", lambda _: 2), ("cost.flops", lambda flops: flops // 8)])
def test_a_cost_that_is_not_that_of_the_case_is_found(command, tmp_path, path, change):
    run = write_offer(tmp_path)
    forge(run, (path, change))
    assert found(command) == [("invalid", "24 of 24 trials", f"{path} differs from its formula")]
    assert f"{path} is " in command("validate", "offer").stdout
    assert command("validate", "offer").stdout.endswith("\n0 valid, 24 faulty\n")


def test_the_formulas_of_another_version_are_told_as_a_change(command, tmp_path):
    forge(write_offer(tmp_path), ("cost.samples", lambda _: 2), ("software.commit", lambda _: "ba9876543210"))
    assert found(command) == [("changed", "24 of 24 trials", "cost.samples differs from its formula")]
    told = command("validate", "offer").stdout
    assert f"but the problem's formula gives 1 in benchmarker 0.1.0 {COMMIT}\n24 valid, 0 faulty\n" in told


ZEROED = [
    (f"interference.{name}", lambda _: 0)
    for name in ("other_busy_cores", "pressure_percent", "steal_percent", "involuntary_switches")
]


@pytest.mark.parametrize(
    ("preheat", "of", "where"), [(True, "24 of 24 trials", "preheat"), (False, "18 of 18 trials", "warm-up")]
)
def test_more_steps_in_the_same_blocks_are_found(command, tmp_path, preheat, of, where):
    """The warm-up of steps below 2 ms proves nothing: a single step costs much besides."""
    run = write_offer(tmp_path, preheat=preheat)
    forge(run, ("blocks.steps_per_block", lambda steps: math.ceil(1.5 * steps)), *ZEROED)
    ((kind, share, what),) = found(command)
    assert (kind, share) == ("doubtful", of)
    assert re.match(f"a step took [12].[0-9]+ times as long in the {where} as in the blocks ", what)


def test_one_forged_trial_may_have_been_disturbed(command, tmp_path):
    forge(write_offer(tmp_path), ("blocks.steps_per_block", lambda steps: math.ceil(1.5 * steps)), trials=5)
    assert found(command) == []


def test_blocks_that_are_in_six_trials_are_found(command, tmp_path):
    run = write_offer(tmp_path)
    records = [record for record in store.read([run])[0] if record.design.case_number == 2]
    for record in records[1:]:
        write(run, msgspec.structs.replace(record, blocks=records[0].blocks))
    assert ("invalid", "6 of 24 trials", "blocks were copied") in found(command)
    told = command("validate", "offer").stdout
    assert f"{RUN}/{records[1].trial_id}.json: " in told
    assert f"its blocks are those of the trial {records[0].trial_id}\n" in told


def test_shorter_blocks_are_found_in_the_whole_run(command, tmp_path):
    run = write_offer(tmp_path)
    forge(run, ("blocks.duration_ns", lambda times: [round(0.6 * time) for time in times]))
    findings = found(command)
    assert [finding[:2] for finding in findings] == [("invalid", "6 of 24 trials")] + [
        ("doubtful", "24 of 24 trials")
    ] * 2


def test_a_problem_that_is_not_installed_is_told_and_not_refused(command, tmp_path):
    run = write_offer(tmp_path)
    forge(run, ("case.problem", lambda _: "gone"))
    told = command("validate", "offer").stdout
    assert (
        f"{RUN}: changed: 24 of 24 trials: fields cannot be recomputed: the problem gone is not installed here\n"
        in told
    )
