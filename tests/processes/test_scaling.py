"""Cases of several numbers of devices, and what is said of their scaling."""

import json

import pytest

RUN = ("run", "--framework=toy", "--problem=team", "--power=none", "--blocks=3")


def measured(cli, *words):
    done = cli(*RUN, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_lists_of_devices_and_scalings_make_cases_that_share_the_one_of_one_device(cli):
    records = measured(cli, "--devices=1,2,4", "--scaling=strong,weak", "--samples=4", "--trials=2")
    found = [(each["trial"], each["case"]["devices"], each["cost"]["samples"]) for each in records]
    cases = [(1, 4), (2, 4), (4, 4), (2, 8), (4, 16)]
    assert sorted(found) == sorted((trial, *case) for trial in range(2) for case in cases)
    rounds = [{(case[1:]) for case in found if case[0] == trial} for trial in range(2)]
    assert rounds[0] == rounds[1] == set(cases)


def test_all_devices_of_a_processor_are_its_cores(cli, monkeypatch):
    monkeypatch.setattr("benchmarker.planning.build.usable_cores", lambda: 2)
    (record,) = measured(cli, "--devices=all")
    assert record["case"]["devices"] == 2


def test_all_devices_are_those_that_the_framework_sees(cli):
    done = cli(*RUN, "--devices=1,all", "--device=cuda", "--dry-run", "--json", env={"TOY_CARD": "GPU-1"})
    assert done.returncode == 0, done.stderr
    assert [case["devices"] for case in json.loads(done.stdout)["cases"]] == [1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--devices=3",), "--samples=4 cannot be divided among 3 devices"),
        (("--devices=1,,2",), "--devices=1,,2: a value is missing between two commas"),
        (("--devices=0",), "--devices=0: must be at least 1"),
        (("--scaling=weak",), "--scaling=weak needs several numbers of devices; for example --devices=1,2"),
        (("--scaling=big", "--devices=2"), "--scaling=big: not one of strong, weak"),
        (("--problem=nap", "--scaling=weak", "--devices=2"), "use --scaling=strong"),
    ],
)
def test_lists_that_make_no_cases_are_refused(cli, tmp_path, words, message):
    done = cli(*RUN, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_a_run_is_shown_as_tables_and_a_plot(cli, tmp_path):
    measured(cli, "--devices=1,2", "--scaling=strong,weak", "--samples=4", "--ms=5", "--exchange-ms=2")
    done = cli("scaling", "results", "-o", "plot.svg")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if "scaling to 2 devices" in line] == [
        "strong",
        "weak",
    ]
    assert max(len(line) for line in done.stdout.splitlines() if line.strip()[:1].isdigit()) <= 80
    plot = (tmp_path / "plot.svg").read_text()
    assert plot.startswith("<?xml")
    series = json.loads(cli("scaling", "results", "--json").stdout)["series"]
    found = {each["scaling"]: each["points"][1]["efficiency"]["value"] for each in series}
    assert found == {"strong": pytest.approx(20 / 2 / 12), "weak": pytest.approx(20 / 22)}


def test_a_run_of_one_device_is_not_scaled(cli):
    measured(cli)
    done = cli("scaling", "results")
    assert done.returncode == 2
    assert "nothing is scaled: every case is of one device; give run --devices=1,2,4" in done.stderr


def test_several_devices_without_one_are_not_scaled(cli):
    measured(cli, "--devices=2")
    done = cli("scaling", "results")
    assert done.returncode == 2
    assert ", 2 devices, " in done.stderr
    assert ": no case of one device has the same work, or the work of each device; measure --devices=1" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_lists_of_the_problems_options_make_a_case_of_each_combination(cli):
    records = measured(cli, "--samples=2..8", "--ms=1,2", "--devices=1,2")
    found = {tuple(each["case"]["params"][name] for name in ("samples", "ms")) for each in records}
    assert found == {(samples, ms) for samples in (2, 4, 8) for ms in (1, 2)}
    assert len(records) == 12


def test_what_a_framework_does_not_support_is_left_out_of_lists_only(cli):
    reason = "--samples=3 cannot be divided among 2 devices"
    done = cli(*RUN, "--samples=3,4", "--devices=2", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"left out: framework=toy samples=3: {reason}" in done.stdout
    done = cli(*RUN, "--samples=3,4", "--devices=1,2", "--dry-run")
    assert f"left out: framework=toy samples=3 devices=2: {reason}" in done.stdout.replace(
        "devices=2 samples=3", "samples=3 devices=2"
    )
    assert "3 cases, 1 trial of each" in done.stdout
    for words in ("--samples=3", "--samples=3,3"):
        assert reason in cli(*RUN, words, "--devices=2").stderr
    done = cli(*RUN, "--samples=3,5", "--devices=2")
    assert done.returncode == 2
    assert done.stderr.startswith("benchmarker: error: nothing is left to run: framework=toy samples=3: ")
