"""Disturbed trials are counted, told with what to do, and make a verdict provisional."""

import json
import re

import msgspec
import pytest
from support.records import QUIET, make_record

from benchmarker.comparing import diagnosis, matching
from benchmarker.comparing.disturbances import count, disturbances, of_records, provisional
from benchmarker.comparing.judge import compare
from benchmarker.comparing.results import Rules
from benchmarker.files import atomic
from benchmarker.hooks.metrics import load_metrics
from benchmarker.library import judging, measuring
from benchmarker.planning import suites

BUSY = msgspec.structs.replace(QUIET, other_busy_cores=0.9)
STOLEN = msgspec.structs.replace(QUIET, steal_percent=9.0)


def on_cores(record, usable, logical, quota=None):
    cpu = msgspec.structs.replace(record.machine.cpu, usable_cores=usable, logical_cores=logical)
    return msgspec.structs.replace(
        record, machine=msgspec.structs.replace(record.machine, cpu=cpu, cpu_quota_cores=quota)
    )


def sides(*interferences, rounds=8):
    """A run of two frameworks, y half as fast; each side with its interference in so many of its trials."""
    return [
        on_cores(
            make_record(
                (1.0 + number) * (1 + trial / 1000),
                trial=trial,
                case={"framework": "xy"[number]},
                design={"case_number": number},
                interference=bad if trial < disturbed else QUIET,
            ),
            2,
            2,
        )
        for number, (bad, disturbed) in enumerate(interferences)
        for trial in range(rounds)
    ]


def test_other_work_is_judged_relative_to_the_cores_that_a_trial_may_use():
    record = make_record(interference=BUSY)
    two, many, four_of_many = on_cores(record, 2, 2), on_cores(record, 64, 64), on_cores(record, 4, 64)
    busy = {"busy": "other processes kept 0.9 cores busy"}
    assert disturbances([two, many, four_of_many]) == [busy, {}, busy]


def test_beside_an_accelerator_other_work_disturbs_if_threads_wait_or_it_takes_many_cores():
    def found(device, **counted):
        record = on_cores(make_record(case={"device": device}), 16, 16)
        reasons = record.reasons | {f"interference.{name}": "not shown" for name in counted if counted[name] is None}
        seen = msgspec.structs.replace(QUIET, **counted)
        return disturbances([msgspec.structs.replace(record, interference=seen, reasons=reasons)])[0]

    busy = {"busy": "other processes kept 0.4 cores busy"}
    assert found("cpu", other_busy_cores=0.4, pressure_percent=0.0) == busy  # more than 2% of 16
    assert found("cuda", other_busy_cores=0.4, pressure_percent=2.0) == {}
    assert found("cuda", other_busy_cores=0.4, pressure_percent=2.1) == busy
    assert found("cuda", other_busy_cores=0.4, pressure_percent=None) == busy
    assert found("cuda", other_busy_cores=4.0, pressure_percent=2.0) == {}
    assert "busy" in found("cuda", other_busy_cores=4.1, pressure_percent=2.0)


def test_a_single_trial_was_and_several_were_disturbed():
    one = sides((BUSY, 1), (BUSY, 1), rounds=1)
    assert provisional(("A", [one[:1]])) == "1 of 1 trial of A was disturbed"
    assert provisional(("A", [one[:1]]), ("B", [one[1:]])) == "1 of 1 trial of A and 1 of 1 trial of B were disturbed"
    assert provisional(("A", [sides((BUSY, 2), rounds=2)])) == "2 of 2 trials of A were disturbed"


def test_trials_are_counted_by_kind_with_what_to_do_about_the_most_frequent():
    groups = [sides((BUSY, 2), (STOLEN, 3))[:8], sides((BUSY, 2), (STOLEN, 3))[8:]]
    found = count(groups)
    assert (found.number, found.of, found.most) == (5, 16, False)
    assert str(found) == (
        "5 of 16 trials were disturbed, for instance: the hypervisor stole 9% of the time (3 trials), "
        "other processes kept 0.9 cores busy (2 trials)"
    )
    assert found.advice == "use a host without other guests, then repeat the run"
    assert of_records([record for group in groups for record in group]) == found
    assert count([]).most is False


def test_the_clock_is_judged_beside_trials_of_the_same_machine():
    slow = msgspec.structs.replace(QUIET, frequency_MHz=1000.0)
    there = [make_record(run="b", trial=trial, interference=slow) for trial in range(5)]
    there = [msgspec.structs.replace(r, machine=msgspec.structs.replace(r.machine, host="there")) for r in there]
    assert of_records([*(make_record(trial=trial) for trial in range(6)), *there]).number == 0


def test_a_verdict_is_provisional_only_if_most_trials_of_a_side_were_disturbed():
    derive = load_metrics()

    def judged(*interferences):
        (comparison,) = compare(matching.within(sides(*interferences)).matches, Rules(), derive).comparisons
        return comparison

    half = judged((BUSY, 4), (BUSY, 4))
    assert (half.verdict, half.provisional) == ("slower", None)
    most = judged((BUSY, 0), (BUSY, 5))
    assert (most.verdict, most.provisional) == ("slower", "5 of 8 trials of framework=y were disturbed")
    assert most.notes[0] == (
        "the verdict is provisional: 5 of 8 trials of framework=y were disturbed; repeat them undisturbed"
    )
    assert provisional(("a", [sides((BUSY, 8))]), ("b", [sides((BUSY, 7))])) == (
        "8 of 8 trials of a and 7 of 8 trials of b were disturbed"
    )


