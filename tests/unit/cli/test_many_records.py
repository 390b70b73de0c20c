"""What a command does with records grows with their number, and no faster."""

import cProfile
import pstats

import msgspec
import pytest
from support.records import make_record

from benchmarker.files import atomic
from benchmarker.records.plan import make_plan

COMMANDS = [
    "show {}",
    "show {} --trials",
    "compare {} --by=framework",
    "score {} --by=framework",
    "compare {0}/a {0}/b",
]
FEW = 25


def write(folder, runs):
    """Two results of runs with their plans, each a round of one seed in two frameworks."""
    for result in ("a", "b"):
        for run in range(runs):
            records = [
                make_record(
                    [1.0 + side / 10] * 30,
                    run=f"{result}{run}",
                    case={"framework": framework, "seed": run},
                    design={"case_number": side},
                )
                for side, framework in enumerate(("one", "two"))
            ]
            place = folder / result / f"{result}{run}"
            place.mkdir(parents=True)
            for record in records:
                (place / f"{record.trial_id}.json").write_bytes(atomic.encode(record))
            plan = msgspec.structs.replace(make_plan([each.case for each in records], 1), run_id=f"{result}{run}")
            (place / "plan.json").write_bytes(atomic.encode(plan))


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Folders with a few records, and with four times as many."""
    folders = [tmp_path_factory.mktemp(name) for name in ("few", "many")]
    for folder, runs in zip(folders, (FEW, 4 * FEW), strict=True):
        write(folder, runs)
    return folders


@pytest.mark.parametrize("words", COMMANDS)
def test_four_times_the_records_are_four_times_the_work(command, places, words):
    counts = []
    for folder in (places[0], *places):  # the first time, modules are imported
        profile = cProfile.Profile()
        profile.enable()
        command(*words.format(folder).split())
        profile.disable()
        counts.append(pstats.Stats(profile).total_calls)
    assert counts[2] <= 4.4 * counts[1]
