"""Results as sides: several folders are kept apart, one folder is one side."""

from pathlib import Path

import msgspec
import pytest
from support.records import make_record

from benchmarker import UserError
from benchmarker.files import atomic
from benchmarker.hooks.cases import Cases
from benchmarker.records import sides
from benchmarker.records.sides import named, read, short_names

RUNS = ("20260101T010101.123456-aaaaaaaa", "20260102T010101.123456-bbbbbbbb")


def store(folder, *records):
    for record in records:
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write(folder / f"{record.trial_id}.json", atomic.encode(record))


def trials(run, host="here", seeds=(0, 1), number=2):
    made = [
        make_record(run=run, trial=trial, case={"seed": seed}, design={"case_number": seed})
        for seed in seeds
        for trial in range(number)
    ]
    return [msgspec.structs.replace(each, machine=msgspec.structs.replace(each.machine, host=host)) for each in made]


@pytest.fixture
def offers(tmp_path, monkeypatch):
    """Two bidders with two cases each; the second measured on two machines, in a run each."""
    monkeypatch.chdir(tmp_path)
    store(tmp_path / "offers/a/one", *trials("one"))
    store(tmp_path / "offers/b/two", *trials("two", "there"))
    store(tmp_path / "offers/b/three", *trials("three", "elsewhere", seeds=(1,)))
    return [Path("offers/a"), Path("offers/b")]


def test_each_of_several_folders_is_a_side_and_cases_are_side_by_side(offers):
    found, faults = read(offers)
    assert [(side.name, len(side.records)) for side in found] == [("offers/a", 4), ("offers/b", 6)]
    assert faults == []
    groups = Cases.of_sides(found)
    assert [(group.factors["side"], group.factors["seed"], len(group.records)) for group in groups] == [
        ("offers/a", 0, 2),
        ("offers/b", 0, 2),
        ("offers/a", 1, 2),
        ("offers/b", 1, 4),
    ]
    (mixed,) = groups.mixed_machines()
    assert mixed.startswith("offers/b: 1 of 2 cases mixes trials of several machines: elsewhere, there; ")


def test_one_folder_and_pooled_ones_are_one_side_without_a_name(offers):
    for results, pool in (([Path("offers")], False), (offers, True)):
        found, _ = read(results, pool=pool)
        groups = Cases.of_sides(found)
        assert [(len(group.records), "side" in group.factors) for group in groups] == [(4, False), (6, False)]
        assert groups.mixed_machines()[0].startswith("2 of 2 cases mix trials of several machines: ")


def test_files_belong_to_the_side_of_their_folder(offers):
    files = sorted(Path("offers").glob("*/*/*.json"))
    assert [(name, len(paths)) for name, paths in named(files)] == [
        ("offers/a/one", 4),
        ("offers/b/three", 2),
        ("offers/b/two", 4),
    ]
    assert named(files[:2]) == [("", files[:2])]
    assert [name for name, _ in named([Path("offers/a"), Path("./offers/a/../a")])] == [""]


def test_a_trial_on_two_sides_is_refused_and_an_empty_side_keeps_the_names(offers):
    with pytest.raises(UserError, match="offers and offers/a both contain the trial one-0000-0; leave one out"):
        read([Path("offers"), Path("offers/a")])
    found, (fault,) = read([Path("offers/a"), Path("offers/none")])
    assert ([side.name for side in found], str(fault.path)) == (["offers/a"], "offers/none")


def test_long_paths_lose_what_all_share_and_runs_are_called_after_their_time():
    assert short_names([Path("offers/a"), Path("offers/b")]) == ["offers/a", "offers/b"]
    assert short_names([Path("results", run) for run in RUNS]) == ["20260101T010101", "20260102T010101"]
    assert short_names([Path("/a/long/way/off/x"), Path("/a/long/way/on/x")]) == ["off/x", "on/x"]
    again = RUNS[0].replace("aaaaaaaa", "bbbbbbbb")
    assert short_names([Path("results", run) for run in (RUNS[0], again)]) == [RUNS[0], again]


def test_the_side_of_a_trial_is_known_by_its_id():
    one, two = trials("one", number=1, seeds=(0,)), trials("two", number=1, seeds=(0,))
    assert sides.side_of([("a", one), ("b", two)]) == {"one-0000-0": "a", "two-0000-0": "b"}
    assert sides.side_of([("a", one)]) == {}
