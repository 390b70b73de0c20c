"""The same work on independent devices: all at once, and one alone."""

import json

import pytest

RUN = ("run", "--framework=toy", "--problem=team", "--device=cuda", "--power=none", "--samples=3", "--ms=4")
CARDS = {"TOY_CARD": "GPU-a,GPU-b,GPU-c"}


def test_each_device_has_a_row_and_the_slowest_is_named(cli):
    """Of three cards, the second sleeps 16 ms instead of 12; they are told apart by what they see."""
    done = cli(*RUN, "--devices=all", "--independent", "--slow-rank=1", "--slower=0.3333", "--blocks=6", env=CARDS)
    assert done.returncode == 0, done.stderr
    rows = [words for line in done.stdout.splitlines() if (words := line.split()) and words[0] in "012"]
    assert rows == [
        ["0", "12", "ms", "12", "ms", "100%", "1.00"],
        ["1", "16", "ms", "16", "ms", "100%", "0.75"],
        ["2", "12", "ms", "12", "ms", "100%", "1.00"],
    ]
    assert "  slowest: device 1, +33%, score 0.75\n" in done.stdout
    (record,) = json.loads(cli("show", "results", "--json").stdout)
    assert (record["case"]["devices"], record["case"]["ranks"], record["case"]["independent"]) == (3, 3, True)
    assert record["cost"]["samples"] == 9
    assert record["metrics"]["communication"]["reason"] == "the devices compute independently"
    assert "--independent" in record["command"]
    shown = cli("scaling", "results")
    assert shown.returncode == 0, shown.stderr
    assert "  slowest: device 1, +33%, score 0.75\n" in shown.stdout
    (table,) = json.loads(cli("scaling", "results", "--json").stdout)["devices"]
    assert [each["device"] for each in table["devices"]] == [0, 1, 2]
    assert table["devices"][1]["alone_s"] == pytest.approx(0.016, rel=1e-4)


def test_each_sees_its_own_of_the_visible_cards(cli):
    visible = {**CARDS, "CUDA_VISIBLE_DEVICES": "4,2,1"}
    done = cli(*RUN, "--devices=2", "--independent", "--slow-rank=2", "--slower=1", "--blocks=2", env=visible)
    assert done.returncode == 0, done.stderr
    assert "  slowest: device 1, +100%, score 0.50, a straggler\n" in done.stdout


@pytest.mark.parametrize("framework", ["numpy", pytest.param("torch", marks=pytest.mark.slow)])
def test_a_processor_is_divided_among_processes(cli, framework):
    """NumPy computes on one device only; each of two processes has half of the cores."""
    done = cli(
        *(
            "run",
            f"--framework={framework}",
            "--problem=gemm",
            "--devices=2",
            "--independent",
            "--device=cpu",
            "--power=none",
        ),
        *("--m=64", "--n=64", "--k=64", "--blocks=4", "--json"),
    )
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    cores = record["machine"]["cpu"]["usable_cores"]
    assert record["software"]["threads"] == max(1, cores // 2)
    assert record["check"]["ok"]
    assert record["cost"]["flops"] == 2 * 2 * 64**3
    assert len(record["ranks"]) == 2
    assert {len(each) for each in record["local"]["together_ns"]} == {2}
    assert cli("validate", "results").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--independent",), "--independent compares devices, but toy is asked for one; give --devices=2 or more"),
        (("--independent", "--devices=4"), "--devices=4: toy sees 3 cuda (toy card) here"),
        (("--independent", "--devices=2", "--scaling=weak"), "--independent gives each device the same work already"),
        (("--independent", "--devices=2", "--profile"), "--profile cannot be used with --independent"),
        (("--independent", "--devices=2", "--parallel=dp"), "--independent does not divide the work; omit --parallel"),
    ],
)
def test_what_each_cannot_do_is_refused(cli, tmp_path, words, message):
    done = cli(*RUN, *words, env=CARDS)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_one_trial_and_failed_ones_are_told(cli):
    cli(*RUN, "--devices=2", "--independent", "--blocks=2", env=CARDS)
    assert "  note: one trial: the variation between processes is unknown\n" in cli("scaling", "results").stdout
    failed = cli(*RUN, "--devices=2", "--independent", "--timeout=0.1", "--results=failed", env=CARDS)
    assert failed.returncode == 1
    done = cli("scaling", "failed")
    assert done.returncode == 2
    assert ": every trial failed" in done.stderr
