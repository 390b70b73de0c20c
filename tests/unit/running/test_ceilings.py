"""Ceilings are measured in two runs, each of which goes on where it was interrupted."""

import msgspec
import pytest
from support.records import make_record

from benchmarker import Case, UserError
from benchmarker.planning.ceiling_search import MEASURE, SEARCH, Survey, measuring_s
from benchmarker.records import store
from benchmarker.records.plan import make_plan
from benchmarker.records.record import CostPart, Harness
from benchmarker.running import ceilings

SEARCHED = make_plan(
    [
        Case(problem=problem, framework="toy", device="cpu", params={size: 16 * at}, measuring=SEARCH)
        for problem, size, at in (("gemm", "m", 1), ("gemm", "m", 2), ("stream", "n", 1))
    ],
    2,
)


class Listener:
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def interrupted_after(monkeypatch):
    """Plays the running of plans: as many trials as given are recorded, then comes Ctrl-C."""
    left = {"trials": 0}

    def execute(folder, listener, allocation, then_s=None):
        records = store.done(folder.path, folder.plan)
        for index, trial in folder.plan.order:
            if (index, trial) in records:
                continue
            if not left["trials"]:
                raise KeyboardInterrupt
            left["trials"] -= 1
            records[index, trial] = made(folder.plan.cases[index], folder.plan.run_id, trial, index)
            folder.save(records[index, trial])
        if then_s:
            assert then_s(records.values()) == 2 * 3 * (6 + 2 + 3)
        return [records[key] for key in sorted(records)]

    monkeypatch.setattr(ceilings, "execute", execute)
    return lambda trials: left.update(trials=trials)


def made(case, run, trial, index):
    """A trial of 7 s, of which 1 s is timed; a block takes a second, and the larger product is the faster one."""
    record = make_record(1.0, run=run, trial=trial, design={"case_number": index})
    harness = Harness(wall_s=7.0, stages_s={"timed": 1.0})
    return msgspec.structs.replace(record, case=case, cost=CostPart(1000 * (index + 1), 0, 8, 1, None), harness=harness)


def test_measuring_takes_start_shortest_preheat_and_timing_for_each_winner():
    record = made(SEARCHED.cases[0], "run", 0, 0)
    assert (MEASURE.seconds, MEASURE.preheat) == (3, True)
    assert measuring_s([record, record], winners=4, trials=5) == 4 * 5 * (6 + 2 + 3)
    assert measuring_s([], winners=4, trials=5) == 0


def test_each_of_the_two_runs_goes_on_where_it_was_interrupted(interrupted_after, tmp_path):
    def measure(resume=True):
        listener = Listener()
        return listener, *ceilings.measure(SEARCHED, 3, tmp_path, listener, resume=resume)

    interrupted_after(4)
    with pytest.raises(KeyboardInterrupt):
        measure(resume=False)
    interrupted_after(2 + 5)
    with pytest.raises(KeyboardInterrupt):
        measure()
    assert len(list(tmp_path.iterdir())) == 2
    interrupted_after(1)
    listener, searched, measured, folder = measure()
    assert listener.said == [
        "search: 3 sizes, 2 trials each, then the fastest of each kind again: about 78 s in all",
        "measuring the fastest of each kind again: 2 winners, 3 trials each, about 66 s",
    ]
    assert sorted(path.name for path in tmp_path.iterdir())[1] == folder.name
    assert (len(searched), len(measured)) == (6, 6)
    assert {record.case.params.get("m") for record in measured} == {32, None}
    with pytest.raises(UserError, match="is complete: nothing is left to resume; run it without --resume"):
        measure()


def test_a_finished_search_without_its_measurement_is_not_repeated(interrupted_after, tmp_path):
    """An earlier measurement of the same winners belongs to an earlier search."""
    interrupted_after(12)
    _, _, first = ceilings.measure(SEARCHED, 3, tmp_path, Listener(), resume=False)
    interrupted_after(6)
    with pytest.raises(KeyboardInterrupt):
        ceilings.measure(SEARCHED, 3, tmp_path, Listener(), resume=False)
    (empty,) = (path for path in tmp_path.iterdir() if len(list(path.iterdir())) == 1)
    (empty / store.PLAN).unlink()
    empty.rmdir()
    interrupted_after(6)
    _, _, second = ceilings.measure(SEARCHED, 3, tmp_path, Listener(), resume=True)
    assert second != first
    assert len(list(tmp_path.iterdir())) == 4


def test_without_a_search_there_is_nothing_to_resume(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / store.PLAN).write_text("{")
    with pytest.raises(UserError, match=r"no unfinished search .*; run it without --resume; cannot read"):
        ceilings.measure(SEARCHED, 3, tmp_path, Listener(), resume=True)


def test_a_survey_of_many_frameworks_is_expected_to_take_as_long_as_what_it_must_measure():
    three = [Survey(name, SEARCHED.cases, required=2) for name in ("a", "b", "c")]
    assert ceilings.expected_s(three[:1], 55.0) == 55
    assert ceilings.expected_s(three, 12.0) == 6 * ceilings.REQUIRED_S
    assert ceilings.expected_s(three, -9.0, done=5) == ceilings.REQUIRED_S
    assert ceilings.expected_s(three[:1], -9.0, done=3) == 0
