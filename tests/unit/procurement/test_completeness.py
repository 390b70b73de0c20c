"""Trials that were asked for and have no record."""

import msgspec
from support.records import make_record

from benchmarker.files import atomic
from benchmarker.procurement.completeness import completeness_of
from benchmarker.records.plan import make_plan


def run(trials=3, **design):
    """A run of two cases, seed 0 and 1: its plan and all its records."""
    records = [
        make_record(trial=trial, case={"seed": number}, design={"case_number": number})
        for trial in range(trials)
        for number in range(2)
    ]
    plan = make_plan([records[0].case, records[1].case], trials, left_out=["numpy: does not nap"], **design)
    return plan, records


def place(tmp_path, plan):
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_bytes(atomic.encode(msgspec.structs.replace(plan, run_id="run")))
    return folder


def test_a_whole_run_lacks_nothing_and_tells_what_was_left_out(tmp_path):
    plan, records = run()
    found = completeness_of([place(tmp_path, plan), tmp_path], records)
    assert (found.missing, found.left_out, found.faults) == ((), ("numpy: does not nap",), ())


def test_trials_without_a_record_are_counted_by_case(tmp_path):
    plan, records = run()
    place(tmp_path, plan)
    found = completeness_of([tmp_path, tmp_path], [*records[:3], *records[:3]])  # given twice, counted once
    assert [(each.run_id, each.case.seed, each.trials) for each in found.missing] == [("run", 0, 1), ("run", 1, 2)]
    assert sum(each.trials for each in completeness_of([tmp_path], []).missing) == 6


def test_two_cases_that_are_the_same_are_counted_together(tmp_path):
    plan, _ = run()
    plan.cases[1] = plan.cases[0]
    place(tmp_path, plan)
    both = [make_record(trial=trial, design={"case_number": number}) for trial in range(3) for number in range(2)]
    assert completeness_of([tmp_path], both).missing == ()
    (lacking,) = completeness_of([tmp_path], both[:5]).missing
    assert lacking.trials == 1


def test_a_run_that_may_end_early_is_asked_for_no_more_blocks_than_it_began(tmp_path):
    plan, records = run(30, looks=[8, 11, 30])
    place(tmp_path, plan)
    assert completeness_of([tmp_path], records[:16]).missing == ()
    (lacking,) = completeness_of([tmp_path], records[:15]).missing
    assert (lacking.case.seed, lacking.trials) == (1, 1)


def test_a_record_by_itself_has_no_plan_and_a_damaged_plan_is_a_fault(tmp_path):
    plan, records = run()
    folder = place(tmp_path, plan)
    assert completeness_of([folder / "trial.json"], records[:1]).missing == ()
    (folder / "plan.json").write_text("{")
    (fault,) = completeness_of([tmp_path], records).faults
    assert fault.path == folder / "plan.json"


def test_records_are_looked_through_once_however_many_runs_there_are(tmp_path):
    class Counted(list):
        times = 0

        def __iter__(self):
            self.times += 1
            return super().__iter__()

    plan, records = run()
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        place(tmp_path / str(number), plan)
    counted = Counted(records)
    assert completeness_of([tmp_path], counted).missing == ()
    assert counted.times == 1
