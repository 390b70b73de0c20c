"""Two configurations against each other, in real processes."""

import json
from pathlib import Path

import pytest
from support.records import make_record

from benchmarker.comparing.judge import Referee
from benchmarker.comparing.results import Rules
from benchmarker.hooks.metrics import load_metrics
from benchmarker.records import store
from benchmarker.records.record import Failure

FAILED = {"status": "failed", "error": Failure("exception", "no", "timed")}
AB = ("ab", "--framework=toy", "--problem=nap", "--power=none", "--blocks=3", "--json")


def folder(tmp_path) -> Path:
    (found,) = (tmp_path / "results").iterdir()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("design", ["duet", "rounds"])
def test_a_plain_difference_is_called_at_the_first_look(cli, tmp_path, design):
    # Beside other work a sleep is longer by a millisecond or more, whatever its length: long ones are hardly changed.
    done = cli(*AB, "--a=--ms=25", "--b=--ms=50", f"--design={design}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (comparison,) = found["family"]["comparisons"]
    assert (comparison["verdict"], comparison["rounds"], comparison["method"]) == ("slower", 8, "paired")
    assert (comparison["baseline"], comparison["contender"]) == ("ms=25.0", "ms=50.0")
    assert 1.7 < comparison["ratio"] < 2.2
    assert found["ended"].startswith("ended after 8 rounds of 2 trials (one of A, one of B), ")
    assert "after 8 rounds: B/A" in done.stderr
    records, faults = store.read([folder(tmp_path)])
    assert (len(records), faults) == (16, [])
    assert {record.design.kind for record in records} == {design}
    again = json.loads(cli("compare", str(folder(tmp_path)), "--json").stdout)
    assert again["family"]["comparisons"][0]["verdict"] == "slower"
    assert again["family"]["comparisons"][0]["level"] == pytest.approx(0.99)


def test_a_duet_takes_turns_in_random_order_in_one_process(cli, tmp_path):
    cli(*AB, "--a=--ms=1", "--b=--ms=1 --seed=1", "--max-rounds=2", "--blocks=40", "--order-seed=3")
    records, _ = store.read([folder(tmp_path)])
    first, second = (record for record in records if record.trial == 0)
    assert (first.design.partner, second.design.partner) == (second.trial_id, first.trial_id)
    assert first.harness == second.harness
    assert [not early for early in first.design.partner_first] == second.design.partner_first
    assert 8 <= sum(first.design.partner_first) <= 32
    assert len(first.blocks.duration_ns) == len(second.blocks.duration_ns) == 40
    assert first.reasons["memory"] == "two cases shared the process, so the use of each cannot be separated"


def test_resume_goes_on_and_a_half_of_a_duet_is_repeated(cli, tmp_path):
    words = (*AB, "--a=--ms=1", "--b=--ms=1 --seed=1", "--max-rounds=3")
    assert cli(*words).returncode == 0
    records, _ = store.read([folder(tmp_path)])
    halves = [record for record in records if record.trial == 1]
    (folder(tmp_path) / f"{halves[0].trial_id}.json").unlink()
    (folder(tmp_path) / f"{records[-1].trial_id}.json").unlink()
    (folder(tmp_path) / f"{records[-2].trial_id}.json").unlink()
    again = cli(*words, "--resume")
    assert again.returncode == 0, again.stderr
    assert f"trial {halves[1].trial_id} of a duet lacks its partner: its record is set aside" in again.stderr
    records, faults = store.read([folder(tmp_path)])
    assert faults == []
    assert sorted((record.trial, record.design.case_number) for record in records) == [
        (trial, number) for trial in range(3) for number in range(2)
    ]
    assert all(
        {record.trial_id for record in records if record.trial == trial}
        == {record.design.partner for record in records if record.trial == trial}
        for trial in range(3)
    )


def test_the_partner_of_what_fails_fails_with_it(cli, tmp_path):
    done = cli(*AB, "--a=--ms=1", "--b=--ms=1 --fault=raise --after=9")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (
        found["ended"] == "ended after 2 rounds of 2 trials (one of A, one of B) because every trial of one side failed"
    )
    records, _ = store.read([folder(tmp_path)])
    assert sorted(record.error.kind for record in records if record.trial == 0) == ["exception", "partner"]
    assert "the other case of the duet failed: ValueError: told to fail" in {r.error.message for r in records}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--a=--ms=1", "--b=--ms=x"], "--b: --ms=x: not a number"),
        (["--a=--no-such=1", "--b=--ms=1"], "--a: No such option '--no-such'"),
        (["--a=--ms=1", "--b=--framework=numpy"], "--b: numpy has no implementation of nap"),
        (["--a=--ms=1", "--b=--precision=fp64", "--design=duet"], "the cases differ in precision (fp32, fp64)"),
        (["--budget=soon"], "--budget=soon: not a time: write 250ms, 90s, 10m or 1.5h"),
        (["--target=0"], "--target=0: not a share"),
        (["--a=--ms=1", "--b=--ms=2", "--metric=speed"], "no metric is named 'speed'; there are: ttft_s"),
        (["--a=--ms='1"], "--a: No closing quotation"),
    ],
)
def test_mistakes_name_the_side(cli, tmp_path, args, message):
    done = cli(*AB, *args)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "results").exists()


