"""The local phase of a process group: what each device does without communication, apart from what all do together.

The toy sleeps by a clock of its own, so that its times are exact.
"""

import json

import pytest

RUN = ("run", "--framework=toy", "--problem=team", "--power=none", "--samples=8")
CARDS = {"TOY_CARD": "GPU-a,GPU-b,GPU-c,GPU-d"}


def measured(cli, *words):
    done = cli(*RUN, *words, "--json", env=CARDS)
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(done.stdout), key=lambda record: record["case"]["devices"])


def value(record, name):
    return record["metrics"][name]["value"]


def test_every_device_has_a_block_in_each_turn_and_is_alone_in_as_many(cli):
    (record,) = measured(cli, "--devices=4", "--blocks=9", "--exchange-ms=4")
    local = record["local"]
    assert sorted(local["alone_device"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [len(each) for each in local["synchronised_ns"]] == [len(each) for each in local["together_ns"]] == [4] * 8
    assert local["steps_per_block"] == max(1, record["blocks"]["steps_per_block"] // 4)
    share_ns = 2e6 * local["steps_per_block"]
    assert local["together_ns"] == [[share_ns] * 4] * 8
    assert local["alone_ns"] == [share_ns] * 8
    assert local["synchronised_ns"] == [[3 * share_ns] * 4] * 8
    assert list(record["harness"]["stages_s"])[-2:] == ["verify", "local"]


def test_one_turn_of_each_device_is_the_least(cli):
    (record,) = measured(cli, "--devices=2", "--blocks=1")
    assert sorted(record["local"]["alone_device"]) == [0, 1]


def test_a_planted_straggler_is_found_and_the_factors_multiply_to_the_efficiency(cli):
    """Of 4 ranks, one sleeps 30% longer than 40 ms; then all exchange for 20 ms. Alone, 1 device sleeps 160 ms."""
    words = ("--ms=20", "--exchange-ms=20", "--slow-rank=2", "--blocks=12", "--devices=1,4", "--device=cuda")
    _, four = measured(cli, *words)
    assert value(four, "straggler_score") == pytest.approx(1 / 1.3)
    assert value(four, "imbalance") == pytest.approx((3 + 1.3) / 4 / 1.3)
    assert value(four, "communication") == pytest.approx(52 / 72)
    assert value(four, "contention") == pytest.approx(1)
    (series,) = json.loads(cli("scaling", "results", "--json").stdout)["series"]
    point = series["points"][1]
    split = point["split"]
    assert split["size"] == pytest.approx(160 / 4 / (40 * (3 + 1.3) / 4))
    product = split["size"] * split["contention"] * split["imbalance"] * split["communication"]
    assert split["product"] == pytest.approx(product)
    assert product == pytest.approx(point["efficiency"]["value"])
    assert split["slowest"] == 2
    assert split["score"] == pytest.approx(1 / 1.3)
    shown = cli("scaling", "results").stdout
    (row,) = [line.split() for line in shown.splitlines() if line.split()[-1:] == ["0.77"]]
    assert row[0] == "4"
    assert row[-3:] == ["2,", "+30%", "0.77"]
    assert "straggler" not in shown
    (path,) = {f"results/{four['run_id']}/{four['trial_id']}.json"}
    assert "slowest: device 2, +30%, score 0.77" in cli("show", path).stdout


def test_a_score_below_the_bound_is_a_straggler(cli):
    words = ("--ms=4", "--slow-rank=0", "--slower=0.5", "--blocks=4", "--device=cuda")
    _, record = measured(cli, "--devices=1,2", *words)
    assert value(record, "straggler_score") == pytest.approx(1 / 1.5)
    assert ", a straggler" in cli("show", f"results/{record['run_id']}/{record['trial_id']}.json").stdout
    assert "note: 2 devices: device 0 is a straggler: +50% on the fastest" in cli("scaling", "results").stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--local=none", "--devices=2"), "team has no step without communication"),
        (("--local=fails", "--devices=2"), "no step without communication: MemoryError: no room"),
        (("--devices=1",), "one device exchanges nothing"),
    ],
)
def test_what_has_no_local_phase_says_why(cli, words, reason):
    (record,) = measured(cli, "--blocks=2", *words)
    assert (record["status"], record["local"], record["reasons"]["local"]) == ("ok", None, reason)
    assert record["metrics"]["imbalance"] | {"reason": reason} == record["metrics"]["imbalance"]


def test_points_without_a_local_phase_say_why(cli):
    measured(cli, "--blocks=2", "--local=none", "--devices=1,2")
    shown = cli("scaling", "results").stdout
    assert (
        "note: 2 devices: the efficiency is not split into its factors: team has no step without communication" in shown
    )