def test_a_geometric_mean_is_provisional_like_its_trials():
    records = [
        msgspec.structs.replace(
            each,
            trial_id=f"{each.trial_id}-{seed}",
            case=msgspec.structs.replace(each.case, seed=seed),
        )
        for seed, disturbed in ((0, 8), (1, 1))
        for each in sides((BUSY, 0), (BUSY, disturbed))
    ]
    family = compare(matching.by(records, "framework", "x").matches, Rules(), load_metrics())
    (mean,) = family.geometric_means
    assert mean.provisional == "9 of 16 trials of framework=y were disturbed"
    assert [bool(each.provisional) for each in family.comparisons] == [True, False]


def test_a_side_on_fewer_cores_or_threads_is_told():
    whole, half = on_cores(make_record(), 8, 8), on_cores(make_record(), 4, 8)
    assert diagnosis.differences([whole], [whole]) == diagnosis.differences([half], [half]) == []
    assert diagnosis.differences([whole], [half]) == [
        "environments differ: usable_cores 8 → 4",
        "the contender was measured on 4 of 8 cores",
    ]
    quota = on_cores(make_record(), 8, 8, quota=2.0)
    assert diagnosis.differences([quota], [whole]) == ["the baseline was measured on a cgroup quota of 2 of 8 cores"]
    fewer = msgspec.structs.replace(whole, software=msgspec.structs.replace(whole.software, threads=4))
    assert diagnosis.differences([fewer], [whole]) == ["environments differ: compute_threads 4 → 1"]
    assert diagnosis.threads([[fewer], [whole]]) == "CPU threads differ: 1, 4; --threads=N sets them in every framework"
    other = msgspec.structs.replace(fewer, case=msgspec.structs.replace(fewer.case, framework="other"))
    differ = "CPU threads differ: other 4, toy 1; --threads=N sets them in every framework"
    assert diagnosis.differences([other], [whole])[:1] == [diagnosis.threads([[other], [whole]])] == [differ]
    as_asked = msgspec.structs.replace(fewer, case=msgspec.structs.replace(fewer.case, threads=4))
    assert diagnosis.threads([[as_asked], [whole]]) == ""


@pytest.fixture
def stored(tmp_path):
    """Runs `busy` and `quiet`: in one, all trials of a side were disturbed, in the other, half of them."""
    for name, disturbed in (("busy", 8), ("quiet", 4)):
        (tmp_path / name).mkdir()
        for record in sides((BUSY, 0), (BUSY, disturbed)):
            atomic.write(tmp_path / name / f"{record.trial_id}.json", atomic.encode(record))


@pytest.mark.parametrize("name", ["compare", "report"])
def test_strict_gives_a_status_of_its_own_for_a_provisional_verdict(command, stored, name):
    assert command(name, "busy").returncode == 0
    assert command(name, "busy", "--strict").returncode == 3
    assert command(name, "busy", "--strict", "--fail-on=slower").returncode == 1
    assert command(name, "quiet", "--strict").returncode == 0


def test_compare_prints_that_a_verdict_is_provisional(command, stored):
    shown = command("compare", "busy").stdout
    assert re.match(r"y takes 2x as long as x \(.*\) \(provisional\)\n", shown)
    assert "  note: the verdict is provisional: 8 of 8 trials of y were disturbed; repeat them" in shown


def test_ab_says_that_its_verdict_is_provisional(cli, monkeypatch):
    monkeypatch.setattr(judging, "execute", lambda *_: sides((BUSY, 0), (BUSY, 8)))
    words = ["ab", "--framework=toy", "--problem=nap", "--b=--ms=2", "--power=none"]
    done = cli(*words, "--strict")
    assert done.returncode == 3
    assert re.match(r"y takes 2x as long as x \(.*\) \(provisional\)\n", done.stdout)
    assert "SLOWER (PROVISIONAL); 8 rounds" in cli(*words, "--verbose").stdout
    (comparison,) = json.loads(cli(*words, "--json").stdout)["family"]["comparisons"]
    assert comparison["provisional"] == "8 of 8 trials of framework=y were disturbed"


TOLD = (
    "3 of 16 trials were disturbed, for instance: other processes kept 0.9 cores busy (3 trials); "
    "stop other work on the machine, then repeat the run\n"
)
NAP = ("--framework=toy", "--problem=nap")


@pytest.mark.parametrize("words", [["run", *NAP], ["sweep", *NAP, "--axis", "ms=1,2"], ["suite", "run", "naps"]])
def test_every_command_that_measures_ends_with_what_was_disturbed(cli, monkeypatch, tmp_path, words):
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "index.toml").write_text('[naps]\nsummary = "naps"\ntime = "seconds"\n')
    (folder / "naps.toml").write_text('problem = "nap"\n[axes]\nframework = ["toy"]\n')
    monkeypatch.setattr(suites, "FOLDER", folder)
    monkeypatch.setattr(measuring, "execute", lambda *_: sides((BUSY, 3), (BUSY, 0)))
    done = cli(*words)
    assert done.returncode == 0
    assert done.stdout.endswith(TOLD)


def test_beside_json_disturbances_are_told_on_standard_error_and_none_are_not_told(cli, monkeypatch):
    monkeypatch.setattr(measuring, "execute", lambda *_: sides((BUSY, 3), (BUSY, 0)))
    done = cli("run", *NAP, "--json")
    assert TOLD in done.stderr
    assert len(json.loads(done.stdout)) == 16
    monkeypatch.setattr(measuring, "execute", lambda *_: sides((BUSY, 0), (BUSY, 0)))
    assert "disturbed" not in cli("run", *NAP).stdout