def test_what_cannot_share_a_process_is_measured_in_rounds(cli, tmp_path):
    done = cli(*AB, "--a=--ms=1", "--b=--ms=1 --precision=fp64", "--max-rounds=2")
    assert done.returncode == 0
    records, _ = store.read([folder(tmp_path)])
    assert {record.design.kind for record in records} == {"rounds"}


def test_a_budget_ends_it_undecided(cli):
    done = cli(*AB, "--a=--ms=20", "--b=--ms=20 --seed=1", "--budget=2s")
    found = json.loads(done.stdout)
    assert found["ended"].endswith("because another would exceed --budget")
    assert found["family"]["comparisons"][0]["verdict"] == "undecided"


def referee(rounds, ratio, spread, **options):
    records = [
        make_record(
            (1.0, ratio * (1 + spread * (-1) ** (trial // 2 + trial)))[number],
            trial=trial,
            case={"seed": number},
            design={"case_number": number, "looks": [8, 11, 15, 20, 30]},
        )
        for trial in range(rounds)
        for number in range(2)
    ]
    given = {"target": None, "budget_s": None} | options
    return Referee(Rules(), load_metrics(), [8, 11, 15, 20, 30], say=[].append, **given)(records)


def test_the_verdict_is_looked_at_on_schedule_only():
    assert referee(8, 1.1, 0.001)
    assert not referee(9, 1.1, 0.001)
    assert not referee(7, 1.1, 0.001)
    assert not referee(8, 1.0, 0.3)


def test_a_run_of_several_pairs_ends_when_each_has_a_verdict_or_a_side_that_failed():
    def ends(rounds, ratios, spread=0.0, failed=()):
        records = [
            make_record(
                1.0 if number % 2 == 0 else ratios[number // 2] * (1 + (number > 2) * spread * (-1) ** trial),
                trial=trial,
                case={"seed": number},
                design={"case_number": number, "looks": [8, 11]},
                **(FAILED if number in failed else {}),
            )
            for trial in range(rounds)
            for number in range(2 * len(ratios))
        ]
        said = []
        referee = Referee(Rules(), load_metrics(), [8, 11], None, None, said.append, len(ratios))
        return referee(records), said, referee.ended

    assert ends(8, [0.5, 1.5])[:2] == (True, ["after 8 rounds: 1 faster, 1 slower"])
    assert ends(8, [0.5, 1.0], spread=0.3)[:2] == (False, ["after 8 rounds: 1 faster, 1 undecided"])
    assert ends(8, [0.5, 1.0], spread=0.3, failed=[3])[0]
    assert not ends(2, [0.5, 1.5], failed=[1])[0]
    assert ends(2, [0.5, 1.5], failed=[1, 2])[2].startswith("ended after 2 rounds of 4 trials (A and B of each")


def test_a_target_asks_for_precision_and_not_for_a_verdict():
    assert referee(8, 1.1, 0.001, target=0.01)
    assert not referee(8, 1.3, 0.05, target=0.01)
